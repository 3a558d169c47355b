"""The one retry engine: whether a failed call is tried again, and after how long.

Used by chains, and by adapters that own their retries; whoever uses it turns the retries of an SDK off.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from isthmus.errors import ConfigError, ErrorClass, TierError, is_hint

T = TypeVar("T")

_JITTERS = ("full", "none")
# Beyond this many doublings every backoff is at its cap, and the power would overflow.
_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time, waiting and chance, so that tests need none of them.

    Args:
        now: seconds on a clock that never goes back.
        sleep: waits that many seconds.
        random: a number of at least 0 and below 1.
    """

    now: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    random: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a passing failure is tried again on the same tier, and after how long.

    Args:
        max_retries: tries after the first one; 0 for none.
        base: the longest first wait, in seconds.
        factor: how much longer each further wait may be.
        cap: the longest wait of all, in seconds.
        jitter: "full" draws each wait between 0 and its limit; "none" waits the limit itself.
        max_hint: the longest wait that a provider may ask for, in seconds; a longer one ends the tries.

    Raises:
        ConfigError: no number, or a negative one, a factor below 1, an unknown jitter.
    """

    max_retries: int = 2
    base: float = 0.25
    factor: float = 2.0
    cap: float = 4.0
    jitter: str = "full"
    max_hint: float = 10.0

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or self.max_retries < 0:
            said = f"must be a whole number, 0 or more, not {self.max_retries!r}"
            raise ConfigError(said, where="RetryPolicy", key="max_retries")
        for name, least in (("base", 0), ("factor", 1), ("cap", 0), ("max_hint", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
                raise ConfigError(f"must be a number, {least} or more, not {value!r}", where="RetryPolicy", key=name)
        if self.jitter not in _JITTERS:
            known = " or ".join(repr(name) for name in _JITTERS)
            raise ConfigError(f"must be {known}, not {self.jitter!r}", where="RetryPolicy", key="jitter")

    def delay(
        self, attempt: int, hint: float | None = None, *, rng: Callable[[], float] = random.random
    ) -> float | None:
        """Seconds to wait before the next try, or None when no try should follow.

        Args:
            attempt: the number of the try that failed, from 1.
            hint: seconds that the provider asked for; replaces the backoff. One that is negative or not finite is
                no hint.
            rng: draws the jitter.
        """
        if attempt > self.max_retries:
            return None
        if is_hint(hint):
            return hint if hint <= self.max_hint else None
        limit = min(self.cap, self.base * self.factor ** min(attempt - 1, _STEPS))
        return limit * rng() if self.jitter == "full" else limit

    def after(self, error: TierError, attempt: int, *, rng: Callable[[], float] = random.random) -> float | None:
        """Seconds to wait after this failure, or None when it is not one to try again.

        Args:
            error: the classified failure; only "transient" ones are tried again.
            attempt: the number of the try that failed, from 1.
            rng: draws the jitter.
        """
        if error.error_class != ErrorClass.TRANSIENT:
            return None
        return self.delay(attempt, error.retry_after, rng=rng)


async def retrying(call: Callable[[int], Awaitable[T]], policy: RetryPolicy, *, clock: Clock | None = None) -> T:
    """Make a call until it succeeds or its failure is not one to try again.

    Args:
        call: makes one try; given its number, from 1. It must be safe to make again: nothing of a failed try may have
            reached anybody.
        policy: how often, and after how long.
        clock: time and chance.

    Raises:
        TierError: the failure of the last try.
    """
    clock = clock or Clock()

    def wait(error: Exception, attempt: int) -> float | None:
        return policy.after(error, attempt, rng=clock.random) if isinstance(error, TierError) else None

    return await tried(call, wait, sleep=clock.sleep)


async def tried(
    call: Callable[[int], Awaitable[T]],
    wait: Callable[[Exception, int], float | None],
    *,
    sleep: Callable[[float], Awaitable[Any]],
) -> T:
    """Make a call until it succeeds or `wait` says that no try should follow: the loop behind every retry.

    Args:
        call: makes one try; given its number, from 1.
        wait: given a failure and the number of the try, the seconds until the next one, or None for none.
        sleep: waits that many seconds.

    Raises:
        Exception: the failure of the last try, as it was raised.
    """
    attempt = 1
    while True:
        try:
            return await call(attempt)
        except Exception as error:
            delay = wait(error, attempt)
            if delay is None:
                raise
        await sleep(delay)
        attempt += 1
