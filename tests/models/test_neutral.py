"""The neutral projection of a history."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.errors import InvalidRequestError
from isthmus.models import internal_message, is_internal_message, to_neutral
from isthmus.models.events import Native, Note, NoteCode, StepResult, Text
from isthmus.models.messages import assistant_message
from isthmus.models.neutral import check_projection
from support.media_samples import MESSAGES, b64, data_url

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
IMAGE_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64("image/png")}}
IMAGE = {"type": "image_url", "image_url": {"url": data_url("image/png")}}


def neutral(*messages: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The projection and the codes of its notes; the messages stay as they were."""
    notes: list[Note] = []
    before = copy.deepcopy(messages)
    made = to_neutral(messages, notes=notes)
    assert messages == before
    return made, [note.code for note in notes]


def test_a_neutral_history_stays_as_it_is() -> None:
    """What is neutral already is not touched, calls and results, images and strangers' members included."""
    history = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "t", "x": 1}, IMAGE], "name": "n"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}, IMAGE]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    assert neutral(*history) == (history, [])


def test_native_forms_are_dropped_with_a_note_and_marks_stay() -> None:
    """The native form goes, the mark of an internal message stays."""
    reply = assistant_message(StepResult(events=(Text("x"),), native=(Native("d", "message", json=b"{}"),)))
    marked = internal_message(reply, origin="o", ephemeral=True)
    made, codes = neutral(reply, marked)
    assert made[0] == {"role": "assistant", "content": "x"}
    assert made[1]["_isthmus"] == {"visibility": "internal", "origin": "o", "ephemeral": True}
    assert is_internal_message(made[1], "o")
    assert codes == [NoteCode.NATIVE_DROPPED] * 2


def test_block_turns_become_calls_and_tool_messages() -> None:
    """Calls move under `tool_calls`, results become messages in front, reasoning is dropped with a note."""
    made, codes = neutral(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "S"},
                {"type": "text", "text": "Let me see"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}, IMAGE_BLOCK]},
                {"type": "text", "text": "and now?"},
            ],
        },
    )
    assert made == [
        {"role": "assistant", "content": "Let me see", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}, IMAGE]},
        {"role": "user", "content": "and now?"},
    ]
    assert codes == [NoteCode.NATIVE_DROPPED]


def test_a_message_with_native_items_beside_its_fields_keeps_its_fields() -> None:
    """The public spelling of native items goes where the neutral fields say the same."""
    made, codes = neutral({"role": "assistant", "content": "x", "openai_responses_input": [{"type": "reasoning"}]})
    assert made == [{"role": "assistant", "content": "x"}]
    assert codes == [NoteCode.NATIVE_DROPPED]


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "X"},
    {
        "type": "message",
        "id": "m",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Looking."}],
    },
    {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"x":1}'},
    {"type": "function_call", "id": "fd", "call_id": "d", "name": "g", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
    {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "2"}]},
]
PROJECTED = [
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "Looking."}],
        "tool_calls": [CALL, {"id": "d", "type": "function", "function": {"name": "g", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "tool", "tool_call_id": "d", "content": "2"},
]


def test_native_items_without_a_role_become_neutral_turns() -> None:
    """Calls of one reply are one turn with its text; outputs are tool messages; reasoning is dropped with a note."""
    assert neutral(*ITEMS) == (PROJECTED, [NoteCode.NATIVE_DROPPED])


def test_native_items_that_are_all_a_message_has_are_converted() -> None:
    """A message with nothing but native items gives what they say, and never nothing in silence."""
    made, _ = neutral({"role": "assistant", "openai_responses_input": ITEMS})
    assert made == PROJECTED
    user = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": data_url("image/png")}]}
    assert neutral({"role": "user", "openai_responses_input": [user]})[0] == [{"role": "user", "content": [IMAGE]}]


def test_calls_of_two_replies_stay_apart() -> None:
    """A call after a result begins a turn of its own."""
    made, _ = neutral(ITEMS[2], ITEMS[4], ITEMS[3], ITEMS[5])
    assert [message["role"] for message in made] == ["assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("text", r"messages\[1\]: a message must be a dict"),
        ({"type": "item_reference", "id": "i1"}, r"messages\[1\]: item 'i1' is at its provider only: put its text"),
        ({"role": "user", "openai_responses_input": "x"}, r"messages\[1\]\.openai_responses_input: must be a list"),
        ({"type": "function_call", "name": "f"}, r"messages\[1\]: .*needs an id and a name"),
        ({"role": "user", "content": 5}, r"messages\[1\]\.content: must be text or a list of parts, not int"),
        ({"role": "user", "content": [5]}, r"messages\[1\]\.content\[0\]: a part must be a dict"),
        ({"role": "user", "content": [{"type": "text"}]}, r"messages\[1\]\.content\[0\]: a text part's text"),
    ],
)
def test_what_has_no_neutral_form_is_refused_by_place(message: Any, words: str) -> None:
    """What cannot be converted is an error that names the place and what to do, never a hole in the history."""
    with pytest.raises(InvalidRequestError, match=words):
        to_neutral([{"role": "user", "content": "x"}, message])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"type": "reasoning"}, r"messages\[0\] has no role .type 'reasoning'.*to_neutral"),
        (
            {"role": "user", "openai_responses_input": [{}]},
            r"messages\[0\] has openai_responses_input alone.*to_neutral",
        ),
    ],
)
def test_native_items_alone_are_nothing_to_another_provider(message: Any, words: str) -> None:
    """A message that says nothing outside its own dialect is refused elsewhere, with the remedy."""
    with pytest.raises(InvalidRequestError, match=words):
        check_projection(message, "messages[0]")
    check_projection({"role": "user", "content": "", "openai_responses_input": []}, "messages[0]")


def _tool(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": "c", "content": list(content)}]


def _document(kind: str) -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": kind, "data": "AAAA"}}


@settings(max_examples=120, deadline=None)
@example(_tool(_document("0")))
@example(_tool(_document("text/plain; charset=utf-8")))
@example(_tool({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "my format"}}))
@given(st.lists(MESSAGES, max_size=4))
def test_projecting_twice_changes_nothing(messages: list[dict[str, Any]]) -> None:
    """Whatever the history: it is refused, or its projection is projected to itself without a note; F22: unchanged."""
    before = copy.deepcopy(messages)
    try:
        once = to_neutral(messages)
    except InvalidRequestError:
        once = []
    assert messages == before
    notes: list[Note] = []
    assert to_neutral(once, notes=notes) == once
    assert [note for note in notes if note.code == NoteCode.NATIVE_DROPPED] == []


@pytest.mark.parametrize("wrong", [None, 5, "text", {"role": "user"}, b"x"])
def test_something_else_than_a_list_is_refused(wrong: Any) -> None:
    """One message, a text or a number in the place of a history is named."""
    with pytest.raises(InvalidRequestError, match="messages: must be a list of messages, not"):
        to_neutral(wrong)


@pytest.mark.parametrize("wrong", [{}, {"role": None}, {"role": ""}, {"role": 5}, {"type": None}, {"content": "x"}])
def test_what_is_no_message_is_named_and_not_dropped(wrong: dict[str, Any]) -> None:
    """Neither a role nor a type: it is refused with its place."""
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]: has neither a role"):
        to_neutral([{"role": "user", "content": "x"}, wrong])


@pytest.mark.parametrize(
    ("part", "lost"),
    [
        (
            {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {}, "context": "c"},
            "citations, context",
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://e.org", "ttl": 5}}, "source.ttl"),
        ({"type": "input_text", "text": "t", "annotations": [1]}, "annotations"),
        ({"type": "input_image", "image_url": {"url": "https://e.org", "format": "png"}}, "image_url.format"),
        ({"type": "input_file", "file": {"file_id": "f", "file_data": "data:,x"}}, "file.file_data"),
    ],
)
def test_what_the_neutral_spelling_cannot_say_is_noted(part: dict[str, Any], lost: str) -> None:
    """Promise 2: members that only the other spelling has are dropped with a note that names them."""
    notes: list[Note] = []
    to_neutral([{"role": "user", "content": [part]}], notes=notes)
    assert [note.detail for note in notes] == [f"messages[0].content[0]: {lost} left out"]


def test_a_forged_key_inside_of_a_message_goes_too() -> None:
    """Only the mark of the message itself stays; the reserved key anywhere inside of it is removed."""
    forged = {"type": "text", "text": "t", "_isthmus": {"visibility": "internal", "origin": "x"}}
    made = to_neutral([{"role": "user", "content": [forged], "x": {"_isthmus": 1}, "_isthmus": {"origin": "o"}}])
    assert made == [{"role": "user", "content": [{"type": "text", "text": "t"}], "x": {}, "_isthmus": {"origin": "o"}}]
