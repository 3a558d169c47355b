"""How much time one call has for all its tries, waits and fallbacks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus import Agent
from isthmus.chain import ChainCut, ChainExhausted, CutReason, RetryPolicy, define_chain, tier_error
from isthmus.errors import ConfigError
from isthmus.models.contract import Timeouts
from isthmus.models.events import Text
from isthmus.models.limits import ConcurrentRequestLimiter
from isthmus.models.retry import Clock
from support.chain_doubles import CTX, HANG, OK, PlayTier, Recorder, events_of
from support.virtual_time import run_virtual


def _chain(*tiers: Any, seconds: float = 10, **settings: Any) -> Any:
    clock = Clock(now=asyncio.get_running_loop().time, random=lambda: 1.0)
    return define_chain(id="c", tiers=tiers, step_timeout=seconds, clock=clock, **settings)


async def _takes(awaitable: Any) -> float:
    """Seconds until it is cut, "deadline"."""
    now = asyncio.get_running_loop().time
    began = now()
    with pytest.raises(ChainCut, match="the time for all tries is over") as caught:
        await awaitable
    assert caught.value.reason is CutReason.DEADLINE
    return now() - began


def test_the_deadline_covers_tries_and_waits() -> None:
    """F24: three silent tries of 3 s and the waits between them are cut after 10 s, and no other tier is asked."""

    async def main() -> None:
        silent, spare = PlayTier("a", [HANG]), PlayTier("b", [HANG])
        chain = _chain(silent, spare, timeouts=Timeouts(first_content=3))
        with Recorder() as seen:
            assert await _takes(chain.generate(CTX)) == pytest.approx(10, abs=0.01)
        assert (len(silent.calls), len(spare.calls), silent.open, spare.open) == (3, 1, 0, 0)
        assert (seen.types[-2:], seen.fields("chain.deadline")[0]["content"]) == (
            ["attempt.failed", "chain.deadline"],
            "pre",
        )
        assert seen.fields("attempt.failed")[-1]["next"] == "stop"

    run_virtual(main())


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    """F09: where the hint is longer than the time that is left, the next tier is asked at once."""

    async def main() -> None:
        busy, spare = PlayTier("a", [tier_error("transient", "busy", retry_after=8)]), PlayTier("b", OK)
        began = asyncio.get_running_loop().time()
        assert await events_of(_chain(busy, spare, seconds=5)) == list(OK)
        assert asyncio.get_running_loop().time() == pytest.approx(began, abs=0.01)
        with pytest.raises(ChainExhausted):
            await events_of(_chain(busy, seconds=5))

    run_virtual(main())


def test_after_content_the_reply_is_cut_with_what_came() -> None:
    """F24: a reply that is still coming when the time is over ends "error-post", and its error says "deadline"."""

    async def main() -> None:
        chain = _chain(PlayTier("a", [Text("half"), HANG]), seconds=10)
        with Recorder() as seen:
            events = await events_of(chain)
        assert (events[0], events[1].finish, events[1].error.reason) == (Text("half"), "error-post", "deadline")
        assert seen.types[-2:] == ["attempt.failed", "chain.deadline"]
        assert seen.fields("chain.deadline")[0]["content"] == "post"

    run_virtual(main())


def test_a_stream_that_stalls_first_stays_a_stream_error() -> None:
    """The first cause counts: a stall before the deadline is a broken stream."""

    async def main() -> None:
        chain = _chain(PlayTier("a", [Text("half"), HANG]), seconds=10, timeouts=Timeouts(idle=5))
        end = (await events_of(chain))[-1]
        assert (end.finish, str(end.error)) == ("error-post", "time-out: idle: no event for 5 s")

    run_virtual(main())


@pytest.mark.parametrize("plan", [[HANG], [Text("half"), HANG]], ids=["before", "after"])
def test_an_agent_tells_the_reason(plan: list[Any]) -> None:
    """The turn is cut "deadline", with the text that had come."""

    async def main() -> None:
        result = await Agent(model=_chain(PlayTier("a", plan), PlayTier("b", OK))).run("hi")
        outcome = result.outcome
        assert (outcome.outcome, outcome.reason) == ("cut", "deadline")
        assert outcome.text == ("half" if len(plan) == 2 else "")
        assert [attempt.reason for attempt in outcome.attempts] == [
            "chain 'c': deadline: the time for all tries is over"
        ]

    run_virtual(main())


@pytest.mark.parametrize("plan", [[HANG], [Text("half"), HANG]], ids=["before", "after"])
def test_the_deadline_of_an_outer_chain_cuts_an_inner_one(plan: list[Any]) -> None:
    """An inner chain has no more time than the one around it, and does not try again when that is over."""

    async def main() -> None:
        tier, spare = PlayTier("a", plan), PlayTier("b", OK)
        inner = _chain(tier, seconds=1000, timeouts=Timeouts(first_content=500, idle=500))
        result = await Agent(model=_chain(inner, spare, seconds=10)).run("hi")
        assert (result.outcome.reason, len(tier.calls), spare.calls) == ("deadline", 1, [])

    run_virtual(main())


def test_the_deadline_of_an_inner_chain_falls_back() -> None:
    """An inner chain whose own time is over before content is a tier that is unavailable."""

    async def main() -> None:
        inner = _chain(PlayTier("a", [HANG]), seconds=5)
        assert await events_of(_chain(inner, PlayTier("b", OK), seconds=100)) == list(OK)

    run_virtual(main())


def test_the_wait_for_a_limiter_counts() -> None:
    """A call that waits for a place when its time is over is cut, and takes none."""

    async def main() -> None:
        limiter, tier = ConcurrentRequestLimiter(1), PlayTier("a", OK)
        await limiter.acquire()
        chain = _chain(tier, limits={"a": limiter})
        assert await _takes(chain.generate(CTX)) == pytest.approx(10, abs=0.01)
        limiter.release()
        assert (await chain.generate(CTX)).text == "fine"
        assert len(tier.calls) == 1

    run_virtual(main())


def test_a_backoff_that_is_cut_is_no_try() -> None:
    """A clock that sleeps too long is cut at the deadline too, and the wait is entered as nobody's try."""

    async def main() -> None:
        now = asyncio.get_running_loop().time
        clock = Clock(now=now, sleep=lambda seconds: asyncio.sleep(seconds * 100), random=lambda: 1.0)
        tier = PlayTier("a", [tier_error("transient", "busy")], OK)
        chain = define_chain(id="c", tiers=[tier], step_timeout=10, clock=clock)
        async with chain.open_run() as run:
            assert await _takes(run.generate(CTX)) == pytest.approx(10, abs=0.01)
            assert [attempt.next for attempt in run.attempts] == ["retry"]

    run_virtual(main())


def test_a_slow_reader_is_not_cut_while_nobody_waits() -> None:
    """The reader's own time is his: a reply whose pieces are all there is read to its end."""

    async def main() -> None:
        seen = []
        async for event in _chain(PlayTier("a", [Text("a"), Text("b"), *OK]), seconds=10).stream(CTX):
            seen.append(event)
            await asyncio.sleep(20)
        assert len(seen) == 4

    run_virtual(main())


def test_each_call_of_a_run_has_its_own_time() -> None:
    """`step_timeout` is for one call; a run's is a budget."""

    async def main() -> None:
        chain = _chain(PlayTier("a", OK), seconds=10, retry=RetryPolicy(max_retries=0))
        async with chain.open_run() as run:
            for _ in range(3):
                await asyncio.sleep(8)
                assert (await run.generate(CTX)).text == "fine"

    run_virtual(main())


@pytest.mark.parametrize("wrong", [0, -1, True, "10"])
def test_a_deadline_is_seconds_above_zero(wrong: Any) -> None:
    """Anything else is refused by name."""
    with pytest.raises(ConfigError, match="step_timeout"):
        define_chain(id="c", tiers=[PlayTier("a", OK)], step_timeout=wrong)
