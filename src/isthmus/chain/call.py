"""One call of a chain as it proceeds: feeds the policy, keeps the ledger, tells the listeners."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec

from isthmus.chain.ledger import Attempt, Run
from isthmus.chain.policy import (
    Aborted,
    Content,
    Ended,
    Failed,
    Forget,
    Go,
    Happening,
    Phase,
    Report,
    Rules,
    State,
    Woke,
    step,
)
from isthmus.chain.tier import Member, lacking
from isthmus.errors import ChainExhausted, InvalidRequestError, ProtocolError, TierError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Call, Event, Finish, FinishReason, Note, NoteCode, Reset, Text, framed
from isthmus.models.fold import Fold
from isthmus.models.normalise import to_event
from isthmus.models.reading import media_needs
from isthmus.models.retry import Clock
from isthmus.observability import hooks
from isthmus.secret import redact

_log = logging.getLogger("isthmus.chain")
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that the definition of a chain fixes."""

    id: str
    members: tuple[Member, ...]
    rules: Rules
    timeouts: Timeouts | None
    clock: Clock
    sticky: bool


def needs(ctx: GenerateContext) -> frozenset[str]:
    """What a request asks of a model, in the words of `supports`."""
    wanted = media_needs(ctx.messages)
    if ctx.tools:
        wanted.add("tools")
    if ctx.output is not None and ctx.output.response_format() is not None:
        wanted.add("output-schema")
    return frozenset(wanted)


def require(chain_id: str, members: Sequence[Member], *, wanted: Iterable[str]) -> None:
    """See to it that any tier may serve.

    Raises:
        InvalidRequestError: a tier lacks what is needed; names each tier and what it lacks.
    """
    gaps = lacking(members, wanted)
    if gaps:
        remedy = "use a tier that does, or declare it in supports if it truly does"
        raise InvalidRequestError(f"chain {chain_id!r}: {gaps}: {remedy}", code="unsupported")


class ChainCall:
    """The state of one call.

    Args:
        setup: the chain's definition.
        run: the memory of the run that the call belongs to.
        ctx: the request.
    """

    __slots__ = (
        "_began",
        "_due",
        "_failures",
        "_fold",
        "_notes",
        "_number",
        "_seq",
        "_shown",
        "_state",
        "ctx",
        "over",
        "run",
        "setup",
    )

    def __init__(self, setup: Setup, run: Run, *, ctx: GenerateContext) -> None:
        order = range(len(setup.members))
        first = run.start if setup.sticky else 0
        self.setup = setup
        self.run = run
        self._state = State(todo=(*order[first:], *order[:first]))
        self._failures: list[Attempt] = []
        self._due: list[Event] = []
        self._notes: tuple[Note, ...] = ()
        self._number = next(_numbers)
        self._seq = 0
        self._fold = Fold()
        self._shown = False
        self._began = 0.0
        self.ctx = ctx
        self.over = False

    @property
    def index(self) -> int:
        """The index of the tier at work."""
        return self._state.todo[0]

    @property
    def member(self) -> Member:
        """The tier at work."""
        return self.setup.members[self._state.todo[0]]

    def begin(self) -> None:
        """Choose the first tier.

        Raises:
            InvalidRequestError: a tier lacks what the request needs.
        """
        require(self.setup.id, self.setup.members, wanted=needs(self.ctx))
        self._report(Report("chain.started", {"tiers": [member.id for member in self.setup.members]}))
        self._select()

    def due(self) -> list[Event]:
        """The events that the chain itself has to say now."""
        events, self._due = self._due, []
        return events

    async def ready(self) -> bool:
        """Wait until there is something to try; False when the call is over.

        Raises:
            ChainExhausted: no tier is left.
            TierError: the failure is one that no other tier would mend.
        """
        state = self._state
        if state.phase is Phase.BACKOFF:
            await self.setup.clock.sleep(state.delay)
            self._move(Woke())
        elif state.phase is Phase.EXHAUSTED:
            raise ChainExhausted(self.setup.id, self._failures) from state.error
        elif state.phase is Phase.FAILED and state.error is not None:
            raise state.error
        return self._state.phase is Phase.ATTEMPT

    def request(self) -> GenerateContext:
        """The request as the tier at work gets it, and a fresh start of what is kept of the try."""
        self._fold = Fold()
        self._shown = False
        self._notes = ()
        self._began = self.setup.clock.now()
        ceiling, asked = self.member.max_output_tokens, self.ctx.max_output_tokens
        if ceiling is None or asked is None or asked <= ceiling:
            return self.ctx
        detail = f"max_output_tokens: {asked} became {ceiling}, the ceiling of tier {self.member.id!r}"
        self._notes = (Note(NoteCode.PARAMETER_CHANGED, detail),)
        return replace(self.ctx, max_output_tokens=ceiling)

    def commit(self) -> None:
        """The first content is here: from now on nothing is tried again."""
        if self._state.phase is Phase.ATTEMPT:
            self._serves()
            self._move(Content(self._seconds()))

    def take(self, item: Any) -> Event:
        """One event of the tier that is no plain text struct, as it goes on.

        Raises:
            ProtocolError: it breaks the contract.
        """
        event = to_event(item)
        if isinstance(event, Text):
            if not isinstance(event.text, str):
                raise ProtocolError(f"text event: 'text' must be str, not {type(event.text).__name__}")
            if event.text:
                self.commit()
            return event
        event = self._fold.add(event)
        if isinstance(event, Finish):
            return self._finished(event)
        if isinstance(event, Call):
            self.commit()
        else:
            self._shown = not isinstance(event, Reset)
        return event

    def _finished(self, end: Finish) -> Finish:
        if self._notes:
            end = framed(msgspec.structs.replace(end, notes=(*self._notes, *end.notes)), end.raw)
        if end.finish == FinishReason.ERROR_POST and end.error is None:
            end = framed(
                msgspec.structs.replace(end, error=ProtocolError("the reply failed and said not why")), end.raw
            )
        self._serves()
        self._enter(finish=end.finish, usage=end.usage, error=end.error)
        self.over = True
        self._move(Ended(str(end.finish), self._seconds(), end.error))
        return end

    def fail(self, error: TierError) -> None:
        """The try failed: decide what comes next."""
        posted = self._state.phase is Phase.COMMITTED
        finish = FinishReason.ERROR_POST.value if posted else None
        self._enter(finish=finish, usage=error.usage, error=error)
        luck = self.setup.clock.random()
        self._move(Failed(error, self._seconds(), self._shown, luck))
        if posted:
            self.over = True
            notes = (*self._notes, *self._fold.failed(error).notes)
            self._due.append(Finish("error-post", error.usage, error=error, notes=notes))
        elif self._state.phase is Phase.SELECT:
            self._select()

    def leave(self) -> None:
        """The caller is gone before the end: nothing more is tried."""
        if self._state.phase in (Phase.SELECT, Phase.ATTEMPT, Phase.BACKOFF, Phase.COMMITTED):
            self.over = True
            if self._state.phase in (Phase.ATTEMPT, Phase.COMMITTED):
                self._enter()
            self._move(Aborted())

    def _select(self) -> None:
        while self._state.phase is Phase.SELECT:
            self._move(Go())

    def _serves(self) -> None:
        self.run.served = self.member.id
        self.run.start = self.index

    def _seconds(self) -> float:
        return self.setup.clock.now() - self._began

    def _enter(self, **outcome: Any) -> None:
        record = Attempt(tier=self.member.id, attempt=self._state.attempt, seconds=self._seconds(), **outcome)
        self.run.attempts.append(record)
        if record.error is not None:
            self._failures.append(record)

    def _move(self, event: Happening) -> None:
        self._state, effects = step(self.setup.rules, self._state, event=event)
        for effect in effects:
            if isinstance(effect, Forget):
                self._due.append(Reset(effect.attempt))
            else:
                self._report(effect)

    def _report(self, report: Report) -> None:
        self._seq += 1
        fields = {"call": self._number, "seq": self._seq, **report.fields}
        if "message" in fields:
            fields["message"] = redact(fields["message"])
        if report.loud:
            _log.warning(
                "chain %s: tier %s failed (%s), next: %s: %s",
                *(self.setup.id, fields["tier"], fields["class"], fields["next"], fields["message"]),
            )
        if hooks.listening():
            hooks.emit(hooks.ChainEvent(type=report.type, chain=self.setup.id, fields=fields))
