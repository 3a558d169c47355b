"""Internal and ephemeral messages."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import InvalidRequestError
from isthmus.models import (
    internal_message,
    is_ephemeral_message,
    is_internal_message,
    lasting_messages,
    public_messages,
    to_neutral,
)
from isthmus.models.events import Native, StepResult, Text
from isthmus.models.messages import LiveForm, assistant_message, native_of
from support.media_samples import MESSAGES

FILES = {"role": "user", "content": "Available files: report.csv"}


def test_the_mark_is_plain_json_under_the_reserved_key() -> None:
    """The helper returns a copy with visibility and origin, and nothing else, in the reserved field."""
    made = internal_message(FILES, origin="file_inventory")
    assert made == {**FILES, "_isthmus": {"visibility": "internal", "origin": "file_inventory"}}
    assert json.loads(json.dumps(made)) == made
    assert is_internal_message(made, origin="file_inventory")


def test_the_ephemeral_flag_is_added_only_when_asked() -> None:
    """With `ephemeral=True` the mark has one more member; without, it is unchanged."""
    view = internal_message(FILES, origin="ui_view", ephemeral=True)
    assert view["_isthmus"] == {"visibility": "internal", "origin": "ui_view", "ephemeral": True}
    assert "ephemeral" not in internal_message(FILES, origin="ui_view", ephemeral=False)["_isthmus"]
    assert is_ephemeral_message(view, origin="ui_view")


def test_an_ephemeral_message_is_always_internal() -> None:
    """What is ephemeral is internal, and what is internal need not be ephemeral."""
    view = internal_message(FILES, origin="ui", ephemeral=True)
    assert is_internal_message(view)
    assert not is_ephemeral_message(internal_message(FILES, origin="ui"))


def test_the_origin_narrows_and_none_is_any() -> None:
    """Without an origin any counts; with one, only that."""
    view = internal_message(FILES, origin="ui", ephemeral=True)
    for check in (is_internal_message, is_ephemeral_message):
        assert check(view)
        assert check(view, "ui")
        assert not check(view, origin="other")
        assert not check(view, origin="")


def test_messages_without_the_mark_are_public() -> None:
    """An unmarked message, and bookkeeping of another kind, make nothing internal."""
    step = StepResult(events=(Text("x"),), native=(Native("d", "message", json=b"{}"),))
    for message in (FILES, {}, {"role": "odd"}, assistant_message(step)):
        assert not is_internal_message(message)
        assert not is_ephemeral_message(message)


@pytest.mark.parametrize(
    "mark",
    ["internal", None, 3, [], {}, {"visibility": "public"}, {"visibility": True}, {"origin": "x"}, {"ephemeral": True}],
)
def test_only_that_visibility_makes_a_message_internal(mark: Any) -> None:
    """Any other value of the mark, a flag alone too, leaves the message public."""
    assert not is_internal_message({**FILES, "_isthmus": mark})
    assert not is_ephemeral_message({**FILES, "_isthmus": mark})


@pytest.mark.parametrize("flag", [1, "true", "True", 1.0, [True], None, False])
def test_only_true_itself_makes_a_message_ephemeral(flag: Any) -> None:
    """A flag that is merely truthy does not count; the message stays internal."""
    message = {**FILES, "_isthmus": {"visibility": "internal", "origin": "x", "ephemeral": flag}}
    assert is_internal_message(message)
    assert not is_ephemeral_message(message)


def test_native_items_without_a_role_can_be_marked() -> None:
    """A provider's own item without a role is marked and detected like any message."""
    item = internal_message({"type": "item_reference", "id": "i1"}, origin="memory", ephemeral=True)
    assert item["type"] == "item_reference"
    assert "role" not in item
    assert is_internal_message(item, "memory")
    assert is_ephemeral_message(item, "memory")


def test_marking_again_replaces_the_mark_and_keeps_the_native_form() -> None:
    """The new origin and flag stand, the old flag goes, the native form stays with its live object."""
    held = object()
    reply = assistant_message(StepResult(events=(Text("x"),), native=(Native("d", "message", {"id": 1}, held=held),)))
    once = internal_message(reply, origin="a", ephemeral=True)
    twice = internal_message(once, origin="b")
    assert is_internal_message(twice, "b")
    assert not is_internal_message(twice, "a")
    assert not is_ephemeral_message(twice)
    native, note = native_of(twice, "d")
    assert note is None
    assert native is not None
    assert native.held is held
    assert isinstance(twice["_isthmus"]["native"], LiveForm)


def test_junk_under_the_reserved_key_is_replaced() -> None:
    """A value there that is none of ours does not stand in the way."""
    assert internal_message({**FILES, "_isthmus": "junk"}, origin="a") == internal_message(FILES, origin="a")


def test_the_callers_message_is_neither_changed_nor_shared() -> None:
    """F22: changes to the copy, however deep, never reach the message that it was made of."""
    message: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "a"}], "_isthmus": {"x": [1]}}
    before = copy.deepcopy(message)
    made = internal_message(message, origin="o")
    made["content"][0]["text"] = "b"
    made["_isthmus"]["origin"] = "other"
    assert message == before


@pytest.mark.parametrize("origin", ["", "  ", None, 3])
def test_an_empty_origin_is_refused(origin: Any) -> None:
    """A ValueError names the origin as it was given and what it must say."""
    with pytest.raises(ValueError, match=r"origin=.*must say what made the message"):
        internal_message(FILES, origin=origin)


@pytest.mark.parametrize("message", ["text", None, [FILES], 3])
def test_what_is_no_message_cannot_be_marked(message: Any) -> None:
    """Anything but a dict is refused with its type: a prompt or a reply must become a message first."""
    with pytest.raises(InvalidRequestError, match=rf"must be a dict, not {type(message).__name__}"):
        internal_message(message, origin="a")
    assert not is_internal_message(message)


def test_the_flag_must_be_a_bool() -> None:
    """A flag that could mean either is refused by name."""
    with pytest.raises(TypeError, match="ephemeral='no' must be True or False"):
        internal_message(FILES, origin="a", ephemeral="no")  # type: ignore[arg-type]


def test_the_public_and_the_lasting_part_of_a_history() -> None:
    """Public leaves out internal messages, lasting only ephemeral ones; the rest are the same objects, in order."""
    hidden = internal_message(FILES, origin="a")
    passing = internal_message(FILES, origin="b", ephemeral=True)
    history = [FILES, hidden, passing, {"role": "assistant", "content": "ok"}]
    assert public_messages(history) == (history[0], history[3])
    assert lasting_messages(history) == (history[0], hidden, history[3])
    assert lasting_messages(history)[1] is hidden


def test_a_json_round_trip_keeps_the_mark() -> None:
    """Saved as JSON and loaded again, a message is as internal as before."""
    made = json.loads(json.dumps(internal_message(FILES, origin="a", ephemeral=True)))
    assert is_ephemeral_message(made, "a")
    assert is_internal_message(copy.deepcopy(made), "a")
    assert is_internal_message(to_neutral([made])[0], "a")


@settings(max_examples=100, deadline=None)
@given(MESSAGES, st.text(min_size=1).filter(str.strip), st.booleans())
def test_marking_keeps_all_else(message: dict[str, Any], origin: str, ephemeral: bool) -> None:
    """Whatever the message, the copy differs in the reserved field alone, and the mark is found."""
    before = copy.deepcopy(message)
    made = internal_message(message, origin=origin, ephemeral=ephemeral)
    assert message == before
    rest = {key: value for key, value in message.items() if key != "_isthmus"}
    assert {key: value for key, value in made.items() if key != "_isthmus"} == rest
    assert is_internal_message(made, origin)
    assert is_ephemeral_message(made, origin) is ephemeral


def test_parts_in_a_tuple_are_copied_too() -> None:
    """F22: the copy shares no part with the caller's message, however he holds his parts."""
    message = {"role": "user", "content": ({"type": "text", "text": "t"},)}
    made = internal_message(message, origin="o")
    assert made["content"] == message["content"]
    assert made["content"][0] is not message["content"][0]
