"""Plain JSON values, and nothing else."""

import pytest

from isthmus.models.plainjson import plain_json


def test_a_form_is_asked_for_before_anything_else_and_read_all_the_way_down() -> None:
    """What the caller makes of a value is held to the same rules."""
    assert plain_json({"a": (1, 2)}, "v", also=lambda value: "two" if value == (1, 2) else value) == {"a": "two"}
    with pytest.raises(TypeError, match=r"v\.a\.b: a bytes"):
        plain_json({"a": {1}}, "v", also=lambda value: {"b": b""} if value == {1} else value)


def test_the_copy_shares_nothing() -> None:
    """Mappings and lists are new all the way down."""
    given = {"a": [{"b": 1}]}
    made = plain_json(given, "v")
    made["a"][0]["b"] = 2
    assert given == {"a": [{"b": 1}]}
