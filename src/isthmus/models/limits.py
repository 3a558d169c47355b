"""Limits on how often, how many at once, and for how many tokens a model is called.

Each limiter may be shared by tasks, event loops and threads, and lets callers in in the order in which they came. A
caller that is cancelled while it waits has taken nothing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, nullcontext
from math import isfinite
from types import TracebackType
from typing import Any, Self

from isthmus.errors import ConfigError
from isthmus.models.accessors import get_usage_totals
from isthmus.models.fold import close
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.retry import Clock
from isthmus.models.slots import Slots

# From this percentage of the tokens on, new calls wait: those under way will need the rest.
_BLOCKS_AT = 70


class RateLimiter(ABC):
    """Lets a call begin when it may: `async with limiter:` around the call, `record_usage` inside.

    Write `acquire`; `release`, `record_usage` and `record_outcome` where there is something to give back or to learn.
    """

    @abstractmethod
    async def acquire(self) -> None:
        """Wait until a call may begin."""

    def release(self) -> None:  # noqa: B027
        """Say that a call is over."""

    def record_usage(self, tokens: int) -> None:  # noqa: B027
        """Say how many tokens a call has spent, prompt and output together."""

    def record_outcome(self, error: Exception | None) -> None:  # noqa: B027
        """Say how a call ended, before its `release`: with an error, or None where it succeeded."""

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self.record_outcome(error)
        self.release()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copy would let through as much again.
        return self


class ConcurrentRequestLimiter(RateLimiter):
    """Lets so many calls run at once.

    Args:
        max_concurrent: how many.

    Raises:
        ConfigError: it is no whole number above 0.
    """

    def __init__(self, max_concurrent: int) -> None:
        self._slots = Slots(_count(max_concurrent, type(self), "max_concurrent"))

    async def acquire(self) -> None:
        """Wait until fewer than `max_concurrent` calls are running."""
        await self._slots.take()

    def release(self) -> None:
        """Let the next one in."""
        self._slots.give()


class SlidingWindowRateLimiter(RateLimiter):
    """Lets so many calls begin in any stretch of time of a given length.

    Args:
        max_operations: how many.
        window_seconds: the length, in seconds.
        clock: time and waiting.

    Raises:
        ConfigError: a number is not above 0.
    """

    def __init__(self, max_operations: int, window_seconds: float, *, clock: Clock | None = None) -> None:
        self._most = _count(max_operations, type(self), "max_operations")
        self._window = _seconds(window_seconds, type(self))
        self._clock = clock or Clock()
        self._begun: deque[float] = deque(maxlen=self._most)
        self._turn = Slots(1)

    async def acquire(self) -> None:
        """Wait until fewer than `max_operations` calls began within the last `window_seconds`."""
        await self._turn.take()
        try:
            while len(self._begun) == self._most:
                wait = self._begun[0] + self._window - self._clock.now()
                if wait <= 0:
                    break
                await self._clock.sleep(wait)
            self._begun.append(self._clock.now())
        finally:
            self._turn.give()


class TokenBucketRateLimiter(RateLimiter):
    """Lets calls begin while less than 70 % of a number of tokens was spent in the last stretch of time.

    What a call spends is known when it is over; the other 30 % are for calls under way.

    Args:
        max_tokens: how many tokens may be spent in the window.
        window_seconds: its length, in seconds.
        clock: time and waiting.

    Raises:
        ConfigError: a number is not above 0.
    """

    def __init__(self, max_tokens: int, window_seconds: float = 60.0, *, clock: Clock | None = None) -> None:
        self._most = _count(max_tokens, type(self), "max_tokens")
        self._window = _seconds(window_seconds, type(self))
        self._clock = clock or Clock()
        self._spent: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._lock = threading.Lock()
        self._turn = Slots(1)

    async def acquire(self) -> None:
        """Wait until less than 70 % of `max_tokens` was spent within the last `window_seconds`."""
        await self._turn.take()
        try:
            while (wait := self._wait()) > 0:
                await self._clock.sleep(wait)
        finally:
            self._turn.give()

    def record_usage(self, tokens: int) -> None:
        """Count what a call has spent.

        Raises:
            ConfigError: it is no whole number from 0.
        """
        if type(tokens) is not int or tokens < 0:
            raise ConfigError(
                f"must be a whole number of tokens from 0, not {tokens!r}",
                where=f"{type(self).__name__}.record_usage",
                key="tokens",
            )
        with self._lock:
            self._spent.append((self._clock.now(), tokens))
            self._sum += tokens

    def _wait(self) -> float:
        """Seconds until the oldest tokens that stand in the way leave the window; 0 where none do."""
        with self._lock:
            now = self._clock.now()
            while self._spent and self._spent[0][0] + self._window <= now:
                self._sum -= self._spent.popleft()[1]
            blocked = self._sum * 100 >= self._most * _BLOCKS_AT
            return self._spent[0][0] + self._window - now if blocked else 0.0


class CompositeRateLimiter(RateLimiter):
    """All of several limiters: entered in order, left in reverse; where one cannot be entered, none stays so.

    Args:
        limiters: the limiters, the one that makes callers wait longest first.

    Raises:
        ConfigError: one is no `RateLimiter`.
    """

    def __init__(self, limiters: Sequence[RateLimiter]) -> None:
        if not isinstance(limiters, list | tuple):
            raise ConfigError(
                f"must be a list of limiters, not {type(limiters).__name__}", where=type(self).__name__, key="limiters"
            )
        self._limiters = tuple(limiters)
        for place, limiter in enumerate(self._limiters):
            if not isinstance(limiter, RateLimiter):
                raise ConfigError(
                    f"must be a RateLimiter, not {type(limiter).__name__}: derive it from isthmus.models.RateLimiter",
                    where=type(self).__name__,
                    key=f"limiters[{place}]",
                )

    async def acquire(self) -> None:
        """Wait for all of them."""
        async with AsyncExitStack() as entered:
            for limiter in self._limiters:
                await entered.enter_async_context(limiter)
            entered.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = AsyncExitStack()
        for limiter in self._limiters:
            left.push_async_exit(limiter)
        await left.__aexit__(kind, error, trace)

    def release(self) -> None:
        """Release all of them, in reverse."""
        for limiter in reversed(self._limiters):
            limiter.release()

    def record_usage(self, tokens: int) -> None:
        """Tell all of them."""
        for limiter in self._limiters:
            limiter.record_usage(tokens)

    def record_outcome(self, error: Exception | None) -> None:
        """Tell all of them."""
        for limiter in self._limiters:
            limiter.record_outcome(error)


async def limited(
    events: AsyncIterator[ModelStreamEvent], limiter: RateLimiter | None
) -> AsyncIterator[ModelStreamEvent]:
    """A model-face stream that holds a limiter for its whole life, and records what it spent.

    Args:
        events: the stream; it is first asked for an event when the limiter lets it.
        limiter: the limiter, or None for no limit.
    """
    async with nullcontext() if limiter is None else limiter:
        try:
            async for event in events:
                totals = get_usage_totals(event.response)
                if limiter is not None and totals is not None:
                    limiter.record_usage(totals.total_tokens)
                yield event
        finally:
            await close(events)


def _count(value: Any, owner: type, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"must be a whole number from 1, not {value!r}", where=owner.__name__, key=name)
    return value


def _seconds(value: Any, owner: type) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise ConfigError(
            f"must be a number of seconds above 0, not {value!r}", where=owner.__name__, key="window_seconds"
        )
    return float(value)
