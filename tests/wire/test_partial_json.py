"""JSON that is still arriving: what is shown of a prefix stands in all that is shown later."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.wire.partial_json import PartialJson

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def within(part: Any, whole: Any) -> bool:
    """Whether a value is contained in another: fewer members, fewer items, a shorter string."""
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(key in whole and within(part[key], whole[key]) for key in part)
    if isinstance(whole, list):
        return isinstance(part, list) and len(part) <= len(whole) and all(map(within, part, whole))
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    return type(part) is type(whole) and part == whole


def read(*pieces: str) -> PartialJson:
    """A reader of these pieces."""
    reader = PartialJson()
    for piece in pieces:
        reader.feed(piece)
    return reader


@settings(max_examples=150, deadline=None)
@given(JSON, st.booleans())
def test_what_is_shown_of_a_prefix_is_contained_in_all_that_follows(value: Any, escaped: bool) -> None:
    """F15: for every prefix of a JSON text the value so far is part of every later one, and nothing is raised."""
    text = json.dumps(value, ensure_ascii=escaped)
    reader, before = PartialJson(), None
    for char in text:
        reader.feed(char)
        shown = reader.value
        assert reader.ok
        assert shown is None or within(shown, value)
        assert before is None or within(before, shown)
        before = shown
    reader.close()
    assert reader.complete
    assert reader.value == value


@settings(max_examples=100, deadline=None)
@given(JSON, st.data())
def test_the_split_of_the_text_changes_nothing(value: Any, data: Any) -> None:
    """Any cut of the text into pieces gives the same value."""
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    assert read(text[:cut], text[cut:]).value == read(text).value


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]":,\\u01e-. tnull'))
def test_nothing_is_raised_whatever_comes(text: str) -> None:
    """F15: a text that is no JSON stops the reader; what it had stands."""
    reader = read(text)
    reader.close()
    goes_on, before = reader.ok, reader.value
    reader.feed("}")
    assert goes_on or reader.value == before


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", None),
        ("{", {}),
        ('{"na', {}),
        ('{"name"', {}),
        ('{"name": "An', {"name": "An"}),
        ('{"name": "An\\', {"name": "An"}),
        ('{"name": "An\\u00e', {"name": "An"}),
        ('{"name": "\\ud83d', {"name": ""}),
        ('{"name": "\\ud83d\\ude00', {"name": "😀"}),
        ('{"age": 3', {}),
        ('{"age": 31,', {"age": 31}),
        ('{"ok": tru', {}),
        ('{"ok": true}', {"ok": True}),
        ('{"a": [1, 2', {"a": [1]}),
        ('{"a": [[1], [2', {"a": [[1], []]}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
    ],
)
def test_what_is_shown_of_a_beginning(text: str, shown: Any) -> None:
    """Strings grow; numbers, literals and keys are shown once they are complete."""
    assert read(text).value == shown


def test_a_number_that_stands_alone_is_complete_at_the_end() -> None:
    """Only the end of the text says that no more digits come."""
    reader = read("12")
    assert reader.value is None
    reader.close()
    assert reader.value == 12


def test_an_earlier_value_never_changes() -> None:
    """Each value is the reader's own at that time; what is complete in it is shared, not copied."""
    reader = read('{"a": [1], "b": [2')
    first = reader.value
    reader.feed(', 3], "c": 4}')
    assert first == {"a": [1], "b": []}
    assert reader.value == {"a": [1], "b": [2, 3], "c": 4}
    assert reader.value["a"] is first["a"]


def test_each_character_is_read_once() -> None:
    """The steps that a long string takes grow with its length, not with its square."""

    def steps(size: int) -> int:
        reader = read('{"a": "')
        for _ in range(size):
            reader.feed("x")
        return len(reader._pieces)

    assert (steps(1000), steps(4000)) == (1000, 4000)
