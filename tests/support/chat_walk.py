"""What a Chat Completions body says, by a plain walk over its JSON that shares nothing with the decoder."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class Walked(NamedTuple):
    """The plain reading of a body."""

    text: str
    reasoning: str
    calls: list[tuple[str, Any]]
    finish: str | None
    output: int | None
    error: bool


def _texts(content: Any) -> tuple[str, str]:
    if isinstance(content, dict):
        return json.dumps(content), ""
    if isinstance(content, list):
        said = "".join(part["text"] for part in content if part["type"] == "text")
        thought = "".join(piece["text"] for part in content if part["type"] == "thinking" for piece in part["thinking"])
        return said, thought
    return content or "", ""


def _objects(body: bytes, stream: bool) -> list[Any]:
    if not stream:
        return [json.loads(body)]
    lines = re.split(rb"\r\n|\r|\n", body)
    found = [line[5:].strip() for line in lines if line.startswith(b"data:")]
    return [json.loads(item) for item in found if item and item != b"[DONE]"]


def _reasoning(said: dict[str, Any]) -> str:
    details = said.get("reasoning_details") or []
    from_details = "".join(item.get("text") or item.get("summary") or "" for item in details)
    return said.get("reasoning_content") or said.get("reasoning") or from_details


def walk(body: bytes, *, stream: bool) -> Walked:
    """Text, reasoning, calls (name, arguments as a value), finish reason and output tokens of the first choice."""
    text = reasoning = ""
    calls: dict[Any, list[str]] = {}
    finish, usage, error = None, {}, False
    for item in _objects(body, stream):
        error = error or bool(item.get("error"))
        usage = {**usage, **((item.get("x_groq") or {}).get("usage") or {}), **(item.get("usage") or {})}
        for choice in item.get("choices") or []:
            if choice["index"] != 0:
                continue
            said = choice.get("delta" if stream else "message") or {}
            plain, thought = _texts(said.get("content"))
            text += plain + (said.get("refusal") or "")
            reasoning += thought + _reasoning(said)
            finish = choice.get("finish_reason") or finish
            legacy = said.get("function_call") or {}
            if legacy.get("name") or legacy.get("arguments"):
                held = calls.setdefault("legacy", ["", ""])
                held[0] += legacy.get("name") or ""
                held[1] += legacy.get("arguments") or ""
            for at, entry in enumerate(said.get("tool_calls") or []):
                held = calls.setdefault(entry.get("index", at) if stream else at, ["", ""])
                held[0] = held[0] or entry["function"].get("name") or ""
                held[1] += entry["function"].get("arguments") or ""
    read = [(name, _value(arguments)) for name, arguments in calls.values()]
    return Walked(text, reasoning, read, finish, _output(usage), error)


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}") or {}
    except ValueError:
        return None


def _output(usage: dict[str, Any]) -> int | None:
    count = usage.get("completion_tokens")
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    if count is not None and reasoning and usage.get("total_tokens") == usage["prompt_tokens"] + count + reasoning:
        return count + reasoning
    return count
