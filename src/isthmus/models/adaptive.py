"""A limit on how many calls run at once that finds its number by itself."""

from __future__ import annotations

import threading

from isthmus.errors import ConfigError
from isthmus.models.limits import RateLimiter
from isthmus.models.slots import Slots

# Statuses by which a provider says that it gets too much.
_TOO_MUCH = frozenset({429, 529})


class AdaptiveConcurrencyLimiter(RateLimiter):
    """Lets as many calls run at once as the provider bears: half as many after a 429, slowly more after successes.

    Failures of calls that were under way when the number was halved do not halve it again.

    Args:
        max_concurrent: the most; also the number to begin with.
        min_concurrent: the least.

    Raises:
        ConfigError: not whole numbers above 0, or the least above the most.
    """

    def __init__(self, max_concurrent: int, *, min_concurrent: int = 1) -> None:
        for name, value in (("max_concurrent", max_concurrent), ("min_concurrent", min_concurrent)):
            if type(value) is not int or value < 1:
                raise ConfigError(f"must be a whole number from 1, not {value!r}", where=type(self).__name__, key=name)
        if min_concurrent > max_concurrent:
            raise ConfigError(
                f"{min_concurrent} is above max_concurrent, {max_concurrent}",
                where=type(self).__name__,
                key="min_concurrent",
            )
        self._most, self._least = max_concurrent, min_concurrent
        self._limit = float(max_concurrent)
        self._slots = Slots(max_concurrent)
        self._lock = threading.Lock()
        self._running = 0
        # Places to keep when they are given back, and outcomes of calls that began before the last cut.
        self._owed = 0
        self._old = 0

    @property
    def limit(self) -> int:
        """How many calls may run at once now."""
        return int(self._limit)

    async def acquire(self) -> None:
        """Wait until fewer than `limit` calls are running."""
        await self._slots.take()
        with self._lock:
            self._running += 1

    def release(self) -> None:
        """Let the next one in, if there may be as many."""
        with self._lock:
            self._running -= 1
            # A call that was given up says no outcome.
            self._old = min(self._old, self._running)
            kept = self._owed > 0
            self._owed -= kept
        if not kept:
            self._slots.give()

    def record_outcome(self, error: Exception | None) -> None:
        """Say how a call ended; before its `release`.

        Args:
            error: its failure; one with the status 429 or 529 halves the limit.
        """
        more = 0
        with self._lock:
            fresh, self._old = self._old == 0, max(0, self._old - 1)
            before = self.limit
            if getattr(error, "status", None) in _TOO_MUCH:
                if fresh:
                    self._limit = max(float(self._least), self._limit / 2)
                    self._old = self._running - 1
            elif error is None:
                self._limit = min(float(self._most), self._limit + 1 / self._limit)
            change = self.limit - before
            if change < 0:
                self._owed += sum(not self._slots.take_free() for _ in range(-change))
            elif change > 0:
                spared = min(self._owed, change)
                self._owed -= spared
                more = change - spared
        for _ in range(more):
            self._slots.give()
