"""Steered runs and asynchronous calls beside handoffs, shims, approval, journals and MCP servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.conformance.live import Peer, live_server
from isthmus.errors import InvalidRequestError, ModelBehaviorError
from isthmus.harness import (
    AgentDescriptor,
    ApprovalShim,
    BoundShim,
    DefaultAgent,
    McpShim,
    PreparedTurn,
    Ruling,
    RunState,
    Shim,
)
from isthmus.models import Tools, as_tool
from support.journals import Tape
from support.live_kit import live_client
from support.live_runs import ASYNC, WAYS, Told, at, live_agent, read
from support.mcp_runs import odd

DELTA = "response.output_text.delta"
CREATED = "response.created"


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return f"It is {x}."


@as_tool
async def hang(x: int) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


def team(server: Any, *, tools: Any = (), async_tools: Any = ()) -> DefaultAgent:
    """An agent that may hand over to an expert."""
    model = live_client(server, async_tools=async_tools)
    expert = AgentDescriptor(name="Expert", instructions="You know all.")
    made = AgentDescriptor(name="Desk", model=model, tools=tools, handoffs=(expert,))
    return DefaultAgent(descriptor=made, owns_model=True)


@pytest.mark.parametrize("way", WAYS)
async def test_after_a_handoff_steering_controls_the_child(way: str) -> None:
    """Its reply takes the input, in the same stream, and the conversation has all of it."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.call("expert", '{"task": "Explain."}', call_id="c1")
        await peer.end()
        request = await peer.hear()
        before = request.get("previous_response_id")
        await peer.begin("r2", before)
        await peer.text("Batteries")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r3", "r2")
        await peer.text("At home")
        await peer.end()

    async with live_server(play) as server:
        told = await read(team(server), at(DELTA, "Focus"), way=way)
    assert told.error is None
    assert (told.receipts[0].status, told.receipts[0].previous_response_id) == ("applied", "r2")
    assert told.history[-3:] == [("assistant", "Batteries"), ("user", "Focus"), ("assistant", "At home")]
    assert len(server.peers) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_handoff_fails_while_a_steering_continuation_is_pending(way: str) -> None:
    """Nothing is handed over, the receipt is unknown, and the agent's conversation stays as it was."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.call("expert", "{}", call_id="c1")
        await peer.end()
        await peer.await_outputs("st1", ("expert", "c1"))
        await peer.gone()

    async with live_server(play) as server:
        agent = team(server)
        told = await read(agent, at(CREATED, "Focus"), way=way)
    assert isinstance(told.error, ModelBehaviorError)
    assert "steered input waits" in str(told.error)
    assert told.receipts[0].status == "unknown"
    assert agent.run_state is not None
    assert agent.run_state.history == ()


async def test_a_handoff_fails_while_asynchronous_results_are_pending() -> None:
    """What still runs is stopped, and named."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.call("hang", '{"x": 1}', call_id="c1", **ASYNC)
        await peer.call("expert", "{}", call_id="c2")
        await peer.end()
        await peer.gone()

    async with live_server(play) as server:
        told = await read(team(server, tools=Tools([hang]), async_tools=["hang"]))
    assert isinstance(told.error, ModelBehaviorError)
    assert "calls still run" in str(told.error)
    assert told.error.__notes__ == ["asynchronous calls whose results were not delivered: c1"]


class Watching(Shim):
    """Does something before each turn.

    Args:
        act: called with each turn and how many there were.
    """

    name = "watching"

    def __init__(self, act: Any) -> None:
        self.act = act

    async def bind(self, run: Any) -> BoundShim:
        """What attends."""
        act, turns = self.act, [0]

        class Bound(BoundShim):
            async def prepare_turn(self, turn: PreparedTurn) -> None:
                turns[0] += 1
                act(turn, turns[0])

            async def transform_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
                return [*messages, {"role": "user", "content": f"It is turn {turns[0]}."}]

        return Bound()


def successor(*calls: Any) -> Any:
    """A steered reply, and a successor with these calls, each a name and whether it is asynchronous."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Batteries")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        for number, (name, flagged) in enumerate(calls, 1):
            await peer.call(name, '{"x": 1}', call_id=f"c{number}", **(ASYNC if flagged else {}))
        await peer.end()
        if not calls or calls[0][1]:
            return
        request = await peer.hear()
        outputs.append([item["output"] for item in request["input"] if "output" in item])
        await peer.begin("r3", request.get("previous_response_id"))
        await peer.text("One")
        await peer.end()

    outputs: list[Any] = []
    play.outputs = outputs  # type: ignore[attr-defined]
    return play


@pytest.mark.parametrize("excluded", [False, True])
async def test_a_successor_has_the_handlers_that_are_still_allowed(excluded: bool) -> None:
    """Those of the request that began it, but for what is excluded by now; transient messages do not disturb it."""

    def act(turn: PreparedTurn, number: int) -> None:
        if excluded and number == 2:
            turn.exclude_tools("look")

    play = successor(("look", False))
    async with live_server(play) as server:
        told = await read(live_agent(server, tools=Tools([look]), shims=[Watching(act)]), at(DELTA, "Focus"))
    assert told.error is None
    (said,) = play.outputs[0]
    assert ("not registered" in said) is excluded
    assert (said == "It is 1.") is not excluded


async def test_a_successor_may_not_call_what_is_excluded_at_once() -> None:
    """An asynchronous call of it fails the run."""

    def act(turn: PreparedTurn, number: int) -> None:
        if number == 2:
            turn.exclude_tools("look")

    async with live_server(successor(("look", True))) as server:
        agent = live_agent(server, tools=Tools([look]), async_tools=["look"], shims=[Watching(act)])
        told = await read(agent, at(DELTA, "Focus"))
    assert isinstance(told.error, ModelBehaviorError)


async def test_a_history_is_not_replaced_while_a_successor_runs() -> None:
    """A shim that tries fails the run; before and after that it may."""

    def act(turn: PreparedTurn, number: int) -> None:
        if number == 2:
            turn.replace_history([{"role": "user", "content": "Anew"}])

    async with live_server(successor()) as server:
        told = await read(live_agent(server, shims=[Watching(act)]), at(DELTA, "Focus"))
    assert isinstance(told.error, InvalidRequestError)
    assert "goes on by itself" in str(told.error)
    assert len(server.peers) == 1


async def one_async(peer: Peer) -> None:
    """An asynchronous call, and what follows its result."""
    await peer.hear()
    await peer.begin("r1")
    await peer.call("look", '{"x": 1}', call_id="c1", **ASYNC)
    await peer.text("I look.")
    await peer.end()
    try:
        request = await peer.hear()
    except EOFError:
        return
    await peer.begin("r2", request.get("previous_response_id"))
    await peer.text(request["input"][-1]["output"])
    await peer.end()


async def test_a_call_that_is_refused_is_not_run() -> None:
    """The model reads why, as of any other call."""
    async with live_server(one_async) as server:
        shim = ApprovalShim(lambda call: Ruling("refuse", "never"))
        told = await read(live_agent(server, tools=Tools([look]), async_tools=["look"], shims=[shim]))
    assert told.text.startswith("I look.Error: Tool 'look' was not run: it was refused: never")


async def test_a_call_that_needs_a_decision_waits_for_it() -> None:
    """The run stops after the reply, and goes on with the decision on a connection of its own."""

    async def resumed(peer: Peer) -> None:
        request = await peer.hear()
        assert request["input"][-1]["output"] == "It is 1."
        await peer.begin("r9")
        await peer.text("One")
        await peer.end()

    async with live_server(one_async, resumed) as server:
        shim = ApprovalShim(lambda call: Ruling("ask", "why not"))
        agent = live_agent(server, tools=Tools([look]), async_tools=["look"], shims=[shim])
        async with agent:
            first = await agent.run("Hi")
            assert (first.outcome.outcome, first.outcome.reason) == ("cut", "approval")
            second = await agent.resume(decisions=[first.pending[0].approve()])
    assert second.final_output == "One"


async def test_functions_of_mcp_servers_may_be_named() -> None:
    """They run while the reply goes on, as the agent's own do."""

    async def play(peer: Peer) -> None:
        request = await peer.hear()
        assert {tool["name"]: tool.get("async") for tool in request["tools"]}["odd_pid"] is True
        await peer.begin("r1")
        await peer.call("odd_pid", "{}", call_id="c1", **ASYNC)
        await peer.text("I ask.")
        await peer.end()
        request = await peer.hear()
        await peer.begin("r2", "r1")
        await peer.text(request["input"][0]["output"])
        await peer.end()

    async with live_server(play) as server:
        shim = McpShim(odd(prefix="odd_"))
        told = await read(live_agent(server, async_tools=["odd_pid"], shims=[shim]))
    assert told.error is None
    assert told.text.removeprefix("I ask.").isdigit()


async def whole_run(peer: Peer) -> None:
    """An asynchronous call, an input, a successor, an explicit continuation; on a new connection the last reply."""
    request = await peer.hear()
    if len(request["input"]) > 1:
        await peer.begin("s1")
        await peer.text("Taken up")
        await peer.end()
        return
    await peer.begin("r1")
    await peer.call("look", '{"x": 1}', call_id="c1", **ASYNC)
    await peer.text("Let me see")
    await peer.hear("response.steer")
    await peer.accept("st1")
    await peer.end("steered")
    await peer.begin("r2", "r1")
    await peer.call("twice", '{"x": 2}', call_id="c2")
    await peer.hear("response.steer")
    await peer.accept("st2")
    await peer.end()
    await peer.await_outputs("st2", ("twice", "c2"))
    await peer.hear()
    await peer.begin("r3", "r2")
    await peer.text("Done")
    await peer.end()


async def test_a_steered_run_is_taken_up_from_its_journal() -> None:
    """Wherever it was cut: each input once that was applied, each call with one result, no tool again that had one."""
    ran: list[int] = []

    async def see(x: int) -> str:
        """Look at a number."""
        ran.append(x)
        return f"saw {x}"

    def made(server: Any, tape: Tape) -> DefaultAgent:
        tools = Tools([as_tool(name="look")(see), as_tool(name="twice")(see)])
        return live_agent(server, tools=tools, async_tools=["look"], journal=tape)

    async def act(event: Any, stream: Any, told: Told) -> None:
        if event.provider_event_type == DELTA and not told.receipts:
            told.receipts.append(await stream.steer("one"))
        if event.kind == "tool_call_arguments_delta" and told.receipts and len(told.receipts) == 1:
            told.receipts.append(await stream.steer("two"))

    tape = Tape()
    async with live_server(whole_run) as server:
        state = RunState(history=[{"role": "user", "content": "Hi"}], task_id="t")
        told = await read(made(server, tape), act, prompt=state)
    assert told.error is None
    assert told.history == [
        ("user", "Hi"),
        ("assistant", ("Let me see", "look")),
        ("user", "one"),
        ("assistant", (None, "twice")),
        ("user", "two"),
        ("tool", "saw 2"),
        ("tool", "saw 1"),
        ("assistant", "Done"),
    ]
    kinds = tape.kinds("t")
    assert "delivered" in kinds
    replies = [place for place, kind in enumerate(kinds) if kind == "reply"]
    for count in range(replies[0] + 1, replies[-1] + 1):
        ran.clear()
        known = {each["result"]["call_id"] for each in tape.load("t")[:count] if each["kind"] == "result"}
        started = {each["call_id"] for each in tape.load("t")[:count] if each["kind"] == "start"}
        async with live_server(whole_run) as server, made(server, tape.cut("t", count)) as agent:
            result = await agent.resume("t", uncertain="fail")
        assert result.final_output == "Taken up", f"{count}: {kinds[:count]}"
        said = [message.get("content") for message in result.messages]
        assert said.count("one") == 1
        calls = [call["id"] for message in result.messages for call in message.get("tool_calls") or ()]
        results = {
            message["tool_call_id"]: message["content"] for message in result.messages if message["role"] == "tool"
        }
        assert sorted(calls) == sorted(results)
        assert not {f"c{x}" for x in ran} & (known | started)
        for call_id in known & set(results):
            assert results[call_id] == f"saw {call_id[1]}"
