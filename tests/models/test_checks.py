"""The checks return what they find, and reject no right reply."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.chat import ChatResponse, ToolCall
from isthmus.models.checks import check_reply
from isthmus.models.contract import ToolSpec
from isthmus.models.turn_checks import check_tool_turn

CALL = ToolCall("c1", "look", {"q": "x"})
NEEDS = ToolSpec(name="look", parameters_schema={"type": "object", "required": ["q"]})


def rules(findings: Any) -> set[str]:
    """The names of the rules found broken."""
    return {finding.rule for finding in findings}


@pytest.mark.parametrize(
    "reason",
    [
        "end_turn",
        "stop",
        "max_tokens",
        "MAX_TOKENS",
        "Length",
        "stop_sequence",
        "refusal",
        "pause_turn",
        "content_filter",
    ],
)
def test_right_replies_pass(reason: str) -> None:
    """No stop reason in use is a finding, in any case."""
    assert check_reply(ChatResponse("x", [], reason)) == []
    assert check_reply(ChatResponse(None, [CALL], "tool_use"), [NEEDS]) == []


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        ({"text": "x"}, "reply-type"),
        (None, "reply-type"),
        (ChatResponse(3, [], "stop"), "text-type"),  # type: ignore[arg-type]
        (ChatResponse("x", {}, "stop"), "calls-type"),  # type: ignore[arg-type]
        (ChatResponse("x", [ToolCall("", "look", {})], "tool_use"), "call-id"),
        (ChatResponse("x", [ToolCall("c", "", {})], "tool_use"), "call-name"),
        (ChatResponse("x", [ToolCall("c", "look", "{}")], "tool_use"), "call-input"),  # type: ignore[arg-type]
        (ChatResponse("x", [CALL, CALL], "tool_use"), "call-id-unique"),
        (ChatResponse("x", [CALL], "end_turn"), "calls-stop"),
        (ChatResponse("x", [], "tool_use"), "calls-missing"),
        (ChatResponse("x", [ToolCall("c", "look", {})], "max_tokens"), "call-cut"),
        (ChatResponse("x", [], "tired"), "stop-reason"),
        (ChatResponse("x", [], None), "stop-reason"),  # type: ignore[arg-type]
    ],
)
def test_each_broken_rule_is_found(reply: Any, rule: str) -> None:
    """Each finding names its rule and says something about it."""
    findings = check_reply(reply, [NEEDS])
    assert rule in rules(findings)
    assert all(finding.message for finding in findings)


NEUTRAL = [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "out"},
]
BLOCKS = [
    {"role": "assistant", "content": [SimpleNamespace(type="tool_use", id="c1")]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "out"}]},
]


@pytest.mark.parametrize("turns", [NEUTRAL, BLOCKS])
def test_right_turns_pass(turns: Any) -> None:
    """Neutral and block turns are right, with raw objects in the assistant's."""
    assert check_tool_turn(turns, [(CALL, "out")]) == []


@pytest.mark.parametrize(
    ("turns", "rule"),
    [
        (None, "turns-type"),
        ([], "turns-type"),
        (({"role": "user"},), "turns-type"),
        (["x"], "turn-type"),
        ([{"role": "robot"}], "turn-role"),
        (NEUTRAL[1:], "turn-assistant"),
        (NEUTRAL[:1], "result-id"),
        ([NEUTRAL[0], {**NEUTRAL[1], "tool_call_id": "c2"}], "result-id"),
        ([NEUTRAL[0], {**NEUTRAL[1], "content": ""}], "result-text"),
    ],
)
def test_each_broken_turn_is_found(turns: Any, rule: str) -> None:
    """F07: a lost id, a lost text, a lost assistant turn and an invented role are findings."""
    assert rule in rules(check_tool_turn(turns, [(CALL, "out")]))
