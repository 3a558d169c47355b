"""Cache points of Converse: which stretches of a prompt the provider should keep.

Source: prompt caching in Converse, 2026-11: at most four points a request; a point stands behind the tools, behind the
system text, or in a message's content, and not in an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.adapters.anthropic.markers import LIMIT
from isthmus.models.events import Note, NoteCode

POINT = "cachePoint"


def cache_point(ttl: Any = None) -> dict[str, Any]:
    """A point; `ttl` is how long the stretch is kept, the provider's own time where empty."""
    return {POINT: {"type": "default", **({"ttl": ttl} if ttl else {})}}


def place_points(body: dict[str, Any], *, ttl: str = "") -> list[Note]:
    """Put a point behind the tools, the system text and the last message, as far as the limit allows.

    A point that the caller set himself counts. A longer life stands before a shorter one, so ours are all of one.

    Args:
        body: a Converse body, its lists made for it; they are added to.
        ttl: "5m", "1h", or "" for the provider's own.

    Returns:
        A note where the limit left one out.
    """
    messages = body.get("messages") or ()
    lists = {
        "tools": (body.get("toolConfig") or {}).get("tools"),
        "system": body.get("system"),
        "messages": messages[-1].get("content") if messages else None,
    }
    if isinstance(lists["tools"], list) and not _count(lists["tools"]):
        # So that the prompt is the same whatever order they were found in.
        lists["tools"].sort(key=lambda tool: str((tool.get("toolSpec") or {}).get("name", "")))
    free = LIMIT - sum(map(_count, (lists["tools"], lists["system"], *(turn.get("content") for turn in messages))))
    notes: list[Note] = []
    for name, blocks in lists.items():
        if not isinstance(blocks, list) or not blocks or _is_point(blocks[-1]):
            continue
        if free <= 0:
            detail = f"cache point on {name}: left out, as a request takes {LIMIT} and the caller's own count"
            notes.append(Note(NoteCode.PARAMETER_DROPPED, detail))
            continue
        free -= 1
        blocks.append(cache_point(ttl))
    return notes


def _count(blocks: Iterable[Any] | None) -> int:
    return sum(1 for block in blocks or () if _is_point(block))


def _is_point(block: Any) -> bool:
    return isinstance(block, Mapping) and POINT in block
