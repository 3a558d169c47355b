"""Transcripts of every shape that reaches a chain, and what must hold of whatever is left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from isthmus.models.internal import internal_message

Message = Mapping[str, Any]


def user(text: str = "hello") -> dict[str, Any]:
    """What the user says."""
    return {"role": "user", "content": text}


def said(text: str = "well") -> dict[str, Any]:
    """What the model says."""
    return {"role": "assistant", "content": text}


def call(call_id: str) -> dict[str, Any]:
    """A call, in the neutral spelling."""
    function = {"name": "look", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, text: str = "found") -> dict[str, Any]:
    """Its result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def blocks(call_id: str, text: str = "found") -> list[dict[str, Any]]:
    """A call and its result as block turns: the result stands in a user message."""
    use = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def items(call_id: str, text: str = "found") -> list[dict[str, Any]]:
    """A call and its result as a provider's own items, without roles."""
    return [
        {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": text},
    ]


def pairs(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    """The ids of all calls and of all results, in order."""
    calls: list[str] = []
    answers: list[str] = []
    for message in messages:
        calls += [each["id"] for each in message.get("tool_calls") or ()]
        answers += [message["tool_call_id"]] if message.get("role") == "tool" else []
        parts = message["content"] if isinstance(message.get("content"), list) else [message]
        calls += [part["id"] for part in parts if part.get("type") == "tool_use"]
        calls += [part["call_id"] for part in parts if part.get("type") == "function_call"]
        answers += [part["tool_use_id"] for part in parts if part.get("type") == "tool_result"]
        answers += [part["call_id"] for part in parts if part.get("type") == "function_call_output"]
    return calls, answers


@st.composite
def transcripts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns of words, calls and results in any spelling, instructions and internal messages in between."""
    made: list[dict[str, Any]] = []
    number = 0
    for _ in range(draw(st.integers(1, 6))):
        made += draw(st.sampled_from(([], [internal_message(user("files: a"), origin="files")])))
        made.append(user("u" * draw(st.integers(1, 300))))
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            call_id, text = f"c{number}", "r" * draw(st.integers(1, 300))
            spelled = draw(st.sampled_from(("neutral", "blocks", "items", "said", "system", "ephemeral")))
            made += {
                "neutral": [call(call_id), result(call_id, text)],
                "blocks": blocks(call_id, text),
                "items": items(call_id, text),
                "said": [said(text)],
                "system": [{"role": "system", "content": "mind this"}],
                "ephemeral": [internal_message(user("now"), origin="clock", ephemeral=True)],
            }[spelled]
    return made
