"""The types of the chat face: a reply, a tool call, and what a reply's native object says about tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.models.events import StepResult, Usage


@dataclass
class ToolCall:
    """One tool call that the model wants run.

    Args:
        id: the id that its result must carry.
        name: the tool's name.
        input: the parsed arguments: a dict, never a JSON string.
    """

    id: str
    name: str
    input: dict[str, Any]


@dataclass
class ChatResponse:
    """One reply of the chat face.

    Args:
        text: the assistant's text, or None on a pure tool turn.
        tool_calls: the calls the model wants run; may be empty.
        stop_reason: why the model stopped: "tool_use", "max_tokens" (any spelling), "end_turn", …
        _raw: the provider's own reply; its `usage` is read by attribute or key.
    """

    text: str | None
    tool_calls: list[ToolCall]
    stop_reason: str
    _raw: Any = field(default=None, repr=False)


def peek(value: Any, name: str) -> Any:
    """A member of a mapping, or an attribute of anything else; None where there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: Any, *names: str) -> int | None:
    for name in names:
        value = peek(usage, name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def usage_of(raw: Any) -> Usage | None:
    """The tokens that a native reply reports in its `usage`, by attribute or key, in every spelling in use.

    Where the prompt is counted the Chat Completions way (with `prompt_tokens_details`), cached tokens are taken out of
    it; elsewhere the counts are disjoint already. What is no whole number counts as not said.

    Args:
        raw: the provider's reply: an object, a dict, or None.
    """
    if isinstance(raw, StepResult):
        return raw.usage
    usage = peek(raw, "usage") if raw is not None else None
    if usage is None or isinstance(usage, Usage):
        return usage
    prompt = _count(usage, "input_tokens", "prompt_tokens", "inputTokens")
    details = next((d for n in ("prompt_tokens_details", "input_tokens_details") if (d := peek(usage, n))), None)
    read = _count(usage, "cache_read_input_tokens", "cache_read_tokens", "cacheReadInputTokens", "cacheReadTokens")
    write = _count(
        usage, "cache_creation_input_tokens", "cache_write_tokens", "cacheWriteInputTokens", "cacheWriteTokens"
    )
    if details is not None:
        read = _count(details, "cached_tokens") if read is None else read
        write = _count(details, "cache_write_tokens") if write is None else write
        prompt = None if prompt is None else max(0, prompt - (read or 0) - (write or 0))
    spent = next((d for n in ("completion_tokens_details", "output_tokens_details") if (d := peek(usage, n))), None)
    found = Usage(
        input_tokens=prompt,
        output_tokens=_count(usage, "output_tokens", "completion_tokens", "outputTokens"),
        cache_read_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=_count(details, "cache_write_1h_tokens")
        if details is not None
        else _count(peek(usage, "cache_creation"), "ephemeral_1h_input_tokens"),
        reasoning_tokens=None if spent is None else _count(spent, "reasoning_tokens"),
        estimated=peek(usage, "estimated") is True,
        raw=own if isinstance(own := peek(usage, "raw"), Mapping) else plain(usage)[0],
    )
    return None if found == Usage(raw=found.raw) else found


def plain(value: Any) -> tuple[Any, bool]:
    """The value and True if it is plain JSON, so that saving and loading gives it back; else None and False."""
    return (value, True) if _is_plain(value, 0) else (None, False)


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if value is None or kind in (str, bool, int):
        return True
    if depth > 64:
        return False
    if kind is float:
        return bool(value - value == 0)
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return all(type(key) is str and _is_plain(item, depth + 1) for key, item in value.items())
    return False
