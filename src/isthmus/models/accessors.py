"""Typed views of what replies and events carry in a provider's own shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.models.enums import ReasoningPhase
from isthmus.models.jsontext import loads
from isthmus.wire.frame import Frame

# The Responses API reference, 2026-11: an output message carries its phase from the event that adds it.
_ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The tokens of one reply.

    Args:
        prompt_tokens: uncached input, cache reads and cache writes together.
        completion_tokens: the output, reasoning included.
        total_tokens: both.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def get_usage_totals(response: Any) -> UsageTotals | None:
    """The tokens of a reply; None where nobody said, which is not zero.

    Args:
        response: a `ModelResponse`, any object or dict of its shape, a `StepResult`, or None.
    """
    usage = member(response, "usage")
    prompt = _count(usage, "prompt_tokens")
    output = _count(usage, "completion_tokens")
    output = _count(usage, "output_tokens") if output is None else output
    if prompt is None or output is None:
        return None
    total = _count(usage, "total_tokens")
    return UsageTotals(prompt, output, prompt + output if total is None else total)


def get_reasoning_phase(event: Any) -> ReasoningPhase | None:
    """Whether an output message comments or answers, as the Responses API says it.

    Never raises: an event that adds or completes no message, and a phase that is absent or unknown, give None.

    Args:
        event: a `ModelStreamEvent`; its `raw` is an SDK's event, a dict, or an undecoded frame.
    """
    raw = member(event, "raw")
    if isinstance(raw, Frame):
        raw = _decoded(raw)
    item = member(raw, "item")
    if not _among(member(raw, "type"), _ITEM_EVENTS) or not _among(member(item, "type"), {"message"}):
        return None
    phase = member(item, "phase")
    return ReasoningPhase(phase) if _among(phase, set(ReasoningPhase)) else None


def member(value: Any, name: str) -> Any:
    """A member of a mapping, or an attribute of anything else; None where there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _among(value: Any, known: frozenset[str] | set[Any]) -> bool:
    return isinstance(value, str) and value in known


def _count(usage: Any, name: str) -> int | None:
    value = member(usage, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _decoded(frame: Frame) -> Any:
    if b"output_item" not in frame.data and "output_item" not in frame.event:
        return None
    try:
        event = loads(frame.data)
    except (ValueError, RecursionError):
        return None
    named = isinstance(event, Mapping) and "type" not in event
    return {**event, "type": frame.event} if named else event
