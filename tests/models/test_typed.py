"""Messages as typed values."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from isthmus.errors import InvalidRequestError
from isthmus.models import CallContent, ImageContent, Media, MessageDict, TextContent, TypedMessage
from isthmus.models.jsontext import dumps
from support.media_samples import MESSAGES, b64, data_url

IMAGE = {"type": "input_image", "image_url": data_url("image/png"), "detail": "low"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}}


def test_a_message_is_read_into_its_fields() -> None:
    """Role, parts and calls are typed; everything else stands under extra."""
    message = TypedMessage.from_dict(
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, IMAGE], "tool_calls": [CALL], "x": 1}
    )
    assert message.role == "assistant"
    assert message.content == (
        TextContent("a"),
        ImageContent(Media(media_type="image/png", data=b64("image/png")), "low"),
    )
    assert message.tool_calls == (CallContent("c", "f", '{"x": 1.0}'),)
    assert (message.extra, message.text) == ({"x": 1}, "a")


def test_a_changed_message_keeps_all_that_was_not_changed() -> None:
    """The changed member is new; the others stand as they were spelled, in their order."""
    given_ = {"x": {"y": 1}, "content": [{"type": "input_text", "text": "a", "z": 1}, IMAGE], "role": "user"}
    message = TypedMessage.from_dict(given_)
    changed = replace(message, content=(*message.content, TextContent("b")), name="Ann")
    made = changed.to_dict()
    assert made == {**given_, "content": [*given_["content"], {"type": "text", "text": "b"}], "name": "Ann"}  # type: ignore[misc]
    assert list(made) == ["x", "content", "role", "name"]
    assert replace(message, tool_calls=(CallContent("c", "f", "{}"),)).to_dict()["tool_calls"][0]["id"] == "c"


def test_a_message_made_here_has_the_neutral_form() -> None:
    """Absent members are left out; role and content come first."""
    assert TypedMessage(role="user", content="Hi").to_dict() == {"role": "user", "content": "Hi"}
    made = TypedMessage(role="tool", content="1", tool_call_id="c", extra={"x": None})
    assert made.to_dict() == {"role": "tool", "content": "1", "tool_call_id": "c", "x": None}


def test_the_typed_view_shares_nothing_with_the_dict() -> None:
    """F22: neither a later change of the dict nor one of the result reaches the message."""
    given_: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "a"}], "x": [1]}
    before = copy.deepcopy(given_)
    message = TypedMessage.from_dict(given_)
    given_["content"][0]["text"] = "changed"
    given_["x"].append(2)
    made = message.to_dict()
    assert made == before
    made["content"][0]["text"] = "changed too"
    made["x"].append(3)
    assert message.to_dict() == before


@pytest.mark.parametrize(
    "text",
    [
        b'{"role":"user","content":"x","n":2512292042121000001}',
        b'{"role": "user", "n": 1.10, "big": 1E400, "s": "\\u00e9\\ud800"}',
        b'{"content":[{"type":"tool_use","id":"a","name":"f","input":{"n":123456789012345678901234567890.5}}]}',
    ],
)
def test_json_comes_back_to_the_letter(text: bytes) -> None:
    """F30: the JSON of an unchanged message is the very text: spacing, escapes and number texts."""
    message = TypedMessage.from_json(text)
    assert message.to_json() == text
    assert TypedMessage.from_json(text.decode()).to_json() == text


def test_integers_of_any_size_survive_a_change() -> None:
    """F30: a changed message is written anew, with every integer exact."""
    message = TypedMessage.from_json('{"role":"user","content":"x","n":2512292042121000001}')
    made = replace(message, content="y").to_json()
    assert made == b'{"role":"user","content":"y","n":2512292042121000001}'


@pytest.mark.parametrize("given_", ["text", None, [{"role": "user"}]])
def test_what_is_no_message_is_refused(given_: Any) -> None:
    """A dict with a role is what is needed, and the error says so."""
    with pytest.raises(InvalidRequestError, match="a message must be a dict with a role, not"):
        TypedMessage.from_dict(given_)
    with pytest.raises(InvalidRequestError, match="a message must be a dict with a role, not list"):
        TypedMessage.from_json("[]")


@settings(max_examples=300, deadline=None)
@given(MESSAGES)
def test_dict_to_message_to_dict_is_the_identity(message: dict[str, Any]) -> None:
    """Any dict, right or wrong, comes back equal, to the type of each number and the order of keys."""
    before = copy.deepcopy(message)
    back = TypedMessage.from_dict(message).to_dict()
    assert message == before
    assert json.dumps(back) == json.dumps(before)


@settings(max_examples=150, deadline=None)
@given(MESSAGES)
def test_json_to_message_to_json_is_the_identity(message: dict[str, Any]) -> None:
    """The same through JSON, and reading what was written gives an equal message."""
    text = dumps(message)
    read = TypedMessage.from_json(text)
    assert read.to_json() == text
    assert TypedMessage.from_dict(read.to_dict()) == read


def test_a_message_dict_is_a_dict() -> None:
    """`MessageDict` names what a message is: a plain dict."""
    assert MessageDict == dict[str, Any]


def test_parts_may_be_listed() -> None:
    """A message made by hand may hold its parts in a list; its dict holds dicts either way."""
    made = TypedMessage(role="user", content=[TextContent("a"), TextContent("b")])
    assert made.to_dict() == {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert made.text == "ab"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user", "content": "x", "n": [float("nan")]}, r"the message\.n\[0\]: NaN and infinities"),
        ({"role": "user", "content": [{"type": "text", "text": "t", "s": float("inf")}]}, r"content\[0\]\.s: NaN"),
        ({"role": "user", "content": b"x"}, r"the message\.content: bytes have no JSON form"),
    ],
)
def test_what_has_no_json_form_is_not_written_as_something_else(message: dict[str, Any], words: str) -> None:
    """F30: a number that is none, and bytes, are refused by name instead of becoming null or base64."""
    with pytest.raises(InvalidRequestError, match=words):
        TypedMessage.from_dict(message).to_json()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ImageContent("https://e.org/a.png"), r"ImageContent\.media: must be a Media, not str: write Media"),  # type: ignore[arg-type]
        (lambda: TextContent(5), r"TextContent\.text: must be text, not int"),  # type: ignore[arg-type]
    ],
)
def test_a_part_of_something_else_is_refused_when_it_is_made(make: Any, words: str) -> None:
    """The field and the remedy are named at once, not when the part is sent."""
    with pytest.raises(TypeError, match=words):
        make()
