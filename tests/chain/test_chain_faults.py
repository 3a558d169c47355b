"""Whatever the tiers do, in whatever order: the laws of a chain hold."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.chain import ChainExhausted, TierError, consume_stream, define_chain, tier_error
from isthmus.errors import ErrorClass
from isthmus.models.contract import Timeouts
from isthmus.models.events import Call, CallDelta, Finish, Reasoning, Reset, Text
from isthmus.models.retry import Clock
from support.chain_doubles import CTX, HANG, OK, PlayTier, Recorder
from support.virtual_time import run_virtual

_ENDS = ("chain.finished", "chain.exhausted", "chain.failed", "chain.aborted")
_OUTCOMES = ("attempt.finished", "attempt.failed", "attempt.cancelled")

_SIDE = st.sampled_from([Reasoning("hm"), CallDelta(0, "c", "t", "{"), Text(""), {"type": "reasoning", "text": "d"}])
_CONTENT = st.sampled_from(
    [Text("x"), {"type": "text", "text": "y"}, Call("t", {}, None, "{}"), {"type": "call", "tool": "u", "input": {}}]
)
_END = st.one_of(
    st.just(Finish("stop")),
    st.just({"type": "finish", "finish": "length"}),
    st.just(Finish("tool-calls")),
    st.just(HANG),
    st.just({"type": "sing"}),
    st.builds(lambda kind: tier_error(kind, "planned"), st.sampled_from(list(ErrorClass))),
    st.sampled_from([ConnectionResetError("reset"), KeyError("bug"), TimeoutError()]),
    st.none(),
)
_TAIL = st.lists(st.sampled_from([Text("late"), Finish("stop"), HANG]), max_size=1)


def _plan(side: list[Any], content: list[Any], end: Any, tail: list[Any]) -> list[Any]:
    return [*side, *content, *([] if end is None else [end]), *tail]


_PLAN = st.builds(_plan, st.lists(_SIDE, max_size=2), st.lists(_CONTENT, max_size=2), _END, _TAIL)
_TIERS = st.lists(
    st.tuples(st.lists(_PLAN, min_size=1, max_size=4), st.sampled_from([100, 200, 300])), min_size=1, max_size=3
)


def _numbered(plans: list[list[Any]], tier: str) -> list[list[Any]]:
    """The plans with every text unlike any other, so that a repetition would be seen."""
    return [
        [Text(f"{tier}{n}.{i} ") if item in (Text("x"), Text("late")) else item for i, item in enumerate(plan)]
        for n, plan in enumerate(plans)
    ]


def _chain(tiers: list[tuple[list[Any], int]], nested: bool) -> tuple[Any, list[PlayTier]]:
    clock = Clock(now=lambda: asyncio.get_running_loop().time(), random=lambda: 0.5)
    limits = Timeouts(first_content=3.0, idle=2.0)
    played = [
        PlayTier(f"t{i}", *_numbered(plans, f"t{i}"), window=window + 256) for i, (plans, window) in enumerate(tiers)
    ]
    members: list[Any] = list(played)
    if nested:
        members[0] = define_chain(id="inner", tiers=[played[0]], timeouts=limits, clock=clock)
    return define_chain(id="outer", tiers=members, timeouts=limits, clock=clock), played


async def _read(chain: Any, stop_after: int | None) -> tuple[list[Any], BaseException | None]:
    events: list[Any] = []
    try:
        async with chain.stream(CTX) as stream:
            async for event in stream:
                events.append(event)
                if len(events) == stop_after:
                    break
    except (TierError, asyncio.CancelledError) as error:
        return events, error
    return events, None


def _check_events(events: list[Any], failure: BaseException | None, left: bool) -> None:
    finishes = [i for i, event in enumerate(events) if isinstance(event, Finish)]
    content = [i for i, e in enumerate(events) if isinstance(e, Call) or (isinstance(e, Text) and e.text)]
    assert len(finishes) <= 1, "two terminal events"
    assert not finishes or finishes[0] == len(events) - 1, "something after the terminal event"
    if not left:
        assert bool(finishes) is (failure is None), "either a terminal event or an error"
    assert failure is None or not content, "an error after content"
    texts = [event.text for event in events if isinstance(event, Text) and event.text not in ("", "y")]
    assert len(texts) == len(set(texts)), "a text was repeated"
    assert len({text[:4] for text in texts}) <= 1, "texts of two tries"
    last_reset = max((i for i, event in enumerate(events) if isinstance(event, Reset)), default=-1)
    assert all(i > last_reset for i in content), "a reset after content"


def _check_records(records: list[Any], chain: str) -> None:
    by_call: dict[int, list[Any]] = {}
    for record in records:
        if record.chain == chain:
            by_call.setdefault(record.fields["call"], []).append(record)
    for call in by_call.values():
        types = [record.type for record in call]
        assert [record.fields["seq"] for record in call] == list(range(1, len(call) + 1)), "a gap in the numbers"
        assert types.count("attempt.started") == sum(types.count(kind) for kind in _OUTCOMES), types
        assert sum(types.count(kind) for kind in _ENDS) == 1, types
        assert types[-1] in _ENDS, types
        if "attempt.committed" in types:
            assert "attempt.started" not in types[types.index("attempt.committed") :], types


@given(_TIERS, st.booleans(), st.one_of(st.none(), st.integers(1, 4)), st.one_of(st.none(), st.floats(0.1, 12)))
@settings(max_examples=400, deadline=None)
def test_the_laws_hold_over_random_faults(
    tiers: list[tuple[list[Any], int]], nested: bool, stop_after: int | None, cancel_after: float | None
) -> None:
    """F05, F10, F24: no text twice, one end, all streams closed, no task left, records in order."""

    async def main() -> None:
        chain, played = _chain(tiers, nested)
        with Recorder() as seen:
            task = asyncio.create_task(_read(chain, stop_after))
            if cancel_after is not None:
                await asyncio.sleep(cancel_after)
                task.cancel()
            try:
                events, failure = await task
            except asyncio.CancelledError:
                events, failure = [], asyncio.CancelledError()
        left = len(events) == stop_after or isinstance(failure, asyncio.CancelledError)
        _check_events(events, None if left else failure, left)
        assert [tier.open for tier in played] == [0] * len(played), "a stream was left open"
        _check_records(seen.events, "outer")
        _check_records(seen.events, "inner")
        assert all(len(tier.calls) <= 3 for tier in played)

    run_virtual(main())


@given(_TIERS, st.booleans())
@settings(max_examples=200, deadline=None)
def test_stream_and_generate_agree_over_random_faults(tiers: list[tuple[list[Any], int]], nested: bool) -> None:
    """The whole reply is the fold of the streamed one, and fails as it does; every failure names its attempts."""

    async def main() -> None:
        outcomes = []
        for whole in (False, True):
            chain, _ = _chain(tiers, nested)
            try:
                reply = await (chain.generate(CTX) if whole else consume_stream(chain.stream(CTX)))
                outcomes.append((reply.text, reply.finish, reply.calls, reply.reasoning, str(reply.error)))
            except ChainExhausted as error:
                outcomes.append(("exhausted", str(error), error.__cause__ is error.failures[-1].error))
            except TierError as error:
                outcomes.append((str(error.error_class), str(error)))
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][-1] is not False, "the cause of an exhaustion is its last failure"

    run_virtual(main())


async def test_a_tier_that_cancels_itself_falls_back() -> None:
    """F05: a cancellation that came from within a tier, and from nobody else, is a failure of that tier alone."""
    bad, good = PlayTier("bad", [asyncio.CancelledError()]), PlayTier("good", OK)
    reply = await define_chain(id="c", tiers=[bad, good]).generate(CTX)
    assert (reply.text, bad.open) == ("fine", 0)
