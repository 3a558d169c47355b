"""One run: where its machine stands, and what is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace as changed

from isthmus.adapters.views import to_response
from isthmus.errors import ChainCut, CutReason, TierError, UnclassifiedError
from isthmus.harness.account import Account
from isthmus.harness.asides import Asides
from isthmus.harness.beginning import Announce, Begun, Heard, Todo
from isthmus.harness.conversation import Turn
from isthmus.harness.crew import Crew
from isthmus.harness.descriptor import Runner, retries_of
from isthmus.harness.docket import Docket
from isthmus.harness.effects import CallModel, Collect, Done, Emit, PrepareTurn, RunTools
from isthmus.harness.endings import failure_reason
from isthmus.harness.loop import advance
from isthmus.harness.loopstate import LoopState
from isthmus.harness.observed import begun, ended
from isthmus.harness.outcome import Outcome, raise_failure
from isthmus.harness.passage import Passage
from isthmus.harness.recovery import Comeback
from isthmus.harness.reports import Aborted, Failed, Replied, Report
from isthmus.harness.result import RunResult, say_how_far
from isthmus.harness.rounds import run_round
from isthmus.harness.runevents import RunEvent
from isthmus.harness.runlog import RunLog
from isthmus.harness.sent import Sent
from isthmus.harness.state import RunState
from isthmus.models.aside import Aside
from isthmus.models.events import Event, FinishReason, Reset, StepResult
from isthmus.models.executor import ToolResult
from isthmus.models.spent import Spent
from isthmus.models.stream import EventStream
from isthmus.models.tools import ToolExecutionContext
from isthmus.observability.scope import Operation, under

AgentEvent: TypeAlias = Event | ToolResult
_NONE: frozenset[str] = frozenset()


class Run(Struct):
    """One run: the machine's state, and what is under way.

    Args:
        state: where the machine stands.
        effects: what it wants done.
        context: what tools are told.
        crew: who attends it.
        origin: the conversation that it began from.
        retries: how often a model call that failed before any content may be made anew, and after which failures.
        back: where it comes back to, if it stopped before.
        log: its journal.
        docket: what is known of the calls that it stopped at, until they are run.
        replies: what the models have replied.
        error: what went wrong outside of the machine, e.g. where the conversation is kept.
        ended: the result, once it was made.
        active: what is called: the run's own copy of a chain.
        tries: how many it had made before the call that is being read.
        lead: the agent at work, where others may work for it or take over.
        turn: its turn at a conversation that is kept.
        account: what the run spent.
        agent: the name of the agent that began it.
        others: closes the models that are called besides the first.
        opened: what is called of each model, by its `id`.
        ending: the task in which it ends.
        returned: results that are there and not told yet, by their calls.
        asides: what is under way beside the replies, if there was anything.
        sent: the last request as it was sent, and how it goes on.
        unseen: whether nobody looks at the events.
        left: whether its reader went before its end, so that nobody is there to be told of it.
    """

    state: LoopState
    effects: deque[Todo]
    context: ToolExecutionContext
    crew: Crew | None
    origin: RunState
    retries: tuple[int, Callable[[Exception], bool]]
    back: Comeback | None = None
    log: RunLog | None = None
    docket: Docket | None = None
    replies: tuple[StepResult, ...] = ()
    error: Exception | None = None
    ended: RunResult | None = None
    tried: int = 0
    outcome: Outcome | None = None
    reading: EventStream | None = None
    passage: Passage | None = None
    results: tuple[ToolResult, ...] = ()
    returned: dict[str, ToolResult] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    closing: bool = False
    ending: Any = None
    tallied: bool = False
    concluded: bool = False
    active: Any = None
    tries: int = 0
    announced: CallModel | None = None
    op: Operation | None = field(default_factory=begun)
    lead: Any = None
    turn: Turn | None = None
    account: Account = field(default_factory=Account)
    agent: str = ""
    others: AsyncExitStack | None = None
    opened: dict[int, Any] = field(default_factory=dict)
    asides: Asides | None = None
    sent: Sent | None = None
    unseen: bool = False
    left: bool = False

    @classmethod
    def of(cls, begun: Begun, before: RunState, *, runner: Runner | None) -> Run:
        """A run at its beginning."""
        state, effects = begun.next
        run = cls(state, deque(effects), begun.context, begun.crew, before, retries=retries_of(runner), lead=begun.lead)
        run._come_back(begun)
        return run

    def begin(self, begun: Begun, before: RunState) -> None:
        """Begin anew from another conversation."""
        self._take(begun)
        self.origin = before
        self._come_back(begun)

    def go_on(self, begun: Begun, runner: Runner | None) -> None:
        """Go on as another agent."""
        self._take(begun)
        self.driven_by(runner)

    def driven_by(self, runner: Runner | None) -> None:
        """Make model calls anew as often as this says."""
        self.retries = retries_of(runner)

    def _take(self, begun: Begun) -> None:
        (self.state, effects), self.context, self.crew = begun.next, begun.context, begun.crew
        self.effects, self.lead = deque(effects), begun.lead

    def _come_back(self, begun: Begun) -> None:
        """Take what an earlier life of the run left, and where this one is written down."""
        self.back, self.log, self.agent = begun.back, begun.log, begun.context.agent_name or ""
        if self.back is not None:
            self.agent = self.agent if self.back.first is None else self.back.first.made.name
            self.docket, self.replies = self.back.docket, self.back.replies

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
        for each in self.results if self.returned else ():
            self.returned.pop(each.call_id, None)
        self.results, self.started = (), _NONE
        self.tried = 0

    def call(self, model: Any, effect: CallModel) -> tuple[EventStream, Passage]:
        """Begin a model call."""
        self.tries = model.tries
        last, anew = self.sent, Sent(effect.ctx, len(self.state.messages))
        self.sent = anew if last is None or effect.continues is None else last.going_on(effect, state=self.state)
        if self.op is None:
            stream = model.stream(self.sent.ctx)
        else:
            with under(self.op):
                stream = model.stream(self.sent.ctx)
        self.reading = stream if isinstance(stream, EventStream) else EventStream(stream)
        self.passage = Passage(effect, () if self.asides is None else self.asides.begin())
        return self.reading, self.passage

    async def replied(self, effect: CallModel, failure: TierError | None) -> None:
        """Report the end of a model call; text that is still held back is shown first."""
        stream, passage = self.reading, self.passage
        if stream is None or passage is None:
            return
        raw = await stream.result() if failure is None else stream.partial(failure)
        step = passage.read(raw)
        step, continued = (step, None) if self.asides is None else await self.asides.replied(step)
        for event in passage.rest():
            self.effects.append(Emit(event))
        if failure is None or step.events:
            self.replies = (*self.replies, step)
            self._hear(step)
            tier = getattr(self.active, "served", None)
            said = passage.said(step, whole=failure is None)
            if self.log is not None and step.finish != FinishReason.ERROR_POST:
                beside = None if self.asides is None else self.asides.recorded(continued)
                await self.log.reply(step, said, tier=tier, beside=beside)
            taken = self.state.ids
            self.report(Replied(step, said, tier, continued))
            if self.sent is not None and continued is not None:
                self.sent = self.sent.replied(raw, continued, taken=taken, length=len(self.state.messages))
        elif self.tried < self.retries[0] and self.retries[1](failure):
            self.tried += 1
            self.state = changed(self.state, spent=self.state.spent.add(failure.usage))
            self.effects.extend((Emit(Reset(self.tried + 1)), effect))
        else:
            # What a budget or a window forbids is cut before anybody is called.
            cut = isinstance(failure, ChainCut) and self.active.tries == self.tries
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

    def tally(self) -> None:
        """Enter the tries and what was spent in the outcome; once."""
        outcome = self.outcome
        if outcome is None or self.tallied:
            return
        self.tallied = True
        self.collect()
        spent = self.spent
        self.outcome = changed(outcome, attempts=self.account.tries, usage=spent.usage, usage_missing=spent.missing)
        say_how_far(self.outcome, self.replies)

    def conclude(self) -> None:
        """Tell the listeners that the run is over; once."""
        if self.concluded:
            return
        self.tally()
        outcome = self.outcome
        if outcome is not None:
            self.concluded = True
            own, usage = self.account.own, self.state.spent.usage
            ended(self.op, self.agent, run_id=self.context.run_id or "", outcome=outcome, attempts=own, usage=usage)

    @property
    def spent(self) -> Spent:
        """The tokens, with those of agents that worked for the run."""
        return self.state.spent.with_those_of(self.account.helped)

    def collect(self) -> None:
        """Enter the tries that were made, and what those spent who have worked for the run."""
        self.account.collect(self.active, () if self.lead is None else self.lead.ended())

    def calls(self, active: Any) -> None:
        """Call this from now on."""
        self.active = active
        self.account.opens(active)

    def _hear(self, step: StepResult | None) -> None:
        if self.crew is not None:
            self.effects.append(Heard(step))

    def work(self, effect: Todo) -> AsyncGenerator[AgentEvent | RunEvent, None] | None:
        """The events of an effect for which others work, a batch of calls reported at its end; None of any other."""
        if isinstance(effect, RunTools):
            return run_round(self, effect)
        return self.asides.collect(effect) if isinstance(effect, Collect) and self.asides is not None else None

    def aside(self, event: Aside) -> tuple[AgentEvent | RunEvent, ...]:
        """Act on an event aside, and show it, with what those who attend the run have to say by now."""
        if self.asides is None:
            self.asides = Asides(self)
        self.asides.take(event.event)
        return (event, *self.told())

    async def __aenter__(self) -> Run:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nothing runs on beside a run that is over.
        if self.asides is not None:
            await self.asides.end(error)

    def told(self) -> tuple[RunEvent, ...]:
        """What is to be read of those who attend the run."""
        return () if self.crew is None or self.left else self.crew.events()

    async def attend(self, effect: Todo) -> None:
        """Carry out a step around a model call."""
        if self.crew is not None:
            with under(self.op):
                await self._attend(self.crew, effect)

    async def _attend(self, crew: Crew, effect: Todo) -> None:
        if isinstance(effect, PrepareTurn):
            prepared = await crew.prepare(self.state, self.active)
            if self.log is not None:
                self.log.prepared(prepared, changed=prepared.messages is not self.state.messages)
            self.report(prepared)
            crew.at("turn_prepared", self.state)
        elif isinstance(effect, Heard):
            broken = effect.step is None or effect.step.finish == FinishReason.ERROR_POST
            response = None if effect.step is None or broken else to_response(effect.step)
            await crew.heard(response, getattr(self.active, "attempts", ())[self.tries :])
        elif isinstance(self.effects[0], CallModel):
            self.announced = self.effects[0] = await crew.announce(self.effects[0])

    def stop(self, error: BaseException | None = None) -> None:
        """Settle the outcome of a run that did not come to its end, with what it had."""
        if self.outcome is not None:
            return
        if not any(isinstance(effect, Done) for effect in self.effects):
            self.effects.clear()
            self.report(self._stopped(error))
        while self.next() is not None:
            pass

    def give_up(self, error: BaseException | None) -> None:
        """Take back what a run was about to return that was stopped, or failed, at its very end."""
        outcome = self.outcome
        if outcome is None or outcome.outcome == "failed":
            return
        self.ended = None
        if isinstance(error, Exception):
            self.outcome = changed(outcome, outcome="failed", reason=str(failure_reason(error)), error=error)
        else:
            self.outcome = changed(outcome, outcome="cut", reason=str(CutReason.ABORTED))

    def _stopped(self, error: BaseException | None) -> Report:
        if isinstance(error, Exception):
            return Failed(error, called=self.reading is not None)
        known = tuple((self.returned | {each.call_id: each for each in self.results}).values())
        if self.reading is None or self.passage is None:
            return Aborted(results=known, started=self.started)
        step = self.passage.read(self.reading.partial(UnclassifiedError("the run was stopped")))
        step, continued = (step, None) if self.asides is None else (self.asides.reply(step)[0], self.asides.continued)
        return Aborted(step, self.passage.said(step, whole=False), results=known, continued=continued)
