"""Prompt-cache markers: which blocks of a request end a stretch that the provider should keep.

Source: prompt caching in the Messages API, 2026-11: at most four markers a request; the order of a prompt is tools,
system, messages; a marker that lives an hour stands before those that live five minutes; no marker on empty text, on
thinking, or on a tool whose loading is deferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from isthmus.errors import ConfigError
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import loads

LIMIT = 4
MARK = "cache_control"
_LIVES = ("", "5m", "1h")
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


class _Place(NamedTuple):
    """A list of blocks, and which of them may carry a marker."""

    blocks: list[Any]
    at: int


def check_ttl(ttl: str) -> str:
    """How long a marked stretch is kept, as it may be configured.

    Raises:
        ConfigError: it is neither "5m", "1h" nor "".
    """
    if ttl not in _LIVES:
        raise ConfigError(f"must be '5m', '1h', or '' for the provider's own, not {ttl!r}", key="cache_ttl")
    return ttl


def mark_prompt(body: dict[str, Any], *, ttl: str = "", limit: int = LIMIT) -> list[Note]:
    """Mark the last tool, the system text and the last block of the last message, as far as the limit allows.

    A marker that the caller set himself counts; each of ours lives as long as the order of lives allows.

    Args:
        body: a Messages body; its members are replaced, never changed.
        ttl: how long the stretches are kept: "5m", "1h", or "" for the provider's own.
        limit: how many markers a request may have.

    Returns:
        A note where the limit left one out.
    """
    places = {"tools": _last_tool(body), "system": _system(body), "messages": _last_block(body)}
    own = {name: list(_markers(body.get(name))) for name in places}
    free = limit - sum(map(len, own.values())) - (1 if body.get(MARK) else 0)
    notes: list[Note] = []
    for at, (name, place) in enumerate(places.items()):
        if place is None or _is_marked(place.blocks[place.at]):
            continue
        if free <= 0:
            detail = f"cache marker on {name}: left out, as a request takes {limit} and the caller's own count"
            notes.append(Note(NoteCode.PARAMETER_DROPPED, detail))
            continue
        free -= 1
        parts = list(own.values())
        life = _life(ttl, before=[*chain(*parts[: at + 1])], after=[*chain(*parts[at + 1 :])])
        _set(body, name, place, {"type": "ephemeral", **({"ttl": life} if life else {})})
        own[name].append(life)
    return notes


def sorted_tools(tools: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Tools by name, so that the prompt is the same whatever order they were found in."""
    return sorted(tools, key=lambda tool: str(tool.get("name", "")))


def _life(ttl: str, *, before: list[str], after: list[str]) -> str:
    """How long a marker may live between others: never longer than one before it, nor shorter than one after it."""
    if "1h" in after:
        return "1h"
    return "" if ttl == "1h" and any(life != "1h" for life in before) else ttl


def _last_tool(body: Mapping[str, Any]) -> _Place | None:
    tools = body.get("tools")
    if not isinstance(tools, list | tuple):
        return None
    usable = [at for at, tool in enumerate(tools) if isinstance(tool, Mapping) and not tool.get("defer_loading")]
    return _Place(list(tools), usable[-1]) if usable else None


def _system(body: Mapping[str, Any]) -> _Place | None:
    system = body.get("system")
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    return _last_of(system)


def _last_block(body: Mapping[str, Any]) -> _Place | None:
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list | tuple) and messages else None
    if not isinstance(last, Mapping):
        return None
    content = last.get("content")
    return _last_of([{"type": "text", "text": content}] if isinstance(content, str) else content)


def _last_of(blocks: Any) -> _Place | None:
    """The last block that may be marked; blocks that go back as they came are never touched."""
    if not isinstance(blocks, list | tuple):
        return None
    usable = [at for at, block in enumerate(blocks) if isinstance(block, Mapping) and _may_carry(block)]
    return _Place(list(blocks), usable[-1]) if usable else None


def _may_carry(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    return kind not in _UNMARKABLE and (kind != "tool_result" or bool(block.get("content")))


def _set(body: dict[str, Any], name: str, place: _Place, mark: dict[str, str]) -> None:
    place.blocks[place.at] = {**place.blocks[place.at], MARK: mark}
    if name != "messages":
        body[name] = place.blocks
        return
    *earlier, last = body["messages"]
    body["messages"] = [*earlier, {**last, "content": place.blocks}]


def _is_marked(block: Mapping[str, Any]) -> bool:
    return bool(block.get(MARK))


def _markers(value: Any) -> Iterable[str]:
    """The lives of the markers in a part of a body, in order."""
    if isinstance(value, msgspec.Raw):
        value = loads(value) if MARK.encode() in bytes(value) else None
    if isinstance(value, list | tuple):
        for item in value:
            yield from _markers(item)
    if isinstance(value, Mapping):
        mark = value.get(MARK)
        yield from _markers(value.get("content"))
        if isinstance(mark, Mapping):
            yield str(mark.get("ttl") or "")
