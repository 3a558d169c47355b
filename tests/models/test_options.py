"""The provider's own options over what was made for a request."""

from __future__ import annotations

from typing import Any

from isthmus.models.contract import GenerateContext
from isthmus.models.events import Note, NoteCode
from isthmus.models.options import put_options


def put(options: dict[str, Any], made: dict[str, Any], **how: Any) -> tuple[dict[str, Any], list[Note]]:
    """The body, and what was noted."""
    body, notes = dict(made), list[Note]()
    put_options(GenerateContext(options=options), body, notes=notes, **how)
    return body, notes


def test_an_option_stands_in_place_of_what_was_made_with_a_note() -> None:
    """The caller's word is the last; only a member that thereby changes is noted, one that was None among them."""
    made = {"a": 1, "b": 2, "c": None}
    body, notes = put({"a": 9, "b": 2, "c": 3, "d": {"x": 1}}, made)
    assert body == {"a": 9, "b": 2, "c": 3, "d": {"x": 1}}
    assert [(note.code, note.detail) for note in notes] == [
        (NoteCode.PARAMETER_CHANGED, f"options.{name} stands in place of what was made for it") for name in "ac"
    ]


def test_the_way_of_calling_is_no_option() -> None:
    """`stream` is left out with a note whatever it says: a reply is read as it was asked for."""
    body, notes = put({"stream": False}, {"stream": True}, merged=("stream",))
    assert body == {"stream": True}
    assert [note.code for note in notes] == [NoteCode.PARAMETER_DROPPED]


def test_a_merged_table_is_added_to_and_its_changed_members_are_noted() -> None:
    """What the option's table does not name stays as it was made, and neither table is changed itself."""
    inner, given = {"a": 1, "b": 2}, {"b": 3, "c": 4}
    body, notes = put({"table": given, "other": given}, {"table": inner, "other": inner}, merged=("table",))
    assert body == {"table": {"a": 1, "b": 3, "c": 4}, "other": {"b": 3, "c": 4}}
    assert [note.detail.split()[0] for note in notes] == ["options.table.b", "options.other"]
    assert (inner, given) == ({"a": 1, "b": 2}, {"b": 3, "c": 4})


def test_what_was_read_before_is_passed_on_no_second_time() -> None:
    """An option that an encoder has read is no member by itself."""
    assert put({"verbosity": "low", "x": 1}, {}, read=frozenset({"verbosity"})) == ({"x": 1}, [])
