"""One call of a chain as it proceeds: feeds the policy, keeps the ledger, tells the listeners."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import msgspec

from isthmus.chain.budget import Account
from isthmus.chain.context import ContextPolicy
from isthmus.chain.happenings import Aborted, Content, Ended, Failed, Go, Happening, Lapsed, Ready, Unfit, Woke
from isthmus.chain.ledger import Attempt, Run
from isthmus.chain.policy import Effect, Forget, Phase, State, step
from isthmus.chain.report import Teller
from isthmus.chain.seams import Drain, Rendered, Renderer
from isthmus.chain.setup import Setup, needs, require
from isthmus.chain.trying import End, Try
from isthmus.errors import ChainCut, ChainExhausted, CutReason, ProtocolError, TierError
from isthmus.models.aside import Aside
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Event, Finish, FinishReason, Reasoning, Reset, Text, framed, tried
from isthmus.models.normalise import to_event
from isthmus.models.stream import DEADLINE
from isthmus.observability.scope import Operation


class ChainCall:
    """The state of one call.

    Args:
        setup: the chain's definition.
        run: the memory of the run that the call belongs to.
        ctx: the request.
        outer: where the chain is a tier, the call of the chain around it.
    """

    __slots__ = (
        "_due",
        "_failures",
        "_outer",
        "_rendered",
        "_state",
        "_tell",
        "_until",
        "accounts",
        "attempts",
        "ctx",
        "index",
        "member",
        "over",
        "run",
        "setup",
        "trying",
    )

    def __init__(self, setup: Setup, run: Run, *, ctx: GenerateContext, outer: ChainCall | None = None) -> None:
        order = range(len(setup.members))
        first = run.start if setup.sticky or run.held else 0
        run.held = False
        self.setup = setup
        self.run = run
        self.ctx = ctx
        self.over = False
        self.index = first
        """The tier at work."""
        self.member = setup.members[first]
        self.trying = Try(self.member, ctx)
        run.steps += 1
        self.accounts: tuple[Account, ...] = () if run.account is None else (run.account,)
        if outer is not None:
            self.accounts += outer.accounts
        self._outer = outer
        self._state = State(todo=(*order[first:], *order[:first]))
        self._failures: list[Attempt] = []
        self._due: list[Event] = []
        self._rendered: tuple[int, bool, Rendered] | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self._until: tuple[float, CutReason] | None = None
        self._tell = Teller(setup.id, run.number, step=run.steps)

    def begin(self) -> None:
        """Count the step and choose the first tier.

        Raises:
            InvalidRequestError: a tier lacks what the request needs.
            ChainCut: all steps of the budget are used.
        """
        setup, account = self.setup, self.run.account
        require(setup.id, setup.members, wanted=needs(self.ctx))
        self._tell.tell("chain.started", {"tiers": setup.rules.ids})
        if account is not None and not account.step():
            reason = CutReason.BUDGET_STEPS
            self._tell.tell("budget.exceeded", {"reason": str(reason)})
            self._tell.tell("chain.failed", {"error_class": "unavailable", "reason": str(reason), "attempts": 0})
            self._state = msgspec.structs.replace(self._state, phase=Phase.FAILED)
            raise ChainCut(f"steps={account.budget.steps}: all are used; raise it if the run is worth more", reason)
        ends: list[tuple[float, CutReason]] = []
        if setup.step_seconds is not None:
            ends.append((setup.clock.now() + setup.step_seconds, CutReason.DEADLINE))
        if account is not None and account.budget.seconds is not None:
            ends.append((account.began + account.budget.seconds, CutReason.BUDGET_TIME))
        if self._outer is not None and self._outer._until is not None:
            ends.append(self._outer._until)
        if ends:
            self._until = min(ends)
        self._select()

    def left(self) -> float | None:
        """How many seconds are left for all tries; None for any number."""
        return None if self._until is None else max(0.0, self._until[0] - self.setup.clock.now())

    def drain(self) -> Drain | None:
        """What takes the markers out of this reply; None where there are none."""
        markers = self.setup.markers
        return None if markers is None else markers(self._tell.tell)

    @property
    def attempt(self) -> Operation | None:
        """The try that is under way, for those who listen; None where nobody does."""
        return self._tell.attempt

    def due(self) -> list[Event]:
        """The events that the chain itself has to say now."""
        events, self._due = self._due, []
        return events

    async def ready(self) -> bool:
        """Wait until a try may begin; False when the call is over.

        Raises:
            ChainExhausted: no tier is left.
            TierError: the failure is one that no other tier would mend.
        """
        wait = 0.0
        while True:
            state = self._state
            if state.phase is Phase.BACKOFF:
                await self.setup.clock.sleep(state.delay)
                wait = state.delay
                self._move(Woke())
            elif state.phase is Phase.PREPARE:
                await self._prepare(wait)
            elif state.phase is Phase.EXHAUSTED:
                raise ChainExhausted(self.setup.id, self._failures) from state.error
            elif state.phase is Phase.FAILED and state.error is not None:
                raise state.error
            else:
                return state.phase is Phase.ATTEMPT

    async def _prepare(self, wait: float) -> None:
        """Render the request for the tier, wait for its limiter, and set aside what it may spend."""
        setup, index, member = self.setup, self.index, self.member
        lapsed = self._lapsed()
        if lapsed is not None:
            setup.health.left(index, self)
            self._move(Lapsed(lapsed))
            return
        rendered: Rendered | None = Rendered(ctx=self.ctx)
        if setup.context is not None and self._measured():
            rendered = await self._render(setup.context)
        if rendered is None:
            self._unfit(CutReason.WINDOW)
            return
        trying = self.trying = Try(member, rendered.ctx, notes=rendered.notes)
        if member.max_output_tokens is not None and trying.ctx.max_output_tokens is not None:
            trying.lower(member.max_output_tokens, f"tier {member.id!r}")
        limiter = setup.limits[index] if setup.limits else None
        if limiter is not None:
            asked = setup.clock.now()
            await trying.admitted(limiter)
            wait += setup.clock.now() - asked
        if self.accounts and not member.chained:
            lack = trying.reserve(self.accounts, rendered.input_tokens)
            if lack is not None:
                trying.leave(None, None, known=False)
                self._unfit(lack)
                return
            self._tell.tell("budget.reserved", trying.reserved())
        trying.wait = wait
        trying.began = setup.clock.now()
        setup.health.begun(index, self)
        self._move(Ready())

    def _unfit(self, reason: CutReason) -> None:
        self.setup.health.left(self.index, self)
        self._move(Unfit(reason))
        self._select()

    def _measured(self) -> bool:
        """Whether the size of the request matters to anybody: it takes longer the longer the transcript is."""
        known = self.member.window_tokens is not None or self._state.smaller
        own = type(self.setup.context) is ContextPolicy
        return known or not own or bool(self.accounts) or self._tell.heard

    async def _render(self, context: Renderer) -> Rendered | None:
        """The request for the tier at work; the same one for each of its tries."""
        index, smaller = self.index, self._state.smaller
        if self._rendered is not None and self._rendered[:2] == (index, smaller):
            return self._rendered[2]
        made = context(self.ctx, self.member, smaller=smaller)
        rendered = made if type(made) is Rendered or not isawaitable(made) else await made
        if rendered is not None:
            self._rendered = (index, smaller, rendered)
            if self._tell.heard:
                report = {} if rendered.report is None else rendered.report.to_dict()
                self._tell.tell("context.rendered", {"tier": self.member.id, **report})
        return rendered

    def commit(self) -> None:
        """The first content is here: from now on nothing is tried again."""
        if self._state.phase is Phase.ATTEMPT:
            self._serves()
            self._move(Content(self.setup.clock.now() - self.trying.began))

    def take(self, item: Any) -> Event:
        """One event of the tier that is no plain text struct, as it goes on.

        Raises:
            ProtocolError: it breaks the contract.
        """
        event = to_event(item)
        trying = self.trying
        if isinstance(event, Text):
            if not isinstance(event.text, str):
                raise ProtocolError(f"text event: 'text' must be str, not {type(event.text).__name__}")
            if event.text:
                trying.written += len(event.text)
                self.commit()
            return event
        event = trying.fold.add(event)
        if isinstance(event, Finish):
            return self._finished(event)
        if isinstance(event, Call):
            trying.written += len(event.arguments or "")
            self.commit()
        else:
            trying.shown = not isinstance(event, Reset)
            if isinstance(event, Aside):
                self.run.held = self.run.held or event.event.continuation is not None
                if event.event.async_tool_call is not None:
                    # It runs from now on, so that another try would have it run again.
                    self.commit()
            elif isinstance(event, Reasoning):
                trying.written += len(event.text)
        return event

    def _finished(self, end: Finish) -> Finish:
        changes: dict[str, Any] = {}
        if self.trying.notes:
            changes["notes"] = (*self.trying.notes, *end.notes)
        if end.finish == FinishReason.ERROR_POST and end.error is None:
            changes["error"] = ProtocolError("the reply failed and said not why")
        end = framed(msgspec.structs.replace(end, **changes), end.raw)
        if self._state.phase is Phase.ATTEMPT:
            self._serves()
        record = self._enter(End(str(end.finish), end.usage, end.error))
        self.over = True
        self._move(Ended(str(end.finish), record.seconds, end.error, end.usage, record.cost))
        return tried(end, self.attempts)  # type: ignore[no-any-return]

    def fail(self, error: TierError) -> None:
        """The try, or the wait before it, failed: decide what comes next."""
        phase = self._state.phase
        posted = phase is Phase.COMMITTED
        over = self._timed_out(error)
        # A stream that broke by itself is called broken, however little time was left.
        late = None if posted and not over else self._lapsed(over)
        failure = late or error
        if late is not None:
            late.usage = error.usage
        cooled = None
        if phase is Phase.ATTEMPT and late is None:
            cooled = self.setup.health.failed(self.index, failure, call=self)
        else:
            self.setup.health.left(self.index, self)
        self._decide(failure, late, cooled=cooled is not None)
        if cooled is not None:
            self._tell.tell("tier.cooled", {"tier": self.trying.member.id, "seconds": cooled})
        if posted:
            self.over = True
            notes = (*self.trying.notes, *self.trying.fold.failed(failure).notes)
            end = Finish("error-post", failure.usage, error=failure, notes=notes)
            self._due.append(tried(end, self.attempts))
        elif self._state.phase is Phase.SELECT:
            self._select()

    def _timed_out(self, error: TierError) -> bool:
        """Whether a failure says itself that the time for all tries is over."""
        inner = self.trying.inner
        if inner is not None:
            return isinstance(error, ChainCut) and inner._until is not None and inner._until is self._until
        return error.code == DEADLINE and error.status is None

    def _decide(self, error: TierError, late: ChainCut | None, *, cooled: bool) -> None:
        """Feed the failure to the policy, and enter it with what follows."""
        phase, trying = self._state.phase, self.trying
        if late is not None:
            event: Happening = Lapsed(late, self._seconds())
        else:
            event = Failed(error, self._seconds(), trying.shown, self.setup.clock.random(), self.left(), cooled)
        state, effects = step(self.setup.rules, self._state, event=event)
        then = next((e.fields["next"] for e in effects if not isinstance(e, Forget) and "next" in e.fields), None)
        if phase not in (Phase.ATTEMPT, Phase.COMMITTED):
            trying.free()
            trying.leave(None, None, known=False)
        else:
            finish = FinishReason.ERROR_POST.value if phase is Phase.COMMITTED else None
            self._enter(End(finish, error.usage, error, then))
        self._become(state, effects)

    def leave(self) -> None:
        """The call is over, or its caller is gone: nothing more is tried."""
        self._outer = None
        phase = self._state.phase
        if phase in (Phase.SELECT, Phase.PREPARE, Phase.ATTEMPT, Phase.BACKOFF, Phase.COMMITTED):
            self.over = True
            if phase is not Phase.SELECT:
                self.setup.health.left(self.index, self)
            if phase in (Phase.ATTEMPT, Phase.COMMITTED):
                self.trying.stopped = True
                self._enter(End())
            elif phase is Phase.PREPARE:
                self.trying.free()
                self.trying.leave(None, None, known=False)
            self._move(Aborted())

    def _select(self) -> None:
        while self._state.phase is Phase.SELECT:
            self._move(Go(self.setup.health.cooling()))
        if self._state.phase is Phase.PREPARE:
            self.index = self._state.todo[0]
            self.member = self.setup.members[self.index]
            self.setup.health.begun(self.index, self)

    def _serves(self) -> None:
        self.run.served = self.member.id
        self.run.start = self.index
        if self.setup.health.good(self.index):
            self._tell.tell("tier.recovered", {"tier": self.member.id})

    def _seconds(self) -> float:
        return self.setup.clock.now() - self.trying.began

    def _lapsed(self, over: bool = False) -> ChainCut | None:
        """What to raise once the time for all tries is `over`, or its end has come."""
        if self._until is None or not (over or self.setup.clock.now() >= self._until[0]):
            return None
        reason = self._until[1]
        return ChainCut(f"chain {self.setup.id!r}: {reason}: the time for all tries is over", reason)

    def _enter(self, end: End) -> Attempt:
        """Enter the try in the ledger, and settle what it spent."""
        trying, state = self.trying, self._state
        record = trying.record(end, state.attempt, seconds=self._seconds(), prices=self.setup.prices)
        self.run.attempts.append(record)
        self.attempts += (record,)
        if record.error is not None:
            self._failures.append(record)
        if self.accounts and not trying.member.chained:
            spent = trying.settle(end, committed=state.phase is Phase.COMMITTED)
            self._tell.tell("budget.settled", {"tier": record.tier, "usage": spent, "cost": record.cost})
        trying.leave(end.error, end.usage, known=end.finish is not None or end.error is not None)
        return record

    def _move(self, event: Happening) -> None:
        self._become(*step(self.setup.rules, self._state, event=event))

    def _become(self, state: State, effects: tuple[Effect, ...]) -> None:
        self._state = state
        heard = self._tell.heard
        for effect in effects:
            if isinstance(effect, Forget):
                self._due.append(Reset(effect.attempt))
            elif heard or effect.loud:
                self._tell.tell(effect.type, effect.fields, loud=effect.loud and self.trying.inner is None)
