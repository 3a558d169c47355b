"""The laws that hold for any request of this dialect."""

from itertools import pairwise

import pytest
from hypothesis import given, settings

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from support.anthropic_fold import user
from support.odd_histories import HISTORIES, MARK, assert_request_laws

CODEC = MessagesCodec("m")


@settings(max_examples=400, deadline=None)
@given(messages=HISTORIES)
def test_f14_f22_any_history_is_refused_by_name_or_sent(messages):
    """F14, F22: no form of a message crashes, changes its input, or leaks a key of this library's."""
    sent = assert_request_laws(CODEC, messages)
    roles = [turn["role"] for turn in sent["messages"]] if sent else []
    assert all(one != other for one, other in pairwise(roles))


def test_no_bookkeeping_at_any_depth():
    """A reserved key in a part, a result, arguments as text or object, or an option is sent nowhere."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"q": 1.0, "_isthmus": 2}'}}
    other = {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"q": 1.0}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "x", "_isthmus": MARK}]},
        {"role": "assistant", "content": None, "tool_calls": [call, other]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "r", "_isthmus": MARK}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "s", "_isthmus": 1}]}
            ],
        },
    ]
    sent = assert_request_laws(CODEC, messages, options={"metadata": {"user_id": "v", "_isthmus": 1}, "_isthmus": 2})
    assert [block["input"] for block in sent["messages"][1]["content"]] == [{"q": 1.0}, {"q": 1.0}]
    assert sent["metadata"] == {"user_id": "v"}


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        {"role": "user", "content": 5},
        {"role": "user", "content": b"abc"},
        {"role": "user", "content": [5]},
        {"role": "assistant", "tool_calls": {"id": "q"}},
        {"role": "assistant", "tool_calls": ["x"]},
    ],
)
def test_f14_a_message_without_a_form_is_refused_and_named(message):
    """F14: what this API does not take is refused before any I/O, with its place."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        CODEC.encode(GenerateContext(messages=(message,)), stream=True)


def test_f14_the_legacy_function_call_and_its_result_are_a_call_and_a_result():
    """F14: `function_call` and role "function" of an old history keep their meaning, with an id made for both."""
    messages = [
        user(),
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "r"},
    ]
    sent = assert_request_laws(CODEC, messages)
    [block], [result] = sent["messages"][1]["content"], sent["messages"][2]["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "f", {"a": 1})
    assert result == {"type": "tool_result", "tool_use_id": block["id"], "content": "r"}


def test_f14_a_result_that_is_a_plain_object_is_its_json():
    """F14: a tool's result given as an object goes as JSON text, and a note says so."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = (
        user(),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": {"n": 1}},
    )
    request = CODEC.encode(GenerateContext(messages=messages), stream=False)
    assert rb'"content":"{\"n\":1}"' in request.call.body
    assert "messages[2]: a tool result was written as JSON text" in [note.detail for note in request.notes]


def test_f21_the_way_of_calling_decides_whether_it_streams():
    """F21: an option `stream` is left out with a note instead of making a whole call a stream."""
    ctx = GenerateContext(messages=(user(),), options={"stream": True})
    request = CODEC.encode(ctx, stream=False)
    assert b'"stream"' not in request.call.body
    assert [note.code for note in request.notes] == ["parameter-dropped"]
