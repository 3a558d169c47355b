"""What one run of a chain remembers: every try, the tier that served, and the runs of its tiers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from isthmus.errors import TierError
from isthmus.models.events import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one tier.

    Args:
        tier: the tier's id.
        attempt: the number of the try on this tier within its call, from 1.
        seconds: how long it took.
        finish: how the reply ended; None where it failed before any content.
        usage: the tokens it is known to have spent.
        error: why it failed, before or after content.
    """

    tier: str
    attempt: int
    seconds: float
    finish: str | None = None
    usage: Usage | None = None
    error: TierError | None = None


@dataclass(slots=True, kw_only=True)
class Run:
    """The memory of a run, or, where none was opened, of a single call.

    Args:
        scoped: whether `open_run()` opened it, so that its tiers' own runs are opened too.
        start: the tier to begin with, by index.
        served: the id of the tier that answered last.
        attempts: every try, in order.
    """

    scoped: bool = False
    start: int = 0
    served: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    _targets: dict[int, Any] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def target(self, index: int, adapter: Any) -> Any:
        """What to call for a tier: in a run its own run, opened when it is first needed; else the tier itself."""
        if not self.scoped or not hasattr(adapter, "open_run"):
            return adapter
        async with self._lock:
            if index not in self._targets:
                self._targets[index] = await self._stack.enter_async_context(adapter.open_run())
        return self._targets[index]

    async def aclose(self) -> None:
        """Close the tiers' runs."""
        await self._stack.aclose()
        self._targets.clear()
