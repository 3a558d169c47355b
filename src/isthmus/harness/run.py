"""One run: where its machine stands, and what is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from isthmus.adapters.views import to_response
from isthmus.errors import ChainCut, TierError, TransientError, UnavailableError, UnclassifiedError
from isthmus.harness.crew import Crew
from isthmus.harness.descriptor import Runner
from isthmus.harness.effects import (
    Aborted,
    CallModel,
    Done,
    Effect,
    Emit,
    Failed,
    PrepareTurn,
    Replied,
    Report,
    RunTools,
    ToolsRan,
)
from isthmus.harness.loop import Next, advance
from isthmus.harness.loopstate import LoopState
from isthmus.harness.observed import answered, around_tools, begun, ended
from isthmus.harness.outcome import Outcome
from isthmus.harness.passage import Passage
from isthmus.harness.result import RunResult
from isthmus.harness.runevents import RunEvent
from isthmus.harness.state import RunState
from isthmus.models.events import Call, Event, FinishReason, Reset, StepResult
from isthmus.models.executor import ToolExecutor, ToolResult
from isthmus.models.stream import EventStream
from isthmus.models.tools import ToolExecutionContext
from isthmus.observability.scope import Operation, under

AgentEvent: TypeAlias = Event | ToolResult


@dataclass(frozen=True, slots=True)
class Begun:
    """The first step of a run, and what it has for all its steps."""

    next: Next
    context: ToolExecutionContext
    crew: Crew | None = None


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell those who attend the run of the model call that comes next."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Tell them of its reply; None if it failed."""

    step: StepResult | None


Todo: TypeAlias = Effect | Announce | Heard


def passes(error: Exception) -> bool:
    """Whether an error is of a kind that passes."""
    return isinstance(error, TransientError | UnavailableError)


@dataclass(slots=True)
class Run:
    """One run: the machine's state, and what is under way.

    Args:
        state: where the machine stands.
        effects: what it wants done.
        context: what tools are told.
        crew: who attends it.
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
    effects: deque[Todo]
    context: ToolExecutionContext
    crew: Crew | None
    origin: RunState
    retries: tuple[int, Callable[[Exception], bool]]
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
    announced: CallModel | None = None
    op: Operation | None = field(default_factory=begun)

    @classmethod
    def of(cls, begun: Begun, before: RunState, *, runner: Runner | None) -> Run:
        """A run at its beginning."""
        state, effects = begun.next
        retries = (0, passes) if runner is None else (runner.max_attempts - 1, runner.is_retryable or passes)
        return cls(state, deque(effects), begun.context, begun.crew, before, retries)

    def begin(self, begun: Begun, before: RunState) -> None:
        """Begin anew from another conversation."""
        (self.state, effects), self.context, self.crew = begun.next, begun.context, begun.crew
        self.effects, self.origin = deque(effects), before

    def next(self) -> Todo | None:
        """The next effect to carry out; None once the run is over."""
        effect = self.effects.popleft()
        if isinstance(effect, Done):
            self.outcome = effect.outcome
            return None
        if self.crew is not None and isinstance(effect, CallModel) and effect is not self.announced:
            self.effects.appendleft(effect)
            return Announce()
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

    async def replied(self, effect: CallModel, failure: TierError | None) -> None:
        """Report the end of a model call; text that is still held back is shown first."""
        stream, passage = self.reading, self.passage
        if stream is None or passage is None:
            return
        step = passage.read(await stream.result() if failure is None else stream.partial(failure))
        self.effects.extend(Emit(event) for event in passage.rest())
        if failure is None or step.events:
            self.replies = (*self.replies, step)
            self._hear(step)
            tier = getattr(self.active, "served", None)
            self.report(Replied(step, passage.said(step, whole=failure is None), tier))
        elif self.tried < self.retries[0] and self.retries[1](failure):
            self.tried += 1
            self.state = changed(self.state, spent=self.state.spent.add(failure.usage))
            self.effects.extend((Emit(Reset(self.tried + 1)), effect))
        else:
            # What a budget or a window forbids is cut before anybody is called.
            cut = isinstance(failure, ChainCut) and len(getattr(self.active, "attempts", ())) == self.tries
            self._hear(None)
            self.report(Failed(failure, called=not cut))

    def result(self) -> RunResult:
        """What the run returns.

        Raises:
            Exception: whatever it failed with.
        """
        if self.error is not None:
            raise self.error
        if self.outcome is None:
            raise RuntimeError("the run is being read elsewhere: one reader at a time")
        raise_failure(self.outcome)
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

    def _hear(self, step: StepResult | None) -> None:
        if self.crew is not None:
            self.effects.append(Heard(step))

    async def carry_out(self, effect: Todo) -> AsyncGenerator[AgentEvent | RunEvent, None]:
        """The events of an effect other than a model call; a batch of calls is reported at its end."""
        if isinstance(effect, Emit):
            yield effect.event
        elif isinstance(effect, RunTools):
            async for event in self._run_tools(effect):
                yield event
            self.report(ToolsRan(self.results))
            if self.crew is not None:
                self.crew.at("tool_round_end", self.state)
        elif self.crew is not None:
            with under(self.op):
                await self._attend(self.crew, effect)
        for told in self.told():
            yield told

    def told(self) -> tuple[RunEvent, ...]:
        """What is to be read of those who attend the run."""
        return () if self.crew is None else self.crew.events()

    async def _run_tools(self, effect: RunTools) -> AsyncGenerator[AgentEvent | RunEvent, None]:
        calls = {call.call_id or "": call for call in effect.calls}
        results = ToolExecutor(around=around_tools(self.op)).results(
            effect.calls, tools=effect.tools, context=self.context, used=effect.used, on_tool_start=self._starts
        )
        mailbox = None if self.crew is None else self.crew.mailbox
        async with aclosing(results):
            events = results if mailbox is None else mailbox.beside(results)
            async with aclosing(events):
                async for item in events:
                    if isinstance(item, ToolResult):
                        await self._answered(calls[item.call_id], item)
                    yield item

    async def _answered(self, call: Call, result: ToolResult) -> None:
        self.results = (*self.results, result)
        answered(self.op, result)
        if self.crew is not None:
            with under(self.op):
                await self.crew.tool_ends(call, result)

    async def _attend(self, crew: Crew, effect: Todo) -> None:
        """The steps around a model call."""
        if isinstance(effect, PrepareTurn):
            self.report(await crew.prepare(self.state, self.active))
            crew.at("turn_prepared", self.state)
        elif isinstance(effect, Heard):
            broken = effect.step is None or effect.step.finish == FinishReason.ERROR_POST
            await crew.heard(None if effect.step is None or broken else to_response(effect.step))
        elif isinstance(self.effects[0], CallModel):
            self.announced = self.effects[0] = await crew.announce(self.effects[0])

    async def _starts(self, call: Call) -> None:
        self.started = self.started | {call.call_id or ""}
        if self.crew is not None:
            await self.crew.tool_starts(call)

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


def raise_failure(outcome: Outcome) -> None:
    """Raise what a failed run failed with."""
    if outcome.outcome == "failed" and outcome.error is not None:
        raise outcome.error
