"""Markers: taken out of the text whatever its cuts, and nothing else is held back or lost."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import Agent, as_tool
from isthmus.chain import Tier, consume_stream, define_chain, define_marker, promote, tier_error
from isthmus.chain.markers import MarkerForm, draining
from isthmus.conformance import scripted
from isthmus.errors import ConfigError
from isthmus.models.events import Call, CallDelta, Event, Finish, Marker, NoteCode, Reasoning, Reset, Text, framed
from isthmus.wire.frame import Frame
from support.chain_doubles import CTX, OK, PlayTier, Recorder, events_of
from support.marker_cases import LETTERS, SETS, cases, drained, joined, reference

CITE = define_marker("cite", "[[", "]]")


@as_tool
def now() -> str:
    """Tell the time."""
    return "noon"


JSON = define_marker("data", "<data>", "</data>", parse=json.loads)
CHUNKINGS = int(os.environ.get("ISTHMUS_CHUNKINGS", "3000"))


def _texts(*texts: str) -> list[Event]:
    return [Text(text) for text in texts]


def _out(*events: Event, forms: Sequence[MarkerForm] = (CITE,)) -> list[Any]:
    return drained((*events, Finish("stop")), forms)


def _cited(raw: str) -> Marker:
    return Marker("cite", raw[2:-2], raw)


def _chain(*tiers: Any, **options: Any) -> Any:
    return define_chain(id="c", tiers=tiers, **{"markers": (CITE, JSON), **options})


def test_random_cuts_give_what_the_whole_text_gives() -> None:
    """Any cut of any text gives what an independent reading of the whole gives: text, markers, their order.

    ISTHMUS_CHUNKINGS says of how many; `scripts/markers` runs 100,000.
    """
    for case in cases(seed=CHUNKINGS, count=CHUNKINGS):
        assert drained(case.events, case.forms) == case.expected, case


@given(st.data(), st.integers(0, len(SETS) - 1))
def test_any_cut_gives_the_same(data: st.DataObject, which: int) -> None:
    """The same as a property, so that a counterexample comes small."""
    pieces = data.draw(st.lists(st.text(LETTERS[which], max_size=8), max_size=8))
    forms = SETS[which]
    assert _out(*_texts(*pieces), forms=forms) == reference("".join(pieces), forms)


@given(st.lists(st.text("[]x", max_size=6), max_size=6))
def test_a_cut_reply_is_the_same_however_it_came(pieces: list[str]) -> None:
    """Where a stream breaks, what was shown depends on the text alone."""
    end = Finish("error-post", error=tier_error("transient", "gone"))
    whole = drained((Text("".join(pieces)), end), (CITE,))
    assert drained((*_texts(*pieces), end), (CITE,)) == whole


@pytest.mark.parametrize("at", range(len("see [[page 3]] for <data>[1, 2]</data>!") + 1))
async def test_a_marker_cut_anywhere_is_promoted_on_both_paths(at: int) -> None:
    """Cut at each place, streamed or whole, the same text and the same typed events come out."""
    text = "see [[page 3]] for <data>[1, 2]</data>!"
    expected = ["see ", Marker("cite", "page 3", "[[page 3]]"), " for "]
    expected += [Marker("data", [1, 2], "<data>[1, 2]</data>"), "!"]
    streamed = _chain(PlayTier("s", (*_texts(text[:at], text[at:]), Finish("stop"))))
    reply = {"events": [{"type": "text", "text": part} for part in (text[:at], text[at:])], "finish": "stop"}
    whole = _chain(Tier(id="w", window_tokens=900, max_output_tokens=30, generate=lambda ctx: reply))
    for chain in (streamed, whole):
        events = await events_of(chain)
        assert joined([e.text if isinstance(e, Text) else e for e in events[:-1]]) == expected
        assert type(events[-1]) is Finish


async def test_the_result_keeps_the_text_as_the_model_wrote_it() -> None:
    """Whole or collected from the stream, a result has the raw text, so that the model sees its markers again."""
    chain = _chain(PlayTier("a", (*_texts("a [[b", "]] c"), Call("look", {}, "1"), Text("d"), Finish("tool-calls"))))
    result = await chain.generate(CTX)
    assert result == await consume_stream(chain.stream(CTX))
    assert [getattr(e, "text", "call") for e in result.events] == ["a [[b]] c", "call", "d"]
    heard: list[str] = []
    await consume_stream(chain.stream(CTX), heard.append)
    assert "".join(heard) == "a  cd"


async def test_the_model_sees_its_own_markers_on_the_next_turn() -> None:
    """An agent's transcript has the text as the model wrote it, calls and continued turns included."""
    steps = [[Text("[[a"), Text("]] b"), Call("now", {}, "1"), Finish("tool-calls")], "[[c]] d"]
    model = scripted(steps)
    agent = Agent(model=_chain(model), tools=[now])
    async with agent.run_stream("hi") as stream:
        shown = [event async for event in stream if isinstance(event, Text | Marker)]
    assert joined([e.text if isinstance(e, Text) else e for e in shown]) == [
        _cited("[[a]]"),
        " b",
        _cited("[[c]]"),
        " d",
    ]
    assert stream.outcome is not None
    said = [message["content"] for message in stream.outcome.messages if message["role"] == "assistant"]
    assert said == ["[[a]] b", "[[c]] d"]
    assert model.contexts[1].messages[1]["content"] == "[[a]] b"


def test_a_whole_text_can_be_taken_apart() -> None:
    """`promote` gives the text without its markers, and these."""
    assert promote("a [[b]] c [[d", (CITE,)) == ("a  c [[d", (_cited("[[b]]"),))
    assert promote("a [[b]]", ()) == ("a [[b]]", ())


def test_text_without_markers_passes_at_once_and_unchanged() -> None:
    """An event whose text can begin no marker is handed on itself, at once, its frame with it."""
    make = draining((CITE, JSON), "test")
    assert make is not None
    drain = make(lambda kind, fields: None)
    event = framed(Text("if a > b ] then"), Frame(b"x"))
    (shown,) = drain.take(event)
    assert shown is event


def test_only_the_longest_beginning_at_the_end_is_held() -> None:
    """What may become an opener waits, and not one character more."""
    make = draining((JSON,), "test")
    assert make is not None
    drain = make(lambda kind, fields: None)
    assert [e.text for e in drain.take(Text("a < b <da")) if isinstance(e, Text)] == ["a < b "]
    assert [e.text for e in drain.take(Text("te ")) if isinstance(e, Text)] == ["<date "]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("a[", "[", "x]] b"), ["a", _cited("[[x]]"), " b"]),
        (("[[a]][[b]]",), [_cited("[[a]]"), _cited("[[b]]")]),
        (("[[a [[b]] c]]",), [_cited("[[a [[b]]"), " c]]"]),
        (("[[[a]]]",), [_cited("[[[a]]"), "]"]),
        (("[[]]",), [_cited("[[]]")]),
        (("ends [",), ["ends ["]),
        (("ends [[open",), ["ends [[open"]),
        (
            (
                "[[日本🙂",
                "é]]",
            ),
            [_cited("[[日本🙂é]]")],
        ),
    ],
    ids=["split-opener", "adjacent", "nested", "overlapping", "empty", "partial", "unclosed", "unicode"],
)
def test_what_comes_out(pieces: tuple[str, ...], expected: list[Any]) -> None:
    """Split, adjacent, nested, overlapping, empty, partial, unclosed and in any script: the first closer ends it."""
    assert _out(*_texts(*pieces)) == expected


def test_an_opener_that_begins_another_waits() -> None:
    """Where one opener is the beginning of another, the longer one wins if it comes."""
    forms = (define_marker("a", "<", ">"), define_marker("b", "<<", ">>"))
    assert _out(*_texts("<", "<x>>"), forms=forms) == [Marker("b", "x", "<<x>>")]
    assert _out(*_texts("<", "x>"), forms=forms) == [Marker("a", "x", "<x>")]


def test_an_unclosed_marker_is_text_and_what_is_in_it_is_read_again() -> None:
    """At a normal end an open marker gives back its first character, and the rest may hold markers of its own."""
    forms = (define_marker("a", "((", "))"), CITE)
    assert _out(*_texts("((one [[two]]"), forms=forms) == ["((one ", _cited("[[two]]")]


def test_a_marker_that_is_too_long_is_text() -> None:
    """A marker longer than its limit, delimiters included, is text; one of just that length is none."""
    short = (define_marker("s", "[[", "]]", max_chars=7),)
    assert _out(*_texts("[[abc]]"), forms=short) == [Marker("s", "abc", "[[abc]]")]
    assert _out(*_texts("[[abcd]]"), forms=short) == ["[[abcd]]"]


def test_text_is_held_no_longer_than_a_marker_may_be() -> None:
    """An opener that is never closed holds back no more than the limit."""
    make = draining((define_marker("s", "[[", "]]", max_chars=100),), "test")
    assert make is not None
    drain = make(lambda kind, fields: None)
    out = "".join(e.text for _ in range(500) for e in drain.take(Text("[[x")) if isinstance(e, Text))
    assert len(out) > 1500 - 101


def test_a_marker_that_cannot_be_read_is_text() -> None:
    """Where `parse` raises, the whole marker stays in the text, and the reply goes on."""
    assert _out(*_texts("a <data>{</data> b"), forms=(JSON,)) == ["a <data>{</data> b"]


def test_a_marker_never_spans_a_call() -> None:
    """A call flushes what is held; what follows begins anew."""
    call = Call("look", {}, "1")
    assert _out(Text("[[a"), call, Text("]]")) == ["[[a", call, "]]"]


def test_side_events_pass_a_held_text() -> None:
    """Reasoning and previews go on at once, and leaving them out changes no marker."""
    side = (Reasoning("r"), CallDelta(0, "1", "t", "{"), Reset(2))
    out = _out(Text("[["), *side, Text("a]]"))
    assert out == [*side, _cited("[[a]]")]
    assert [item for item in out if item not in side] == _out(Text("[["), Text("a]]"))


async def test_a_held_beginning_commits_and_comes_out_at_the_cut() -> None:
    """T2: text that is still held is content: nothing is tried again, and at the cut it is shown."""
    spare = PlayTier("spare", OK)
    chain = _chain(PlayTier("a", (Text("["), tier_error("transient", "gone"))), spare)
    events = await events_of(chain)
    assert [e.text for e in events if isinstance(e, Text)] == ["["]
    assert (events[-1].finish, spare.calls) == ("error-post", [])


async def test_an_open_marker_at_a_cut_is_held_back_and_noted() -> None:
    """A marker that was cut is not shown; the result keeps it, a note names it, and nothing is tried again."""
    spare = PlayTier("spare", OK)
    chain = _chain(PlayTier("a", (*_texts("[[sec", "ret"), tier_error("transient", "gone"))), spare)
    with Recorder() as seen:
        events = await events_of(chain)
    assert not [e for e in events if isinstance(e, Text | Marker)]
    assert [(note.code, "[[secret" in note.detail) for note in events[-1].notes] == [(NoteCode.MARKER_DISCARDED, True)]
    assert "marker.discarded" in seen.types
    result = await chain.generate(CTX)
    assert (result.finish, result.text, spare.calls) == ("error-post", "[[secret", [])
    outer = define_chain(id="outer", tiers=[chain, spare])
    assert ((await outer.generate(CTX)).finish, spare.calls) == ("error-post", [])


async def test_markers_after_a_fallback_are_those_of_the_tier_that_served() -> None:
    """A try that failed before content leaves nothing behind: the next one's markers are whole and come once."""
    failing = PlayTier("a", (Reasoning("hm"), tier_error("unavailable", "down")))
    chain = _chain(failing, PlayTier("b", (*_texts("x [[1", "]]"), Finish("stop"))))
    events = await events_of(chain)
    kinds = [type(event) for event in events]
    assert kinds == [Reasoning, Reset, Text, Marker, Finish]


async def test_markers_of_a_chain_within_a_chain_keep_their_place() -> None:
    """The inner chain's markers pass the outer one's drain in order, and the result has the text of both."""
    tier = PlayTier("a", (*_texts("<data>1</data> [[x", "]]!"), Finish("stop")))
    inner = define_chain(id="inner", tiers=[tier], markers=(JSON,))
    outer = define_chain(id="outer", tiers=[inner], markers=(CITE,))
    events = await events_of(outer)
    assert [type(event) for event in events] == [Marker, Text, Marker, Text, Finish]
    assert (await outer.generate(CTX)).text == "<data>1</data> [[x]]!"


async def test_listeners_are_told_without_the_text() -> None:
    """Each fate of a marker is a chain event with name and length, and no word of what was said."""
    short = define_marker("short", "{{", "}}", max_chars=8)
    text = "[[ok]] <data>bad</data> {{far too long}} [[secret"
    with Recorder() as seen:
        await _chain(PlayTier("a", (Text(text), Finish("stop"))), markers=(CITE, JSON, short)).generate(CTX)
    told = [event for event in seen.events if event.type.startswith("marker.")]
    assert [event.type for event in told] == ["marker.promoted", "marker.invalid", "marker.overflow", "marker.unclosed"]
    assert [(event.fields["marker"], event.fields["chars"]) for event in told] == [
        ("cite", 6),
        ("data", 16),
        ("short", 8),
        ("cite", 8),
    ]
    assert not any(word in str(event.fields) for event in told for word in ("secret", "bad", "too"))


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("", "[", "]"), "name"),
        (("m", "", "]"), "open"),
        (("m", "[", ""), "close"),
    ],
)
def test_a_marker_needs_a_name_and_delimiters(arguments: tuple[str, str, str], key: str) -> None:
    """An empty name or delimiter is refused when the marker is defined."""
    with pytest.raises(ConfigError, match=key):
        define_marker(*arguments)


def test_a_limit_must_leave_room_for_the_delimiters() -> None:
    """A limit below the delimiters' own length is refused."""
    with pytest.raises(ConfigError, match="max_chars"):
        define_marker("m", "[[", "]]", max_chars=3)


@pytest.mark.parametrize(
    "markers", [(CITE, define_marker("cite", "((", "))")), (CITE, define_marker("other", "[[", "))")), ("[[",)]
)
def test_markers_of_a_chain_are_told_apart(markers: Any) -> None:
    """Two of one name or one opener, and what is no marker, are refused when the chain is defined."""
    with pytest.raises(ConfigError, match="markers"):
        _chain(PlayTier("a", OK), markers=markers)
