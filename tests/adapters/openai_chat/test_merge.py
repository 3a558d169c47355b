"""Joining what arrives in pieces."""

from __future__ import annotations

import pytest

from isthmus.adapters.openai_chat.merge import exact, hollow, joined, merge, plain, replaced, text_in
from isthmus.models.jsontext import dumps


@pytest.mark.parametrize(
    "text", [b"1.0", b"0.10", b"1e400", b"-0.0", b"12345678901234567890123", b'{"a":[1.50,{"b":2E3}]}']
)
def test_number_texts_survive(text: bytes) -> None:
    """F30: a number that is decoded and encoded again is the text that it was."""
    assert dumps(exact(text)) == text


@pytest.mark.parametrize("text", [b'{"a":"\\ud800","b":1.50}', b'{"b":NaN}'])
def test_what_the_strict_decoder_refuses_is_read(text: bytes) -> None:
    """Lone surrogates and NaN are decoded; other nonsense is a ValueError."""
    assert isinstance(exact(text), dict)
    with pytest.raises(ValueError, match=r".+"):
        exact(b"{nonsense")


def test_plain_numbers_can_be_calculated_with() -> None:
    """The plain form holds ordinary numbers."""
    assert plain(exact(b'{"a":1.5}')) == {"a": 1.5}


@pytest.mark.parametrize(
    ("value", "says_nothing"),
    [
        (None, True),
        ("", True),
        ([], True),
        ({}, True),
        ({"a": None, "b": {"c": "", "d": 0}}, True),
        (0, False),
        (False, False),
        ("x", False),
        ([None], False),
        ({"a": 1}, False),
    ],
)
def test_hollow(value: object, says_nothing: bool) -> None:
    """Null, empty, and objects of such values and zeros say nothing; a bare zero or False does."""
    assert hollow(value) is says_nothing


def test_merge_continues_texts_and_lists_and_replaces_labels() -> None:
    """Texts and lists are continued, objects field by field, names and numbers replaced, null changes nothing."""
    held = merge({"t": "a", "type": "x", "l": [1], "n": 1, "o": {"t": "c"}}, {"t": "b", "type": "x", "l": [2], "n": 2})
    held = merge(held, {"o": {"t": "d"}, "n": None, "new": "e"})
    assert joined(held) == {"t": "ab", "type": "x", "l": [1, 2], "n": 2, "o": {"t": "cd"}, "new": "e"}


def test_replaced_keeps_what_a_newer_state_leaves_out() -> None:
    """A newer state replaces field by field and never with nothing."""
    assert replaced({"a": 1, "b": 2}, {"a": 3, "b": None}) == {"a": 3, "b": 2}
    assert replaced([1], []) == [1]


def test_text_in_finds_the_text() -> None:
    """The readable text of a string, a list or an object is found; other values have none."""
    assert text_in([{"type": "text", "text": "a"}, "b", {"thinking": [{"text": "c"}]}, 7, {"data": "x"}]) == "abc"
