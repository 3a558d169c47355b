"""What a Responses body says, by a plain walk over its JSON that shares nothing with the decoder."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class Walked(NamedTuple):
    """The plain reading of a body."""

    text: str
    calls: list[tuple[str, Any]]
    finish: str | None
    output: int | None
    error: bool
    items: list[dict[str, Any]]


def events_of(body: bytes) -> list[dict[str, Any]]:
    """The events of a stream, decoded."""
    lines = re.split(rb"\r\n|\r|\n", body)
    found = [line[5:].strip() for line in lines if line.startswith(b"data:")]
    return [json.loads(item) for item in found if item and item != b"[DONE]"]


def walk(body: bytes, *, stream: bool) -> Walked:
    """Text with refusals, calls (name, arguments as a value), outcome, output tokens and items of the first reply."""
    placed: dict[int, dict[str, Any]] = {}
    said = ""
    response: dict[str, Any] | None = None if stream else json.loads(body)
    for event in events_of(body) if stream else []:
        kind = event.get("type")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            said += event["delta"]
        elif kind == "response.output_item.done":
            placed[event["output_index"]] = event["item"]
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event["response"]
            break
        elif kind == "error":
            break
    status = None if response is None else response.get("status")
    if response is None or status not in ("completed", "incomplete"):
        return Walked("", [], None, None, True, [])
    done = [placed[at] for at in sorted(placed)]
    # What was told as done stands: the last event repeats it, with other ciphers or ids, or leaves it out.
    items = done if len(done) >= len(response["output"]) else response["output"]
    text = "".join(
        part.get("text") or part.get("refusal") or ""
        for item in items
        if item["type"] == "message"
        for part in item["content"]
    )
    assert not said or said == text
    calls = [(item["name"], json.loads(item["arguments"] or "{}")) for item in items if item["type"] == "function_call"]
    reason = (response.get("incomplete_details") or {}).get("reason")
    output = (response.get("usage") or {}).get("output_tokens")
    return Walked(text, calls, reason or status, output, False, items)
