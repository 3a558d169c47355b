"""How many calls at once: found by what the provider says."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from isthmus.errors import ConfigError, tier_error
from isthmus.models.adaptive import AdaptiveConcurrencyLimiter
from isthmus.models.limits import CompositeRateLimiter, ConcurrentRequestLimiter

BUSY = tier_error("transient", "slow down", status=429)


async def call(limiter: Any, error: Exception | None = None) -> None:
    """One call that ends so."""
    await limiter.acquire()
    limiter.record_outcome(error)
    limiter.release()


@pytest.mark.parametrize("status", [429, 529])
async def test_too_much_halves_the_limit(status: int) -> None:
    """A 429 or a 529 halves how many may run, down to the least; other failures leave it."""
    limiter = AdaptiveConcurrencyLimiter(16, min_concurrent=3)
    limits = []
    for _ in range(4):
        await call(limiter, tier_error("transient", "x", status=status))
        limits.append(limiter.limit)
    assert limits == [8, 4, 3, 3]
    await call(limiter, tier_error("transient", "x", status=500))
    await call(limiter, ValueError("x"))
    assert limiter.limit == 3


async def test_successes_raise_it_slowly() -> None:
    """About as many successes as the limit raise it by one, up to the most."""
    limiter = AdaptiveConcurrencyLimiter(10)
    await call(limiter, BUSY)
    grown = []
    for _ in range(60):
        await call(limiter)
        grown.append(limiter.limit)
    assert grown[4] == 5
    assert grown[5] == 6
    assert grown[-1] == 10
    assert grown == sorted(grown)


async def test_calls_that_were_given_up_hide_no_later_cut() -> None:
    """What began before a cut and ended without an outcome is not waited for: the next 429 counts."""
    limiter = AdaptiveConcurrencyLimiter(16)
    for _ in range(8):
        await limiter.acquire()
    limiter.record_outcome(BUSY)
    for _ in range(8):
        limiter.release()
    await call(limiter, BUSY)
    assert limiter.limit == 4


async def test_no_more_run_than_the_limit_says() -> None:
    """After a cut free places are gone at once, and those in use once they are given back."""
    limiter = AdaptiveConcurrencyLimiter(8)
    for _ in range(6):
        await limiter.acquire()
    limiter.record_outcome(BUSY)
    limiter.release()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    limiter.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 0
    limiter.release()
    await asyncio.sleep(0.01)
    assert sum(task.done() for task in waiting) == 1
    for task in waiting:
        task.cancel()


async def test_one_burst_halves_once() -> None:
    """Calls that were under way together and all got a 429 halve the limit once, not once each."""
    limiter = AdaptiveConcurrencyLimiter(16)
    for _ in range(8):
        await limiter.acquire()
    for _ in range(8):
        limiter.record_outcome(BUSY)
        limiter.release()
    assert limiter.limit == 8
    await call(limiter, BUSY)
    assert limiter.limit == 4


@pytest.mark.parametrize("seed", range(20))
async def test_no_place_is_lost_or_made(seed: int) -> None:
    """Whatever the order of calls and outcomes, never more run than the limit, and in the end all places are there."""
    chance = random.Random(seed)
    limiter, running = AdaptiveConcurrencyLimiter(6), 0

    async def one() -> None:
        nonlocal running
        await limiter.acquire()
        running += 1
        begun_within = running <= 6
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        running -= 1
        limiter.record_outcome(chance.choice([None, None, None, BUSY, ValueError()]))
        limiter.release()
        assert begun_within

    tasks = [asyncio.create_task(one()) for _ in range(60)]
    for task in chance.sample(tasks, 10):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(200):
        await call(limiter)
    assert limiter.limit == 6
    async with asyncio.timeout(1):
        for _ in range(6):
            await limiter.acquire()
    extra = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0.01)
    assert not extra.done()
    extra.cancel()


async def test_a_block_records_its_outcome() -> None:
    """`async with` says by itself how the call ended; a cancelled one says nothing."""
    limiter = AdaptiveConcurrencyLimiter(8)
    with pytest.raises(type(BUSY)):
        async with CompositeRateLimiter([ConcurrentRequestLimiter(9), limiter]):
            raise BUSY
    assert limiter.limit == 4
    for _ in range(4):
        async with limiter:
            pass
    assert limiter.limit == 4
    async with limiter:
        pass
    assert limiter.limit == 5
    with pytest.raises(asyncio.CancelledError):
        async with limiter:
            raise asyncio.CancelledError
    assert limiter.limit == 5


async def test_a_composite_tells_all_of_them() -> None:
    """An outcome that a composite is told reaches each of its limiters."""
    one, two = AdaptiveConcurrencyLimiter(8), AdaptiveConcurrencyLimiter(4)
    await call(CompositeRateLimiter([one, two]), BUSY)
    assert (one.limit, two.limit) == (4, 2)


@pytest.mark.parametrize("wrong", [{"max_concurrent": 0}, {"max_concurrent": True}, {"min_concurrent": 9}])
def test_numbers_that_cannot_be(wrong: dict[str, Any]) -> None:
    """They are refused by name."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        AdaptiveConcurrencyLimiter(**{"max_concurrent": 8, **wrong})
