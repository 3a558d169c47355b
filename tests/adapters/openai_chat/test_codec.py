"""The laws that hold for any request of this dialect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from support.odd_histories import HISTORIES, MARK, assert_request_laws

CODEC = ChatCodec("m")


@settings(max_examples=400, deadline=None)
@given(messages=HISTORIES)
def test_f14_f22_any_history_is_refused_by_name_or_sent(messages: list[Any]) -> None:
    """F14, F22: no form of a message crashes, changes its input, or leaks a key of this library's."""
    assert_request_laws(CODEC, messages)


def test_no_bookkeeping_at_any_depth() -> None:
    """A reserved key in a part, a call, its arguments or an option is sent nowhere; text that names it stays."""
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": {"q": 1, "_isthmus": 2}, "_isthmus": 3},
    }
    messages = [
        {"role": "user", "content": [{"type": "text", "text": 'the key "_isthmus"', "_isthmus": MARK}]},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "_isthmus": MARK}]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "r", "_isthmus": MARK}]},
    ]
    sent = assert_request_laws(CODEC, messages, options={"metadata": {"k": "v", "_isthmus": 1}, "_isthmus": 2})
    assert sent is not None
    assert sent["messages"][0]["content"] == [{"type": "text", "text": 'the key "_isthmus"'}]
    assert sent["messages"][1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"q":1}'}
    assert sent["metadata"] == {"k": "v"}


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        {"role": "user", "content": 5},
        {"role": "user", "content": b"abc"},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]},
        {"role": "assistant", "tool_calls": {"id": "q"}},
        {"role": "assistant", "tool_calls": ["x"]},
    ],
)
def test_f14_a_message_without_a_form_is_refused_and_named(message: Any) -> None:
    """F14: what no server takes is refused before any I/O, with its place."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        CODEC.encode(GenerateContext(messages=(message,)), stream=True)


def test_f14_blocks_that_only_another_server_takes_are_left_out_with_a_note() -> None:
    """F14, F03: another family's own blocks leave the projection, each with a note."""
    kinds = ("server_tool_use", "web_search_tool_result", "mcp_tool_use", "compaction", "redacted_thinking")
    blocks = [*({"type": kind} for kind in kinds), {"type": "text", "text": "x"}]
    request = CODEC.encode(GenerateContext(messages=({"role": "assistant", "content": blocks},)), stream=False)
    assert b'"content":[{"type":"text","text":"x"}]' in request.call.body
    assert [note.code for note in request.notes] == ["native-dropped"] * len(kinds)


def test_f21_an_option_that_replaces_what_was_made_is_noted() -> None:
    """F21: an option beats the portable setting, and a note says so."""
    ctx = GenerateContext(
        messages=({"role": "user", "content": "x"},), temperature=0.5, options={"temperature": 1, "top_k": 3}
    )
    request = CODEC.encode(ctx, stream=False)
    assert b'"temperature":1' in request.call.body
    assert [note.detail for note in request.notes] == ["options.temperature stands in place of what was made for it"]


@pytest.mark.parametrize("more", [{}, {"messages": "as they are"}, {"messages": [None, 3]}])
def test_messages_that_say_nothing_hide_no_number_without_a_form(more: dict[str, Any]) -> None:
    """F30: beside turns that only call tools, and whatever an option puts in their place, NaN is found by its path."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = (asks, {"role": "tool", "tool_call_id": "a", "content": "null"}, asks)
    assert CODEC.encode(GenerateContext(messages=messages, options=more), stream=False).call.body
    with pytest.raises(InvalidRequestError, match=r"request\.top_k"):
        CODEC.encode(GenerateContext(messages=messages, options={**more, "top_k": float("nan")}), stream=False)
