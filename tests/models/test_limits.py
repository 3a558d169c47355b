"""Limits on calls."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from isthmus.errors import ConfigError
from isthmus.models import (
    CompositeRateLimiter,
    ConcurrentRequestLimiter,
    RateLimiter,
    SlidingWindowRateLimiter,
    TokenBucketRateLimiter,
)
from isthmus.models.limits import limited
from isthmus.models.responses import ModelStreamEvent
from support.chain_doubles import FakeTime
from support.face_kit import model_response


async def settled(rounds: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class Gate:
    """A clock whose sleeps end when a test lets time pass."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    async def _sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleeping.append((self.seconds + seconds, future))
        await future

    def clock(self) -> Any:
        time = FakeTime().clock()
        return type(time)(now=lambda: self.seconds, sleep=self._sleep, random=lambda: 1.0)

    async def to(self, seconds: float) -> None:
        """Let time pass to this moment."""
        self.seconds = seconds
        for due, future in list(self._sleeping):
            if due <= seconds and not future.done():
                future.set_result(None)
        await settled()


async def begun(limiter: RateLimiter, count: int) -> tuple[list[int], list[asyncio.Task[None]]]:
    """So many callers that wait for a limiter; who got in, in order."""
    got: list[int] = []

    async def one(number: int) -> None:
        await limiter.acquire()
        got.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    await settled()
    return got, tasks


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    """End what still waits."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_window_lets_so_many_begin_in_any_stretch_of_time() -> None:
    """Two in 10 s: the third begins when the first is 10 s old, in the order of asking."""
    gate = Gate()
    got, tasks = await begun(SlidingWindowRateLimiter(2, 10, clock=gate.clock()), 5)
    assert got == [0, 1]
    await gate.to(9.9)
    assert got == [0, 1]
    await gate.to(10)
    assert got == [0, 1, 2, 3]
    await gate.to(20)
    assert got == [0, 1, 2, 3, 4]
    await stop(tasks)


async def test_a_cancelled_wait_takes_no_operation() -> None:
    """F10: whoever is next gets in when the cancelled one would have."""
    gate = Gate()
    got, tasks = await begun(SlidingWindowRateLimiter(1, 10, clock=gate.clock()), 3)
    tasks[1].cancel()
    await settled()
    await gate.to(10)
    assert got == [0, 2]
    await stop(tasks)


async def test_concurrent_calls_are_bounded_and_a_failed_one_gives_its_place_back() -> None:
    """One at a time: the second begins when the first is over, however it ends."""
    limiter = ConcurrentRequestLimiter(1)
    with suppress(KeyError):
        async with limiter:
            got, tasks = await begun(limiter, 1)
            assert got == []
            raise KeyError
    await settled()
    assert got == [0]
    await stop(tasks)


async def test_a_bucket_blocks_at_70_percent_until_tokens_leave_the_window() -> None:
    """69 of 100 tokens let a call begin, 70 do not; those of the first call leave after 60 s."""
    gate = Gate()
    limiter = TokenBucketRateLimiter(100, clock=gate.clock())
    limiter.record_usage(69)
    await asyncio.wait_for(limiter.acquire(), 1)
    await gate.to(5)
    limiter.record_usage(1)
    got, tasks = await begun(limiter, 2)
    assert got == []
    await gate.to(59)
    assert got == []
    await gate.to(60)
    assert got == [0, 1]
    await stop(tasks)


class Named(RateLimiter):
    """Writes down what happens to it."""

    def __init__(self, log: list[str], name: str, error: BaseException | None = None) -> None:
        self.log, self.name, self.error = log, name, error

    async def acquire(self) -> None:
        if self.error is not None:
            raise self.error
        self.log.append(f"+{self.name}")

    def release(self) -> None:
        self.log.append(f"-{self.name}")

    def record_usage(self, tokens: int) -> None:
        self.log.append(f"{self.name}={tokens}")


async def test_a_composite_is_left_in_reverse() -> None:
    """All are entered in order, told the usage, and left in reverse, also when the call fails."""
    log: list[str] = []
    limiter = CompositeRateLimiter([Named(log, "a"), Named(log, "b")])
    with suppress(KeyError):
        async with limiter:
            limiter.record_usage(7)
            raise KeyError
    assert log == ["+a", "+b", "a=7", "b=7", "-b", "-a"]
    log.clear()
    await limiter.acquire()
    limiter.release()
    assert log == ["+a", "+b", "-b", "-a"]


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
async def test_a_composite_undoes_a_partial_entry(error: BaseException) -> None:
    """F10: where the third cannot be entered, or the wait is cancelled, the first two are left, in reverse."""
    log: list[str] = []
    limiter = CompositeRateLimiter([Named(log, "a"), Named(log, "b"), Named(log, "c", error)])
    with pytest.raises(type(error)):
        async with limiter:
            raise AssertionError
    assert log == ["+a", "+b", "-b", "-a"]


async def test_a_cancelled_composite_frees_what_it_had() -> None:
    """Waiting for its second limiter, a cancelled caller holds nothing of the first."""
    first, second = ConcurrentRequestLimiter(1), ConcurrentRequestLimiter(1)
    await second.acquire()
    _, tasks = await begun(CompositeRateLimiter([first, second]), 1)
    await stop(tasks)
    await asyncio.wait_for(first.acquire(), 1)


@pytest.mark.parametrize("how", ["end", "break", "error", "cancel"])
async def test_a_streamed_call_holds_its_limiter_for_its_whole_life(how: str) -> None:
    """The limiter is taken before the stream starts, and given back after the stream is closed, however it ends."""
    log: list[str] = []

    async def events() -> AsyncIterator[ModelStreamEvent]:
        log.append("start")
        try:
            yield ModelStreamEvent(kind="text_delta", text="a")
            if how == "error":
                raise KeyError
            if how == "cancel":
                raise asyncio.CancelledError
            yield ModelStreamEvent(kind="completed", response=model_response())
        finally:
            log.append("closed")

    stream: Any = limited(events(), Named(log, "l"))
    assert log == []
    try:
        async for _ in stream:
            if how == "break":
                break
        await stream.aclose()
    except (KeyError, asyncio.CancelledError):
        pass
    spent = ["l=12"] if how == "end" else []
    assert log == ["+l", "start", *spent, "closed", "-l"]


async def test_no_limiter_is_no_limit() -> None:
    """Without a limiter the stream is handed on as it is."""

    async def events() -> AsyncIterator[ModelStreamEvent]:
        yield ModelStreamEvent(kind="text_delta", text="a")

    assert [event.text async for event in limited(events(), None)] == ["a"]


def test_a_copy_is_the_limiter_itself() -> None:
    """A copy would let through as much again."""
    limiter = TokenBucketRateLimiter(10)
    assert copy.deepcopy(limiter) is copy.copy(limiter) is limiter


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ConcurrentRequestLimiter(0),
            "ConcurrentRequestLimiter: max_concurrent: must be a whole number from 1, not 0",
        ),
        (lambda: SlidingWindowRateLimiter(True, 1), "SlidingWindowRateLimiter: max_operations: must be a whole number"),
        (
            lambda: SlidingWindowRateLimiter(1, 0),
            "WindowRateLimiter: window_seconds: must be a number of seconds",
        ),
        (lambda: TokenBucketRateLimiter(1.5), "TokenBucketRateLimiter: max_tokens: must be a whole number"),  # type: ignore[arg-type]
        (lambda: TokenBucketRateLimiter(1).record_usage(-1), "record_usage: tokens: must be a whole number of tokens"),
        (
            lambda: CompositeRateLimiter([ConcurrentRequestLimiter(1), 3]),  # type: ignore[list-item]
            r"CompositeRateLimiter: limiters\[1\]: must be a RateLimiter, not int: derive it",
        ),
    ],
)
def test_a_wrong_limit_names_place_and_remedy(make: Any, said: str) -> None:
    """Each number that cannot be is refused by name and value."""
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_composite_of_something_else_than_a_list_is_refused() -> None:
    """One limiter, or a number, in the place of the list is an error that names the field."""
    for wrong in (ConcurrentRequestLimiter(1), 5, None):
        with pytest.raises(ConfigError, match="limiters: must be a list of limiters"):
            CompositeRateLimiter(wrong)  # type: ignore[arg-type]


async def test_a_concurrent_limiter_never_lets_in_more_than_its_limit() -> None:
    """Releasing more often than acquiring raises instead of making room for one more."""
    limiter = ConcurrentRequestLimiter(1)
    with pytest.raises(RuntimeError, match="nobody had taken"):
        limiter.release()
