"""A request is made to fit each tier: in order, whole turns at a time, and never at the cost of the present turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import Agent
from isthmus.chain import (
    ChainCut,
    ChainExhausted,
    ContextPolicy,
    CutReason,
    GenerateContext,
    define_chain,
    render,
    tier_error,
)
from isthmus.chain.context import CLEARED, room_for
from isthmus.errors import ConfigError, InvalidRequestError
from isthmus.models.contract import ToolSpec
from isthmus.models.events import NoteCode
from isthmus.models.internal import internal_message, is_ephemeral_message, is_internal_message
from support.chain_doubles import OK, PlayTier, Recorder
from support.transcripts import call, pairs, result, said, transcripts, user

LONG = "x" * 4000


def _ctx(*messages: Any, **options: Any) -> GenerateContext:
    return GenerateContext(brief="be brief", messages=messages, **options)


def _turn(number: int, text: str = LONG) -> list[dict[str, Any]]:
    return [user(f"question {number}"), call(f"c{number}"), result(f"c{number}", text), said(f"answer {number}")]


def _turns(count: int, text: str = LONG) -> list[dict[str, Any]]:
    return [message for number in range(count) for message in _turn(number, text)]


def test_what_fits_is_sent_as_it_is() -> None:
    """A request that fits is the very same object, with a report and no note."""
    ctx = _ctx(user())
    made, report = render(ctx, window=8000, ceiling=256)
    assert made is ctx
    assert (report.fits, report.cleared, report.dropped, report.notes()) == (True, (), (), ())


@pytest.mark.parametrize(
    ("window", "ceiling", "room"), [(8000, 256, 7584), (1000, 100, 836), (200_000, 8192, 187_808), (100, 10, 78)]
)
def test_the_room_is_the_window_less_ceiling_and_margin(window: int, ceiling: int, room: int) -> None:
    """The margin is 2 %, at least 64 tokens, of a tiny window an eighth."""
    assert room_for(window, ceiling) == room


def test_old_results_go_first_and_the_last_three_stay() -> None:
    """All tool results but the last three become a placeholder before any turn is left out; the ids stay."""
    ctx = _ctx(*_turns(6), user("now"))
    made, report = render(ctx, window=4500, ceiling=256)
    texts = [message["content"] for message in made.messages if message["role"] == "tool"]
    assert texts == [CLEARED] * 3 + [LONG] * 3
    assert (report.cleared, report.dropped, report.fits) == ((2, 6, 10), (), True)
    assert pairs(made.messages) == pairs(ctx.messages)
    assert [note.code for note in report.notes()] == [NoteCode.HISTORY_CHANGED]


def test_then_the_oldest_turns_are_left_out_whole() -> None:
    """What placeholders do not save is saved by leaving out the oldest turns, no more than it takes."""
    ctx = _ctx(*_turns(6), user("now"))
    made, report = render(ctx, window=2700, ceiling=256)
    assert [m["content"] for m in made.messages if m["role"] == "user"] == ["question 4", "question 5", "now"]
    assert (report.dropped, report.dropped_turns, report.cleared) == (tuple(range(16)), 4, ())
    assert "4 oldest turns (16 messages)" in report.notes()[0].detail


def test_the_present_turn_is_never_reduced() -> None:
    """The user's latest words and the calls and results after them stay, too large or not; the report says so."""
    ctx = _ctx(*_turns(2), *_turn(3, LONG * 4))
    made, report = render(ctx, window=3000, ceiling=256, keep_results=0)
    assert list(made.messages) == _turn(3, LONG * 4)
    assert not report.fits


def test_instructions_and_what_belongs_to_the_run_stay() -> None:
    """System messages and ephemeral ones outlast the turn in which they stand; other internal ones go with it."""
    lasting = [{"role": "system", "content": "s"}, internal_message(user("clock"), origin="clock", ephemeral=True)]
    ctx = _ctx(user(LONG), internal_message(user("files"), origin="files"), *lasting, said(), user("now"))
    made, _ = render(ctx, window=900, ceiling=100)
    assert list(made.messages) == [*lasting, user("now")]


def test_native_forms_that_go_are_noted() -> None:
    """A native form stays with its message or goes with it, and a note counts those that went."""
    native = {"_isthmus": {"native": {"dialect": "d", "of": "f", "json": "{}"}}}
    ctx = _ctx(user(LONG), {**said(LONG), **native}, user("now"), {**said("kept"), **native})
    made, report = render(ctx, window=900, ceiling=100)
    assert made.messages[-1] == {**said("kept"), **native}
    assert [note.code for note in report.notes()] == [NoteCode.HISTORY_CHANGED, NoteCode.NATIVE_DROPPED]


def test_a_tier_whose_window_nobody_knows_gets_all() -> None:
    """Without a window nothing is taken out."""
    ctx = _ctx(*_turns(50))
    assert render(ctx, window=None, ceiling=None)[0] is ctx


@given(transcripts(), st.integers(64, 1200), st.integers(0, 3), st.booleans())
def test_whatever_is_left_is_valid(messages: list[dict[str, Any]], window: int, keep: int, smaller: bool) -> None:
    """No pair is parted, order is kept, the present turn and what lasts are whole, and nothing given is changed."""
    ctx = _ctx(*messages)
    before = str(messages)
    made, report = render(ctx, window=window, ceiling=16, keep_results=keep, smaller=smaller)
    again = render(ctx, window=window, ceiling=16, keep_results=keep, smaller=smaller)
    assert (made, report) == again
    assert str(messages) == before
    calls, answers = pairs(made.messages)
    assert calls == answers
    kept = [at for at in range(len(messages)) if at not in report.dropped]
    assert len(kept) == len(made.messages)
    for at, message in zip(kept, made.messages, strict=True):
        assert message == messages[at] or at in report.cleared
    last = max(at for at, m in enumerate(messages) if m.get("role") == "user" and not _context(m))
    assert list(made.messages[len(made.messages) - len(messages) + last :]) == messages[last:]
    lasting = [m for m in messages if m.get("role") == "system" or is_ephemeral_message(m)]
    assert [m for m in made.messages if m.get("role") == "system" or is_ephemeral_message(m)] == lasting


def _context(message: dict[str, Any]) -> bool:
    return is_internal_message(message) or isinstance(message["content"], list)


async def test_each_tier_gets_its_own_rendering() -> None:
    """A fallback to a smaller window gets less, a larger one gets all, and the caller's messages stay as they were."""
    large = PlayTier("large", [tier_error("unavailable", "down")], window=100_000)
    small = PlayTier("small", OK, window=3000)
    ctx = _ctx(*_turns(6), user("now"))
    with Recorder() as seen:
        reply = await define_chain(id="c", tiers=[large, small]).generate(ctx)
    assert large.calls[0].messages == ctx.messages
    assert len(small.calls[0].messages) < len(ctx.messages)
    assert NoteCode.HISTORY_CHANGED in [note.code for note in reply.notes]
    first, second = seen.fields("context.rendered")
    assert (first["tier"], first["dropped"], second["tier"]) == ("large", (), "small")
    assert second["tokens"] <= second["room"] < first["tokens"] == second["before"]


async def test_the_text_of_a_request_reaches_no_listener() -> None:
    """The report has numbers and places, and no word of the prompt."""
    with Recorder() as seen:
        await define_chain(id="c", tiers=[PlayTier("a", OK, window=3000)]).generate(_ctx(*_turns(6), user("secret")))
    assert not any("secret" in str(event.fields) or "question" in str(event.fields) for event in seen.events)


async def test_an_overflow_is_rendered_smaller_once() -> None:
    """After an overflow the same tier gets about half, once; what it says then counts."""
    tier = PlayTier("a", [tier_error("overflow", "too long")], OK, window=100_000)
    ctx = _ctx(*_turns(8), user("now"))
    reply = await define_chain(id="c", tiers=[tier]).generate(ctx)
    first, second = tier.calls
    assert reply.text == "fine"
    assert first.messages == ctx.messages
    assert len(str(second.messages)) < len(str(first.messages)) * 0.6
    assert second.messages[-1] == user("now")


async def test_an_overflow_of_an_unknown_window_is_rendered_smaller_too() -> None:
    """A tier whose window nobody knows gets all first, and about half once it says that this is too much."""
    tier = PlayTier("a", [tier_error("overflow", "too long")], OK, window=100)
    tier.window_tokens = None  # type: ignore[assignment]
    ctx = _ctx(*_turns(8), user("now"))
    assert (await define_chain(id="c", tiers=[tier]).generate(ctx)).text == "fine"
    assert tier.calls[0].messages == ctx.messages
    assert len(str(tier.calls[1].messages)) < len(str(ctx.messages)) * 0.6


async def test_an_overflow_twice_is_an_overflow() -> None:
    """What is too long in half as well is not halved again."""
    tier = PlayTier("a", [tier_error("overflow", "too long")], window=100_000)
    with pytest.raises(ChainExhausted) as caught:
        await define_chain(id="c", tiers=[tier]).generate(_ctx(*_turns(8), user("now")))
    assert (len(tier.calls), caught.value.error_class) == (2, "overflow")


async def test_an_overflow_of_what_cannot_be_smaller_goes_to_a_larger_window() -> None:
    """Where nothing can be left out, the tier is not asked twice."""
    tiers = [
        PlayTier("a", [tier_error("overflow", "too long")], OK, window=3000),
        PlayTier("same", OK, window=3000),
        PlayTier("larger", OK, window=9000),
    ]
    assert (await define_chain(id="c", tiers=tiers).generate(_ctx(user("now")))).text == "fine"
    assert [len(tier.calls) for tier in tiers] == [1, 0, 1]


async def test_a_prompt_that_fits_nowhere_is_cut_before_any_call() -> None:
    """A present turn that is too large for every window is cut with the reason "window", and nobody is called."""
    tiers = [PlayTier("a", OK, window=1000), PlayTier("b", OK, window=2000)]
    with pytest.raises(ChainCut) as caught:
        await define_chain(id="c", tiers=tiers).generate(_ctx(user(LONG * 4)))
    assert caught.value.reason == CutReason.WINDOW
    assert [tier.calls for tier in tiers] == [[], []]


async def test_rendering_can_be_left_out() -> None:
    """With `context=None` a tier gets the request as it is."""
    tier = PlayTier("a", OK, window=1000)
    ctx = _ctx(*_turns(6))
    await define_chain(id="c", tiers=[tier], context=None).generate(ctx)
    assert tier.calls[0].messages == ctx.messages


async def test_a_chain_within_a_chain_renders_for_its_own_tiers() -> None:
    """The outer chain leaves the request whole: the inner one's larger tier gets all of it."""
    small = PlayTier("small", [tier_error("unavailable", "down")], window=2000)
    large = PlayTier("large", OK, window=100_000)
    inner = define_chain(id="inner", tiers=[small, large])
    ctx = _ctx(*_turns(6))
    await define_chain(id="outer", tiers=[inner]).generate(ctx)
    assert len(small.calls[0].messages) < len(ctx.messages)
    assert large.calls[0].messages == ctx.messages


async def test_a_summary_stands_in_the_place_of_what_was_left_out() -> None:
    """The hook gets the messages that went and the room there is; its text, and no other, stands in front."""
    asked: list[Any] = []

    async def summary(messages: tuple[Any, ...], room: int) -> str:
        asked.append((messages, room))
        return "they spoke of x"

    tier = PlayTier("a", OK, window=3000)
    ctx = _ctx(*_turns(6), user("now"))
    chain = define_chain(id="c", tiers=[tier], context=ContextPolicy(summary=summary))
    reply = await chain.generate(ctx)
    ((messages, room),) = asked
    sent = tier.calls[0].messages
    assert sent[0]["content"] == "they spoke of x"
    assert is_internal_message(sent[0], "summary")
    assert (*messages, *sent[1:]) == ctx.messages
    assert 0 < room <= 1024
    assert any("summary" in note.detail for note in reply.notes)


@pytest.mark.parametrize("text", [None, "", "  ", 7, "far too long " * 1000, RuntimeError("down")])
async def test_a_summary_that_is_none_never_becomes_content(text: Any) -> None:
    """A hook that fails, says nothing or says too much leaves the request without a summary."""

    def summary(messages: tuple[Any, ...], room: int) -> Any:
        if isinstance(text, Exception):
            raise text
        return text

    tier = PlayTier("a", OK, window=3000)
    chain = define_chain(id="c", tiers=[tier], context=ContextPolicy(summary=summary))
    assert (await chain.generate(_ctx(*_turns(6), user("now")))).text == "fine"
    assert not any(is_internal_message(message) for message in tier.calls[0].messages)


async def test_a_retry_sends_an_equal_request() -> None:
    """A summary is made once for a tier: a retry gets the very request of the first try."""
    told = iter(["one", "two"])
    tier = PlayTier("a", [tier_error("transient", "busy", retry_after=0.0)], OK, window=3000)
    policy = ContextPolicy(summary=lambda messages, room: next(told))
    await define_chain(id="c", tiers=[tier], context=policy).generate(_ctx(*_turns(6), user("now")))
    assert tier.calls[0] == tier.calls[1]


@pytest.mark.parametrize("keep", [-1, 1.5, True, "3"])
def test_the_number_of_results_to_keep_is_checked(keep: Any) -> None:
    """What is no whole number from 0 is refused when the policy is made."""
    with pytest.raises(ConfigError, match="keep_results"):
        ContextPolicy(keep_results=keep)


@pytest.mark.parametrize("answer", [RuntimeError("x"), None, "12", -1, float("nan"), True])
async def test_an_estimate_that_fails_does_not_fail_the_call(answer: Any) -> None:
    """A hook that raises, or gives no number, gives way to the default; the reply has one note, without the text."""

    def estimate(text: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    tier = PlayTier("a", OK, window=3000)
    chain = define_chain(id="c", tiers=[tier], context=ContextPolicy(estimate=estimate))
    reply = await chain.generate(_ctx(*_turns(6), user("now")))
    assert reply.text == "fine"
    (note,) = [note for note in reply.notes if "estimate" in note.detail]
    assert str(note.code) == NoteCode.PARAMETER_CHANGED
    assert LONG[:9] not in note.detail
    plain = PlayTier("a", OK, window=3000)
    await define_chain(id="c", tiers=[plain]).generate(_ctx(*_turns(6), user("now")))
    assert tier.calls[0].messages == plain.calls[0].messages


async def test_an_estimate_may_be_a_fraction() -> None:
    """Parts of a token are rounded up, and nothing is noted."""
    policy = ContextPolicy(estimate=lambda text: len(text) / 4)
    reply = await define_chain(id="c", tiers=[PlayTier("a", OK, window=3000)], context=policy).generate(_ctx(user("a")))
    assert reply.notes == ()


def _checked(chain: Any, **request: Any) -> None:
    chain.check((), GenerateContext(**request))


def test_instructions_and_tools_that_fit_no_window_are_refused_at_definition() -> None:
    """Every tier must have room for what is never reduced; tier and numbers are named, and nothing is called."""
    small, large = PlayTier("small", window=1000), PlayTier("large", window=100_000)
    chain = define_chain(id="c", tiers=[large, small])
    _checked(chain, brief="x" * 2000)
    with pytest.raises(InvalidRequestError, match=r"'c'.*about 800 tokens.*'small' has room for 680.*window") as raised:
        _checked(chain, brief="x" * 3200)
    assert "large" not in raised.value.message.replace("larger", "")
    tool = ToolSpec(name="t", description="y" * 3200)
    with pytest.raises(InvalidRequestError, match="small"):
        _checked(chain, tools=(tool,))
    _checked(chain, messages=(user("z" * 9000),))
    assert small.calls == large.calls == []


def test_a_nested_chain_is_looked_into() -> None:
    """The tiers of an inner chain are judged by its own rendering; a chain that renders nothing judges nothing."""
    brief = "x" * 3200
    inner = define_chain(id="i", tiers=[PlayTier("small", window=1000)])
    with pytest.raises(InvalidRequestError, match="'small'"):
        _checked(define_chain(id="o", tiers=[inner]), brief=brief)
    _checked(define_chain(id="o", tiers=[PlayTier("small", window=1000)], context=None), brief=brief)


def test_a_lower_ceiling_makes_room() -> None:
    """The ceiling that requests will have counts, not the tier's own where that is higher."""
    small = PlayTier("small", window=1000)
    small.max_output_tokens = 800
    chain = define_chain(id="c", tiers=[small])
    with pytest.raises(InvalidRequestError, match="max_output_tokens"):
        _checked(chain, brief="x" * 2000)
    _checked(chain, brief="x" * 2000, max_output_tokens=100)


def test_an_agent_that_cannot_fit_is_refused_when_it_is_made() -> None:
    """Instructions of an agent are judged before any run."""
    with pytest.raises(InvalidRequestError, match="'small'"):
        Agent(model=define_chain(id="c", tiers=[PlayTier("small", window=1000)]), instructions="x" * 9000)
