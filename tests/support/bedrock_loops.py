"""Recorded Bedrock conversations of several calls, and the requests that we would have sent in their place."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from isthmus.adapters.registry import load_adapter
from isthmus.conformance import replay
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.messages import assistant_message, tool_message
from support.bedrock_reading import text_of
from support.corpus import corpus_root
from support.wirecorpus import rows


class Pair(NamedTuple):
    """Two calls of one source, in recorded order; `later` is a request's body."""

    path: str
    api: str
    earlier: str
    later: dict[str, Any]


def pairs() -> Iterator[Pair]:
    """All pairs of neighbours in the recorded sequences."""
    root = corpus_root()
    assert root is not None
    groups = defaultdict(list)
    for row in rows(provider="bedrock"):
        if row["sequence"]:
            groups[row["source_path"]].append(row)
    for group in groups.values():
        group.sort(key=lambda row: int(row["sequence"].split("/")[0]))
        for earlier, later in pairwise(group):
            body = json.loads((root / later["path"] / "request.json").read_text("utf-8")).get("body") or {}
            yield Pair(later["path"], later["api"], str(root / earlier["path"]), body)


def rebuilt(pair: Pair) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The recorded body and ours, whose last assistant turn is our own reading of the recorded reply.

    None where the later request doesn't go on from the earlier reply.
    """
    turns = pair.later.get("messages") or []
    at = max((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), default=None)
    if at is None:
        return None
    messages: list[dict[str, Any]] = []
    for place, turn in enumerate(turns):
        if place == at:
            step = replay(pair.earlier)
            messages.append(assistant_message(step))
        else:
            messages += _neutral(turn)
    if not _goes_on(turns[at], step):
        return None
    anthropic = "anthropic_version" in pair.later
    model = "anthropic.m" if anthropic else "amazon.m"
    codec = load_adapter("bedrock", model=model, api_key="none", aws_region="us-east-1", cache_markers=False).codec
    ctx = GenerateContext(messages=tuple(messages), tools=tuple(_tools(pair.later)), brief=_brief(pair.later))
    return pair.later, json.loads(codec.encode(ctx, stream=False).call.body)


def _goes_on(turn: dict[str, Any], step: Any) -> bool:
    said = "".join(map(text_of, turn["content"]))
    ids = [_call_of(block)["id"] for block in turn["content"] if _call_of(block)]
    return step.text.strip() == said.strip() or (bool(ids) and ids == [c.call_id for c in step.calls])


def _call_of(block: dict[str, Any]) -> dict[str, Any]:
    if "toolUse" in block:
        call = block["toolUse"]
        return {"id": call["toolUseId"], "name": call["name"], "input": call["input"]}
    return block if block.get("type") == "tool_use" else {}


def _neutral(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """A recorded turn as neutral messages: text and calls in the neutral words, all else as the block that it is."""
    made: list[dict[str, Any]] = []
    parts: list[Any] = []
    calls: list[dict[str, Any]] = []
    for block in turn["content"]:
        call = _call_of(block)
        if call:
            function = {"name": call["name"], "arguments": json.dumps(call["input"])}
            calls.append({"id": call["id"], "type": "function", "function": function})
        elif "toolResult" in block:
            held = block["toolResult"]
            made.append(tool_message(held["toolUseId"], _result(held["content"])))
        elif block.get("type") == "tool_result":
            made.append(tool_message(block["tool_use_id"], block["content"]))
        elif "text" in block:
            parts.append({**block, "type": "text"})
        else:
            parts.append(block)
    if parts or calls:
        made.append({"role": turn["role"], "content": parts or None, **({"tool_calls": calls} if calls else {})})
    return made


def _result(content: list[dict[str, Any]]) -> Any:
    if len(content) == 1 and "json" in content[0]:
        return content[0]["json"]
    return [{**part, "type": "text"} if "text" in part else part for part in content]


def _tools(body: dict[str, Any]) -> Iterator[ToolSpec]:
    for tool in [*body.get("toolConfig", {}).get("tools", ()), *body.get("tools", ())]:
        spec = tool.get("toolSpec", tool)
        if "name" in spec:
            schema = spec.get("inputSchema", {}).get("json", spec.get("input_schema", {}))
            yield ToolSpec(name=spec["name"], description=spec.get("description", ""), parameters_schema=schema)


def _brief(body: dict[str, Any]) -> str:
    system = body.get("system") or ""
    return system if isinstance(system, str) else "".join(block.get("text", "") for block in system)


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
    """The places at which two bodies differ, with what each has there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            yield from differences(theirs.get(key), ours.get(key), f"{place}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            yield from differences(one, other, f"{place}[]")
    elif theirs != ours:
        yield f"{place}: {theirs!r:.80} | {ours!r:.80}"
