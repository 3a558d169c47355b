"""Whoever gives a run up has it back at once, wherever it stands: the model is silent, a tool works, a hook waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from time import monotonic, sleep
from typing import Any

import pytest

from isthmus import run_sync
from isthmus.errors import CutReason
from isthmus.harness import AgentDescriptor, BoundShim, DefaultAgent, RunnerHooks, RunResult, RunStream, Shim
from isthmus.harness.history import NOT_EXECUTED, UNKNOWN
from isthmus.models import CancellationToken, Tools
from isthmus.models.events import Text
from support.turns import Turns, asks, call, says, tasks

ALLOWED = 0.5
"""Seconds. On a quiet machine it takes a millisecond or two; whoever waits for what hangs takes ten seconds."""
HANGS = 10.0


class Place:
    """Where a run hangs; it says when it has come there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.left: list[str] = []

    async def hang(self, *_: Any, **__: Any) -> Any:
        """Wait in vain."""
        self.reached.set()
        try:
            await asyncio.sleep(HANGS)
        except asyncio.CancelledError:
            self.left.append("cancelled")
            raise
        self.left.append("waited")


class Silent(Turns):
    """A model that hangs before its first event, or after its first text."""

    def __init__(self, place: Place, *first: Any) -> None:
        super().__init__(says("never"))
        self._place, self._first = place, first

    async def stream(self, ctx: Any) -> Any:
        self.seen.append(ctx)
        for event in self._first:
            yield event
        await self._place.hang()


class Whole:
    """A model that answers whole or not at all."""

    def __init__(self, place: Place) -> None:
        self.id, self._place = "whole", place

    async def generate(self, ctx: Any) -> Any:
        await self._place.hang()


def described(model: Any, *, tools: Any = (), shims: Any = (), hooks: Any = ()) -> DefaultAgent:
    """An agent that keeps its conversation."""
    return DefaultAgent(descriptor=AgentDescriptor(name="scout", model=model, tools=tools, shims=shims), hooks=hooks)


def _of_a_silent_model(place: Place) -> DefaultAgent:
    return described(Silent(place))


def _of_a_model_that_falls_silent(place: Place) -> DefaultAgent:
    return described(Silent(place, Text("a")))


def _of_a_model_without_a_stream(place: Place) -> DefaultAgent:
    return described(Whole(place))


def _of_an_async_tool(place: Place) -> DefaultAgent:
    async def work() -> None:
        """Work."""
        await place.hang()

    return described(Turns(asks(call("work", "a")), says("never")), tools=[work])


def _of_tools_side_by_side(place: Place) -> DefaultAgent:
    async def work() -> None:
        """Work."""
        await place.hang()

    policy = Tools([work], parallel_tool_calls=True)
    return described(Turns(asks(call("work", "a"), call("work", "b")), says("never")), tools=policy)


def _of_a_plain_tool(place: Place) -> DefaultAgent:
    loop = asyncio.get_running_loop()

    def work() -> str:
        """Work, and listen to nobody."""
        loop.call_soon_threadsafe(place.reached.set)
        sleep(2 * ALLOWED)
        return "done"

    return described(Turns(asks(call("work", "a")), says("never")), tools=[work])


def _of_an_agent_at_work_for_it(place: Place) -> DefaultAgent:
    helper = AgentDescriptor(name="helper", model=Silent(place, Text("a")), description="Helps.")
    return described(Turns(asks(call("helper", "a")), says("never")), tools=[helper.as_tool()])


def _of_a_hook(place: Place) -> DefaultAgent:
    class Waits(RunnerHooks):
        async def on_llm_start(self, run: Any, messages: Any) -> None:
            await place.hang()

    return described(Turns(says("never")), hooks=Waits())


def _of_a_shim(place: Place) -> DefaultAgent:
    class Bound(BoundShim):
        async def prepare_turn(self, turn: Any) -> None:
            await place.hang()

    class Waits(Shim):
        name = "waits"

        async def bind(self, run: Any) -> BoundShim:
            return Bound()

    return described(Turns(says("never")), shims=[Waits()])


MAKERS = [
    _of_a_silent_model,
    _of_a_model_that_falls_silent,
    _of_a_model_without_a_stream,
    _of_an_async_tool,
    _of_tools_side_by_side,
    _of_a_plain_tool,
    _of_an_agent_at_work_for_it,
    _of_a_hook,
    _of_a_shim,
]
Way = Callable[[DefaultAgent, Place], Awaitable[float]]


async def _read(stream: RunStream) -> list[Any]:
    return [event async for event in stream]


async def _given_up(task: asyncio.Future[Any], place: Place, stop: Callable[[], Any]) -> float:
    """Seconds from the moment at which it was asked until whoever had waited goes on."""
    await asyncio.wait_for(place.reached.wait(), 20)
    await asyncio.sleep(0)
    begun = monotonic()
    stop()
    await asyncio.wait({task})
    return monotonic() - begun


async def _a_cancelled_task(agent: DefaultAgent, place: Place) -> float:
    task = asyncio.ensure_future(agent.run("go"))
    seconds = await _given_up(task, place, task.cancel)
    assert task.cancelled()
    return seconds


async def _a_cancelled_reader_of_events(agent: DefaultAgent, place: Place) -> float:
    task = asyncio.ensure_future(_read(agent.run_events("go")))
    seconds = await _given_up(task, place, task.cancel)
    assert task.cancelled()
    return seconds


async def _a_closed_stream(agent: DefaultAgent, place: Place) -> float:
    stream = agent.run_stream("go")
    closing: list[asyncio.Future[None]] = []
    task = asyncio.ensure_future(_read(stream))
    seconds = await _given_up(task, place, lambda: closing.append(asyncio.ensure_future(stream.aclose())))
    await closing[0]
    assert all(event is not None for event in task.result())
    assert (await stream.result()).outcome.reason == CutReason.ABORTED
    return seconds


async def _a_closed_stream_of_events(agent: DefaultAgent, place: Place) -> float:
    stream = agent.run_events("go")
    closing: list[asyncio.Future[None]] = []
    task = asyncio.ensure_future(_read(stream))
    seconds = await _given_up(task, place, lambda: closing.append(asyncio.ensure_future(stream.aclose())))
    await closing[0]
    assert task.result()[0].kind == "agent_start"
    return seconds


async def _a_cancelled_token(agent: DefaultAgent, place: Place) -> float:
    token = CancellationToken()
    task = asyncio.ensure_future(agent.run("go", cancellation_token=token))
    seconds = await _given_up(task, place, lambda: threading.Thread(target=token.cancel).start())
    outcome = task.result().outcome
    assert (outcome.outcome, outcome.reason) == ("cut", CutReason.ABORTED)
    return seconds


WAYS = [
    _a_cancelled_task,
    _a_cancelled_reader_of_events,
    _a_closed_stream,
    _a_closed_stream_of_events,
    _a_cancelled_token,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__[1:])
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__[1:])
async def test_a_run_that_is_given_up_returns_at_once(maker: Callable[[Place], DefaultAgent], way: Way) -> None:
    """F10: within 50 ms; what hung was cancelled, nothing is committed or left, and the next run begins at once."""
    place = Place()
    agent = maker(place)
    before = agent.run_state
    seconds = await way(agent, place)
    print(f"{seconds * 1000:.2f} ms")
    assert seconds < ALLOWED
    assert set(place.left) <= {"cancelled"}
    assert agent.run_state == before
    assert not tasks()
    agent.reset()


@pytest.mark.parametrize("way", ["task", "token"])
async def test_a_plain_tool_is_left_behind_and_its_outcome_is_unknown(way: str) -> None:
    """F10: the thread works on, the transcript says that nobody knows what became of it, what waited did not run."""
    loop, reached, ends = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    told: list[Any] = []

    def work() -> None:
        """Work."""
        loop.call_soon_threadsafe(reached.set)
        ends.wait(HANGS)
        told.append("done")

    class Hears(RunnerHooks):
        async def on_tool_call_end(self, run: Any, call: Any, *, result: Any) -> None:
            told.append(result.outcome)

    token = CancellationToken()
    agent = described(Turns(asks(call("work", "a"), call("work", "b"))), tools=[work], hooks=Hears())
    task = asyncio.ensure_future(agent.run("go", cancellation_token=token))
    await reached.wait()
    (token.cancel if way == "token" else task.cancel)()
    await asyncio.wait({task}, timeout=HANGS / 2)
    assert task.done()
    assert told == ["unknown"]
    if way == "token":
        results = [message["content"] for message in task.result().messages if message["role"] == "tool"]
        assert results == [UNKNOWN, NOT_EXECUTED]
    ends.set()


async def test_a_token_that_is_cancelled_already_lets_no_model_be_called() -> None:
    """The run is cut before its first step."""
    token = CancellationToken()
    token.cancel()
    model = Turns(says("never"))
    result = await described(model).run("go", cancellation_token=token)
    assert (result.outcome.reason, result.turn_count, model.seen) == (CutReason.ABORTED, 0, [])
    assert not tasks()


async def test_a_token_that_nobody_cancels_changes_nothing() -> None:
    """The run ends as any other, and the token keeps nothing of it."""
    token = CancellationToken()
    agent = described(Turns(says("a")))
    result = await agent.run("go", cancellation_token=token)
    assert (result.final_output, result.run_state.revision) == ("a", 1)
    assert not tasks()
    token.cancel()


def test_a_token_stops_a_run_of_a_script() -> None:
    """A thread beside `run_sync` has a handle on the run."""
    token = CancellationToken()
    threading.Timer(0.05, token.cancel).start()
    begun = monotonic()
    result: RunResult = run_sync(DefaultAgent(model=Turns([Text("a"), HANGS])).run, "go", cancellation_token=token)
    assert monotonic() - begun < HANGS / 2
    assert (result.text, result.outcome.reason) == ("a", CutReason.ABORTED)
