"""Limiters on tiers: how often, how many at once, for how many tokens, whoever calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.chain import ChainExhausted, RetryPolicy, define_chain, tier_error
from isthmus.errors import ConfigError
from isthmus.models.adaptive import AdaptiveConcurrencyLimiter
from isthmus.models.events import Finish, Text, Usage
from isthmus.models.limits import (
    CompositeRateLimiter,
    ConcurrentRequestLimiter,
    RateLimiter,
    SlidingWindowRateLimiter,
    TokenBucketRateLimiter,
)
from support.chain_doubles import CTX, HANG, OK, FakeTime, PlayTier


def _chain(*tiers: Any, limits: dict[str, RateLimiter], time: FakeTime | None = None, **settings: Any) -> Any:
    return define_chain(id="c", tiers=tiers, limits=limits, clock=(time or FakeTime()).clock(), **settings)


async def test_requests_per_minute_hold_for_all_chains_together() -> None:
    """Two chains with one limiter make no more calls in a minute than it lets them, retries included."""
    time = FakeTime()
    limiter = SlidingWindowRateLimiter(3, 60, clock=time.clock())
    begun: list[float] = []

    class Noted(PlayTier):
        async def stream(self, ctx: Any) -> Any:
            begun.append(time.seconds)
            async for event in super().stream(ctx):
                yield event

    chains = [
        _chain(Noted("a", [tier_error("transient", "x", retry_after=0)], OK), limits={"a": limiter}, time=time)
        for _ in range(2)
    ]
    for _ in range(3):
        for chain in chains:
            await chain.generate(CTX)
    assert len(begun) == 8
    assert all(later - sooner >= 60 for sooner, later in zip(begun, begun[3:], strict=False))


async def test_tokens_per_minute_count_what_replies_say() -> None:
    """What a reply took is recorded, prompt and output; the next call waits until the minute is over."""
    time = FakeTime()
    limiter = TokenBucketRateLimiter(100, clock=time.clock())
    tier = PlayTier("a", [Text("x"), Finish("stop", Usage(input_tokens=60, cache_read_tokens=5, output_tokens=10))])
    chain = _chain(tier, limits={"a": limiter}, time=time)
    await chain.generate(CTX)
    assert time.seconds == 0
    await chain.generate(CTX)
    assert time.seconds == 60


async def test_a_place_is_held_for_the_whole_stream() -> None:
    """A streamed reply keeps its place until it is read, broken, or left; then the next call has it."""
    limiter = ConcurrentRequestLimiter(1)
    for plan in ([Text("x"), HANG], [Text("x"), tier_error("transient", "x")], [Text("x"), Finish("stop")]):
        chain = _chain(PlayTier("a", plan), limits={"a": limiter})
        async with chain.stream(CTX) as stream:
            await anext(stream)
            waiting = asyncio.create_task(limiter.acquire())
            await asyncio.sleep(0)
            assert not waiting.done()
        async with asyncio.timeout(1):
            await waiting
        limiter.release()


async def test_a_place_is_given_back_before_a_backoff() -> None:
    """A tier that waits for its retry keeps nobody else out."""
    limiter = ConcurrentRequestLimiter(1)
    seen: list[bool] = []

    class Peeking(FakeTime):
        async def sleep(self, seconds: float) -> None:
            async with asyncio.timeout(1):
                await limiter.acquire()
            seen.append(True)
            limiter.release()

    chain = _chain(PlayTier("a", [tier_error("transient", "x")], OK), limits={"a": limiter}, time=Peeking())
    assert (await chain.generate(CTX)).text == "fine"
    assert seen == [True]


async def test_concurrency_adapts_to_a_provider_that_says_too_much() -> None:
    """A tier that answers 429 while too many calls run ends up with as many as it bears, and all are answered."""
    running = most = 0

    class Busy(PlayTier):
        async def stream(self, ctx: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                for _ in range(3):
                    await asyncio.sleep(0)
                if running > 4:
                    raise tier_error("transient", "slow down", status=429)
                yield Text("fine")
                yield Finish("stop")
            finally:
                running -= 1

    limiter = AdaptiveConcurrencyLimiter(32)
    chain = _chain(Busy("a"), limits={"a": limiter}, retry=RetryPolicy(max_retries=50))
    replies = await asyncio.gather(*(chain.generate(CTX) for _ in range(200)))
    assert {reply.text for reply in replies} == {"fine"}
    assert most == 32
    assert limiter.limit <= 8


async def test_only_the_tier_that_has_one_is_limited() -> None:
    """A fallback is not held back by the first tier's limiter, which is free again by then."""
    limiter = ConcurrentRequestLimiter(1)
    down = PlayTier("a", [tier_error("unavailable", "x")])
    inner = PlayTier("b", OK)
    chain = _chain(down, inner, limits={"a": CompositeRateLimiter([limiter])})
    for _ in range(3):
        assert (await chain.generate(CTX)).text == "fine"
    with pytest.raises(ChainExhausted):
        await _chain(down, limits={"a": limiter}).generate(CTX)
    async with asyncio.timeout(1):
        await limiter.acquire()


@pytest.mark.parametrize("limits", [{"b": ConcurrentRequestLimiter(1)}, {"a": 3}])
def test_a_limit_for_no_tier_is_refused(limits: Any) -> None:
    """An id that no tier has, and a limiter that is none, are refused by name."""
    with pytest.raises(ConfigError, match="limits"):
        _chain(PlayTier("a", OK), limits=limits)
