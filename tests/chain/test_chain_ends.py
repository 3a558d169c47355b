"""Time-outs, aborts and clean-up of a chain's tries, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from isthmus.chain import ChainExhausted, RetryPolicy, Tier, define_chain, define_marker, of, tier_error
from isthmus.errors import TransientError
from isthmus.models.batches import Batches
from isthmus.models.contract import Timeouts
from isthmus.models.events import Finish, Reasoning, Reset, Text
from isthmus.models.retry import Clock
from isthmus.models.stream import EventStream
from support.chain_doubles import CTX, HANG, OK, PlayTier, Recorder, events_of
from support.virtual_time import run_virtual

LIMITS = Timeouts(first_content=10.0, idle=5.0)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _clock() -> Clock:
    """The loop's own time; every backoff at its limit."""
    return Clock(now=_now, random=lambda: 1.0)


def _chain_of(*tiers: Any, **settings: Any) -> Any:
    return define_chain(id="c", tiers=tiers, clock=_clock(), **{"timeouts": LIMITS, **settings})


def test_silence_before_content_is_tried_again() -> None:
    """F24: a try without any event for `first_content` seconds is a transient failure, each retry timed afresh."""

    async def main() -> None:
        silent, spare = PlayTier("a", [HANG]), PlayTier("b", OK)
        begun = _now()
        assert await events_of(_chain_of(silent, spare)) == list(OK)
        # Three tries of 10 s, and between them the waits of 0.25 s and 0.5 s.
        assert _now() - begun == pytest.approx(30.75, abs=0.01)
        assert (len(silent.calls), silent.open) == (3, 0)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run_virtual(main())


def test_a_time_out_says_which() -> None:
    """F24: the failures of an exhausted chain say which limit was over."""

    async def main() -> None:
        with pytest.raises(ChainExhausted, match=r"time-out: first content: no event for 10 s") as caught:
            await _chain_of(PlayTier("a", [HANG])).generate(CTX)
        assert {type(failure.error) for failure in caught.value.failures} == {TransientError}

    run_virtual(main())


def test_a_whole_reply_that_never_comes_is_tried_again() -> None:
    """F24: `first_content` bounds a reply that is generated whole."""

    async def main() -> None:
        async def never(ctx: Any) -> Any:
            await asyncio.get_running_loop().create_future()

        tier = Tier(id="a", window_tokens=900, max_output_tokens=30, generate=never)
        assert (await _chain_of(tier, PlayTier("b", OK)).generate(CTX)).text == "fine"

    run_virtual(main())


def test_a_stall_among_side_events_is_tried_again() -> None:
    """F24: after side events `idle` counts; its end takes them back and tries again."""

    async def main() -> None:
        begun = _now()
        events = await events_of(_chain_of(PlayTier("a", [Reasoning("hm"), HANG], OK)))
        assert events == [Reasoning("hm"), Reset(2), *OK]
        assert _now() - begun == pytest.approx(5.25, abs=0.01)

    run_virtual(main())


def test_a_stall_after_content_ends_the_reply() -> None:
    """F24: a time-out after content is "error-post", never a retry."""

    async def main() -> None:
        tier, spare = PlayTier("a", [Text("half"), HANG]), PlayTier("b", OK)
        events = await events_of(_chain_of(tier, spare))
        assert [type(event) for event in events] == [Text, Finish]
        assert (events[-1].finish, str(events[-1].error)) == ("error-post", "time-out: idle: no event for 5 s")
        assert (len(tier.calls), tier.open, spare.calls) == (1, 0, [])

    run_virtual(main())


def test_a_slow_consumer_is_no_time_out() -> None:
    """F24: only waiting for the tier counts, not the consumer's own time."""

    async def main() -> None:
        seen = []
        async for event in _chain_of(PlayTier("a", [Text("a"), Text("b"), *OK])).stream(CTX):
            seen.append(event)
            await asyncio.sleep(100)
        assert len(seen) == 4

    run_virtual(main())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("first", [[], [Text("so ")]], ids=["at once", "after text"])
def test_a_marker_that_comes_slowly_is_no_silence(first: list[Any], nested: bool) -> None:
    """Text that is held back has come, though nobody sees it yet: no limit counts on from the last event shown."""

    async def main() -> None:
        async def stream(ctx: Any) -> Any:
            for event in (*first, Text("[["), *[Text("word ")] * 9, Text("]]")):
                yield event
                await asyncio.sleep(4.0)
            if nothing_more:
                await asyncio.sleep(1e6)
            yield Finish("stop")

        tier = Tier(id="a", window_tokens=1000, max_output_tokens=10, stream=stream)
        chain = _chain_of(tier, markers=[define_marker("m", "[[", "]]")])
        for nothing_more in (False, True):
            reply = await (_chain_of(chain) if nested else chain).generate(CTX)
            said = None if reply.error is None else reply.error.message
            assert said == ("time-out: idle: no event for 5 s" if nothing_more else None)

    run_virtual(main())


def test_a_backoff_is_no_time_out() -> None:
    """F24: the wait between two tries is not counted against either, however long it is."""

    async def main() -> None:
        tier = PlayTier("a", [tier_error("transient", "busy", retry_after=300)], OK)
        chain = _chain_of(tier, retry=RetryPolicy(max_hint=1000))
        assert (await chain.generate(CTX)).text == "fine"

    run_virtual(main())


def test_an_inner_chain_times_its_own_tries() -> None:
    """F24: the outer chain's limits don't cut the retries of an inner one, whose own limits hold."""

    async def main() -> None:
        silent = PlayTier("a", [HANG], [HANG], OK)
        inner = define_chain(id="inner", tiers=[silent], timeouts=LIMITS, clock=_clock())
        spare = PlayTier("b", OK)
        outer = _chain_of(inner, spare, timeouts=Timeouts(first_content=11.0))
        assert await events_of(outer) == list(OK)
        assert (len(silent.calls), spare.calls) == (3, [])

    run_virtual(main())


def test_a_tier_may_bring_its_own_limits() -> None:
    """F24: a tier's own `timeouts` hold unless the chain was given some; without either the first event has 120 s."""

    async def main() -> None:
        slow = PlayTier("a", [HANG], OK)
        begun = _now()
        await _chain_of(slow, timeouts=None).generate(CTX)
        assert _now() - begun == pytest.approx(120.25, abs=0.01)
        for given, waited in ((None, 2.25), (LIMITS, 10.25)):
            slow = PlayTier("a", [HANG], OK)
            slow.timeouts = Timeouts(first_content=2.0)  # type: ignore[attr-defined]
            begun = _now()
            await _chain_of(slow, timeouts=given).generate(CTX)
            assert _now() - begun == pytest.approx(waited, abs=0.01)

    run_virtual(main())


@pytest.mark.parametrize("own", [30, 2.5, (3, 4), {"read": 30}])
def test_what_an_adapter_calls_its_time_outs_may_be_its_own_affair(own: Any) -> None:
    """In a chain as without one, what are no `Timeouts` are left to whoever wrote them, and the defaults hold."""

    async def main() -> None:
        tier = PlayTier("a", OK)
        tier.timeouts = own  # type: ignore[attr-defined]
        assert (await of(tier).generate(CTX)).text == "fine"

    run_virtual(main())


def test_another_door_around_a_chain_keeps_its_time_outs() -> None:
    """F24: a level that puts its own stream around a chain's still gets the chain's retries after time-outs."""

    async def main() -> None:
        silent = PlayTier("a", [HANG], OK)
        stream = EventStream(EventStream.bare(_chain_of(silent).stream(CTX)))
        assert (await stream.result()).text == "fine"
        assert len(silent.calls) == 2

    run_virtual(main())


def test_a_tier_that_hangs_after_its_finish_does_not_spoil_it() -> None:
    """The reply stands, and its reader waits no more than a second for the tier to end, whatever `idle` allows."""

    async def main() -> None:
        tier, begun = PlayTier("a", [*OK, HANG]), _now()
        assert await events_of(_chain_of(tier)) == list(OK)
        assert _now() - begun <= 1.01
        assert (len(tier.calls), tier.open) == (1, 0)

    run_virtual(main())


class _Reply:
    """A tier's iterator of its own; closing it takes for ever."""

    def __init__(self, *plan: Any) -> None:
        self.plan = iter(plan)

    def __aiter__(self) -> _Reply:
        return self

    async def __anext__(self) -> Any:
        for item in self.plan:
            if item is HANG:
                await asyncio.sleep(1e6)
            if isinstance(item, Exception):
                raise item
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await asyncio.sleep(1e6)


@pytest.mark.parametrize(
    "rest", [[], [Text("more")], [ValueError("late")], [HANG]], ids=["ends", "goes on", "fails", "hangs"]
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_tier_that_hangs_when_it_is_closed_after_its_finish_does_not_spoil_it(rest: list[Any], nested: bool) -> None:
    """However it went on: the reply stands, and its reader waits no more than a second for each of the two."""

    async def main() -> None:
        def stream(ctx: Any) -> Any:
            return _Reply(*OK, *rest)

        tier = Tier(id="a", window_tokens=1000, max_output_tokens=10, stream=stream)
        chain, begun = _chain_of(tier), _now()
        assert await events_of(_chain_of(chain) if nested else chain) == list(OK)
        assert _now() - begun <= 2.01

    run_virtual(main())


def test_an_abort_while_a_tier_ends_closes_it() -> None:
    """F10: a caller who is cancelled after the finish, while the tier has not ended, leaves no stream of it open."""

    async def main() -> None:
        closed: list[str] = []

        class Reply(_Reply):
            async def aclose(self) -> None:
                closed.append("reply")

        tier = Tier(id="a", window_tokens=1000, max_output_tokens=10, stream=lambda ctx: Reply(*OK, HANG))
        task = asyncio.create_task(events_of(_chain_of(tier)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == ["reply"]

    run_virtual(main())


@pytest.mark.parametrize("together", [False, True])
def test_what_comes_after_a_finish_is_dropped_and_named(together: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The log says of which type the first such event was, whether events come singly or in batches."""

    async def main() -> None:
        def stream(ctx: Any) -> Any:
            plan = _Reply(*([event] if together else event for event in (*OK, Text("more"))))
            return Batches(plan) if together else plan

        tier = Tier(id="a", window_tokens=1000, max_output_tokens=10, stream=stream)
        assert await events_of(_chain_of(tier)) == list(OK)

    run_virtual(main())
    assert [each.getMessage() for each in caplog.records] == [
        f"chain: tier a went on after its finish: {Text!r} was dropped"
    ]


def test_a_generator_that_hangs_in_its_cleanup_after_its_finish_does_not_spoil_it() -> None:
    """The same for one that says more at once and is closed there."""

    async def main() -> None:
        async def stream(ctx: Any) -> Any:
            try:
                for event in (*OK, Text("more")):
                    yield event
            finally:
                await asyncio.sleep(1e6)

        tier, begun = Tier(id="a", window_tokens=1000, max_output_tokens=10, stream=stream), _now()
        assert (await _chain_of(tier).generate(CTX)).finish == "stop"
        assert _now() - begun <= 1.01

    run_virtual(main())


@pytest.mark.parametrize(
    ("plan", "where"),
    [
        ([HANG], "before content"),
        ([Text("half"), HANG], "after content"),
        ([tier_error("transient", "busy", retry_after=9)], "in a backoff"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_abort_ends_everything(plan: list[Any], where: str) -> None:
    """F10: a cancelled caller closes the tier's stream, and nothing is tried again, before, after or between tries."""

    async def main() -> None:
        tier, spare = PlayTier("a", plan), PlayTier("b", OK)
        with Recorder() as seen:
            task = asyncio.create_task(events_of(_chain_of(tier, spare)))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (len(tier.calls), tier.open, spare.calls) == (1, 0, [])
        assert seen.types[-1] == "chain.aborted"
        cancelled = [] if where == "in a backoff" else ["attempt.cancelled"]
        assert [kind for kind in seen.types if kind == "attempt.cancelled"] == cancelled

    run_virtual(main())


def test_an_abort_in_the_moment_of_a_time_out_is_an_abort() -> None:
    """F10: a cancellation that arrives together with a time-out is not taken for it."""

    async def main() -> None:
        tier = PlayTier("a", [HANG])
        task = asyncio.create_task(events_of(_chain_of(tier)))
        await asyncio.sleep(0)
        loop: Any = asyncio.get_running_loop()
        # A blocked loop finds both timers due at once: first the cancellation, then the watchdog's.
        loop.call_later(9.8, loop.stall, 1.0)
        loop.call_later(9.9, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (len(tier.calls), tier.open) == (1, 0)

    run_virtual(main())


def test_an_outer_time_limit_stays_the_callers() -> None:
    """F24: `asyncio.timeout` around a call ends it as the caller's own, without a retry."""

    async def main() -> None:
        tier = PlayTier("a", [HANG])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await _chain_of(tier).generate(CTX)
        assert (len(tier.calls), tier.open) == (1, 0)

    run_virtual(main())


@pytest.mark.parametrize("form", ["block", "aclose", "drop"])
def test_leaving_a_stream_closes_the_tier(form: str) -> None:
    """F10: leaving the block, closing, or dropping the stream after one event closes the tier's stream."""

    async def main() -> None:
        tier = PlayTier("a", [Text("one"), HANG])
        stream = _chain_of(tier).stream(CTX)
        if form == "block":
            async with stream:
                assert await anext(stream) == Text("one")
        else:
            assert await anext(stream) == Text("one")
        if form == "aclose":
            await stream.aclose()
        del stream
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert tier.open == 0

    run_virtual(main())


def test_closing_from_another_task_wakes_the_reader() -> None:
    """F10: `aclose` in one task ends the read that waits in another, without an error there and without a retry."""

    async def main() -> None:
        tier = PlayTier("a", [Text("one"), HANG])
        stream = _chain_of(tier).stream(CTX)

        async def read() -> list[Any]:
            return [event async for event in stream]

        reader = asyncio.create_task(read())
        await asyncio.sleep(1)
        await stream.aclose()
        assert await reader == [Text("one")]
        assert (len(tier.calls), tier.open) == (1, 0)

    run_virtual(main())


def test_a_stream_never_begun_opens_nothing() -> None:
    """F10: a stream that nobody reads calls no tier and leaves nothing behind."""

    async def main() -> None:
        tier = PlayTier("a", OK)
        await _chain_of(tier).stream(CTX).aclose()
        of(tier).stream(CTX)
        gc.collect()
        assert tier.calls == []

    run_virtual(main())


def test_a_tier_that_turns_cancellation_into_an_error_is_still_late() -> None:
    """F24: a tier whose code makes an exception of the cancellation is timed out like any other."""

    async def main() -> None:
        async def stubborn(ctx: Any) -> Any:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise RuntimeError("stubborn") from None
            yield

        tier = Tier(id="a", window_tokens=900, max_output_tokens=30, stream=stubborn)
        with pytest.raises(ChainExhausted, match="time-out"):
            await _chain_of(tier, retry=RetryPolicy(max_retries=0)).generate(CTX)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run_virtual(main())
