"""What a run shows of a text with markers, and what it keeps of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus import Agent, define_chain
from isthmus.chain import define_marker, promote, tier_error
from isthmus.conformance import scripted
from isthmus.harness.joining import overlap
from isthmus.models.events import Finish, Marker, Text

CITE = define_marker("cite", "[[", "]]")
END = Finish("length")


async def _ran(*steps: list[Any]) -> tuple[str, list[str], Any]:
    """The text and the markers that a reader of a run sees, and its outcome."""
    chain = define_chain(id="c", tiers=[scripted([list(step) for step in steps])], markers=[CITE])
    async with Agent(model=chain).run_stream("q") as stream:
        seen = [event async for event in stream]
    text = "".join([event.text for event in seen if isinstance(event, Text)])
    return text, [event.text for event in seen if isinstance(event, Marker)], stream.outcome


def _pieces(*texts: str) -> list[Any]:
    return [Text(text) for text in texts]


async def test_the_outcome_has_the_text_that_was_shown_and_the_transcript_what_was_written() -> None:
    """A user sees no marker, in the stream or in `outcome.text`; the model sees its own on the next turn."""
    text, markers, outcome = await _ran([*_pieces("See [[pa", "ge 3]] there."), Finish("stop")])
    assert (text, markers) == ("See  there.", ["[[page 3]]"])
    assert outcome.text == outcome.final_output == text
    assert outcome.messages[-1]["content"] == "See [[page 3]] there."


async def test_a_marker_that_a_cut_held_back_is_not_shown_afterwards() -> None:
    """What was withheld from the reader of a broken stream is in no text of the outcome, only in the transcript."""
    text, markers, outcome = await _ran([*_pieces("a [[pa"), tier_error("transient", "lost")])
    assert (text, markers, outcome.text) == ("a ", [], "a ")
    assert outcome.messages[-1]["content"] == "a [[pa"


async def test_what_was_promoted_before_an_abort_stays_in_the_transcript() -> None:
    """A reader that stops after a marker leaves a transcript that still has it."""
    chain = define_chain(id="c", tiers=[scripted([[*_pieces("a [[page 3]] b", " c"), END]])], markers=[CITE])
    async with Agent(model=chain).run_stream("q") as stream:
        async for event in stream:
            if isinstance(event, Text) and "b" in event.text:
                break
    assert stream.outcome is not None
    assert stream.outcome.text == "a  b"
    assert stream.outcome.messages[-1]["content"] == "a [[page 3]] b"


@pytest.mark.parametrize(
    ("again", "shown", "markers", "written"),
    [
        # The repetition has a marker in it, begins with one, stands before one, or has none.
        (["[[page 3]] foo bar", " [[page 4]] baz"], "See  foo bar  baz", 2, "See [[page 3]] foo bar [[page 4]] baz"),
        (["foo bar [[page 4]] baz"], "See  foo bar  baz", 2, "See [[page 3]] foo bar [[page 4]] baz"),
        (["See [[pag", "e 3]] foo bar baz"], "See  foo bar baz", 1, "See [[page 3]] foo bar baz"),
        ([" baz"], "See  foo bar baz", 1, "See [[page 3]] foo bar baz"),
    ],
)
async def test_a_continuation_that_repeats_a_marker_promotes_it_once(
    again: list[str], shown: str, markers: int, written: str
) -> None:
    """Nothing is said twice, a marker neither, and nothing is lost, however the continuation overlaps."""
    first = [*_pieces("See [[page 3]] foo bar"), END]
    text, seen, outcome = await _ran(first, [*_pieces(*again), Finish("stop")])
    assert (text, len(seen), outcome.text) == (shown, markers, shown)
    assert outcome.messages[-1]["content"] == written


async def test_a_marker_that_was_cut_by_the_output_limit_stays_text() -> None:
    """What was shown of it stands; what the continuation says anew of it follows, and nothing is shown twice."""
    text, seen, outcome = await _ran([*_pieces("See [[page 3"), END], [*_pieces("[[page 3]] more"), Finish("stop")])
    assert (text, seen, outcome.text) == ("See [[page 3]] more", [], text)


_WORDS = st.lists(st.sampled_from(["foo ", "bar ", "[[page 1]]", "[[page 2]] ", "[[pa", "ge]] ", " "]), max_size=6)


@settings(max_examples=150, deadline=None)
@given(_WORDS, _WORDS, st.data())
def test_what_is_read_is_the_outcome_and_what_is_written_is_kept(
    said: list[str], more: list[str], data: st.DataObject
) -> None:
    """Whatever a continuation repeats, stream and outcome agree, and the transcript is the joined raw text."""
    first = "".join(said)
    again = first[data.draw(st.integers(0, len(first))) :] + "".join(more)
    at = data.draw(st.integers(0, len(again)))
    pieces = _pieces(*[piece for piece in (again[:at], again[at:]) if piece])
    text, seen, outcome = asyncio.run(_ran([*_pieces(first), END] if first else [END], [*pieces, Finish("stop")]))
    assert outcome.text == text
    if not first.strip():
        return
    joined = first + again[overlap(first, again) :]
    assert outcome.messages[-1]["content"] == (joined or None)
    assert len(text) + sum(map(len, seen)) == len(joined)
    promoted = [marker.text for marker in promote(first, [CITE])[1]]
    assert seen[: len(promoted)] == promoted
