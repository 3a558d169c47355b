"""Runs of agents whose replies are steered, through both streams; the official SDK against a scripted server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest

from isthmus.adapters.openai_responses.sdk import Socket
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import TierError
from isthmus.harness import AgentDescriptor, DefaultAgent, Limits, RunEvent
from isthmus.models import Tools, as_tool
from support.live_kit import live_client, steered
from support.live_runs import WAYS, Told, at, live_agent, read
from support.turns import Turns, says

DELTA = "response.output_text.delta"
ITEMS = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Focus"}]}]

both = pytest.mark.parametrize("way", WAYS)


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return f"It is {x}."


@both
@pytest.mark.parametrize("steering", ["Focus", ITEMS], ids=["text", "items"])
async def test_an_input_is_submitted_accepted_and_applied(way: str, steering: Any) -> None:
    """The receipt lives, events hold copies; the input stands once, between the two replies; tokens count once each."""
    async with live_server(steered) as server:
        seen: list[str] = []

        async def act(event: Any, stream: Any, told: Told) -> None:
            await steer(event, stream, told)
            seen.extend(receipt.status for receipt in told.receipts if receipt.status not in seen)

        steer = at(DELTA, steering)
        told = await read(live_agent(server), act, way=way)
        assert server.peers[0].heard_all[1]["input"] == steering
    (receipt,) = told.receipts
    assert seen == ["submitted", "accepted", "applied"]
    assert (receipt.status, receipt.response_id, receipt.previous_response_id) == ("applied", "r2", "r1")
    assert told.statuses == ["accepted", "applied"]
    assert told.history == [
        ("user", "Hi"),
        ("assistant", "Batteries store"),
        ("user", steering),
        ("assistant", "At home"),
    ]
    assert told.text == "Batteries storeAt home"
    assert told.result is not None
    assert (told.result.final_output, told.result.turn_count) == ("At home", 2)
    assert (told.result.usage.output_tokens, len(told.result.responses)) == (12, 2)
    completed = [event for event in told.events if event.kind == "completed"]
    assert [event.continuation for event in completed] == ["automatic", None]
    assert (len(server.peers), server.open) == (1, 0)


@both
async def test_an_input_fails_with_the_providers_error(way: str) -> None:
    """It never enters the history, and the run goes on."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Batteries")
        await peer.hear("response.steer")
        await peer.refuse("invalid_input", "Focus")
        await peer.end()

    async with live_server(play) as server:
        told = await read(live_agent(server), at(DELTA, "Focus"), way=way)
    (receipt,) = told.receipts
    assert (receipt.status, receipt.error["code"]) == ("failed", "invalid_input")
    assert told.statuses == ["failed"]
    assert told.history == [("user", "Hi"), ("assistant", "Batteries")]


@both
@pytest.mark.parametrize("accepted", [False, True])
async def test_an_input_is_unknown_where_the_run_ends_first(way: str, accepted: bool) -> None:
    """The connection is lost: the run ends, nothing is sent again, and the input is no part of the history."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        if accepted:
            await peer.accept("st1")
        peer.drop()

    async with live_server(play) as server:
        told = await read(live_agent(server), at("response.created", "Focus"), way=way)
    assert isinstance(told.error, TierError)
    assert told.receipts[0].status == "unknown"
    assert told.statuses == ["accepted", "unknown"][not accepted :]
    assert len(server.peers) == 1


@both
async def test_inputs_at_once_are_applied_in_their_order(way: str) -> None:
    """Each has its receipt; both stand in the history once, as they were sent."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Batteries")
        for _ in range(2):
            await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.accept("st2")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        await peer.text("At home")
        await peer.end()

    async def act(event: Any, stream: Any, told: Told) -> None:
        if event.provider_event_type == DELTA and not told.receipts:
            told.receipts += await asyncio.gather(stream.steer("one"), stream.steer("two"))

    async with live_server(play) as server:
        told = await read(live_agent(server), act, way=way)
    assert [receipt.status for receipt in told.receipts] == ["applied", "applied"]
    assert told.history[1:] == [("assistant", "Batteries"), ("user", "one"), ("user", "two"), ("assistant", "At home")]


@both
async def test_an_input_that_waits_for_tools_stands_before_their_results(way: str) -> None:
    """The tools run once, their results go with the one request, and later runs of the agent have all of it."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.call("look", '{"x": 1}', call_id="c1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end()
        await peer.await_outputs("st1", ("look", "c1"))
        request = await peer.hear()
        assert [item["call_id"] for item in request["input"]] == ["c1"]
        assert (request["previous_response_id"], len(request["tools"])) == ("r1", 1)
        await peer.begin("r2", "r1")
        await peer.text("One")
        await peer.end()

    async with live_server(play) as server:
        agent = live_agent(server, tools=Tools([look]))
        told = await read(agent, at("response.output_item.added", "Focus"), way=way)
    assert told.history == [
        ("user", "Hi"),
        ("assistant", (None, "look")),
        ("user", "Focus"),
        ("tool", "It is 1."),
        ("assistant", "One"),
    ]
    assert told.receipts[0].response_id == "r2"
    assert [event.continuation for event in told.events if event.kind == "completed"] == ["explicit", None]


async def test_a_run_is_not_steered_before_and_after_a_reply() -> None:
    """Not before it is read, not while a tool runs between two replies, not once it is over; nothing is sent."""
    refused: list[str] = []

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.call("look", '{"x": 1}', call_id="c1")
        await peer.end()
        await peer.hear()
        await peer.begin("r2", "r1")
        await peer.end()

    async def busy(x: int) -> str:
        """Steer."""
        with pytest.raises(RuntimeError) as caught:
            await stream.steer("Focus")
        refused.append(str(caught.value))
        return "seen"

    async with live_server(play) as server:
        agent = live_agent(server, tools=Tools([as_tool(name="look")(busy)]))
        async with agent:
            stream = agent.run_stream("Hi")
            for _ in range(2):
                with pytest.raises(RuntimeError, match=r"This run has no active steering channel\."):
                    await stream.steer("Focus")
                await stream.result()
        assert [message["type"] for message in server.peers[0].heard_all] == ["response.create"] * 2
    assert refused == ["There is no active native response to steer."]


async def test_a_model_that_cannot_be_steered_has_no_channel() -> None:
    """The error is the same, at any time."""
    stream = DefaultAgent(model=Turns(says("Hello"))).run_stream("Hi")
    async for _ in stream:
        with pytest.raises(RuntimeError, match=r"This run has no active steering channel\."):
            await stream.steer("Focus")


@both
@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_send_whose_outcome_is_uncertain_ends_the_run(way: str, how: str, monkeypatch: Any) -> None:
    """The connection is closed, the receipt unknown, and what still comes is ignored."""
    raised: list[BaseException] = []

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Batteries")
        await sending.wait()
        await peer.text(" store")
        await peer.gone()

    async def send(self: Any, steering: Any, response_id: str) -> None:
        sending.set()
        await asyncio.sleep(0.02)
        if how == "fails":
            raise ConnectionResetError("lost")
        await asyncio.Event().wait()

    async def act(event: Any, stream: Any, told: Told) -> None:
        if event.provider_event_type == DELTA:
            task = asyncio.ensure_future(stream.steer("Focus"))
            await asyncio.sleep(0.1)
            task.cancel()
            raised.extend(await asyncio.gather(task, return_exceptions=True))

    sending = asyncio.Event()
    # Only the moment of a send that goes wrong is made up; all else is real.
    monkeypatch.setattr(Socket, "steer", send)
    async with live_server(play) as server:
        told = await read(live_agent(server), act, way=way)
    assert [type(error) for error in raised] == [ConnectionResetError if how == "fails" else asyncio.CancelledError]
    assert told.result is not None
    assert (told.result.outcome.outcome, told.result.outcome.reason) == ("cut", "stream-error")
    assert told.history == [("user", "Hi"), ("assistant", "Batteries")]
    assert told.statuses == ["unknown"]


async def test_a_cut_by_the_budget_leaves_a_successor_unread() -> None:
    """The run ends as its limits say; the input that was applied stands in the history."""
    async with live_server(steered) as server:
        told = await read(live_agent(server, limits=Limits(max_steps=1)), at(DELTA, "Focus"))
    assert told.result is not None
    assert told.result.outcome.reason == "budget-steps"
    assert told.history == [("user", "Hi"), ("assistant", "Batteries store"), ("user", "Focus")]
    assert told.receipts[0].status == "applied"
    assert server.open == 0


@both
async def test_a_run_that_is_stopped_anywhere_has_what_was_applied(way: str) -> None:
    """Whichever event is the last one read: what events said was applied stands in the transcript once, else not."""

    async def play(peer: Peer) -> None:
        with suppress(EOFError):
            await steered(peer)

    ended, last = False, 0
    async with live_server(play) as server, live_client(server) as model:
        made = AgentDescriptor(name="a", model=model)
        while not ended:
            told, steer, last = Told(), at(DELTA, "Focus"), last + 1
            async with aclosing(getattr(DefaultAgent(descriptor=made), way)("Hi")) as run:
                for _ in range(last):
                    event = await anext(run, None)
                    shown = event.model_event if isinstance(event, RunEvent) else event
                    if shown is not None:
                        told.events.append(shown)
                        await steer(shown, run, told)
                ended = event is None
            assert run.outcome is not None
            inputs = [message for message in run.outcome.messages if message.get("content") == "Focus"]
            assert len(inputs) == told.statuses.count("applied"), f"after {last} events"
    assert run.outcome.outcome == "completed"


async def play_all(peer: Peer) -> None:
    """A run with an asynchronous call, an input and its successor, and the turn that brings the result."""
    await peer.hear()
    await peer.begin("r1")
    await peer.call("look", '{"x": 1}', call_id="c1", **{"async": True})
    await peer.text("Let me see")
    await peer.hear("response.steer")
    await peer.accept("st1")
    await peer.end("steered")
    await peer.begin("r2", "r1")
    await peer.text("While I look")
    await peer.end()
    await peer.hear()
    await peer.begin("r3", "r2")
    await peer.text("One")
    await peer.end()


async def test_a_connection_lost_at_any_event_ends_the_run() -> None:
    """No connection is made anew, no receipt stays open, no input is lost that was applied, no tool runs twice."""
    said: list[int] = []
    ran: list[int] = []

    async def counted(peer: Peer) -> None:
        await play_all(peer)
        said.append(peer.said)

    async def see(x: int) -> str:
        """Look at a number."""
        ran.append(x)
        return "seen"

    async def run(script: Any) -> Told:
        ran.clear()
        async with live_server(script) as server:
            agent = live_agent(server, tools=Tools([as_tool(name="look")(see)]), async_tools=["look"])
            told = await read(agent, at(DELTA, "Focus"))
            assert len(server.peers) == 1
            for _ in range(100):
                if not server.open:
                    break
                await asyncio.sleep(0.01)
            assert server.open == 0
        assert len(ran) <= 1
        assert len(asyncio.all_tasks()) == 1
        return told

    whole = await run(counted)
    assert whole.result is not None
    assert (whole.result.outcome.outcome, whole.result.final_output, ran) == ("completed", "One", [1])
    for last in range(said[0]):

        async def cut(peer: Peer, last: int = last) -> None:
            peer.drop_after(last)
            try:
                await play_all(peer)
            except EOFError:
                return

        told = await run(cut)
        outcome = None if told.result is None else told.result.outcome
        assert told.error is not None or (outcome is not None and outcome.outcome == "cut"), f"after {last} events"
        statuses = [receipt.status for receipt in told.receipts]
        assert set(statuses) <= {"applied", "unknown"}
        if outcome is not None:
            inputs = [message for message in outcome.messages if message.get("content") == "Focus"]
            assert len(inputs) == statuses.count("applied")
            calls = [call["id"] for message in outcome.messages for call in message.get("tool_calls") or ()]
            results = [message["tool_call_id"] for message in outcome.messages if message["role"] == "tool"]
            assert calls == results
            assert len(calls) <= 1
