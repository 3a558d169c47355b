"""Transcripts told as text."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.chain.estimate import estimated_tokens
from isthmus.harness.telling import clipped, pieces, told
from isthmus.models.events import StepResult, Text
from isthmus.models.messages import assistant_message
from isthmus.models.normalise import make_call


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "user", "content": "hi"}, "user: hi"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "user: a b"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
            "user: [image]",
        ),
        ({"role": "tool", "tool_call_id": "1", "name": "look", "content": "seen"}, "tool look: seen"),
        (
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "seen"}]},
            "tool: seen",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "seen"}]},
            "user: [result: seen]",
        ),
        (
            {"type": "function_call_output", "call_id": "1", "output": "seen"},
            "item: [result: seen]",
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]},
            "assistant: [reasoning] a",
        ),
        ({"type": "new", "x": 1}, 'item: [new: {"type":"new","x":1}]'),
        (
            {
                "role": "assistant",
                "content": "a",
                "openai_responses_input": [{"type": "message", "role": "assistant", "content": "a"}],
            },
            "assistant: a",
        ),
    ],
)
def test_a_message_is_a_line(message: dict[str, Any], text: str) -> None:
    """Text stands as it is, calls and results in words, everything once, whatever its spelling."""
    assert told(message) == text


def test_a_reply_is_told_with_its_calls() -> None:
    """Text and calls of a reply, with the arguments as the model wrote them."""
    step = StepResult(events=(Text("Let me see."), make_call("look", {"at": "x"}, call_id="1")), finish="tool-calls")
    assert told(assistant_message(step)) == 'assistant: Let me see. [calls look with {"at":"x"}]'


def test_a_text_is_clipped_in_its_middle() -> None:
    """What is too long keeps its beginning and its end, in whole characters, and says that something is missing."""
    text = "a" + "é" * 5000 + "z"
    short = clipped(text, 100)
    assert estimated_tokens(short) <= 100
    assert short.startswith("aé")
    assert short.endswith("éz")
    assert "left out" in short
    assert clipped("short", 100) == "short"


def test_pieces_hold_everything_in_order() -> None:
    """Each has at most the tokens that there is room for; together they are the transcript."""
    messages = [{"role": "user", "content": f"message {number} {'x' * 50}"} for number in range(40)]
    made = list(pieces(messages, 100))
    assert len(made) > 5
    assert all(estimated_tokens(piece) <= 100 for piece in made)
    assert "\n".join(made) == "\n".join(map(told, messages))
    assert list(pieces([], 100)) == []
