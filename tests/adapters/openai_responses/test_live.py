"""Runs over a WebSocket: one connection each, what is sent on it, and how it ends; the official SDK is the client."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ConfigError, ErrorClass, InvalidRequestError, TierError, TransientError
from isthmus.models import Tools, as_tool
from isthmus.models.fold import classify
from support.live_kit import KEY, USER, Talk, live_client, on, output, steered
from support.loopback import LoopbackServer, whole

OWNED = ["conversation", "context_management", "background", "stream", "stream_id", "previous_response_id"]


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return str(x)


async def hello(peer: Peer) -> None:
    """Answer each request with a word, for as long as the client asks."""
    before = None
    for number in range(1, 10):
        try:
            request = await peer.hear()
        except EOFError:
            return
        assert request.get("previous_response_id") in (None, before)
        await peer.begin(f"r{number}", request.get("previous_response_id"))
        await peer.text(f"Hello {number}")
        await peer.end()
        before = f"r{number}"


async def test_a_run_has_one_connection_and_closes_it() -> None:
    """However many turns; with the key, and with the client's own headers."""
    async with live_server(hello) as server:
        async with live_client(server, extra_headers={"x-team": "t"}) as model, model.open_run() as run:
            talk = Talk(run)
            for _ in range(3):
                await talk.turn()
                talk.add(USER)
            assert (len(server.peers), server.open) == (1, 1)
        await asyncio.sleep(0.05)
        assert server.open == 0
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-team"] == "t"
    assert talk.text == "Hello 1Hello 2Hello 3"


@pytest.mark.parametrize("how", ["error", "cancel", "break"])
async def test_the_connection_is_closed_on_every_path(how: str) -> None:
    """An error in the block, a cancelled task, a reply that nobody reads to its end."""

    async def endless(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.gone()

    async def work(server: Any) -> None:
        async with live_client(server) as model, model.open_run() as run:
            stream = run.stream_response([USER])
            await anext(stream)
            if how == "error":
                raise KeyError("mine")
            if how == "break":
                await stream.aclose()
                with pytest.raises(TransientError, match="not made anew"):
                    await Talk(run).turn()
                return
            await anext(stream)

    async with live_server(endless) as server:
        task = asyncio.ensure_future(work(server))
        await asyncio.sleep(0.1)
        task.cancel() if how == "cancel" else None
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, {"error": KeyError, "cancel": asyncio.CancelledError, "break": type(None)}[how])
        await asyncio.sleep(0.05)
        assert server.open == 0


async def test_runs_at_the_same_time_share_nothing() -> None:
    """Each has its connection, its history and its receipts."""
    async with live_server(steered, steered) as server, live_client(server) as model:

        async def one(word: str) -> tuple[Any, Any]:
            async with model.open_run() as run:
                assert run is not model
                receipts = []

                async def steer() -> None:
                    receipts.append(await run.steer(word))

                talk = Talk(run)
                await talk.turn(on("response.output_text.delta", steer))
                await talk.turn()
                return talk.history, receipts[0]

        (first, one_receipt), (second, other_receipt) = await asyncio.gather(one("short"), one("long"))
    assert len(server.peers) == 2
    assert ({"role": "user", "content": "short"} in first) is ({"role": "user", "content": "long"} in second) is True
    assert (one_receipt.status, other_receipt.status) == ("applied", "applied")
    heard = sorted(peer.heard_all[1]["input"] for peer in server.peers)
    assert heard == ["long", "short"]


async def test_outside_of_a_run_nothing_works() -> None:
    """Replies are streamed, and inside `open_run()`; a run that is over stays over."""
    async with live_server(hello) as server, live_client(server) as model:
        with pytest.raises(ValueError, match="stream_response"):
            await model.get_response([USER])
        with pytest.raises(RuntimeError, match="open_run"):
            await Talk(model).turn()
        with pytest.raises(RuntimeError, match="open_run"):
            await model.steer("Focus")
        async with model.open_run() as run, run.open_run() as same:
            assert same is run
            with pytest.raises(ValueError, match="stream_response"):
                await run.get_response([USER])
        with pytest.raises(RuntimeError, match="is over"):
            await Talk(run).turn()
        with pytest.raises(RuntimeError, match="no active native response"):
            await run.steer("Focus")
    assert model.requires_streaming


@pytest.mark.parametrize("name", OWNED)
async def test_options_that_a_run_owns_are_refused(name: str) -> None:
    """Of the client, of a call, and in its extra body; the error names them and nothing is sent."""
    with pytest.raises(ConfigError, match=name):
        live_client("http://127.0.0.1:1/v1", **{name: "x"})
    async with live_server(hello) as server, live_client(server) as model, model.open_run() as run:
        for options in ({name: "x"}, {"extra_body": {name: "x"}}):
            with pytest.raises(ValueError, match=name):
                await Talk(run).turn(**options)
        await Talk(run).turn()
        assert len(server.peers[0].heard_all) == 1


@pytest.mark.parametrize("name", ["extra_headers", "extra_query", "timeout"])
async def test_what_belongs_to_the_connection_is_no_option_of_a_call(name: str) -> None:
    """It is refused rather than left out; the extra body of a call is sent."""
    async with live_server(hello) as server, live_client(server) as model, model.open_run() as run:
        with pytest.raises(ValueError, match=name):
            await Talk(run).turn(**{name: {"a": "b"}})
        await Talk(run).turn(extra_body={"user": "u"})
        assert server.peers[0].heard_all[0]["user"] == "u"


async def test_later_turns_send_only_what_is_new() -> None:
    """With the response that they go on from, settings and all; after a replaced history everything, without it."""
    async with live_server(hello) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run, {"role": "system", "content": "Be brief."}, USER, tools=Tools([look]))
        await talk.turn()
        talk.add({"role": "user", "content": "And?"})
        await talk.turn(max_output_tokens=50)
        talk.history = [{"role": "user", "content": "Anew"}]
        await talk.turn()
        talk.add(USER)
        await talk.turn()
        first, second, third, fourth = server.peers[0].heard_all
    assert "previous_response_id" not in first
    assert [item["role"] for item in first["input"]] == ["developer", "user"]
    assert second["input"] == [{"role": "user", "content": "And?"}]
    assert (second["previous_response_id"], second["max_output_tokens"]) == ("r1", 50)
    assert second["tools"] == first["tools"] != []
    assert third["input"] == [{"role": "user", "content": "Anew"}]
    assert "previous_response_id" not in third
    assert (fourth["input"], fourth["previous_response_id"]) == ([USER], "r3")


async def test_a_turn_of_tools_sends_their_results_once() -> None:
    """The call is the provider's already: only its output goes."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.call("look", '{"x": 1}', call_id="c1")
        await peer.end()
        request = await peer.hear()
        assert request["input"] == [{"type": "function_call_output", "call_id": "c1", "output": "1"}]
        await peer.begin("r2", "r1")
        await peer.text("One")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run, tools=Tools([look]))
        assert (await talk.turn()).response.choices[0].finish_reason == "tool_calls"
        talk.add(output("c1", "1"))
        await talk.turn()
    assert talk.text == "One"


async def test_a_history_cannot_be_replaced_while_a_successor_runs() -> None:
    """Neither changed nor longer; the refusal sends nothing and ends nothing."""
    async with live_server(steered) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run)
        await talk.turn(on("response.output_text.delta", lambda: run.steer("Focus")))
        kept = list(talk.history)
        for wrong in ([USER], [*kept, USER], kept[:-1]):
            talk.history = wrong
            with pytest.raises(ValueError, match="goes on by itself"):
                await talk.turn()
        talk.history = kept
        assert (await talk.turn()).kind == "completed"
        assert len(server.peers[0].heard_all) == 2


async def test_a_history_cannot_be_replaced_while_accepted_input_waits() -> None:
    """The outputs that it waits for must come, on the history as it was."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.call("look", '{"x": 1}', call_id="c1")
        await peer.end()
        await peer.await_outputs("st1", ("look", "c1"))
        await peer.hear()
        await peer.begin("r2", "r1")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run, tools=Tools([look]))
        await talk.turn(on("response.created", lambda: run.steer("Focus")))
        kept = list(talk.history)
        talk.history = [USER]
        with pytest.raises(ValueError, match="replaced"):
            await talk.turn()
        talk.history = [*kept, USER]
        with pytest.raises(ValueError, match="c1"):
            await talk.turn()
        talk.history = [*kept, output("c1")]
        await talk.turn()
    assert talk.history[-3:-1] == [{"role": "user", "content": "Focus"}, output("c1")]


async def test_two_replies_of_one_run_are_not_read_at_once() -> None:
    """The second one is refused and the first goes on."""
    async with (
        live_server(hello) as server,
        live_client(server) as model,
        model.open_run() as run,
        aclosing(run.stream_response([USER])) as first,
    ):
        await anext(first)
        with pytest.raises(RuntimeError, match="one at a time"):
            await Talk(run).turn()
        assert [event.kind async for event in first][-1] == "completed"


async def test_a_request_that_is_refused_leaves_the_run_usable() -> None:
    """Nothing came of it, so the next request says everything again."""

    async def play(peer: Peer) -> None:
        await hello_once(peer, "r1")
        await peer.hear()
        wrong = {"code": "invalid_prompt", "message": "no", "param": None, "type": "invalid_request_error"}
        await peer.say("error", status=400, error=wrong)
        await hello_once(peer, "r2")

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run)
        await talk.turn()
        talk.add(USER)
        with pytest.raises(ResponseError, match="no") as caught:
            await talk.turn()
        assert caught.value.error_class is ErrorClass.INVALID
        await talk.turn()
        _, second, third = server.peers[0].heard_all
    assert second["previous_response_id"] == "r1"
    assert "previous_response_id" not in third
    assert len(third["input"]) == 3


async def hello_once(peer: Peer, response_id: str) -> None:
    """Answer one request."""
    await peer.hear()
    await peer.begin(response_id)
    await peer.text("Hello")
    await peer.end()


async def test_a_failed_response_ends_the_run() -> None:
    """`ResponseError` with the native response, what had arrived, and the tokens spent; then nothing more is sent."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Hel")
        peer.response |= {"status": "failed", "error": {"code": "server_error", "message": f"no {KEY}"}}
        await peer.say("response.failed", response=peer.response)
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run)
        with pytest.raises(ResponseError) as caught:
            await talk.turn()
        assert caught.value.error_class is ErrorClass.TRANSIENT
        assert caught.value.response["id"] == "r1"
        assert caught.value.partial.text == "Hel"
        assert KEY not in str(caught.value) + repr(caught.value.response)
        assert talk.events[-1].kind == "error"
        with pytest.raises(TransientError):
            await talk.turn()
    assert len(server.peers) == 1


async def run_steered(server: Any) -> tuple[Talk, list[Any], BaseException | None]:
    """A run that is steered at its first word: its history, its receipts and its failure."""
    receipts: list[Any] = []
    async with live_client(server) as model, model.open_run() as run:

        async def steer() -> None:
            receipts.append(await run.steer("Focus"))

        talk = Talk(run)
        at = on("response.output_text.delta", steer)
        try:
            while (await talk.turn(at)).continuation is not None:
                pass
        except Exception as error:
            return talk, receipts, error
    return talk, receipts, None


async def test_a_connection_lost_at_any_event_ends_the_run() -> None:
    """A failure that passes, never a shorter success; no connection is made anew, no receipt stays open."""
    whole_run: list[int] = []

    async def counted(peer: Peer) -> None:
        await steered(peer)
        whole_run.append(peer.said)

    async with live_server(counted) as server:
        _, _, failure = await run_steered(server)
        assert failure is None
    for last in range(whole_run[0]):

        async def cut(peer: Peer, last: int = last) -> None:
            peer.drop_after(last)
            try:
                await steered(peer)
            except EOFError:
                return

        async with live_server(cut) as server:
            talk, receipts, failure = await run_steered(server)
            assert len(server.peers) == 1
        assert failure is not None, f"after {last} events"
        assert classify(failure).error_class is ErrorClass.TRANSIENT  # type: ignore[arg-type]
        assert all(receipt.status in ("applied", "unknown") for receipt in receipts)
        applied = any(receipt.status == "applied" for receipt in receipts)
        assert talk.history.count({"role": "user", "content": "Focus"}) == applied
        assert KEY not in str(failure)
        lost = [receipt for event in talk.events if event.kind == "error" for receipt in event.steering or ()]
        assert bool(lost) == any(receipt.status == "unknown" for receipt in receipts)


async def test_a_connection_that_cannot_be_made_says_why() -> None:
    """The SDK's own error, its class as `classified`; one that may pass is tried again, as often as configured."""
    async with LoopbackServer([[whole(b'{"error": {"message": "bad key sk-canary-0123456789"}}', 401)]]) as refusing:
        model = live_client(f"{refusing.url}/v1", max_retries=3)
        with pytest.raises(Exception, match="401") as caught:
            async with model.open_run():
                pass
        await model.aclose()
        assert classify(caught.value).error_class is ErrorClass.CREDENTIALS
        assert KEY not in str(classify(caught.value)) + str(caught.value)
        assert len(refusing.requests) == 1
    async with LoopbackServer([[whole(b"{}", 503, retry_after="0")]]) as busy:
        model = live_client(f"{busy.url}/v1", max_retries=2)
        with pytest.raises(Exception, match="503") as caught:
            async with model.open_run():
                pass
        await model.aclose()
        assert classify(caught.value).error_class is ErrorClass.UNAVAILABLE
        assert len(busy.requests) == 2
    model = live_client("http://127.0.0.1:9/v1")
    with pytest.raises(ConnectionRefusedError) as refused:
        async with model.open_run():
            pass
    assert classify(refused.value).error_class is ErrorClass.UNAVAILABLE


async def test_a_silent_provider_is_given_up() -> None:
    """After the configured seconds without a message."""

    async def silent(peer: Peer) -> None:
        await peer.hear()
        await peer.gone()

    async with live_server(silent) as server, live_client(server, timeout=0.2) as model, model.open_run() as run:
        with pytest.raises(ResponseError, match=r"no message for 0\.2 s") as caught:
            await Talk(run).turn()
        assert caught.value.error_class is ErrorClass.TRANSIENT


async def test_a_reply_that_is_too_large_is_given_up() -> None:
    """The most bytes of a reply hold for its messages together."""

    async def flood(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text(*["x" * 1000] * 20)
        await peer.gone()

    async with live_server(flood) as server, live_client(server) as model:
        model.max_reply_bytes = 10_000
        async with model.open_run() as run:
            with pytest.raises(TierError, match="10000"):
                await Talk(run).turn()


@pytest.mark.parametrize("text", ["{", "[]", '{"no": "type"}', "null"], ids=repr)
async def test_a_message_that_is_no_event_fails_the_reply(text: str) -> None:
    """Malformed JSON, no object, no type: an error, not a silent gap."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.write(text)
        await peer.text("Hello")
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        with pytest.raises(ResponseError) as caught:
            await Talk(run).turn()
        assert caught.value.error_class is ErrorClass.PROTOCOL


async def test_a_response_inside_a_response_fails_the_reply() -> None:
    """Two replies are never glued together."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.begin("r2", "r1")
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        with pytest.raises(ResponseError, match="r2"):
            await Talk(run).turn()


def test_an_input_that_cannot_be_replaced_is_a_value_error() -> None:
    """Callers catch the built-in type that the documents name."""
    assert issubclass(InvalidRequestError, ValueError)
