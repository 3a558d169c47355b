"""A plain second reading of LangServe's bytes, written apart from the decoder."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Walked(NamedTuple):
    """What a reply says: text, calls (name and arguments), the reason, output tokens, and whether it failed."""

    text: str
    calls: list[tuple[str, Any]]
    finish: str | None
    output: int | None
    error: bool = False


def walk(body: bytes, *, stream: bool) -> Walked:
    """Read a body of `/stream_events` or `/invoke`."""
    return _stream(body) if stream else _output(json.loads(body)["output"])


def _stream(body: bytes) -> Walked:
    """The last model's message; its calls unless tools ran after it; an error where no end mark stands."""
    last, tools_after, marks = None, False, []
    for block in body.replace(b"\r\n", b"\n").decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        marks.append(lines.get("event"))
        if lines.get("event") != "data":
            continue
        event = json.loads(lines["data"])
        if event["event"] == "on_chat_model_end":
            last, tools_after = event["data"]["output"], False
        tools_after = tools_after or event["event"] == "on_tool_start"
    if "error" in marks or "end" not in marks or last is None:
        return Walked("", [], None, None, True)
    walked = _message(last)
    return walked._replace(calls=[]) if tools_after else walked


def _output(output: Any) -> Walked:
    if isinstance(output, dict) and "messages" in output:
        return _message(output["messages"][-1])
    if isinstance(output, dict) and "content" in output:
        return _message(output)
    return Walked(output if isinstance(output, str) else json.dumps(output, separators=(",", ":")), [], None, None)


def _message(message: dict[str, Any]) -> Walked:
    content = message["content"]
    if isinstance(content, list):
        content = "".join(block["text"] for block in content if block["type"] == "text")
    about = message["response_metadata"]
    usage = message["usage_metadata"]
    return Walked(
        content,
        [(call["name"], call["args"]) for call in message["tool_calls"]],
        about.get("finish_reason") or about.get("stop_reason"),
        usage["output_tokens"] if usage else None,
    )
