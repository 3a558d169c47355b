"""One call of a chain as it proceeds: feeds the policy, keeps the ledger, tells the listeners."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import Any

import msgspec

from isthmus.chain import policy
from isthmus.chain.budget import Account
from isthmus.chain.context import ContextPolicy
from isthmus.chain.happenings import Aborted, Content, Ended, Failed, Go, Happening, Lapsed, Ready, Unfit, Woke
from isthmus.chain.ledger import Attempt, Run
from isthmus.chain.policy import Effect, Forget, State, step
from isthmus.chain.report import Teller
from isthmus.chain.seams import Drain, Rendered, Renderer
from isthmus.chain.setup import Setup, needs, require
from isthmus.chain.trying import End, Try
from isthmus.errors import ChainCut, ChainExhausted, CutReason, ProtocolError, TierError
from isthmus.models.aside import Aside
from isthmus.models.contract import GenerateContext
from isthmus.models.events import EVENT_TYPES, Call, Event, Finish, FinishReason, Reasoning, Reset, Text, framed, tried
from isthmus.models.normalise import to_event, to_finish
from isthmus.models.watchdog import DEADLINE, UNTIMED, Watchdog
from isthmus.observability import hooks

_GO, _READY = Go(), Ready()
_POST = FinishReason.ERROR_POST.value


class ChainCall:
    """The state of one call.

    Args:
        setup: the chain's definition.
        run: the memory of the run that the call belongs to.
        ctx: the request.
        outer: where the chain is a tier, the call of the chain around it.
    """

    __slots__ = (
        "_outer",
        "_prices",
        "_rendered",
        "_state",
        "_until",
        "accounts",
        "attempts",
        "ctx",
        "drain",
        "due",
        "index",
        "member",
        "over",
        "run",
        "setup",
        "teller",
        "trying",
    )

    def __init__(self, setup: Setup, run: Run, *, ctx: GenerateContext, outer: ChainCall | None = None) -> None:
        first = run.start if setup.sticky or run.held else 0
        run.held = False
        run.steps += 1
        self.setup = setup
        self.run = run
        self.ctx = ctx
        self.over = False
        self.index = first
        """The tier at work."""
        self.member = setup.members[first]
        self.trying = Try(self.member, ctx)
        self.due: list[Event] = []
        """What the chain itself has to say now."""
        self.accounts: tuple[Account, ...] = () if run.account is None else (run.account,)
        self._prices = setup.prices
        if outer is not None:
            self.accounts += outer.accounts
            self._prices = self._prices or outer._prices
        self._outer = outer
        self._rendered: tuple[int, bool, Rendered] | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self._until: tuple[float, CutReason] | None = None
        heard = hooks.listening()
        self.teller = Teller(setup.id, run.number, step=run.steps, heard=True) if heard else setup.silent
        self._state = State(todo=setup.orders[first]) if heard else setup.openings[first]
        self.drain: Drain | None = None if setup.markers is None else setup.markers(self.teller.tell)
        """What takes the markers out of this reply; None where there are none."""

    def begin(self) -> None:
        """Count the step and choose the first tier.

        Raises:
            InvalidRequestError: a tier lacks what the request needs.
            ChainCut: all steps of the budget are used.
        """
        setup, account = self.setup, self.run.account
        wanted = needs(self.ctx)
        if not wanted <= setup.supports:
            require(setup.id, setup.members, wanted=wanted)
        if self.teller.heard:
            self.teller.tell("chain.started", {"tiers": setup.rules.ids})
        if account is not None and not account.step():
            reason = CutReason.BUDGET_STEPS
            self.teller.tell("budget.exceeded", {"reason": str(reason)})
            self.teller.tell("chain.failed", {"error_class": "unavailable", "reason": str(reason), "attempts": 0})
            self._state = msgspec.structs.replace(self._state, phase=policy.FAILED)
            raise ChainCut(f"steps={account.budget.steps}: all are used; raise it if the run is worth more", reason)
        if self._outer is not None:
            self._until = self._outer._until
        if setup.step_seconds is not None:
            self._ends_by(setup.clock.now() + setup.step_seconds, CutReason.DEADLINE)
        if account is not None and account.budget.seconds is not None:
            self._ends_by(account.began + account.budget.seconds, CutReason.BUDGET_TIME)
        if setup.health.cooling() and not self.teller.heard:
            self._state = State(todo=setup.orders[self.index], quiet=True)
        if self._state.phase is policy.SELECT:
            self._select()
        else:
            setup.health.begun(self.index, self)

    def _ends_by(self, moment: float, reason: CutReason) -> None:
        self._until = min((moment, reason), self._until or (moment, reason))

    def left(self) -> float | None:
        """How many seconds are left for all tries; None for any number."""
        return None if self._until is None else max(0.0, self._until[0] - self.setup.clock.now())

    def said(self) -> list[Event]:
        """What was due, as it is said now."""
        events, self.due = self.due, []
        return events

    async def ready(self, watch: Watchdog) -> bool:
        """Wait until a try may begin; False when the call is over.

        Args:
            watch: times nothing but what is left for all tries.

        Raises:
            ChainExhausted: no tier is left.
            TierError: the failure is one that no other tier would mend.
        """
        wait = 0.0
        while (state := self._state).phase is not policy.ATTEMPT:
            if self._until is not None or watch.timed:
                watch.restart(UNTIMED, self.left())
            try:
                if state.phase is policy.PREPARE:
                    await self._prepare(wait)
                elif state.phase is policy.BACKOFF:
                    await self.setup.clock.sleep(state.delay)
                    wait = state.delay
                    self._move(Woke())
                elif state.phase is policy.EXHAUSTED:
                    failures = [each for each in self.attempts if each.error is not None]
                    raise ChainExhausted(self.setup.id, failures) from state.error
                elif state.phase is policy.FAILED and state.error is not None:
                    raise state.error
                else:
                    return False
            except asyncio.CancelledError:
                late = watch.overdue()
                if late is None:
                    raise
                self.fail(late)
        return True

    async def _prepare(self, wait: float) -> None:
        """Render the request for the tier, wait for its limiter, and set aside what it may spend."""
        setup, index, member = self.setup, self.index, self.member
        lapsed = None if self._until is None else self._lapsed()
        if lapsed is not None:
            setup.health.left(index, self)
            self._move(Lapsed(lapsed))
            return
        trying, tokens = self.trying, None
        if self._state.tries or trying.member is not member:
            trying = self.trying = Try(member, self.ctx)
        if setup.context is not None and (member.window_tokens is not None or self._measured()):
            rendered = await self._render(setup.context)
            if rendered is None:
                self._unfit(CutReason.WINDOW)
                return
            trying.ctx, trying.notes, tokens = rendered.ctx, rendered.notes, rendered.input_tokens
        if member.max_output_tokens is not None and trying.ctx.max_output_tokens is not None:
            trying.lower(member.max_output_tokens, f"tier {member.id!r}")
        limiter = setup.limits[index] if setup.limits else None
        if limiter is not None:
            asked = setup.clock.now()
            await trying.admitted(limiter)
            wait += setup.clock.now() - asked
        if self.accounts and not member.chained:
            lack = trying.reserve(self.accounts, tokens)
            if lack is not None:
                trying.leave(None, None, known=False)
                self._unfit(lack)
                return
            self.teller.tell("budget.reserved", trying.reserved())
        trying.wait = wait
        trying.began = setup.clock.now()
        setup.health.begun(index, self)
        self._move(_READY)

    def _unfit(self, reason: CutReason) -> None:
        self.setup.health.left(self.index, self)
        self._move(Unfit(reason))
        self._select()

    def _measured(self) -> bool:
        """Whether the size of the request matters to anybody: it takes longer the longer the transcript is."""
        if self._state.smaller or self.accounts or self.teller.heard:
            return True
        return type(self.setup.context) is not ContextPolicy

    async def _render(self, context: Renderer) -> Rendered | None:
        """The request for the tier at work; the same one for each of its tries."""
        index, smaller = self.index, self._state.smaller
        if self._rendered is not None and self._rendered[:2] == (index, smaller):
            return self._rendered[2]
        made = context(self.ctx, self.member, smaller=smaller)
        rendered = made if type(made) is Rendered or not isawaitable(made) else await made
        if rendered is not None:
            self._rendered = (index, smaller, rendered)
            if self.teller.heard:
                report = {} if rendered.report is None else rendered.report.to_dict()
                self.teller.tell("context.rendered", {"tier": self.member.id, **report})
        return rendered

    def commit(self) -> None:
        """The first content is here: from now on nothing is tried again."""
        if self._state.phase is policy.ATTEMPT:
            self._serves()
            self._move(Content(self.setup.clock.now() - self.trying.began))

    def take(self, item: Any) -> Event:
        """One event of the tier that is no plain text struct, as it goes on.

        Raises:
            ProtocolError: it breaks the contract.
        """
        event = item if type(item) in EVENT_TYPES else to_event(item)
        trying = self.trying
        if type(event) is Text:
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
        notes, error = end.notes, end.error
        if self.trying.notes:
            notes = (*self.trying.notes, *notes)
        if error is None and end.finish == _POST:
            error = ProtocolError("the reply failed and said not why")
        end = framed(msgspec.structs.replace(end, notes=notes, error=error), end.raw)
        if self._state.phase is policy.ATTEMPT:
            self._serves()
        finish = str(end.finish)
        record = self._enter(End(finish, end.usage, end.error))
        self.over = True
        self._move(Ended(finish, record.seconds, end.error, end.usage, record.cost))
        return tried(end, self.attempts)  # type: ignore[no-any-return]

    def fail(self, error: TierError) -> None:
        """The try, or the wait before it, failed: decide what comes next."""
        phase = self._state.phase
        posted = phase is policy.COMMITTED
        over = self._timed_out(error)
        # A stream that broke by itself is called broken, however little time was left.
        late = None if posted and not over else self._lapsed(over)
        failure = late or error
        if late is not None:
            late.usage = error.usage
        cooled = None
        if phase is policy.ATTEMPT and late is None:
            cooled = self.setup.health.failed(self.index, failure, call=self)
        else:
            self.setup.health.left(self.index, self)
        self._decide(failure, late, cooled=cooled is not None)
        if cooled is not None:
            self.teller.tell("tier.cooled", {"tier": self.trying.member.id, "seconds": cooled})
        if posted:
            self.over = True
            notes = (*self.trying.notes, *self.trying.fold.failed(failure).notes)
            end = to_finish(Finish("error-post", failure.usage, error=failure, notes=notes))
            self.due.append(tried(end, self.attempts))
        elif self._state.phase is policy.SELECT:
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
        if phase not in (policy.ATTEMPT, policy.COMMITTED):
            trying.free()
            trying.leave(None, None, known=False)
        else:
            finish = _POST if phase is policy.COMMITTED else None
            self._enter(End(finish, error.usage, error, then))
        self._state = state
        self._carry_out(effects)

    def leave(self) -> None:
        """The call is over, or its caller is gone: nothing more is tried."""
        self._outer = None
        phase = self._state.phase
        if phase in policy.OPEN:
            self.over = True
            if phase is not policy.SELECT:
                self.setup.health.left(self.index, self)
            if phase in (policy.ATTEMPT, policy.COMMITTED):
                self.trying.stopped = True
                self._enter(End())
            elif phase is policy.PREPARE:
                self.trying.free()
                self.trying.leave(None, None, known=False)
            self._move(Aborted())

    def _select(self) -> None:
        while self._state.phase is policy.SELECT:
            cooling = self.setup.health.cooling()
            self._move(Go(cooling) if cooling else _GO)
        if self._state.phase is policy.PREPARE:
            index = self.index = self._state.todo[0]
            self.member = self.setup.members[index]
            self.setup.health.begun(index, self)

    def _serves(self) -> None:
        self.run.served = self.member.id
        self.run.start = self.index
        if self.setup.health.good(self.index):
            self.teller.tell("tier.recovered", {"tier": self.member.id})

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
        record = trying.record(end, state.attempt, seconds=self._seconds(), prices=self._prices)
        self.run.attempts.append(record)
        self.attempts += (record,)
        if self.accounts and not trying.member.chained:
            spent = trying.settle(end, committed=state.phase is policy.COMMITTED)
            self.teller.tell("budget.settled", {"tier": record.tier, "usage": spent, "cost": record.cost})
        trying.leave(end.error, end.usage, known=end.finish is not None or end.error is not None)
        return record

    def _move(self, event: Happening) -> None:
        self._state, effects = step(self.setup.rules, self._state, event=event)
        if effects:
            self._carry_out(effects)

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        heard = self.teller.heard
        for effect in effects:
            if isinstance(effect, Forget):
                self.due.append(Reset(effect.attempt))
            elif heard or effect.loud:
                self.teller.tell(effect.type, effect.fields, loud=effect.loud and self.trying.inner is None)
