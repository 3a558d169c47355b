"""One try of one tier: what it was given, what came of it, and what is held for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from isthmus.chain.budget import UNTOLD, Account, Hold, completed
from isthmus.chain.estimate import estimate_sections
from isthmus.chain.ledger import Attempt, total_cost
from isthmus.chain.prices import Prices
from isthmus.chain.tier import Member
from isthmus.errors import CutReason, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Note, NoteCode, Usage
from isthmus.models.fold import Fold
from isthmus.models.limits import RateLimiter


class End(msgspec.Struct, frozen=True):
    """How a try ended: with a finish, with an error, with both after content, or with neither where it was given up."""

    finish: str | None = None
    usage: Usage | None = None
    error: TierError | None = None
    then: str | None = None


class Try(msgspec.Struct, eq=False):
    """What is kept of the try that is under way.

    Attributes:
        member: the tier.
        ctx: the request, rendered for it.
        notes: what was changed on the way.
    """

    member: Member
    ctx: GenerateContext
    notes: tuple[Note, ...] = ()
    fold: Fold = msgspec.field(default_factory=Fold)
    began: float = 0.0
    wait: float = 0.0
    shown: bool = False
    stopped: bool = False
    """Whether it was stopped while the tier was at work, which may have cost something."""
    written: int = 0
    """How many characters of content have come, where that is counted."""
    inner: Any = None
    """Where the tier is a chain, its call."""
    _holds: list[tuple[Account, Hold]] = []
    _limiter: RateLimiter | None = None
    _prompt: int = 0

    def lower(self, ceiling: int, whose: str) -> None:
        """See to it that no more output than this is asked for."""
        asked = self.ctx.max_output_tokens
        if asked is None or asked > ceiling:
            if asked is not None:
                detail = f"max_output_tokens: {asked} became {ceiling}, the ceiling of {whose}"
                self.notes = (*self.notes, Note(NoteCode.PARAMETER_CHANGED, detail))
            self.ctx = replace(self.ctx, max_output_tokens=ceiling)

    async def admitted(self, limiter: RateLimiter) -> None:
        """Wait until the limiter lets the try begin."""
        await limiter.acquire()
        self._limiter = limiter

    def reserve(self, accounts: Sequence[Account], prompt: int | None) -> CutReason | None:
        """Set aside what the try may spend; why that is not possible.

        Args:
            accounts: the budgets that it counts against.
            prompt: the tokens of the prompt, if they have been estimated.
        """
        self._prompt = prompt if prompt is not None else estimate_sections(self.ctx).total
        asked = self.ctx.max_output_tokens
        own = self.member.max_output_tokens
        ceiling = asked or own or UNTOLD
        for account in accounts:
            hold = account.reserve(self.member, self._prompt, ceiling=ceiling)
            if isinstance(hold, CutReason):
                self.free()
                return hold
            self._holds.append((account, hold))
            ceiling = hold.output
        if any(account.budget.measured for account in accounts) and (asked or own) != ceiling:
            self.lower(ceiling, "what is left of the budget")
        return None

    def reserved(self) -> dict[str, Any]:
        """What is set aside, for listeners."""
        hold = self._holds[0][1]
        return {"tier": self.member.id, "input_tokens": hold.prompt, "output_tokens": hold.output}

    def record(self, end: End, attempt: int, *, seconds: float, prices: Prices | None) -> Attempt:
        """The try as the ledger has it."""
        inner: tuple[Attempt, ...] = () if self.inner is None else self.inner.attempts
        cost = total_cost(inner) if inner else None
        if prices is not None and not inner:
            cost = prices.cost(self.member, end.usage)
        return Attempt(
            tier=self.member.id,
            model=self.member.model or None,
            attempt=attempt,
            seconds=seconds,
            wait=self.wait,
            finish=end.finish,
            usage=end.usage,
            cost=cost,
            error=end.error,
            next=end.then,
            attempts=inner,
        )

    def settle(self, end: End, *, committed: bool) -> Usage | None:
        """Count what was spent, with estimates for what nobody said; None where that was nothing.

        A try that failed before content and said no tokens was refused, unless it was stopped while the tier worked.
        """
        usage = end.usage
        if usage is not None or committed or end.finish is not None or self.stopped or self.shown:
            usage = completed(usage, prompt=self._prompt, output=-(-self.written // 4))
        holds, self._holds = self._holds, []
        for account, hold in holds:
            account.settle(hold, self.member, usage=usage)
        return usage

    def free(self) -> None:
        """Give back what was set aside."""
        holds, self._holds = self._holds, []
        for account, hold in holds:
            account.drop(hold)

    def leave(self, error: Exception | None, usage: Usage | None, *, known: bool = True) -> None:
        """Let the limiter's next one in.

        Args:
            error: how the try failed.
            usage: the tokens that it spent.
            known: whether it came to an end that says something about the tier.
        """
        limiter = self._limiter
        if limiter is None:
            return
        self._limiter = None
        tokens = None if usage is None else (usage.prompt_tokens or 0) + (usage.output_tokens or 0)
        if tokens:
            limiter.record_usage(tokens)
        if known:
            limiter.record_outcome(error)
        limiter.release()
