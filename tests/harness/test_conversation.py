"""F10: an agent's runs follow one another; one that would wait for itself says so instead."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from isthmus.errors import CutReason
from isthmus.harness import (
    AgentDescriptor,
    AgentSnapshot,
    ApprovalError,
    ApprovalShim,
    BoundShim,
    DefaultAgent,
    MemoryStateStore,
    PreparedTurn,
    RunIdentity,
    RunnerHooks,
    RunState,
    Shim,
    SqliteJournal,
    StateConflictError,
)
from isthmus.models import CancellationToken, Tools
from isthmus.sync import run_sync
from support.turns import Turns, asks, call, says

WORDS = "must not run the agent that it serves"
HOOKS = [
    *("on_agent_start", "on_llm_start", "on_llm_end", "on_tool_call_start", "on_tool_call_end"),
    "on_agent_end",
]


def kept(*turns: Any, tools: Any = None, shims: Any = (), **settings: Any) -> DefaultAgent:
    """An agent that keeps its conversation."""
    return DefaultAgent(descriptor=AgentDescriptor(name="a", model=Turns(*turns), tools=tools, shims=shims), **settings)


def answers(result: Any) -> list[str]:
    """What the tools of a run answered."""
    return [message["content"] for message in result.messages if message["role"] == "tool"]


@pytest.mark.parametrize("how", ["run", "stream", "events", "journal"])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_tool_that_runs_its_own_agent_is_told_so(how: str, parallel: bool, plain: bool, tmp_path: Any) -> None:
    """However the run is read: the model reads why, nobody waits, and the run goes on."""

    async def again(n: int) -> str:
        """Run the agent."""
        return (await agent.run("inner")).text

    def plainly(n: int) -> str:
        """Run the agent from a thread."""
        return run_sync(agent.run, "inner").text

    tools = Tools([plainly if plain else again], parallel_tool_calls=parallel)
    name = tools.normalized_tools[0].name
    journal = SqliteJournal(tmp_path / "j.sqlite") if how == "journal" else None
    agent = kept(asks(call(name, "c1", n=1), call(name, "c2", n=2)), says("done"), tools=tools, journal=journal)
    stream = (agent.run_events if how == "events" else agent.run_stream)("go")
    async with asyncio.timeout(5), stream:
        result = await (agent.run("go") if how == "run" else stream.result())
    assert result.text == "done"
    assert [WORDS in each for each in answers(result)] == [True, True]
    assert (await agent.run("next")).text == "done"
    if journal is not None:
        journal.close()


async def test_so_is_one_of_an_agent_that_it_runs() -> None:
    """Through another agent that keeps its conversation, and through one that works for the run."""

    async def back(n: int) -> str:
        """Run the first agent."""
        return (await first.run("inner")).text

    async def on(n: int) -> str:
        """Run the other agent."""
        return answers(await other.run("go"))[0]

    twice = Tools([back], parallel_tool_calls=True)
    calls = asks(call("back", "c1", n=1), call("back", "c2", n=2))
    other = kept(calls, says("done"), tools=twice)
    child = AgentDescriptor(name="kid", model=Turns(calls, says("done")), tools=twice).as_tool()
    first = kept(asks(call("on", "c1", n=1)), asks(call("kid", "c2")), says("done"), tools=[on, child])
    result = await asyncio.wait_for(first.run("go"), 5)
    assert WORDS in answers(result)[0]
    assert answers(result)[1] == "done"


@pytest.mark.parametrize("name", HOOKS)
async def test_so_is_a_hook(name: str) -> None:
    """The run fails with that, as with any hook that raises, and the next one runs."""

    async def hook(*_: Any, **__: Any) -> None:
        if len(agent.model.seen) < 4:
            await agent.run("inner")

    def plus(n: int) -> int:
        """Add one."""
        return n + 1

    hooks = type("Hooks", (RunnerHooks,), {name: hook})()
    agent = kept(asks(call("plus", n=1)), says("done"), says("done"), tools=[plus], hooks=hooks)
    with pytest.raises((RuntimeError, ExceptionGroup)) as failed:
        await asyncio.wait_for(agent.run("go"), 5)
    error = failed.value.exceptions[0] if isinstance(failed.value, ExceptionGroup) else failed.value
    assert WORDS in str(error)
    agent.model.seen = [None] * 4
    assert (await asyncio.wait_for(agent.run("next"), 5)).text == "done"


async def test_so_is_a_shim() -> None:
    """In the preparation of a turn, for one."""

    class Bound(BoundShim):
        async def prepare_turn(self, turn: PreparedTurn) -> None:
            await agent.run("inner")

    class Nosy(Shim):
        name = "nosy"

        async def bind(self, run: RunIdentity) -> BoundShim:
            return Bound()

    agent = kept(says("done"), shims=[Nosy()])
    with pytest.raises(RuntimeError, match=WORDS):
        await asyncio.wait_for(agent.run("go"), 5)


async def test_what_is_begun_for_later_runs_later() -> None:
    """A task that a tool or a hook leaves behind waits for its turn, as anybody does; so does one beside the run."""
    later: list[asyncio.Task[Any]] = []

    class Onward(RunnerHooks):
        def on_agent_end(self, run: Any, result: Any) -> None:
            if len(later) == 1:
                later.append(asyncio.create_task(agent.run("from a hook")))

    async def plan(n: int) -> str:
        """Begin another run, and do not wait for it."""
        later.append(asyncio.create_task(agent.run("from a tool")))
        return "planned"

    agent = kept(asks(call("plan", n=1)), says("done"), tools=[plan], hooks=Onward())
    beside = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(beside, agent.run("beside")), 5)
    await asyncio.wait_for(asyncio.gather(*later), 5)
    said = [message["content"] for message in agent.run_state.history if message["role"] == "user"]  # type: ignore[union-attr]
    assert sorted(said) == ["beside", "from a hook", "from a tool", "go"]


async def test_a_stream_that_is_given_up_between_two_events_holds_up_nobody() -> None:
    """The task that read it may run the agent at once, also after a tool of it was called."""

    async def plus(n: int) -> int:
        """Add one."""
        return n + 1

    agent = kept(asks(call("plus", n=1)), says("a", "b"), says("next"), tools=[plus])
    async for event in agent.run_stream("go"):
        if event.text == "a":
            break
    assert (await asyncio.wait_for(agent.run("next"), 5)).text == "next"


class Lossy(MemoryStateStore):
    """Saves, and then loses the connection; loads only where it is told to."""

    breaks = loads = False

    def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
        """Save, and raise as if nobody knew."""
        super().save(snapshot, expected_revision=expected_revision)
        if self.breaks:
            raise OSError("connection lost")

    def load(self) -> AgentSnapshot | None:
        """What is there, if it can be reached."""
        if self.breaks and not self.loads:
            raise OSError("still lost")
        return super().load()


async def test_a_store_that_raises_behind_its_change_is_in_conflict_with_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is found to be saved is saved: the run returns, with a warning, and the next one goes on from it."""
    store = Lossy()
    agent = kept(says("A"), says("B"), says("C"), state_store=store)
    await agent.run("one")
    store.breaks = store.loads = True
    assert (await agent.run("two")).text == "B"
    assert "the store raised OSError, but has saved the run" in caplog.text
    store.breaks = False
    await agent.run("three")
    assert store.load().revision == agent.run_state.revision == 3  # type: ignore[union-attr]


async def test_a_store_that_cannot_say_what_it_holds_fails_the_run_with_its_own_error() -> None:
    """The error of the save, not that of looking; the conversation is as it was, and no change is taken for granted."""
    store = Lossy()
    agent = kept(says("A"), says("B"), state_store=store)
    await agent.run("one")
    store.breaks = True
    with pytest.raises(OSError, match="connection lost"):
        await agent.run("two")
    assert agent.run_state.revision == 1  # type: ignore[union-attr]
    store.breaks = False
    with pytest.raises(StateConflictError):
        await agent.run("three")


async def test_a_call_is_run_once_though_the_store_raises_when_its_decision_is_claimed() -> None:
    """F13: the decision is used, the call runs, and the same decision is refused from then on."""
    ran: list[int] = []

    def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    store = Lossy()
    turns = asks(call("pay", n=1)), says("done")
    agent = kept(*turns, tools=[pay], shims=[ApprovalShim({"pay": "ask"})], state_store=store)
    (asked,) = (await agent.run("go")).pending
    store.breaks = store.loads = True
    assert (await agent.resume(decisions=[asked.approve()])).text == "done"
    with pytest.raises(ApprovalError):
        await agent.resume(decisions=[asked.approve()])
    assert ran == [1]


@pytest.mark.parametrize("where", ["shim", "conflict"])
async def test_a_run_that_is_given_up_at_its_very_end_says_so_if_nobody_goes_on_from_it(where: str) -> None:
    """The result says "aborted", never "completed", of what the conversation does not have."""
    reached = asyncio.Event()
    loop, token = asyncio.get_running_loop(), CancellationToken()

    class Ends(BoundShim):
        async def on_run_end(self, state: Any, transient_state: Any) -> None:
            reached.set()
            await asyncio.sleep(3600)

    class EndsShim(Shim):
        name = "ends"

        async def bind(self, run: Any) -> BoundShim:
            return Ends()

    class Taken(MemoryStateStore):
        def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
            loop.call_soon_threadsafe(reached.set)
            time.sleep(0.05)
            raise StateConflictError("somebody else was here", expected=None, held=7)

    shims, store = ([EndsShim()], None) if where == "shim" else ([], Taken())
    agent = kept(says("Hello."), shims=shims, state_store=store)
    unheard: list[Any] = []
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    run = asyncio.create_task(agent.run("hi", cancellation_token=token))
    await reached.wait()
    token.cancel()
    result = await run
    assert (result.text, result.outcome.outcome, result.outcome.reason) == ("Hello.", "cut", CutReason.ABORTED)
    assert agent.run_state == RunState()
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


@pytest.mark.parametrize("fails", ["shim", "store"])
async def test_a_run_that_fails_at_its_very_end_has_failed(fails: str) -> None:
    """The stream's outcome says so, with the error that was raised."""

    class Full(MemoryStateStore):
        def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
            raise OSError("the disk is full")

    class Ends(BoundShim):
        async def on_run_end(self, state: Any, transient_state: Any) -> None:
            raise OSError("no")

    class EndsShim(Shim):
        name = "ends"

        async def bind(self, run: Any) -> BoundShim:
            return Ends()

    shims, store = ([EndsShim()], None) if fails == "shim" else ([], Full())
    stream = kept(says("Hello."), shims=shims, state_store=store).run_stream("hi")
    with pytest.raises((OSError, ExceptionGroup)) as caught:
        await stream.result()
    assert stream.outcome is not None
    assert (stream.outcome.outcome, stream.outcome.error) == ("failed", caught.value)
