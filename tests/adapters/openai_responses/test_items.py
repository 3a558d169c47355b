"""The items of a reply in the making."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from isthmus.adapters.openai_responses.items import Items
from isthmus.errors import ProtocolError
from isthmus.models.events import CallDelta, NoteCode, Reasoning, Text
from support.responses_frames import call, message, reasoning


def _done(items: Items, value: object, at: int = 0) -> list[object]:
    slot = items.slots.get(at) or items.open(at, {})
    return list(items.done(slot, value, json=json.dumps(value).encode()))


def test_parts_of_reasoning_are_a_blank_line_apart() -> None:
    """Two parts of a summary, and two reasoning items, are joined by a blank line, streamed or whole."""
    two = {**reasoning(encrypted=None), "summary": [{"text": "A"}, {"text": "B"}]}
    whole = Items()
    said = "".join(event.text for event in _done(whole, two) if isinstance(event, Reasoning))
    said += "".join(event.text for event in _done(whole, reasoning("C", None), 1) if isinstance(event, Reasoning))
    assert said == "A\n\nB\n\nC"
    pieces = Items()
    slot = pieces.open(0, {"type": "reasoning"})
    told = [
        *pieces.reasoning_delta(slot, ("summary", 0), text="A"),
        *pieces.reasoning_delta(slot, ("summary", 1), text="B"),
        *pieces.reasoning_delta(pieces.open(1, {}), ("summary", 0), text="C"),
    ]
    assert "".join(event.text for event in told if isinstance(event, Reasoning)) == said


def test_deltas_may_number_parts_otherwise() -> None:
    """A server whose deltas count the reasoning as part 0 of the next item says its text once."""
    items = Items()
    slot = items.open(1, {"type": "message"})
    items.text_delta(slot, "Hel")
    assert _done(items, message("Hello"), 1) == [Text("lo")]


def test_a_whole_text_that_differs_from_its_pieces_is_noted() -> None:
    """What was shown stands; the other text is in the native form, and a note says so."""
    items = Items()
    items.text_delta(items.open(0, {}), "Bye")
    assert _done(items, message("Hello")) == []
    assert [note.code for note in items.notes] == [NoteCode.UNKNOWN_CONTENT]


def test_arguments_that_only_the_item_has_are_previewed() -> None:
    """Deltas that lack the end of the arguments get it with the item, so that they join to the call's."""
    items = Items()
    begun = items.added(0, call(arguments=""), json=b"{}")
    rest = _done(items, call())
    deltas = [event for event in [*begun, *rest] if isinstance(event, CallDelta)]
    assert "".join(delta.arguments_delta for delta in deltas) == '{"x":1}'


def test_names_that_were_sent_otherwise_come_back_as_their_own() -> None:
    """A tool under a legal name is told by its own (F26)."""
    items = Items({"look_1": "look me"})
    items.added(0, call("look_1", arguments=""), json=b"{}")
    _done(items, call("look_1"))
    assert items.calls[0].tool == "look me"


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, {"type": 1}])
def test_an_item_that_is_none_is_malformed(value: object) -> None:
    """An item must be an object with a type."""
    with pytest.raises(ProtocolError):
        _done(Items(), value)


def test_a_call_without_a_name_is_malformed() -> None:
    """Nobody could run it."""
    with pytest.raises(ProtocolError, match="without a name"):
        _done(Items(), call(name=""))


def test_arguments_that_are_no_object_are_told_with_their_problem() -> None:
    """The call is there, its input is not, and a note says why."""
    items = Items()
    _done(items, call(arguments="[1]"))
    assert items.calls[0].input is None
    assert items.calls[0].problem
    assert [note.code for note in items.notes] == [NoteCode.CALL_ARGUMENTS_INVALID]


def test_content_of_a_kind_that_is_not_known_is_noted() -> None:
    """A part that is neither text nor refusal says nothing here, and is not dropped silently."""
    items = Items()
    odd = {**message(), "content": [{"type": "output_audio", "data": "x"}]}
    assert _done(items, odd) == []
    assert [note.code for note in items.notes] == [NoteCode.UNKNOWN_CONTENT]


def _previews(events: Iterable[object]) -> list[tuple[int, str | None, str | None, str]]:
    found = [event for event in events if isinstance(event, CallDelta)]
    return [(each.index, each.call_id, each.tool, each.arguments_delta) for each in found]


def test_each_piece_of_a_call_is_previewed_once() -> None:
    """As it begins, piece by piece, and what only its end says; under its own index, id and name (F26)."""
    items = Items({"look_1": "look me"})
    events = items.added(0, call("look_1", arguments='{"x"'), json=b"{}")
    events += items.added(1, {**call("note", call_id="c2"), "arguments": None}, json=b"{}")
    events += items.added(2, message("no call"), json=b"{}")
    first, second = items.slots[0], items.slots[1]
    events += [items.call_delta(first, ":1"), items.call_delta(second, "{}")]
    for slot, whole in ((first, call("look_1")), (second, call("note", "{}", "c2"))):
        events += items.done(slot, whole, json=b"{}")
    one, two = (0, "call_1", "look me"), (1, "c2", "note")
    assert _previews(events) == [(*one, '{"x"'), (*two, ""), (*one, ":1"), (*two, "{}"), (*one, "}")]


def test_a_call_that_nobody_previewed_has_none_at_its_end() -> None:
    """Whole at once, it needs no preview; where its end says something else, that has one of its own."""
    items = Items()
    assert _previews(_done(items, call())) == []
    slot = items.open(1, call(call_id="c2"))
    told = [items.call_delta(slot, '{"x":2}'), *items.done(slot, call(call_id="c2"), json=b"{}")]
    assert _previews(told) == [(0, "c2", "look", '{"x":2}'), (1, "c2", "look", '{"x":1}')]


def test_the_cipher_of_reasoning_is_told_and_nothing_empty() -> None:
    """F03: it has an event of its own; an empty piece of text has none."""
    items = Items()
    item = {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "a"}]}
    assert _done(items, {**item, "encrypted_content": "gA"}) == [Reasoning("a"), Reasoning("", encrypted="gA")]
    for at, nothing in enumerate((None, "", 7), 1):
        assert _done(items, {**item, "summary": [], "encrypted_content": nothing}, at) == []
    slot = items.open(9, {})
    assert items.text_delta(slot, "") == items.reasoning_delta(slot, ("summary", 0), text="") == []
