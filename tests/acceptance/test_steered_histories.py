"""Steered runs whose transcript has other words than the provider: they go on from what was sent, as it was sent."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from isthmus.conformance.live import Peer, live_server
from isthmus.errors import InvalidRequestError, ModelBehaviorError
from isthmus.harness import AgentDescriptor, BoundShim, DefaultAgent, PreparedTurn, Shim
from isthmus.models import Tools, as_tool
from support.live_kit import live_client
from support.live_runs import ASYNC, Told, at, live_agent, read

ADDED = "response.output_item.added"
WRITTEN = "response.function_call_arguments.delta"


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return f"It is {x}."


@dataclass
class Answer:
    """A form."""

    number: int


class Adding(Shim):
    """Adds words around each call's messages, and says results in its own."""

    name = "adding"

    async def bind(self, run: Any) -> BoundShim:
        """What attends."""
        turns = [0]

        class Bound(BoundShim):
            async def transform_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
                turns[0] += 1
                told = [{**each, "content": "secret"} if each["role"] == "tool" else each for each in messages]
                return [{"role": "user", "content": "Before"}, *told, {"role": "user", "content": f"Turn {turns[0]}"}]

        return Bound()


class Replacing(Shim):
    """Replaces the history at the second turn."""

    name = "replacing"

    async def bind(self, run: Any) -> BoundShim:
        """What attends."""
        turns = [0]

        class Bound(BoundShim):
            async def prepare_turn(self, turn: PreparedTurn) -> None:
                turns[0] += 1
                if turns[0] == 2:
                    turn.replace_history([{"role": "user", "content": "Anew"}])

        return Bound()


async def waits(peer: Peer, response_id: str, *, call: str = "look") -> None:
    """A reply with a call, steered, whose input waits for the output."""
    await peer.begin(response_id, peer.heard_all[-1].get("previous_response_id"))
    await peer.call(call, '{"x": 1}' if call == "look" else "{}", call_id="c1")
    await peer.hear("response.steer")
    await peer.accept("st1")
    await peer.end()
    await peer.await_outputs("st1", *([("look", "c1")] if call == "look" else []))


async def ends(peer: Peer, after: str, text: str = "Done", outputs: Any = ("It is 1.",)) -> None:
    """The explicit continuation: the outputs and nothing else."""
    request = await peer.hear()
    assert [(item["call_id"], item["output"]) for item in request["input"]] == [("c1", each) for each in outputs]
    assert request["previous_response_id"] == after
    await peer.begin("last", after)
    await peer.text(text)
    await peer.end()


async def cut(peer: Peer) -> None:
    """A reply that is cut at the output limit."""
    await peer.hear()
    await peer.begin("r0")
    await peer.text("Batt")
    await peer.end("max_output_tokens")
    await peer.hear()


async def test_what_a_shim_adds_for_one_call_is_no_other_history() -> None:
    """Nothing of it is sent again; of the results the shim's own words are."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await waits(peer, "r1")
        await ends(peer, "r1", outputs=["secret"])

    async with live_server(play) as server:
        told = await read(live_agent(server, tools=Tools([look]), shims=[Adding()]), at(ADDED, "Focus"))
    assert (told.error, told.receipts[0].status) == (None, "applied")
    assert told.history[2:] == [("user", "Focus"), ("tool", "It is 1."), ("assistant", "Done")]


async def test_a_history_is_not_replaced_while_input_waits_for_tools() -> None:
    """The run fails before anything is sent, and says which shim's right that is not."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await waits(peer, "r1")
        await peer.gone()

    async with live_server(play) as server:
        told = await read(live_agent(server, tools=Tools([look]), shims=[Replacing()]), at(ADDED, "Focus"))
    assert isinstance(told.error, InvalidRequestError)
    assert "a shim must leave it" in str(told.error)
    assert told.receipts[0].status == "unknown"


@pytest.mark.parametrize("explicit", [False, True])
async def test_a_continued_text_may_be_steered(explicit: bool) -> None:
    """Its parts are one text in the transcript, and two at the provider."""

    async def play(peer: Peer) -> None:
        await cut(peer)
        if explicit:
            await waits(peer, "r1")
            await ends(peer, "r1")
            return
        await peer.begin("r1", peer.heard_all[-1].get("previous_response_id"))
        await peer.text("eries")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        await peer.text("Done")
        await peer.end()

    begun: list[Any] = []

    async def act(event: Any, stream: Any, told: Told) -> None:
        begun.extend([1] if event.provider_event_type == "response.created" else [])
        if len(begun) == 2:
            await steer(event, stream, told)

    steer = at(ADDED, "Focus")
    async with live_server(play) as server:
        told = await read(live_agent(server, tools=Tools([look])), act)
    assert (told.error, told.receipts[0].status) == (None, "applied")
    said = [("assistant", ("Batt", "look"))] if explicit else [("assistant", "Batteries")]
    after = [("tool", "It is 1.")] if explicit else []
    assert told.history[1:] == [*said, ("user", "Focus"), *after, ("assistant", "Done")]


async def test_a_reply_that_was_asked_for_again_may_be_steered() -> None:
    """The words that asked for it are no part of the transcript."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r0")
        await peer.text("no")
        await peer.end()
        await peer.hear()
        await waits(peer, "r1")
        await ends(peer, "r1", '{"number": 1}')

    async with live_server(play) as server:
        model = live_client(server)
        made = AgentDescriptor(name="a", model=model, tools=Tools([look]), output=Answer)
        told = await read(DefaultAgent(descriptor=made, owns_model=True), at(WRITTEN, "Focus"))
    assert (told.error, told.receipts[0].status) == (None, "applied")
    assert told.result is not None
    assert told.result.final_output == Answer(1)


@pytest.mark.parametrize("flagged", [False, True], ids=["explicit", "automatic"])
async def test_calls_with_the_id_of_an_earlier_run_may_be_steered(flagged: bool) -> None:
    """The transcript tells them apart; the provider hears the id that it gave."""

    async def first(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("q1")
        await peer.call("look", '{"x": 1}', call_id="c1")
        await peer.end()
        await peer.hear()
        await peer.begin("q2", "q1")
        await peer.end()

    async def second(peer: Peer) -> None:
        await peer.hear()
        if not flagged:
            await waits(peer, "r1")
            await ends(peer, "r1")
            return
        await peer.begin("r1")
        await peer.call("look", '{"x": 1}', call_id="c1", **ASYNC)
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        await peer.call("look", '{"x": 2}', call_id="c2")
        await peer.hear("response.steer")
        await peer.accept("st2")
        await peer.end()
        await peer.await_outputs("st2", ("look", "c1"), ("look", "c2"))
        request = await peer.hear()
        assert {item["call_id"]: item["output"] for item in request["input"]} == {"c1": "It is 1.", "c2": "It is 2."}
        await peer.begin("last", "r2")
        await peer.text("Done")
        await peer.end()

    async def act(event: Any, stream: Any, told: Told) -> None:
        if event.provider_event_type == WRITTEN:
            told.receipts.append(await stream.steer("Focus"))

    async with live_server(first, second) as server:
        agent = live_agent(server, tools=Tools([look]), async_tools=["look"])
        await agent.run("Hi")
        told = await read(agent, act, prompt="Again")
    assert (told.error, {receipt.status for receipt in told.receipts}) == (None, {"applied"})
    assert told.result is not None
    calls = [call["id"] for message in told.result.messages for call in message.get("tool_calls") or ()]
    assert sorted(calls) == sorted(each["tool_call_id"] for each in told.result.messages if each["role"] == "tool")
    assert calls[:2] == ["c1", "c1_2"]


async def test_a_handoff_fails_while_input_waits_for_no_results() -> None:
    """A continuation is pending even where it needs nothing of the caller."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await waits(peer, "r1", call="expert")
        with suppress(EOFError):
            await peer.hear()

    async with live_server(play) as server:
        expert = AgentDescriptor(name="Expert", instructions="You know all.")
        told = await read(live_agent(server, handoffs=(expert,)), at(ADDED, "Focus"))
        assert len(server.peers[0].heard_all) == 2
    assert isinstance(told.error, ModelBehaviorError)
    assert told.receipts[0].status == "unknown"
