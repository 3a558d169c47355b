"""The three assertions hold the laws of the kit, name them, and are no `assert` themselves."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall
from isthmus.adapters.testing import assert_adapter_contract, assert_chat_response, assert_tool_turn
from isthmus.conformance import LAWS
from support.twins import Chat, Modelled, Step

CALL = ToolCall("c1", "look", {"q": "x"})
TURNS = [
    {"role": "assistant", "content": "", "calls": [{"id": "c1", "arguments": {"q": "x"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "out"},
]


@pytest.mark.parametrize("adapter", [Chat(), Step(), Modelled()])
def test_right_adapters_pass(adapter: Any) -> None:
    """An adapter of any face passes, without being asked anything."""
    assert_adapter_contract(adapter)
    assert adapter.client.sent == []


@pytest.mark.parametrize("adapter", [Chat, object(), None, type("Odd", (Chat,), {"capabilities": lambda self: {}})()])
def test_what_is_no_adapter_fails(adapter: Any) -> None:
    """A class, any other object and wrong capabilities fail."""
    with pytest.raises(AssertionError, match=r"made: |capabilities: "):
        assert_adapter_contract(adapter)


@pytest.mark.parametrize(
    "reason",
    [
        *("max_tokens", "MAX_TOKENS", "Length", "maxTokens", "model_length", "model_context_window_exceeded"),
        *("end_turn", "stop", "STOP", "refusal", "pause_turn", "content_filter", "stop_sequence", "something_new"),
    ],
)
def test_every_reason_without_calls_passes(reason: str) -> None:
    """Truncations in any spelling and case, and reasons that are not known, pass where there is no call."""
    assert_chat_response(ChatResponse("x", [], reason), expect_tool_calls=False)


@pytest.mark.parametrize("reason", ["tool_use", "TOOL_USE", "tool_calls", "toolUse", "function_call"])
def test_calls_with_a_tool_use_stop_pass(reason: str) -> None:
    """Every spelling of tool use passes with calls."""
    assert_chat_response(ChatResponse(None, [CALL], reason), expect_tool_calls=True)


@pytest.mark.parametrize(
    ("reply", "law"),
    [
        (ChatResponse("x", [CALL], "end_turn"), "calls-stop"),
        (ChatResponse("x", [CALL], "max_tokens"), "calls-stop"),
        (ChatResponse("x", [CALL], "something_new"), "calls-stop"),
        (ChatResponse("x", [], "tool_use"), "calls-stop"),
        (ChatResponse("x", [CALL, CALL], "tool_use"), "call-ids"),
        (ChatResponse("x", [ToolCall("c", "look", "{}")], "tool_use"), "call-shape"),  # type: ignore[arg-type]
        (ChatResponse("x", [ToolCall("c", "", {})], "tool_use"), "call-shape"),
        (ChatResponse("x", [], None), "reply-shape"),  # type: ignore[arg-type]
        ({"text": "x"}, "reply-shape"),
        (None, "reply-shape"),
    ],
)
def test_a_wrong_reply_fails_and_names_its_law(reply: Any, law: str) -> None:
    """The message begins with the law's id, which the table of laws has."""
    with pytest.raises(AssertionError, match=rf"^{law}: "):
        assert_chat_response(reply)
    assert law in {each.id for each in LAWS}


def test_expected_calls_are_missed() -> None:
    """A reply without the calls that a test expects fails, and one with calls that it does not."""
    with pytest.raises(AssertionError, match="expected"):
        assert_chat_response(ChatResponse("x", [], "stop"), expect_tool_calls=True)
    with pytest.raises(AssertionError, match="expected"):
        assert_chat_response(ChatResponse("x", [CALL], "tool_use"), expect_tool_calls=False)


def test_tool_turns_are_checked_with_and_without_results() -> None:
    """A right turn passes either way; one that lost its result fails where the results are given."""
    assert_tool_turn(TURNS)
    assert_tool_turn(TURNS, [(CALL, "out")])
    with pytest.raises(AssertionError, match=r"^turn-ids: "):
        assert_tool_turn(TURNS[:1], [(CALL, "out")])
    with pytest.raises(AssertionError, match=r"^turn-results: "):
        assert_tool_turn(TURNS, [(CALL, "something else")])
    with pytest.raises(AssertionError, match=r"^turn-shape: "):
        assert_tool_turn([])
    with pytest.raises(AssertionError, match=r"^turn-roles: "):
        assert_tool_turn([{"role": "robot"}])


def test_the_inherited_turn_passes() -> None:
    """What `ModelAdapter` renders by itself is right."""

    class Least(ModelAdapter):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return ChatResponse(None, [CALL], "tool_use")

    reply = ChatResponse(None, [CALL], "tool_use")
    assert_tool_turn(Least().make_tool_turn(reply, [(CALL, "ok")]), [(CALL, "ok")])


def test_they_hold_without_assertions() -> None:
    """`python -O` changes nothing."""
    program = (
        "from isthmus.adapters.base import ChatResponse\n"
        "from isthmus.adapters.testing import assert_chat_response\n"
        "assert_chat_response(ChatResponse('x', [], 'tool_use'))\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "AssertionError: calls-stop" in done.stderr
