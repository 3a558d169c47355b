"""How a chain retries, falls back, commits and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import wraps
from typing import Any

import pytest

from isthmus.adapters.base import ModelAdapter
from isthmus.chain import (
    Budget,
    ChainExhausted,
    Price,
    RetryPolicy,
    StepResult,
    Tier,
    TierError,
    consume_stream,
    define_chain,
    of,
    tier_error,
)
from isthmus.errors import ErrorClass, InvalidRequestError, ProtocolError, RefusedError, UnavailableError
from isthmus.models.aside import Aside
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, CallDelta, Finish, Native, NoteCode, Reasoning, Reset, Text, Usage
from isthmus.models.responses import ModelStreamEvent, ToolCall, ToolCallFunction
from isthmus.observability import hooks
from support.chain_doubles import CTX, OK, STOP, FakeTime, PlayTier, Recorder, events_of, whole

CALL = Call("rm", {"path": "/"}, "c1", '{"path":"/"}')


def _err(kind: str, **more: Any) -> TierError:
    return tier_error(kind, f"deliberate {kind}", **more)


def _chain_of(*tiers: Any, time: FakeTime | None = None, **settings: Any) -> Any:
    return define_chain(id="c", tiers=tiers, clock=(time or FakeTime()).clock(), **settings)


@pytest.mark.parametrize("form", ["sync", "async", "dict", "async-dict"])
async def test_generate_may_take_any_form(form: str) -> None:
    """`generate` may return a reply or a dict of it, at once or when awaited."""
    value: Any = (
        whole("hello") if "dict" not in form else {"events": [{"type": "text", "text": "hello"}], "finish": "stop"}
    )

    async def later(ctx: GenerateContext) -> Any:
        return value

    generate = later if "async" in form else lambda ctx: value
    reply = await of(Tier(id="t", window_tokens=900, max_output_tokens=30, generate=generate)).generate(CTX)
    assert reply == whole("hello")


async def test_stream_is_preferred_to_generate() -> None:
    """Where a tier has both, `generate` is never called."""

    async def flow(ctx: GenerateContext) -> AsyncIterator[Any]:
        yield Text("streamed")
        yield STOP

    def never(ctx: GenerateContext) -> StepResult:
        raise AssertionError("generate was called")

    chain = of(Tier(id="t", window_tokens=900, max_output_tokens=30, generate=never, stream=flow))
    assert (await chain.generate(CTX)).text == "streamed"


async def test_a_stream_may_be_plain_awaited_or_thrown() -> None:
    """A stream may be a plain iterator or an awaitable of one; a throw at the call counts as one at the first event."""

    async def later(ctx: GenerateContext) -> Any:
        return iter(OK)

    def thrown(ctx: GenerateContext) -> Any:
        raise _err("unavailable")

    size = {"window_tokens": 900, "max_output_tokens": 30}
    for stream in (lambda ctx: iter(OK), later):
        assert (await of(Tier(id="t", stream=stream, **size)).generate(CTX)).text == "fine"  # type: ignore[arg-type]
    spare = PlayTier("spare", OK)
    assert (await _chain_of(Tier(id="t", stream=thrown, **size), spare).generate(CTX)).text == "fine"  # type: ignore[arg-type]


async def test_a_whole_reply_passes_unchanged() -> None:
    """Everything that a whole reply holds comes out of the chain as it went in."""
    reply = StepResult(
        (Text("see "), CALL),
        "tool-calls",
        "tool_use",
        Usage(input_tokens=1, output_tokens=2),
        "hm",
        (Native("x", "thinking", {"n": 1}), Native("x", "message", {"m": 2})),
    )
    chain = of(Tier(id="t", window_tokens=900, max_output_tokens=30, generate=lambda ctx: reply))
    assert await chain.generate(CTX) == reply


async def test_a_transient_failure_then_success_stays_on_the_tier() -> None:
    """F05: one transient failure costs one retry on the same tier, with an equal context."""
    tier, spare = PlayTier("a", [_err("transient")], OK), PlayTier("b", OK)
    assert (await _chain_of(tier, spare).generate(CTX)).text == "fine"
    assert (tier.calls, spare.calls) == ([CTX, CTX], [])


async def test_transients_beyond_max_retries_fall_back() -> None:
    """F09: max_retries is 2, so three transient failures, with full jitter from 0.25 s, then the next tier."""
    time = FakeTime(luck=0.5)
    tier, spare = PlayTier("a", [_err("transient")]), PlayTier("b", OK)
    assert (await _chain_of(tier, spare, time=time).generate(CTX)).text == "fine"
    assert len(tier.calls) == 3
    assert time.waits == [0.125, 0.25]


async def test_each_tier_has_its_full_allowance() -> None:
    """The retries of one tier don't count against the next."""
    first, second = PlayTier("a", [_err("transient")]), PlayTier("b", [_err("transient")])
    with pytest.raises(ChainExhausted):
        await _chain_of(first, second).generate(CTX)
    assert (len(first.calls), len(second.calls)) == (3, 3)


async def test_a_request_that_is_wrong_for_one_tier_alone_goes_to_the_next() -> None:
    """An invalid request ends the call, unless the tier says that it is wrong for this tier alone."""
    skips = _err("invalid")
    skips.for_this_tier = True
    tier = PlayTier("a", [skips])
    assert (await _chain_of(tier, PlayTier("b", OK)).generate(CTX)).text == "fine"
    assert len(tier.calls) == 1


async def test_exhaustion_lists_every_attempt() -> None:
    """`ChainExhausted` holds tier, number, error and time of each try, and its cause is the last error."""
    last = _err("unavailable")
    chain = _chain_of(PlayTier("a", [_err("transient")]), PlayTier("b", [last]))
    with pytest.raises(ChainExhausted) as caught:
        await chain.generate(CTX)
    failures = caught.value.failures
    assert [(f.tier, f.attempt, f.error.error_class) for f in failures] == [
        ("a", 1, "transient"),
        ("a", 2, "transient"),
        ("a", 3, "transient"),
        ("b", 1, "unavailable"),
    ]
    assert all(f.seconds >= 0 for f in failures)
    assert caught.value.__cause__ is last


async def test_a_bare_adapter_fails_as_a_chain_of_one() -> None:
    """A chain of one raises `ChainExhausted` too, through `generate`, the stream and the fold alike."""
    chain = of(PlayTier("a", [_err("credentials")]))
    for call in (chain.generate(CTX), chain.stream(CTX).result(), consume_stream(chain.stream(CTX)), events_of(chain)):
        with pytest.raises(ChainExhausted) as caught:
            await call
        assert isinstance(caught.value.__cause__, TierError)


async def test_a_failure_before_the_first_delta_leaves_no_trace() -> None:
    """F05: the caller sees only the text of the tier that answered."""
    chain = _chain_of(PlayTier("a", [_err("unavailable")]), PlayTier("b", OK))
    assert await events_of(chain) == list(OK)


@pytest.mark.parametrize("kind", list(ErrorClass))
async def test_any_failure_after_content_ends_the_reply(kind: str) -> None:
    """F05: after one delta, whatever the class, the reply ends "error-post" with the usage known, for good."""
    error = _err(kind)
    error.usage = Usage(output_tokens=1)
    tier, spare = PlayTier("a", [Text("half"), error]), PlayTier("b", OK)
    time = FakeTime()
    events = await events_of(_chain_of(tier, spare, time=time))
    assert events == [Text("half"), Finish("error-post", Usage(output_tokens=1), error=error)]
    assert (len(tier.calls), spare.calls, time.waits) == (1, [], [])


async def test_a_call_is_content() -> None:
    """F05: a failure after only a call is not tried again, and the reply ends "error-post", so the call never runs."""
    tier, spare = PlayTier("a", [CALL, _err("transient")]), PlayTier("b", OK)
    reply = await _chain_of(tier, spare).generate(CTX)
    assert (reply.calls, reply.finish) == ((CALL,), "error-post")
    assert (len(tier.calls), spare.calls) == (1, [])


@pytest.mark.parametrize("empty", [Text(""), {"type": "text", "text": ""}])
async def test_an_empty_delta_is_no_content(empty: Any) -> None:
    """F05: after an empty delta a failure is still tried again."""
    tier = PlayTier("a", [empty, _err("transient")], OK)
    assert (await _chain_of(tier).generate(CTX)).text == "fine"


async def test_a_text_dict_is_content() -> None:
    """Content that a tier yields as a dict commits like a struct."""
    tier = PlayTier("a", [{"type": "text", "text": "half"}, _err("transient")], OK)
    assert (await _chain_of(tier).generate(CTX)).finish == "error-post"


async def test_no_finish_before_content_falls_back() -> None:
    """F05: a stream that ends without a finish and without content is a broken contract, and the next tier answers."""
    tier, spare = PlayTier("a", []), PlayTier("b", OK)
    chain = _chain_of(tier, spare)
    async with chain.open_run() as run:
        assert (await run.generate(CTX)).text == "fine"
        assert isinstance(run.attempts[0].error, ProtocolError)


async def test_no_finish_after_content_is_error_post() -> None:
    """A stream that ends without a finish after content is no success."""
    events = await events_of(_chain_of(PlayTier("a", [Text("half")]), PlayTier("b", OK)))
    assert events[0] == Text("half")
    assert (events[1].finish, type(events[1].error), len(events)) == ("error-post", ProtocolError, 2)


@pytest.mark.parametrize("broken", [{"type": "sing"}, {"type": "text", "texxt": "x"}, 7, Finish("tool-calls")])
async def test_a_broken_event_before_content_falls_back(broken: Any) -> None:
    """An unknown event, a wrong field or an impossible finish is the tier's fault; the next tier answers."""
    tier, spare = PlayTier("a", [broken]), PlayTier("b", OK)
    assert (await _chain_of(tier, spare).generate(CTX)).text == "fine"
    assert len(tier.calls) == 1


@pytest.mark.parametrize("text", [5, None])
async def test_a_text_that_is_none_breaks_the_contract(text: Any) -> None:
    """A text struct without a string in it counts as the tier's failure, before content and after it."""
    assert (await _chain_of(PlayTier("a", [Text(text), STOP]), PlayTier("b", OK)).generate(CTX)).text == "fine"
    events = await events_of(_chain_of(PlayTier("a", [Text("half"), Text(text), STOP])))
    assert [event.type for event in events] == ["text", "finish"]
    assert events[-1].finish == "error-post"


async def test_two_calls_with_one_id_end_the_reply() -> None:
    """A repeated call id after content is found by the chain itself and ends the reply "error-post"."""
    events = await events_of(_chain_of(PlayTier("a", [CALL, CALL, STOP])))
    assert [type(event) for event in events] == [Call, Finish]
    assert events[-1].finish == "error-post"


async def test_an_empty_reply_is_a_reply() -> None:
    """A finish without content ends the call; it is told apart as empty."""
    spare = PlayTier("b", OK)
    with Recorder() as seen:
        reply = await _chain_of(PlayTier("a", [STOP]), spare).generate(CTX)
    assert (reply.text, reply.finish, spare.calls) == ("", "stop", [])
    assert seen.fields("attempt.finished")[0]["empty"] is True


async def test_an_error_post_reply_of_generate_passes_through() -> None:
    """A tier's own "error-post" goes on as it is, error included, and is never tried again."""
    failure = _err("transient")
    result = StepResult((Text("half"),), "error-post", error=failure)
    spare = PlayTier("b", OK)
    tier = Tier(id="a", window_tokens=900, max_output_tokens=30, generate=lambda ctx: result)
    reply = await _chain_of(tier, spare).generate(CTX)
    assert (reply.text, reply.finish, reply.error, spare.calls) == ("half", "error-post", failure, [])


async def test_a_failure_after_a_call_that_runs_already_is_the_same_on_both_paths() -> None:
    """Nothing is tried again, and as nothing of a reply came, whole or streamed it is the failure itself."""
    running = ToolCall(id="c1", function=ToolCallFunction("rm", "{}"))
    told = Aside(ModelStreamEvent(kind="provider", async_tool_call=running))
    for nested in (False, True):
        spare = PlayTier("b", OK)
        chain = _chain_of(PlayTier("a", [told, _err("transient")]), spare)
        chain = define_chain(id="outer", tiers=[chain, spare]) if nested else chain
        for reply in (chain.generate(CTX), consume_stream(chain.stream(CTX))):
            with pytest.raises(TierError, match="deliberate transient"):
                await reply
        assert spare.calls == []


@pytest.mark.parametrize("kind", ["unavailable", "credentials", "protocol", "unclassified"])
async def test_these_classes_fall_back_at_once(kind: str) -> None:
    """F09: what a retry would not mend gets one try and no wait."""
    time, tier = FakeTime(), PlayTier("a", [_err(kind)])
    assert (await _chain_of(tier, PlayTier("b", OK), time=time).generate(CTX)).text == "fine"
    assert (len(tier.calls), time.waits) == (1, [])


@pytest.mark.parametrize(
    ("kind", "loud"),
    [("credentials", True), ("protocol", True), ("unclassified", True), ("unavailable", False), ("transient", False)],
)
async def test_failures_that_somebody_must_mend_are_logged(
    kind: str, loud: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Credentials, protocol and unclassified failures are warned of in the log though another tier answers."""
    with caplog.at_level(logging.DEBUG, "isthmus.chain"):
        await _chain_of(PlayTier("a", [_err(kind)]), PlayTier("b", OK)).generate(CTX)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"deliberate {kind}" in text and "tier a" in text for text in warned] == ([True] if loud else [])


async def test_no_key_reaches_the_log_or_a_listener(caplog: pytest.LogCaptureFixture) -> None:
    """What looks like a key in an unclassified error's text is taken out."""
    boom = RuntimeError("refused key sk-canary-0123456789abcdef")
    with Recorder() as seen:
        await _chain_of(PlayTier("a", [boom]), PlayTier("b", OK)).generate(CTX)
    assert "canary" not in caplog.text
    assert "canary" not in str(seen.events)
    assert "refused key" in caplog.text


async def test_any_exception_is_classified() -> None:
    """A lost connection is tried again, a refused one falls back, a stranger's exception counts as unclassified."""
    for boom, tries in ((ConnectionResetError(), 3), (ConnectionRefusedError(), 1), (KeyError("x"), 1)):
        tier = PlayTier("a", [boom])
        assert (await _chain_of(tier, PlayTier("b", OK)).generate(CTX)).text == "fine"
        assert len(tier.calls) == tries


class _Bare(UnavailableError):
    """An error of an author's own, who fills in what he needs."""

    def __init__(self, host: str) -> None:
        self.host = host


def _spent(usage: Any) -> TierError:
    error = _err("unavailable")
    error.usage = usage
    return error


@pytest.mark.parametrize(
    ("error", "reason", "usage"),
    [
        (lambda: _Bare("host-1"), "host-1", None),
        (lambda: tier_error("unavailable", OSError("no route")), "no route", None),  # type: ignore[arg-type]
        (lambda: _spent({"inputTokens": 3, "outputTokens": 1}), "deliberate unavailable", (3, 1)),
        (lambda: _spent({"tokens": 3}), "deliberate unavailable", None),
        (lambda: _spent(Usage(input_tokens="many")), "deliberate unavailable", None),  # type: ignore[arg-type]
    ],
    ids=["without what others have", "message", "usage as a dict", "usage of no form", "usage of no number"],
)
@pytest.mark.parametrize("posted", [False, True])
async def test_an_error_filled_in_a_looser_way_is_put_right(error: Any, reason: str, usage: Any, posted: bool) -> None:
    """F09: a classified failure counts by its class, with or without a budget, however its author made it."""
    content = [Text("so")] if posted else []
    plans = [[*content, error()], [*content, Finish("error-post", error=error())]]
    for tier in (PlayTier("a", plan) for plan in plans):
        chain = _chain_of(tier, PlayTier("b", OK), budget=Budget(tokens=20_000), prices={"a": Price(input=1, output=1)})
        reply = await chain.generate(CTX)
        first = reply.attempts[0]
        assert (reply.finish, first.error_class, first.reason) == (
            "error-post" if posted else "stop",
            "unavailable",
            reason,
        )
        spent = first.error and first.error.usage
        assert (spent and (spent.input_tokens, spent.output_tokens)) == usage


async def test_an_invalid_request_is_raised() -> None:
    """F09: what no tier would like better is raised as it is, after one try."""
    error, spare = _err("invalid"), PlayTier("b", OK)
    tier = PlayTier("a", [error])
    with pytest.raises(InvalidRequestError) as caught:
        await _chain_of(tier, spare).generate(CTX)
    assert (caught.value, len(tier.calls), spare.calls) == (error, 1, [])


async def test_a_refusal_stops_unless_opted_in() -> None:
    """A content-policy refusal is raised; with `fallback_on_refused` the next tier is asked."""
    with pytest.raises(RefusedError):
        await _chain_of(PlayTier("a", [_err("refused")]), PlayTier("b", OK)).generate(CTX)
    chain = _chain_of(PlayTier("a", [_err("refused")]), PlayTier("b", OK), fallback_on_refused=True)
    assert (await chain.generate(CTX)).text == "fine"


async def test_an_overflow_goes_to_larger_windows_only() -> None:
    """After an overflow, tiers whose window is no larger are passed over, also after a further failure."""
    tiers = [
        PlayTier("mid", [_err("overflow")], window=4000),
        PlayTier("same", OK, window=4000),
        PlayTier("large", [_err("unavailable")], window=9000),
        PlayTier("small", OK, window=1000),
        PlayTier("huge", OK, window=10_000),
    ]
    with Recorder() as seen:
        assert (await _chain_of(*tiers).generate(CTX)).text == "fine"
    assert [len(tier.calls) for tier in tiers] == [1, 0, 1, 0, 1]
    skipped = [(f["tier"], f["reason"]) for f in seen.fields("tier.skipped")]
    assert skipped == [("mid", "window"), ("same", "window"), ("small", "window")]


async def test_overflow_everywhere_is_an_overflow() -> None:
    """A chain that only overflows stopped says so by its class, and tried only what was larger."""
    chain = _chain_of(PlayTier("a", [_err("overflow")], window=900), PlayTier("b", OK, window=300))
    with pytest.raises(ChainExhausted) as caught:
        await chain.generate(CTX)
    assert caught.value.error_class == "overflow"
    assert [f.tier for f in caught.value.failures] == ["a"]


async def test_a_hint_replaces_the_backoff() -> None:
    """F09: a Retry-After of up to 10 s is waited out as it is, without jitter."""
    time = FakeTime(luck=0.1)
    await _chain_of(PlayTier("a", [_err("transient", retry_after=10.0)], OK), time=time).generate(CTX)
    assert time.waits == [10.0]


async def test_a_hint_beyond_the_limit_falls_back_at_once() -> None:
    """F09: nobody waits for a longer one; the next tier is asked."""
    time, tier = FakeTime(), PlayTier("a", [_err("transient", retry_after=10.5)])
    assert (await _chain_of(tier, PlayTier("b", OK), time=time).generate(CTX)).text == "fine"
    assert (len(tier.calls), time.waits) == (1, [])


async def test_a_tier_that_owns_its_retries_gets_one_try() -> None:
    """F09: there is one retry loop: an adapter with `handles_retries` is not retried from outside."""
    tier = PlayTier("a", [_err("transient")])
    tier.handles_retries = True  # type: ignore[attr-defined]
    assert (await _chain_of(tier, PlayTier("b", OK)).generate(CTX)).text == "fine"
    assert len(tier.calls) == 1


async def test_the_retry_policy_of_the_chain_counts() -> None:
    """`retry` sets how often a tier is tried."""
    tier = PlayTier("a", [_err("transient")])
    with pytest.raises(ChainExhausted):
        await _chain_of(tier, retry=RetryPolicy(max_retries=0)).generate(CTX)
    assert len(tier.calls) == 1


@pytest.mark.parametrize("side", [Reasoning("hm"), CallDelta(0, "c1", "rm", "{"), Native("x", "thinking", {})])
@pytest.mark.parametrize("kind", ["transient", "unavailable"])
async def test_reset_comes_before_another_try(side: Any, kind: str) -> None:
    """F05: side events of a failed try are taken back by one `Reset` before the next, and stay out of the reply."""
    chain = _chain_of(PlayTier("a", [side, _err(kind)], OK), PlayTier("b", OK))
    assert await events_of(chain) == [side, Reset(2), *OK]
    reply = await _chain_of(PlayTier("a", [side, _err(kind)], OK), PlayTier("b", OK)).generate(CTX)
    assert (reply.reasoning, reply.native) == ("", ())


async def test_no_reset_where_nothing_was_shown_or_nothing_follows() -> None:
    """Without side events there is nothing to take back, and without another try no `Reset` is sent."""
    stream = _chain_of(PlayTier("a", [Reasoning("hm"), _err("unavailable")])).stream(CTX)
    assert await anext(stream) == Reasoning("hm")
    with pytest.raises(ChainExhausted):
        await anext(stream)
    assert Reset not in map(type, await events_of(_chain_of(PlayTier("a", [_err("transient")], OK))))


async def test_reset_counts_all_tries_of_the_call() -> None:
    """`Reset.attempt` is the number of the coming try within the call, whichever tier it goes to."""
    thinking = [Reasoning("hm"), _err("transient")]
    events = await events_of(_chain_of(PlayTier("a", thinking), PlayTier("b", thinking, OK)))
    assert [event.attempt for event in events if isinstance(event, Reset)] == [2, 3, 4, 5]


async def test_nothing_follows_the_terminal_event() -> None:
    """What a tier yields or raises after its finish changes nothing: one terminal event, nothing after it."""
    for tail in ([Text("more")], [STOP], [_err("transient")]):
        tier = PlayTier("a", [*OK, *tail])
        assert await events_of(_chain_of(tier)) == list(OK)
        assert (len(tier.calls), tier.open) == (1, 0)


async def test_a_tier_may_end_in_its_own_time() -> None:
    """After the finish the tier's stream is resumed, so that it can give its connection back, rather than closed."""
    ended = []

    async def flow(ctx: GenerateContext) -> AsyncIterator[Any]:
        for event in OK:
            yield event
        ended.append("whole")

    await events_of(of(Tier(id="t", window_tokens=900, max_output_tokens=30, stream=flow)))
    assert ended == ["whole"]


@pytest.mark.parametrize(
    ("asked", "sent"), [(None, None), (100, 100), (256, 256), (1000, 256)], ids=["none", "below", "equal", "above"]
)
async def test_the_ceiling_is_the_lower_of_request_and_tier(asked: int | None, sent: int | None) -> None:
    """The tier gets the request's ceiling, cut to its own, which is noted; without one its own applies."""
    tier = PlayTier("a", OK)
    ctx = GenerateContext(max_output_tokens=asked)
    reply = await of(tier).generate(ctx)
    assert tier.calls[0].max_output_tokens == sent
    assert ctx.max_output_tokens == asked
    assert [note.code for note in reply.notes] == ([NoteCode.PARAMETER_CHANGED] if asked != sent else [])


async def test_chains_nest() -> None:
    """An exhausted inner chain is an unavailable tier of the outer one: asked once, with its own retries inside."""
    time, dead, spare = FakeTime(), PlayTier("dead", [_err("transient")]), PlayTier("spare", OK)
    inner = define_chain(id="inner", tiers=[dead], clock=time.clock())
    outer = _chain_of(inner, spare, time=time)
    assert await events_of(outer) == list(OK)
    assert (len(dead.calls), len(spare.calls)) == (3, 1)


async def test_an_inner_reset_is_enough() -> None:
    """F05: what an inner chain has taken back already, the outer one doesn't take back again."""
    inner = define_chain(
        id="inner",
        tiers=[PlayTier("a", [Reasoning("hm"), _err("transient")], [_err("unavailable")])],
        clock=FakeTime().clock(),
    )
    assert await events_of(_chain_of(inner, PlayTier("b", OK))) == [Reasoning("hm"), Reset(2), *OK]


async def test_the_error_post_of_an_inner_chain_passes_once() -> None:
    """A reply that an inner chain ended "error-post" stays that, with one terminal event and no fallback."""
    spare = PlayTier("spare", OK)
    events = await events_of(_chain_of(of(PlayTier("a", [Text("half"), _err("transient")])), spare))
    assert [type(event) for event in events] == [Text, Finish]
    assert (events[-1].finish, events[-1].error.error_class, spare.calls) == ("error-post", "transient", [])


async def test_an_inner_chain_raises_what_is_the_callers_fault() -> None:
    """An invalid request ends outer and inner chain alike."""
    spare = PlayTier("spare", OK)
    with pytest.raises(InvalidRequestError):
        await _chain_of(of(PlayTier("a", [_err("invalid")])), spare).generate(CTX)
    assert spare.calls == []


async def test_a_run_remembers_the_tier_that_served() -> None:
    """Within a run later calls begin with the tier that served; the next run, and calls without one, with the first."""
    first, second = PlayTier("a", [_err("unavailable")]), PlayTier("b", OK)
    chain = _chain_of(first, second)
    async with chain.open_run() as run:
        for _ in range(3):
            await run.generate(CTX)
        assert (len(first.calls), len(second.calls), run.served) == (1, 3, "b")
        assert [(a.tier, a.finish) for a in run.attempts] == [("a", None), ("b", "stop"), ("b", "stop"), ("b", "stop")]
    async with chain.open_run() as run:
        await run.generate(CTX)
    await chain.generate(CTX)
    assert len(first.calls) == 3
    assert (chain.served, chain.attempts) == (None, ())


async def test_a_run_comes_back_to_earlier_tiers_before_it_gives_up() -> None:
    """When the tier that served fails later in the run, the ones before it are asked again."""
    first, second = PlayTier("a", [_err("unavailable")], OK), PlayTier("b", OK, [_err("unavailable")])
    async with _chain_of(first, second).open_run() as run:
        await run.generate(CTX)
        await run.generate(CTX)
        assert run.served == "a"


async def test_sticky_none_always_begins_with_the_first() -> None:
    """With `sticky="none"` each call of a run begins with the first tier."""
    first, second = PlayTier("a", [_err("unavailable")]), PlayTier("b", OK)
    async with _chain_of(first, second, sticky="none").open_run() as run:
        await run.generate(CTX)
        await run.generate(CTX)
    assert len(first.calls) == 2


async def test_a_run_of_an_adapters_own_is_opened_however_it_is_written() -> None:
    """Also one that carries the marks of the method that it takes the place of."""

    class Own(ModelAdapter):
        opened = 0

        async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
            for event in OK:
                yield event

        @wraps(ModelAdapter.open_run)
        def open_run(self) -> Any:
            self.opened += 1
            return super().open_run()

    tier = Own()
    async with _chain_of(tier).open_run() as run:
        await run.generate(CTX)
        await run.generate(CTX)
    assert tier.opened == 1


async def test_the_tiers_own_runs_open_when_needed_and_close_with_the_run() -> None:
    """A tier's `open_run()` is entered once, at its first try, and left with the chain's run."""
    log: list[str] = []

    class Session:
        async def __aenter__(self) -> PlayTier:
            log.append("open")
            return PlayTier("b-run", OK)

        async def __aexit__(self, *exc: object) -> None:
            log.append("close")

    tier = PlayTier("b", [AssertionError("the tier itself was called")])
    tier.open_run = Session  # type: ignore[attr-defined]
    unused = PlayTier("c", OK)
    unused.open_run = lambda: pytest.fail("opened without need")  # type: ignore[attr-defined]
    async with _chain_of(PlayTier("a", [_err("unavailable")]), tier, unused).open_run() as run:
        assert log == []
        await run.generate(CTX)
        await run.generate(CTX)
        assert log == ["open"]
    assert log == ["open", "close"]


async def test_runs_share_nothing() -> None:
    """Concurrent runs and calls keep their own memory."""
    chain = _chain_of(PlayTier("a", OK), PlayTier("b", OK))
    async with chain.open_run() as one, chain.open_run() as two:
        await asyncio.gather(one.generate(CTX), two.generate(CTX), one.generate(CTX), chain.generate(CTX))
        assert (len(one.attempts), len(two.attempts)) == (2, 1)


async def test_concurrent_calls_retry_on_their_own() -> None:
    """F05: two calls at once on one chain each have their own tries."""
    tier = PlayTier("a", [_err("transient")], [_err("transient")], OK)
    chain = _chain_of(tier, retry=RetryPolicy(max_retries=1))
    replies = await asyncio.gather(chain.generate(CTX), chain.generate(CTX))
    assert [reply.text for reply in replies] == ["fine", "fine"]


async def test_aclose_closes_the_tiers_once_the_chain_is_left() -> None:
    """`aclose` and `async with` close every tier that can be closed, even if one fails to; a run's copy closes none."""
    closed: list[str] = []

    class Closing(PlayTier):
        async def aclose(self) -> None:
            closed.append(self.id)
            raise OSError("already gone")

    async with _chain_of(Closing("a", OK), PlayTier("b", OK), Closing("c", OK)) as chain:
        async with chain.open_run() as run:
            await run.generate(CTX)
            await run.aclose()
        assert closed == []
    assert closed == ["a", "c"]


async def test_events_of_a_fallback() -> None:
    """The records of a call come in order, numbered without a gap, and name tiers from the tries."""
    with Recorder() as seen:
        await _chain_of(PlayTier("a", [_err("unavailable")]), PlayTier("b", OK)).generate(CTX)
    assert seen.types == [
        "chain.started",
        "tier.selected",
        "context.rendered",
        "attempt.started",
        "attempt.failed",
        "tier.fallback",
        "tier.selected",
        "context.rendered",
        "attempt.started",
        "attempt.committed",
        "attempt.finished",
        "chain.finished",
    ]
    assert [event.fields["seq"] for event in seen.events] == list(range(1, 13))
    assert len({event.fields["call"] for event in seen.events}) == 1
    assert {event.chain for event in seen.events} == {"c"}
    assert seen.fields("chain.finished")[0]["tier"] == "b"


async def test_a_failing_listener_changes_nothing() -> None:
    """What a listener raises never reaches the run."""

    def bad(record: Any) -> None:
        raise RuntimeError("listener")

    with hooks.sink(bad):
        assert (await of(PlayTier("a", OK)).generate(CTX)).text == "fine"
