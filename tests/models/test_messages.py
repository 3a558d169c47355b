"""The neutral history and the native forms that hang on it."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Call, Native, NoteCode, StepResult, Text
from isthmus.models.internal import internal_message
from isthmus.models.jsontext import WrittenFloat, loads
from isthmus.models.messages import (
    RESERVED,
    MessageRole,
    assistant_message,
    fingerprint,
    native_of,
    provider_messages,
    sendable,
    text_of,
    tool_message,
    without_reserved,
)
from support.media_samples import MESSAGES

STEP = StepResult(
    events=(Text("hm"), Call("look", {"q": 1.0}, "c1", '{ "q": 1.0 }')),
    finish="tool-calls",
    native=(Native("d", "message", json=b'{"sig": 1.0}'),),
)


def test_a_reply_becomes_a_message_with_its_arguments_as_written() -> None:
    """Promise 2: text, calls and argument text stand as they came, the native form as its very JSON text."""
    message = assistant_message(STEP)
    assert message["role"] == MessageRole.ASSISTANT
    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{ "q": 1.0 }'}
    assert message["_isthmus"]["native"]["json"] == '{"sig": 1.0}'
    assert assistant_message(StepResult()) == {"role": "assistant", "content": None}


def test_a_native_form_comes_back_to_its_own_dialect_alone() -> None:
    """The same dialect gets it, also after JSON; another gets a note; none is no note."""
    message = json.loads(json.dumps(assistant_message(STEP)))
    native, note = native_of(message, "d")
    assert (native, note) == (STEP.native[0], None)
    native, note = native_of(message, "other")
    assert native is None
    assert note is not None
    assert note.code == NoteCode.NATIVE_DROPPED
    assert native_of({"role": "user", "content": "x"}, "d") == (None, None)


def test_a_native_form_of_an_edited_message_is_stale() -> None:
    """Once content or calls changed, the form is left with a note."""
    for change in ({"content": "edited"}, {"tool_calls": []}):
        native, note = native_of({**assistant_message(STEP), **change}, "d")
        assert native is None
        assert note is not None
        assert note.code == NoteCode.NATIVE_STALE


class Unfriendly:
    """An SDK's object: it can be neither copied nor pickled."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("no copies")


def test_a_live_object_hangs_on_the_message_and_shows_nowhere() -> None:
    """It survives copies of the message and is no part of its JSON, equality or pickle."""
    held = Unfriendly()
    native = Native("d", "message", {"id": 1}, held=held)
    message = assistant_message(StepResult(events=(Text("x"),), native=(native,)))
    for copied in (message, dict(message), copy.copy(message), copy.deepcopy(message)):
        found, _ = native_of(copied, "d")
        assert found is not None
        assert found.held is held
    saved = json.loads(json.dumps(message))
    assert saved == message == msgspec.json.decode(msgspec.json.encode(message)) == pickle.loads(pickle.dumps(message))
    found, _ = native_of(saved, "d")
    assert found is not None
    assert found.held is None
    assert native == Native("d", "message", {"id": 1})
    assert "Unfriendly" not in repr(native)


def test_bookkeeping_is_taken_off_on_copies() -> None:
    """F22: the reserved key never reaches a provider, and the caller's messages keep it."""
    messages = [assistant_message(STEP), {"type": "item", "_isthmus": {}}]
    before = copy.deepcopy(messages)
    sent = provider_messages(messages)
    assert not any("_isthmus" in message for message in sent)
    assert sent[1] == {"type": "item"}
    assert messages == before


def test_the_copies_that_a_provider_sees_share_nothing() -> None:
    """F22: an adapter may change what it gets at any depth; the caller's messages stay as they are."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "a", "_isthmus": 1}], "x": {"y": [1]}}]
    before = copy.deepcopy(messages)
    (sent,) = provider_messages(messages)
    assert sent == {"role": "user", "content": [{"type": "text", "text": "a"}], "x": {"y": [1]}}
    sent["content"][0]["text"] = "b"
    sent["x"]["y"].append(2)
    assert messages == before


def test_internal_messages_and_native_items_are_sent_without_their_marks() -> None:
    """The model receives internal and ephemeral messages and items without a role: in place, their marks gone."""
    plain: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"type": "item_reference", "id": "i"},
    ]
    marked = [internal_message(plain[1], origin="o", ephemeral=True), internal_message(plain[2], origin="o")]
    assert provider_messages([plain[0], *marked]) == plain


@settings(max_examples=100, deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_stripping_keeps_order_and_content_and_never_mutates(messages: list[dict[str, Any]]) -> None:
    """Whatever the history: same length and order, each message without the key alone, the originals unchanged."""
    before = copy.deepcopy(messages)
    sent = provider_messages(messages)
    assert messages == before
    assert sent == [without_reserved(message) for message in messages]
    assert [list(message) for message in sent] == [[key for key in each if key != RESERVED] for each in messages]
    assert provider_messages(sent) == sent


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ("text", "messages: must be a list of messages, not str"),
        ({"role": "user"}, "messages: must be a list of messages, not dict"),
        (5, "messages: must be a list of messages, not int"),
        ([{"role": "user"}, "text"], r"messages\[1\]: a message must be a dict with a role, not str"),
    ],
)
def test_what_is_no_history_is_refused_by_place(given_: Any, words: str) -> None:
    """Text, one message alone, and an entry that is none are refused with place and remedy."""
    with pytest.raises(InvalidRequestError, match=words):
        provider_messages(given_)


def test_fingerprints_tell_contents_and_calls_apart() -> None:
    """Any change of content, id, name or arguments changes it; other keys don't."""
    base = assistant_message(STEP)
    assert fingerprint(base) == fingerprint({**base, "name": "x", "_isthmus": None})
    call = base["tool_calls"][0]
    changes: list[dict[str, Any]] = [
        {"content": "other"},
        {"tool_calls": [{**call, "id": "c2"}]},
        {"tool_calls": [{**call, "function": {"name": "look", "arguments": "{}"}}]},
    ]
    assert len({fingerprint(base), *(fingerprint({**base, **change}) for change in changes)}) == 4


def test_small_helpers() -> None:
    """Text of any content, and a tool message with and without a name."""
    assert text_of([{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}]) == "ab"
    assert text_of(None) == ""
    assert tool_message("c", "out") == {"role": "tool", "tool_call_id": "c", "content": "out"}
    assert tool_message("c", "out", name="look")["name"] == "look"


@pytest.mark.parametrize("ours", ["junk", 3, {"native": "junk"}, {"native": {}}, {"native": {"dialect": "d"}}])
def test_bookkeeping_that_is_none_is_passed_over(ours: Any) -> None:
    """A history that somebody edited by hand never breaks the reading of native forms."""
    message = {"role": "assistant", "content": "x", RESERVED: ours}
    if isinstance(ours, dict) and ours.get("native") == {"dialect": "d"}:
        ours["native"]["of"] = fingerprint(message)
    assert native_of(message, "d")[0] is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_without_a_json_form_is_refused_by_its_place(number: float) -> None:
    """F30: NaN and infinities are never sent as null; None, and a number too big for a float, are fine."""
    with pytest.raises(InvalidRequestError, match=r"request\.a\[1\]\.b: NaN and infinities have no JSON form"):
        sendable({"a": [None, {"b": number}]})
    with pytest.raises(InvalidRequestError, match=r"request\.n:"):
        sendable({"n": number, "big": 10**400})
    assert sendable({"a": None, "n": [1.5, 10**400, WrittenFloat("1e400")]}).count(b"null") == 1


@pytest.mark.parametrize("value", [{"x": float("nan")}, [1, [float("inf")]], {"a": {"b": -float("inf")}}])
def test_a_number_without_a_json_form_is_never_written_as_null(value: Any) -> None:
    """What becomes text inside a message is held to the same rule as the request (F30)."""
    with pytest.raises(InvalidRequestError, match=r"^here.*NaN"):
        sendable(value, "here").decode()


def test_what_is_written_has_no_bookkeeping() -> None:
    """The reserved key is no part of the text, null is."""
    assert sendable({"x": None, "_isthmus": {}}, "here").decode() == '{"x":null}'


@pytest.mark.parametrize("known", [0, 1, 2])
def test_nulls_that_are_known_of_hide_no_number_without_a_form(known: int) -> None:
    """However many values are known to be null, one more that is written as null is found out."""
    value = {"messages": [{"content": None}] * known, "text": "no null here"}
    assert loads(sendable(value, nulls=lambda _: known)) == value
    with pytest.raises(InvalidRequestError, match=r"request\.n:"):
        sendable({**value, "n": float("nan")}, nulls=lambda _: known)
