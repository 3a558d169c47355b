"""What becomes of steered input: every outcome, whenever it is sent, and how the reply goes on."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.adapters.openai_responses.receipts import Receipts
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ProtocolError
from isthmus.models import Tools, as_tool
from isthmus.models.steering import SteeringReceipt
from support.live_kit import KEY, USER, Talk, live_client, on, output, steered

FOCUS = {"role": "user", "content": "Focus"}


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return str(x)


class Steerer:
    """Steers a run and keeps the receipts."""

    def __init__(self, run: Any, *inputs: Any) -> None:
        self.run, self.inputs = run, inputs or ("Focus",)
        self.receipts: list[SteeringReceipt] = []

    async def __call__(self) -> None:
        """Send all inputs at once."""
        self.receipts += await asyncio.gather(*(self.run.steer(each) for each in self.inputs))

    @property
    def statuses(self) -> list[str]:
        """How each stands."""
        return [receipt.status for receipt in self.receipts]


def told(talk: Talk) -> list[tuple[str, list[str]]]:
    """The events that told of receipts, and how these stood."""
    return [
        (event.provider_event_type or event.kind, [each.status for each in event.steering])
        for event in talk.events
        if event.steering
    ]


async def test_an_applied_input_goes_through_every_step() -> None:
    """Submitted, accepted, applied by the successor; events hold copies as it stood then; history has it once."""
    async with live_server(steered) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        seen: list[str] = []

        async def act(event: Any) -> None:
            await at(event)
            seen.append(steer.statuses[0] if steer.receipts else "")

        at = on("response.output_text.delta", steer)
        first = await talk.turn(act)
        assert first.continuation == "automatic"
        assert first.input_messages == [FOCUS]
        assert first.response.choices[0].message.content == "Batteries store"
        assert (await talk.turn()).continuation is None
    (receipt,) = steer.receipts
    assert receipt == SteeringReceipt("Focus", "r1", "applied", "st1", "r2")
    assert list(dict.fromkeys(seen)) == ["", "submitted", "accepted", "applied"]
    assert told(talk) == [("response.steer.accepted", ["accepted"]), ("response.incomplete", ["applied"])]
    assert talk.history.count(FOCUS) == 1
    assert talk.history[2] == FOCUS
    assert talk.text == "Batteries storeAt home"
    assert len(server.peers[0].heard_all) == 2


async def test_a_failed_input_keeps_the_providers_error() -> None:
    """It never enters the history, and the reply ends as it would have."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.refuse("steering_not_supported", "Focus")
        await peer.text("Hello")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        assert (await talk.turn(on("response.created", steer))).continuation is None
    assert steer.statuses == ["failed"]
    assert steer.receipts[0].error["code"] == "steering_not_supported"
    assert told(talk) == [("response.steer.failed", ["failed"])]
    assert FOCUS not in talk.history


async def test_an_input_may_fail_after_it_was_accepted() -> None:
    """By its id; a reply that was cut for it and has no successor is no answer."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.text("Hel")
        await peer.end("steered")
        await peer.refuse("successor_creation_failed", "Focus", steer_id="st1")
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        with pytest.raises(ResponseError, match="steered") as caught:
            await talk.turn(on("response.created", steer))
    assert steer.statuses == ["failed"]
    assert caught.value.partial.text == "Hel"
    assert caught.value.usage.output_tokens == 6


@pytest.mark.parametrize("accepted", [False, True])
async def test_an_input_whose_outcome_nobody_says_is_unknown(accepted: bool) -> None:
    """The connection is lost while the end of the reply is held back; the error's event has the copies."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        if accepted:
            await peer.accept("st1")
        await peer.text("Hello")
        await peer.end()
        peer.drop()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        with pytest.raises(ResponseError) as caught:
            await talk.turn(on("response.created", steer))
    assert steer.statuses == ["unknown"]
    assert told(talk)[-1] == ("error", ["unknown"])
    assert caught.value.partial.text == "Hello"
    assert caught.value.usage.output_tokens == 6


async def test_an_input_is_unknown_where_the_run_ends_first() -> None:
    """The application leaves the block in the middle of a reply."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model:
        async with model.open_run() as run:
            stream = run.stream_response([USER])
            await anext(stream)
            receipt = await run.steer("Focus")
            assert receipt.status == "submitted"
        assert receipt.status == "unknown"
        await stream.aclose()


async def test_steering_while_a_call_is_written() -> None:
    """The outputs are sent once, the queued input is the provider's to put in front; history has it there."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.call("look", '{"x": 1}', call_id="c1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end()
        await peer.await_outputs("st1", ("look", "c1"))
        request = await peer.hear()
        assert request["input"] == [{"type": "function_call_output", "call_id": "c1", "output": "1"}]
        assert request["previous_response_id"] == "r1"
        assert request["max_output_tokens"] == 50
        await peer.begin("r2", "r1")
        await peer.text("One")
        await peer.end()
        request = await peer.hear()
        assert (request["input"], request["previous_response_id"]) == ([USER], "r2")
        await peer.begin("r3", "r2")
        await peer.end()

    async with (
        live_server(play) as server,
        live_client(server, max_output_tokens=50) as model,
        model.open_run() as run,
    ):
        talk, steer = Talk(run, tools=Tools([look])), Steerer(run)
        first = await talk.turn(on("response.function_call_arguments.delta", steer))
        assert (first.continuation, first.required_tool_call_ids) == ("explicit", ("c1",))
        assert (first.input_messages, steer.statuses) == (None, ["accepted"])
        talk.add(output("c1", "1"))
        second = await talk.turn()
        assert second.continuation is None
        talk.add(USER)
        await talk.turn()
    assert steer.receipts[0].response_id == "r2"
    roles = ["user", "assistant", "user", "tool", "assistant", "user", "assistant"]
    assert [message["role"] for message in talk.history] == roles
    assert talk.history[2] == FOCUS
    assert ("response.created", ["applied"]) in told(talk)


async def test_steering_before_the_response_is_created_is_refused() -> None:
    """There is nothing to steer yet, and nothing is sent."""
    created = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.hear()
        await created.wait()
        await peer.begin("r1")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        turn = asyncio.ensure_future(Talk(run).turn())
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="There is no active native response to steer"):
            await run.steer("Focus")
        created.set()
        await turn
        assert len(server.peers[0].heard_all) == 1


async def test_steering_after_the_end_is_refused() -> None:
    """By the client where it has seen the end, else by the provider; both leave the reply whole."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Hello")
        await peer.end()
        await peer.hear("response.steer")
        await peer.refuse("response_already_completed", "Focus")

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        assert (await talk.turn(on("response.output_text.done", steer))).continuation is None
        assert steer.statuses == ["failed"]
        with pytest.raises(RuntimeError, match="no active native response"):
            await run.steer("More")
    assert talk.text == "Hello"


async def test_two_inputs_at_once_are_applied_in_their_order() -> None:
    """Each has its receipt, and one successor has both."""
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And cost"}]}]

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        sent = [(await peer.hear("response.steer"))["input"] for _ in range(2)]
        assert sent == ["Focus", items]
        await peer.accept("st1")
        await peer.accept("st2")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        await peer.end()
        request = await peer.hear()
        assert (request["input"], request["previous_response_id"]) == ([USER], "r2")
        await peer.begin("r3", "r2")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        given = copy.deepcopy(items)
        talk, steer = Talk(run), Steerer(run, "Focus", given)
        first = await talk.turn(on("response.created", steer))
        given[0]["role"] = "changed afterwards"
        await talk.turn()
        talk.add(USER)
        await talk.turn()
    assert first.input_messages == [FOCUS, {"role": "user", "openai_responses_input": items}]
    assert [(receipt.id, receipt.status) for receipt in steer.receipts] == [("st1", "applied"), ("st2", "applied")]
    assert first.steering is not None
    first.steering[1].input.clear()  # type: ignore[union-attr]
    assert steer.receipts[1].input == items


async def test_of_two_inputs_one_may_fail() -> None:
    """The answer says which one, whatever the order of the answers."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.hear("response.steer")
        await peer.refuse("too_many_pending_steers", "Second")
        await peer.accept("st1")
        await peer.end()
        await peer.begin("r2", "r1")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run, "First", "Second")
        await talk.turn(on("response.created", steer))
        await talk.turn()
    assert steer.statuses == ["applied", "failed"]
    assert [message.get("content") for message in talk.history if message["role"] == "user"] == ["Hi", "First"]


async def test_a_successor_can_be_steered_before_anybody_reads_it() -> None:
    """Its creation is known by then; several successors follow one another."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        for number in (1, 2):
            into = await peer.hear("response.steer")
            assert into["previous_response_id"] == f"r{number}"
            await peer.accept(f"st{number}")
            await peer.end("steered" if number == 1 else None)
            await peer.begin(f"r{number + 1}", f"r{number}")
        await peer.text("Done")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        await talk.turn(on("response.created", steer))
        await steer()
        assert (await talk.turn()).continuation == "automatic"
        assert (await talk.turn()).continuation is None
    assert [receipt.response_id for receipt in steer.receipts] == ["r2", "r3"]
    assert talk.history.count(FOCUS) == 2


async def test_an_input_that_came_too_late_for_the_successor_is_not_in_it() -> None:
    """One is applied by the successor; the other, sent at the same time, is refused while that one runs."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        await peer.refuse("response_not_active", "Late", into="r1")
        await peer.text("Done")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run, "Focus", "Late")
        first = await talk.turn(on("response.created", steer))
        assert (first.input_messages, steer.statuses) == ([FOCUS], ["applied", "submitted"])
        assert (await talk.turn()).continuation is None
    assert steer.statuses == ["applied", "failed"]


@pytest.mark.parametrize("after", [None, "r0", "r2"])
async def test_a_wrong_successor_fails_the_reply(after: str | None) -> None:
    """One that goes on from something else, or from nothing: its input would be lost or applied twice."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r2", after)
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, steer = Talk(run), Steerer(run)
        with pytest.raises(ResponseError, match="r2"):
            await talk.turn(on("response.created", steer))
    assert steer.statuses == ["unknown"]
    assert FOCUS not in talk.history


async def test_a_successor_without_accepted_input_fails_the_reply() -> None:
    """Nobody asked for it."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.end()
        await peer.begin("r2", "r1")
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        steer = Steerer(run)
        with pytest.raises(ResponseError, match="accepted"):
            await Talk(run).turn(on("response.created", steer))
    assert steer.statuses == ["unknown"]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_send_whose_outcome_is_uncertain_ends_the_run(how: str) -> None:
    """The connection is closed, the receipt unknown, and what still comes is ignored."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Hel")
        await sending.wait()
        await peer.text("lo")
        await peer.end()

    async def send(steering: Any, response_id: str) -> None:
        sending.set()
        await asyncio.sleep(0.05)
        if how == "fails":
            raise ConnectionResetError(f"lost {KEY}")
        await asyncio.sleep(10)

    sending = asyncio.Event()
    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        # Only the moment of a send that goes wrong is made up; all else is real.
        run._live._socket.steer = send
        talk = Talk(run)
        raised: list[BaseException] = []

        async def steer() -> None:
            try:
                async with asyncio.timeout(0.1):
                    await run.steer("Focus")
            except (ConnectionResetError, TimeoutError) as error:
                raised.append(error)

        with pytest.raises(ResponseError, match="may or may not"):
            await talk.turn(on("response.output_text.done", steer))
        assert type(raised[0]) is (ConnectionResetError if how == "fails" else TimeoutError)
        assert told(talk) == [("error", ["unknown"])]
        assert talk.text == "Hel"
        with pytest.raises(RuntimeError, match="no active"):
            await run.steer("More")
        await asyncio.sleep(0.05)
        assert server.open == 0


@pytest.mark.parametrize("wrong", ["", [], None, 3, {"role": "user"}, [1j], [{"role": 1j}]], ids=repr)
async def test_an_input_that_is_none_is_refused(wrong: Any) -> None:
    """Before anything is sent."""
    async with live_server(Peer.gone) as server, live_client(server) as model, model.open_run() as run:
        with pytest.raises(ValueError, match=r"steer|JSON"):
            await run.steer(wrong)


async def test_tokens_are_counted_once_a_response() -> None:
    """The limiter hears of each response at its end, steered ones and their successors alike."""

    class Counter:
        def __init__(self) -> None:
            self.spent: list[int] = []
            self.inside = 0

        async def __aenter__(self) -> Any:
            self.inside += 1
            return self

        async def __aexit__(self, *_: object) -> None:
            self.inside -= 1

        def record_usage(self, tokens: int) -> None:
            self.spent.append(tokens)

        async def acquire(self) -> None:
            return None

    counter = Counter()
    async with (
        live_server(steered) as server,
        live_client(server, rate_limiter=counter) as model,
        model.open_run() as run,
    ):
        talk = Talk(run)
        await talk.turn(on("response.output_text.delta", Steerer(run)))
        await talk.turn()
    assert (counter.spent, counter.inside) == ([16, 16], 0)
    totals = [event.response.usage.total_tokens for event in talk.events if event.response]
    assert totals == [16, 16]


def test_an_answer_about_nothing_that_was_sent_is_a_fault() -> None:
    """Neither guessed at nor passed over."""
    receipts = Receipts()
    receipts.submit("Focus", "r1")
    for about in ({"id": "st1", "previous_response_id": "r2"}, None, "st1"):
        with pytest.raises(ProtocolError):
            receipts.take("response.steer.accepted", {"steer": about})
    assert receipts.take("response.steer.later", {"steer": {}}) == []


def test_waiting_for_what_nobody_here_gives_is_a_fault() -> None:
    """An approval, or the output of a custom tool."""
    receipts = Receipts()
    receipts.submit("Focus", "r1")
    about = {"id": "st1", "previous_response_id": "r1"}
    receipts.take("response.steer.accepted", {"steer": about})
    stub = {"type": "mcp_approval_response", "approval_request_id": "a1"}
    event = {"steer": about, "reason": "waiting_for_required_input", "required_input": [stub]}
    with pytest.raises(ProtocolError, match="mcp_approval_response"):
        receipts.take("response.steer.pending", event)


def test_a_reason_to_wait_that_is_not_known_waits_on() -> None:
    """The provider may add reasons: the input is still queued."""
    receipts = Receipts()
    receipt = receipts.submit("Focus", "r1")
    about = {"id": "st1", "previous_response_id": "r1"}
    receipts.take("response.steer.accepted", {"steer": about})
    assert receipts.take("response.steer.accepted", {"steer": about}) == []
    receipts.take("response.steer.pending", {"steer": about, "reason": "later", "required_input": []})
    assert (receipts.open, receipts.waiting, receipt.status) == (True, False, "accepted")


def test_an_answer_that_is_told_again_changes_nothing() -> None:
    """Of an input whose outcome is known by its id; one that contradicts it is a fault."""
    receipts = Receipts()
    for given in ("st1", "st2"):
        receipts.submit(given, "r1")
    one, two = ({"steer": {"id": given, "previous_response_id": "r1"}, "error": {}} for given in ("st1", "st2"))
    receipts.take("response.steer.accepted", one)
    receipts.take("response.steer.failed", two)
    receipts.apply("r2")
    assert receipts.take("response.steer.accepted", one) == []
    assert receipts.take("response.steer.failed", two) == []
    for kind, event in (("failed", one), ("accepted", two)):
        with pytest.raises(ProtocolError, match="nobody sent"):
            receipts.take(f"response.steer.{kind}", event)
