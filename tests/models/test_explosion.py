"""Replies that run away."""

import pytest

from isthmus.models.explosion import has_escape_sequence_explosion


@pytest.mark.parametrize(
    ("text", "exploded"),
    [
        ('{"a": "' + "\\u0000" * 20, True),
        ('{"a": "' + "\\u0000" * 19, False),
        ("\\u0001\\u0002" * 40, False),
        ("e" + "\u0301" * 20, True),
        ("e" + "\u0301" * 19, False),
        ("e\u0301" * 40, False),
        ("日本語" * 40, False),
        ("", False),
        (None, False),
    ],
)
def test_the_same_escape_or_combining_characters_twenty_times(text: str | None, exploded: bool) -> None:
    """One escape 20 times in a row, or 20 combining characters in a row; neither fewer nor different ones."""
    assert has_escape_sequence_explosion(text) is exploded
