"""What one run of a chain remembers: every try, the tier that served, what was spent, and the runs of its tiers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from decimal import Decimal
from itertools import count
from typing import Any

import msgspec

from isthmus.chain.budget import Account
from isthmus.errors import TierError
from isthmus.models.events import Usage

_numbers = count(1)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try of one tier.

    Args:
        tier: the tier's id.
        attempt: the number of the try on this tier within its call, from 1.
        seconds: how long it took.
        model: the model's name, as far as the tier says.
        wait: how long it was waited before it, in seconds: for a backoff, or for a limiter.
        finish: how the reply ended; None where it failed before any content, or was given up.
        usage: the tokens it is known to have spent.
        cost: what these cost; None where that is unknown, or no prices were given.
        error: why it failed, before or after content.
        next: what followed from a failure: "retry", "fallback", "rerender", "stop" or "passthrough".
        attempts: where the tier is a chain, the tries that it made.
    """

    tier: str
    attempt: int
    seconds: float
    model: str | None = None
    wait: float = 0.0
    finish: str | None = None
    usage: Usage | None = None
    cost: Decimal | None = None
    error: TierError | None = None
    next: str | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def error_class(self) -> str | None:
        """The `ErrorClass` of its failure."""
        return None if self.error is None else str(self.error.error_class)

    @property
    def status(self) -> int | None:
        """The HTTP status of its failure."""
        return None if self.error is None else self.error.status

    @property
    def reason(self) -> str:
        """Why it ended: its failure's text, its finish, or "cancelled"."""
        if self.error is not None:
            return self.error.message
        return self.finish or "cancelled"

    def to_dict(self) -> dict[str, Any]:
        """The try as plain JSON values; money as text."""
        return {
            "tier": self.tier,
            "model": self.model,
            "attempt": self.attempt,
            "class": self.error_class,
            "status": self.status,
            "wait": self.wait,
            "seconds": self.seconds,
            "finish": self.finish,
            "usage": None if self.usage is None else self.usage.to_dict(),
            "cost": None if self.cost is None else str(self.cost),
            "reason": self.reason,
            "next": self.next,
            "attempts": [each.to_dict() for each in self.attempts],
        }


def total_cost(attempts: Iterable[Attempt]) -> Decimal | None:
    """What tries cost together; None where the price of one is unknown, or there is none."""
    costs = [each.cost for each in attempts if each.usage is not None or each.finish is not None]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(costs) else None


class _Opened:
    """The runs of the tiers."""

    __slots__ = ("lock", "stack", "targets")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.stack = AsyncExitStack()
        self.targets: dict[int, Any] = {}


class Run(msgspec.Struct, kw_only=True, eq=False):
    """The memory of a run, or, where none was opened, of a single call.

    Args:
        scoped: whether `open_run()` opened it, so that its tiers' own runs are opened too.
        account: its spending; None without a budget.
        start: the tier to begin with, by index.
        served: the id of the tier that answered last.
        steps: how many calls were made.
        attempts: every try, in order.
        number: unique in the process.
        active: what is called, or was called last: a tier, or the run of one.
        held: whether the last reply goes on at the tier that served it, whatever the order of the tiers.
    """

    scoped: bool = False
    account: Account | None = None
    start: int = 0
    served: str | None = None
    steps: int = 0
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    number: int = msgspec.field(default_factory=_numbers.__next__)
    active: Any = None
    held: bool = False
    _opened: _Opened | None = None

    async def target(self, index: int, adapter: Any) -> Any:
        """What to call in a run for a tier that opens some: its own run, opened when it is first needed."""
        opened = self._opened
        if opened is not None and index in opened.targets:
            return opened.targets[index]
        if opened is None:
            opened = self._opened = _Opened()
        async with opened.lock:
            if index not in opened.targets:
                opened.targets[index] = await opened.stack.enter_async_context(adapter.open_run())
        return opened.targets[index]

    async def aclose(self) -> None:
        """Close the tiers' runs."""
        if self._opened is not None:
            await self._opened.stack.aclose()
            self._opened.targets.clear()
