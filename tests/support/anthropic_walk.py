"""A second reading of Messages replies, over plain decoded JSON: what the decoder is compared with."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from isthmus.wire.frame import Frame

FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}
JOINED = {"text_delta": "text", "thinking_delta": "thinking", "compaction_delta": "content"}


class Walked(NamedTuple):
    """What a reply says, as plain values."""

    content: list[dict[str, Any]]
    text: str
    reasoning: str
    calls: list[tuple[str, str, Any]]
    stop_reason: str | None
    finish: str
    output_tokens: int | None


def message_of(frames: list[Frame]) -> dict[str, Any]:
    """The whole message that a reply amounts to; blocks that never ended are left out."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    arguments: dict[int, str] = {}
    ended: set[int] = set()
    for frame in frames:
        event = json.loads(frame.data)
        if event["type"] == "message":
            return event
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            _apply(blocks[event["index"]], event["delta"], arguments, event["index"])
        elif event["type"] == "content_block_stop":
            ended.add(event["index"])
        elif event["type"] == "message_delta":
            message.update(event["delta"])
            message["usage"] = {**message.get("usage", {}), **(event.get("usage") or {})}
    for index, text in arguments.items():
        if text and index in ended:
            blocks[index]["input"] = json.loads(text)
    message["content"] = [blocks[index] for index in sorted(blocks) if index in ended]
    return message


def _apply(block: dict[str, Any], delta: dict[str, Any], arguments: dict[int, str], index: int) -> None:
    if delta["type"] == "input_json_delta":
        arguments[index] = arguments.get(index, "") + delta["partial_json"]
    elif delta["type"] == "signature_delta":
        block["signature"] = delta["signature"]
    elif delta["type"] == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]
    else:
        name = JOINED[delta["type"]]
        block[name] = (block.get(name) or "") + delta[name]


def walk(frames: list[Frame]) -> Walked:
    """What a reply says."""
    message = message_of(frames)
    content = message["content"]
    calls = [(block["name"], block["id"], block["input"]) for block in content if block["type"] == "tool_use"]
    reason = message.get("stop_reason")
    return Walked(
        content=content,
        text="".join(block["text"] for block in content if block["type"] == "text"),
        reasoning="".join(block["thinking"] for block in content if block["type"] == "thinking"),
        calls=calls,
        stop_reason=reason,
        finish="tool-calls" if calls else FINISHES.get(reason or "", "other"),
        output_tokens=(message.get("usage") or {}).get("output_tokens"),
    )
