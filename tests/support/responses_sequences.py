"""Recorded conversations as tool loops: each next request built from our own decoded turn, beside the recorded one."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from isthmus.adapters.openai_responses import OpenAIResponsesAdapter
from isthmus.conformance import replay
from isthmus.models.contract import GenerateContext
from isthmus.models.messages import assistant_message, tool_message
from support.corpus import corpus_root


class Step(NamedTuple):
    """One turn of a sequence: the recorded request, the folder of its reply, and the recorded request after it."""

    path: str
    before: dict[str, Any]
    after: dict[str, Any]
    after_path: str


@cache
def sequences() -> dict[str, list[str]]:
    """The folders of each source file's interactions with this API, in recorded order."""
    root = corpus_root()
    if root is None:
        return {}
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    with (root / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["sequence"] and row["api"] == "openai-responses":
                key = f"{row['source_repo']}/{row['source_path']}"
                found[key].append((int(row["interaction_index"]), row["path"]))
    return {key: [path for _, path in sorted(items)] for key, items in found.items() if len(items) > 1}


def steps(paths: list[str]) -> Iterator[Step]:
    """The turns of a sequence that have a next one."""
    root = corpus_root()
    assert root is not None
    bodies = [json.loads((root / path / "request.json").read_text("utf-8")).get("body") for path in paths]
    for at in range(len(paths) - 1):
        if isinstance(bodies[at], dict) and isinstance(bodies[at + 1], dict):
            yield Step(paths[at], bodies[at], bodies[at + 1], paths[at + 1])


def items_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The input items of a request."""
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or [])


def not_one_conversation(step: Step) -> str | None:
    """Why the next request does not go on from this reply; None where it does."""
    before, after = items_of(step.before), items_of(step.after)
    if step.after.get("previous_response_id"):
        return "previous_response_id: the provider holds the history"
    if len(after) <= len(before):
        return "the next request is no longer than this one"
    if [gist(item) for item in after[: len(before)]] != [gist(item) for item in before]:
        return "the next request begins otherwise"
    return None


def rebuilt(step: Step) -> list[dict[str, Any]]:
    """The input of the next request: the recorded one before, our own decoded turn, what was said after it."""
    root = corpus_root()
    assert root is not None
    before, after = items_of(step.before), items_of(step.after)
    turn = replay(root / step.path, adapter="openai-responses")
    said = [item for item in after[len(before) :] if not _models(item)]
    rest = [
        tool_message(item["call_id"], item["output"]) if item.get("type") == "function_call_output" else item
        for item in said
    ]
    messages = (*before, assistant_message(turn), *rest)
    adapter = OpenAIResponsesAdapter("m", api_key="none")
    store = {"store": step.after["store"]} if "store" in step.after else {}
    request = adapter.codec.encode(GenerateContext(messages=messages, options=store), stream=False)
    return json.loads(request.call.body)["input"]


def _models(item: dict[str, Any]) -> bool:
    kind = str(item.get("type") or "message")
    return item.get("role") == "assistant" or ("role" not in item and not kind.endswith("_output"))


def gist(item: dict[str, Any]) -> dict[str, Any]:
    """An item in one spelling: a message's text out of its parts, arguments and JSON results as values."""
    item = {key: value for key, value in item.items() if value is not None}
    kind = item.setdefault("type", "message")
    if kind == "message" and item.get("role") == "system":
        item["role"] = "developer"
    if kind == "message" and isinstance(item.get("content"), list):
        parts = item["content"]
        if all(part.get("type") in ("input_text", "output_text", "text") for part in parts):
            item["content"] = "".join(part["text"] for part in parts)
    for name in ("arguments", "output"):
        if isinstance(item.get(name), str):
            try:
                item[name] = json.loads(item[name] or "{}")
            except ValueError:
                continue
    return item


def differences(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Iterator[str]:
    """The field paths at which two inputs differ, with how."""
    mine, other = [gist(item) for item in ours], [gist(item) for item in theirs]
    place = 0
    for item in mine:
        there = other[place] if place < len(other) else None
        if there is None or _label(item) != _label(there):
            yield f"{item['type']}: only ours"
            continue
        place += 1
        for key in sorted({*item, *there}):
            if item.get(key) != there.get(key):
                how = "only ours" if key not in there else "only theirs" if key not in item else "other"
                yield f"{item['type']}.{key}: {how}"
    for there in other[place:]:
        yield f"{there['type']}: only theirs"


def _label(item: dict[str, Any]) -> Any:
    return item["type"], item.get("role"), item.get("call_id")
