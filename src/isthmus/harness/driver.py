"""Drives a run: carries out the loop's effects and hands the events to whoever reads them."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from isthmus.errors import ChainCut, TierError, TransientError, UnavailableError, UnclassifiedError
from isthmus.harness.conversation import Turn
from isthmus.harness.descriptor import Runner
from isthmus.harness.effects import Aborted, CallModel, Done, Effect, Emit, Failed, Replied, Report, RunTools, ToolsRan
from isthmus.harness.loop import LoopState, Next, advance
from isthmus.harness.modelview import model_events
from isthmus.harness.observed import answered, around_tools, begun, ended, started
from isthmus.harness.outcome import Outcome
from isthmus.harness.passage import Passage
from isthmus.harness.result import RunResult
from isthmus.harness.state import RunState
from isthmus.models.contract import Timeouts
from isthmus.models.events import Call, Event, Reset, StepResult, Text
from isthmus.models.executor import ToolExecutor, ToolResult
from isthmus.models.stream import EventStream, Watchdog
from isthmus.models.tools import ToolExecutionContext
from isthmus.observability.scope import Operation, under

AgentEvent: TypeAlias = Event | ToolResult
Begun: TypeAlias = tuple[Next, ToolExecutionContext]

_UNTIMED = Timeouts(connect=None, first_content=None, idle=None, total=None)
_IMPATIENT = 0.05


def _passes(error: Exception) -> bool:
    """Whether an error is of a kind that passes."""
    return isinstance(error, TransientError | UnavailableError)


@dataclass(slots=True)
class Run:
    """One run: the machine's state, and what is under way.

    Args:
        state: where the machine stands.
        effects: what it wants done.
        context: what tools are told.
        origin: the conversation that it began from.
        retries: how often a model call that failed before any content may be made anew, and after which failures.
        replies: what the models have replied.
        error: what went wrong outside of the machine, e.g. where the conversation is kept.
        ended: the result, once it was made.
        active: what is called: the run's own copy of a chain.
        before: how many tries that had made before.
        tries: how many it had made before the call that is being read.
    """

    state: LoopState
    effects: deque[Effect]
    context: ToolExecutionContext
    origin: RunState
    retries: tuple[int, Callable[[Exception], bool]] = (0, _passes)
    replies: tuple[StepResult, ...] = ()
    error: Exception | None = None
    ended: RunResult | None = None
    tried: int = 0
    outcome: Outcome | None = None
    reading: EventStream | None = None
    passage: Passage | None = None
    results: tuple[ToolResult, ...] = ()
    started: frozenset[str] = frozenset()
    closing: bool = False
    concluded: bool = False
    active: Any = None
    before: int = 0
    tries: int = 0
    op: Operation | None = field(default_factory=begun)

    def begin(self, begun: Begun, before: RunState) -> None:
        """Begin, or begin anew from another conversation."""
        (self.state, effects), self.context = begun
        self.effects, self.origin = deque(effects), before

    def next(self) -> Effect | None:
        """The next effect to carry out; None once the run is over."""
        effect = self.effects.popleft()
        if isinstance(effect, Done):
            self.outcome = effect.outcome
            return None
        return effect

    def report(self, report: Report) -> None:
        """Tell the machine what happened."""
        self.state, effects = advance(self.state, report)
        self.effects.extend(effects)
        self.reading = self.passage = None
        self.results, self.started = (), frozenset()
        self.tried = 0

    def call(self, model: Any, effect: CallModel) -> tuple[EventStream, Passage]:
        """Begin a model call."""
        self.tries = len(getattr(model, "attempts", ()))
        with under(self.op):
            stream = model.stream(effect.ctx)
        self.reading = stream if isinstance(stream, EventStream) else EventStream(stream)
        self.passage = Passage(effect)
        return self.reading, self.passage

    async def replied(self, effect: CallModel, failure: TierError | None, *, tier: str | None) -> None:
        """Report the end of a model call; text that is still held back is shown first."""
        stream, passage = self.reading, self.passage
        if stream is None or passage is None:
            return
        step = passage.read(await stream.result() if failure is None else stream.partial(failure))
        self.effects.extend(Emit(event) for event in passage.rest())
        if failure is None or step.events:
            self.replies = (*self.replies, step)
            self.report(Replied(step, passage.said(step, whole=failure is None), tier))
        elif self.tried < self.retries[0] and self.retries[1](failure):
            self.tried += 1
            self.state = changed(self.state, spent=self.state.spent.add(failure.usage))
            self.effects.extend((Emit(Reset(self.tried + 1)), effect))
        else:
            # What a budget or a window forbids is cut before anybody is called.
            cut = isinstance(failure, ChainCut) and len(getattr(self.active, "attempts", ())) == self.tries
            self.report(Failed(failure, called=not cut))

    def told(self) -> tuple[StepResult, ...]:
        """The replies that are whole by now."""
        return self.replies

    def result(self) -> RunResult:
        """What the run returns.

        Raises:
            Exception: whatever it failed with.
        """
        if self.error is not None:
            raise self.error
        if self.outcome is None:
            raise RuntimeError("the run is being read elsewhere: one reader at a time")
        _raise_failure(self.outcome)
        return self.ended or self.end(self.outcome)

    def end(self, outcome: Outcome, *, committed: bool = False) -> RunResult:
        """Make the result of a run that is over."""
        self.ended = RunResult(
            final_output=outcome.final_output,
            outcome=outcome,
            replies=self.replies,
            before=self.origin,
            committed=committed,
        )
        return self.ended

    def conclude(self) -> None:
        """Enter the tries in the outcome, and tell the listeners; once."""
        outcome = self.outcome
        if outcome is None or self.concluded:
            return
        self.concluded = True
        self.outcome = outcome = replace(outcome, attempts=getattr(self.active, "attempts", ())[self.before :])
        ended(self.op, self.context, outcome=outcome)

    async def carry_out(self, effect: Effect) -> AsyncGenerator[AgentEvent, None]:
        """The events of an effect other than a model call; a batch of calls is reported at its end."""
        if isinstance(effect, Emit):
            yield effect.event
        if not isinstance(effect, RunTools):
            return
        results = ToolExecutor(around=around_tools(self.op)).results(
            effect.calls, tools=effect.tools, context=self.context, used=effect.used, on_tool_start=self._starts
        )
        async with aclosing(results):
            async for result in results:
                self.results = (*self.results, result)
                answered(self.op, result)
                yield result
        self.report(ToolsRan(self.results))

    def _starts(self, call: Call) -> None:
        self.started = self.started | {call.call_id or ""}

    def stop(self, error: BaseException | None = None) -> None:
        """Settle the outcome of a run that did not come to its end, with what it had."""
        if self.outcome is not None:
            return
        if not any(isinstance(effect, Done) for effect in self.effects):
            self.effects.clear()
            self.report(self._stopped(error))
        while self.next() is not None:
            pass

    def _stopped(self, error: BaseException | None) -> Report:
        if isinstance(error, Exception):
            return Failed(error, called=self.reading is not None)
        if self.reading is None or self.passage is None:
            return Aborted(results=self.results, started=self.started)
        step = self.passage.read(self.reading.partial(UnclassifiedError("the run was stopped")))
        return Aborted(step, self.passage.said(step, whole=False))


async def _drive(run: Run, model: Any, watch: Watchdog, kept: Kept | None) -> AsyncGenerator[AgentEvent, None]:
    loop = asyncio.get_running_loop()
    watch.start(loop)
    try:
        if kept is not None:
            await kept.begin(run)
        started(run.op, run.context)
        async with model.open_run() as active:
            run.active, run.before = active, len(getattr(active, "attempts", ()))
            while not run.closing and (effect := run.next()) is not None:
                watch.task = asyncio.current_task(loop)
                if not isinstance(effect, CallModel):
                    async with aclosing(run.carry_out(effect)) as events:
                        async for event in events:
                            yield event
                            watch.task = asyncio.current_task(loop)
                    continue
                failure: TierError | None = None
                stream, passage = run.call(active, effect)
                plain, keep = passage.plain, passage.pieces.append
                try:
                    async for event in stream:
                        if plain and type(event) is Text:
                            keep(event.text)
                            yield event
                            continue
                        for shown in passage.take(event):
                            yield shown
                        plain = passage.plain
                except TierError as error:
                    failure = error
                finally:
                    await stream.aclose()
                if not run.closing:
                    await run.replied(effect, failure, tier=getattr(active, "served", None))
        if kept is not None:
            watch.task = asyncio.current_task(loop)
            await kept.end(run)
    except asyncio.CancelledError:
        if watch.claim() is None:
            raise
    finally:
        watch.stop()
        run.stop(sys.exception())
        if kept is not None:
            kept.turn.leave()
        run.conclude()
    if run.outcome is not None:
        _raise_failure(run.outcome)


@dataclass(frozen=True, slots=True)
class Kept:
    """A run's tie to the conversation that it goes on with.

    Args:
        turn: its turn at it.
        start: begins a run from a state.
    """

    turn: Turn
    start: Callable[[RunState], Begun]

    async def begin(self, run: Run) -> None:
        """Wait for the runs before this one, and begin from what they left."""
        before = await self.turn.enter()
        if before is not None:
            run.begin(self.start(before), before)

    async def end(self, run: Run) -> None:
        """Commit what a run left that returns something; one that failed or was stopped leaves all as it was."""
        if run.outcome is None or run.outcome.outcome == "failed":
            return
        run.conclude()
        try:
            await self.turn.commit(run.end(run.outcome, committed=True).run_state)
        finally:
            failure = sys.exception()
            run.error = failure if isinstance(failure, Exception) else None


def _raise_failure(outcome: Outcome) -> None:
    if outcome.outcome == "failed" and outcome.error is not None:
        raise outcome.error


class RunStream:
    """The events of one run, as the caller holds them: those of every step, and a `ToolResult` for every call.

    Iterate it, or use it as a block; leaving the block, or dropping the last reference, stops the run: the model's
    stream is closed, running async tools are cancelled. A run that fails raises its error; one that is cut ends, and
    `outcome` says so. `await`ing it gives the stream itself.

    Args:
        start: begins a run from a state.
        model: what has `open_run()`.
        before: the state to begin from.
        turn: the run's turn at the conversation that it goes on with, and commits to; None where there is none.
        runner: how it is driven.
        as_model_events: whether the events are shown as the model face shows them, each a `ModelStreamEvent`.
    """

    __slots__ = ("__weakref__", "_events", "_run", "_shown", "_watch")

    def __init__(
        self,
        start: Callable[[RunState], Begun],
        model: Any,
        *,
        before: RunState,
        turn: Turn | None = None,
        runner: Runner | None = None,
        as_model_events: bool = False,
    ) -> None:
        (state, effects), context = start(before)
        retries = (0, _passes) if runner is None else (runner.max_attempts - 1, runner.is_retryable or _passes)
        self._run = Run(state, deque(effects), context, before, retries=retries)
        self._watch = Watchdog(_UNTIMED)
        self._events = _drive(self._run, model, self._watch, None if turn is None else Kept(turn, start))
        self._watch.guard(self._events)
        self._shown: AsyncGenerator[Any, None] = self._events
        if as_model_events:
            self._shown = model_events(self._events, self._run.told)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it goes on."""
        return self._run.outcome

    def __aiter__(self) -> AsyncIterator[Any]:
        # The generator itself, so that a loop takes each event without a call through this object.
        return self._shown

    def __anext__(self) -> Any:
        return self._shown.__anext__()

    def __await__(self) -> Generator[Any, None, RunStream]:
        return self._itself().__await__()

    async def _itself(self) -> RunStream:
        return self

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the run; harmless twice, from a task other than the reader's, and from a tool of the run itself."""
        run, watch = self._run, self._watch
        run.closing = True
        pause = 0.0
        while watch.waiting():
            if run.reading is not None:
                await run.reading.aclose()
            else:
                watch.interrupt("closed")
            if watch.task is asyncio.current_task():
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2 + 0.001, _IMPATIENT)
        await self._events.aclose()
        await self._shown.aclose()
        run.stop()
        run.conclude()

    async def result(self) -> RunResult:
        """Read to the end and return the result; what was already read counts. A cut run returns too.

        Raises:
            TierError: the run failed, without any answer.
        """
        async for _ in self._events:
            pass
        return self._run.result()
