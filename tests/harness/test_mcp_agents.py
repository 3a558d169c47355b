"""Agents with the tools of MCP servers: scripted models in front of real processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus import run_sync
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.harness import (
    AgentDescriptor,
    BoundShim,
    DefaultAgent,
    McpServerError,
    McpShim,
    RunIdentity,
    Shim,
    ToolNameCollisionError,
    TurnState,
)
from isthmus.models import as_tool
from support.mcp_runs import gone, gone_soon, lives, odd, real
from support.turns import asks, call, says

UNKNOWN = "Error: MCP server 'odd' went away during the call of 'die'; the outcome is unknown."


def results(adapter: ScriptedAdapter) -> list[Any]:
    """What the tool messages of the last request say."""
    return [message["content"] for message in adapter.contexts[-1].messages if message["role"] == "tool"]


def process(adapter: ScriptedAdapter) -> int:
    """The process that the last result names."""
    return int(results(adapter)[-1])


def described(adapter: ScriptedAdapter, *shims: Shim, **settings: Any) -> DefaultAgent:
    """An agent with these shims."""
    return DefaultAgent(descriptor=AgentDescriptor(name="agent", model=adapter, shims=shims, **settings))


def agent(*steps: Any, servers: Any = None, **settings: Any) -> tuple[DefaultAgent, ScriptedAdapter]:
    """An agent with a script and a shim of its own."""
    adapter = ScriptedAdapter(steps)
    return described(adapter, McpShim(*(servers or [odd()])), **settings), adapter


async def test_a_tool_round_through_the_official_library_s_server():
    """The request offers the server's tools as they are; results, an image among them, stand in the next request."""
    made, adapter = agent(
        asks(call("everything"), call("add", "c2", a=2512292042121000001, b=1), call("two_pid", "c3")),
        says("done"),
        servers=[real(), odd(prefix="two_")],
    )
    async with made:
        result = await made.run("go")
    assert result.text == "done"
    offered = {tool.name: tool for tool in adapter.contexts[0].tools}
    assert {"add", "everything", "two_pid", "two_die"} <= set(offered)
    assert {tool.strict for tool in offered.values()} == {False}
    everything, added, two = results(adapter)
    assert [part["type"] for part in everything][:2] == ["text", "image_url"]
    assert added == "2512292042121000002"
    assert await gone_soon(int(two))


async def test_a_server_that_dies_in_a_run_is_there_again_in_the_next_turn():
    """The call in flight is answered as unknown, the run goes on, and its next calls reach another process."""
    made, adapter = agent(asks(call("pid")), asks(call("die")), asks(call("pid")), says("done"))
    async with made:
        result = await made.run("go")
    first, unknown, second = results(adapter)
    assert result.text == "done"
    assert unknown == UNKNOWN
    assert first != second


async def test_a_server_that_dies_again_and_again_ends_the_run():
    """At the second death in one run the run fails, and says which server it was."""
    made, _ = agent(asks(call("die")), asks(call("die")), says("never"))
    async with made:
        with pytest.raises(McpServerError, match=r"'odd'.*second time"):
            await made.run("go")


class Beside(Shim):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def bind(self, run: RunIdentity) -> BoundShim:
        told = self.told

        class Bound(BoundShim):
            async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
                told.append("start")

            async def on_run_end(self, state: TurnState, transient_state: dict[str, Any]) -> None:
                told.append("end")
                raise RuntimeError("the end failed, too")

        return Bound()


async def test_a_server_that_cannot_start_is_the_error_of_the_run():
    """The run fails with that error, not with what went wrong in cleaning up after it; no model is called."""
    beside, adapter = Beside(), ScriptedAdapter([says("never")])
    async with described(adapter, beside, McpShim(odd(), odd("exit", name="bad"))) as made:
        with pytest.raises(McpServerError, match="MCP server 'bad'"):
            await made.run("go")
    assert beside.told == ["start", "end"]
    assert not adapter.contexts


async def test_a_tool_of_the_agent_s_own_with_the_same_name():
    """A name that the agent has already is an error that says how to tell the two apart."""

    @as_tool
    def pid() -> int:
        """Ours."""
        return 0

    made, _ = agent(says("never"), tools=[pid])
    async with made:
        with pytest.raises(ToolNameCollisionError, match=r"'odd': there is another tool 'pid'.*prefix="):
            await made.run("go")


async def test_a_stopped_run_leaves_the_server_to_the_others():
    """A run that is cancelled in a call is over at once; the server is told, and serves the next run."""
    made, adapter = agent(
        asks(call("pid")), asks(call("hang")), asks(call("pid"), call("cancelled", "c2")), says("done")
    )
    async with made:
        running = asyncio.ensure_future(made.run("go"))
        async with asyncio.timeout(10):
            while len(adapter.contexts) < 2:
                await asyncio.sleep(0.01)
        first = process(adapter)
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        running.cancel()
        await asyncio.wait((running,))
        assert asyncio.get_running_loop().time() - began < 0.05
        await made.run("again")
        second, cancelled = results(adapter)[-2:]
    assert int(second) == first
    assert cancelled != "[]"


async def test_runs_at_once_share_one_process():
    """Thirty runs side by side start one server, and leave no task once the agent is closed."""
    steps = [asks(call("pid"))] * 30
    adapter = ScriptedAdapter([*steps, *[says("done")] * 30])
    shim = McpShim(odd())
    before = asyncio.all_tasks()
    agents = [described(adapter, shim) for _ in range(30)]
    await asyncio.gather(*(each.run("go") for each in agents))
    found = {message["content"] for ctx in adapter.contexts for message in ctx.messages if message["role"] == "tool"}
    assert len(found) == 1
    await shim.aclose()
    assert asyncio.all_tasks() == before
    assert not lives(int(found.pop()))


def test_an_agent_in_one_loop_after_another():
    """`run_sync` twice, and in a loop that runs already: each loop has a server of its own, which ends with it."""
    made, adapter = agent(*[step for _ in range(3) for step in (asks(call("pid")), says("done"))])
    run_sync(made.run, "one")
    one = process(adapter)
    assert gone(one)
    run_sync(made.run, "two")
    two = process(adapter)
    assert gone(two)

    async def notebook() -> int:
        run_sync(made.run, "three")
        return process(adapter)

    three = asyncio.run(notebook())
    assert gone(three)
    assert len({one, two, three}) == 3
