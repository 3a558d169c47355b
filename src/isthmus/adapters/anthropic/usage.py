"""What a reply of this dialect cost, and why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.models.events import FinishReason, Usage

FINISHES: Mapping[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
}
"""Stop reasons of the Messages API, 2026-11; any other is "other", its own word kept."""


def merge_usage(seen: dict[str, Any], snapshot: Any) -> None:
    """Take a later usage snapshot: each field that it states replaces the earlier one."""
    if isinstance(snapshot, Mapping):
        seen.update({key: value for key, value in snapshot.items() if value is not None})


def to_usage(raw: Mapping[str, Any]) -> Usage | None:
    """The disjoint buckets of a merged usage object, or None where there was none.

    Counts of the Messages API (2026-11): `input_tokens` is uncached already, `output_tokens` includes thinking.
    """
    if not raw:
        return None
    return Usage(
        input_tokens=_count(raw, "input_tokens"),
        output_tokens=_count(raw, "output_tokens"),
        cache_read_tokens=_count(raw, "cache_read_input_tokens"),
        cache_write_tokens=_count(raw, "cache_creation_input_tokens"),
        cache_write_1h_tokens=_count(raw.get("cache_creation"), "ephemeral_1h_input_tokens"),
        reasoning_tokens=_count(raw.get("output_tokens_details"), "thinking_tokens"),
        raw=dict(raw),
    )


def _count(holder: Any, name: str) -> int | None:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if whole else None
