"""Messages of tool results, and calls in the forms that callers have."""

from typing import Any

import pytest

from isthmus.models.events import Call
from isthmus.models.outputs import ChatCompletionsOutputAdapter, call_of
from isthmus.models.responses import ToolCall, ToolCallFunction


@pytest.mark.parametrize("content", ["text", [{"type": "text", "text": "t"}]], ids=["text", "parts"])
def test_the_chat_completions_message(content: Any) -> None:
    """A result, good or bad, is {tool_call_id, role "tool", name, content}."""
    adapter = ChatCompletionsOutputAdapter()
    message = {"tool_call_id": "c1", "role": "tool", "name": "look", "content": content}
    assert adapter.format_success("c1", "look", content) == message
    assert adapter.format_error("c1", "look", content) == message


@pytest.mark.parametrize(
    "given",
    [
        ToolCall("c1", ToolCallFunction("look", '{"a": 1}')),
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}},
        {"id": "c1", "function": {"name": "look", "arguments": {"a": 1}}},
        Call("look", {"a": 1}, "c1", '{"a": 1}'),
    ],
    ids=["object", "dict", "object arguments", "call"],
)
def test_calls_are_read_in_any_form(given: Any) -> None:
    """F15: objects and dicts of Chat Completions are calls, their arguments text or an object."""
    made = call_of(given, "tool_calls[0]")
    assert (made.tool, made.input, made.call_id) == ("look", {"a": 1}, "c1")


@pytest.mark.parametrize("given", [None, 7, {}, {"name": "look"}, {"function": {}}], ids=str)
def test_what_is_no_call_is_refused(given: Any) -> None:
    """The error names the place and what must be there."""
    with pytest.raises(TypeError, match=r"^tool_calls\[3\]: must be a call with an id"):
        call_of(given, "tool_calls[3]")
