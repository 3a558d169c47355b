"""Token counts in this dialect's many spellings, as disjoint buckets."""

from __future__ import annotations

from typing import Any

from isthmus.adapters.openai_chat.merge import plain, replaced
from isthmus.models.events import Note, NoteCode, Usage

_WHOLE_NUMBERS = {int}
_USUAL = frozenset(("prompt_tokens", "completion_tokens", "total_tokens"))

# Where servers put each count, some of them one level down; the first one that is there wins.
# Source: recorded replies of 25 servers, 2024-2026.
_Places = tuple[tuple[str, str | None], ...]

_READ: _Places = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens", None),
    ("cache_read_input_tokens", None),
    ("num_cached_tokens", None),
    ("cached_tokens", None),
)
_WRITE: _Places = (("prompt_tokens_details", "cache_write_tokens"), ("cache_creation_input_tokens", None))
_WRITE_1H: _Places = (("cache_creation", "ephemeral_1h_input_tokens"),)
_REASONING: _Places = (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens", None))
_PROMPT: _Places = (("prompt_tokens", None), ("input_tokens", None))
_OUTPUT: _Places = (("completion_tokens", None), ("output_tokens", None))


def merge_usage(old: dict[str, Any] | None, new: Any) -> dict[str, Any] | None:
    """The usage object after a further one: later counts replace earlier ones, null says nothing (F04)."""
    if not isinstance(new, dict):
        return old
    if not old and _plain_counts(new):
        return new
    merged = dict(old or {})
    for name, value in new.items():
        merged[name] = replaced(merged.get(name), value)
    return merged


def _plain_counts(counts: dict[str, Any]) -> bool:
    """Whether an object holds nothing but whole numbers, so that nothing in it has two forms."""
    return set(map(type, counts.values())) == _WHOLE_NUMBERS


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _find(raw: dict[str, Any], places: _Places) -> int | None:
    for name, inner in places:
        value = raw.get(name)
        if inner is not None and value is not None:
            value = value.get(inner) if type(value) is dict else None
        if value is not None and (count := _count(value)) is not None:
            return count
    return None


def _usual(held: dict[str, Any]) -> Usage | None:
    """The usage in three counts that add up, as many servers write it; None for any other."""
    if held.keys() != _USUAL or not _plain_counts(held):
        return None
    prompt, output = held["prompt_tokens"], held["completion_tokens"]
    fit = prompt >= 0 and output >= 0 and held["total_tokens"] == prompt + output
    return Usage(input_tokens=prompt, output_tokens=output, raw=held) if fit else None


def read_usage(held: dict[str, Any] | None) -> tuple[Usage | None, list[Note]]:
    """The counts of a reply, and what was odd about them.

    Cached tokens are part of the prompt's, reasoning tokens part of the output's; where the total shows that a server
    counts reasoning apart it is added to the output. Counts that contradict each other are clamped, and noted.
    """
    if not held:
        return None, []
    usual = _usual(held)
    if usual is not None:
        return usual, []
    raw = held if _plain_counts(held) else plain(held)
    notes: list[Note] = []
    prompt, output = _find(raw, _PROMPT), _find(raw, _OUTPUT)
    read, write = _find(raw, _READ), _find(raw, _WRITE)
    if prompt is None and output is None and read is None:
        return None, []
    if prompt is not None and (read or 0) + (write or 0) > prompt:
        notes.append(_odd(f"{read or 0} cached and {write or 0} written of {prompt} prompt tokens"))
        read = None if read is None else min(read, prompt)
        write = None if write is None else min(write, prompt - (read or 0))
    reasoning, output = _output(raw, prompt, output, notes)
    usage = Usage(
        input_tokens=None if prompt is None else prompt - (read or 0) - (write or 0),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=None if not write else _find(raw, _WRITE_1H),
        reasoning_tokens=reasoning,
        raw=raw,
    )
    return usage, notes


def _output(
    raw: dict[str, Any], prompt: int | None, output: int | None, notes: list[Note]
) -> tuple[int | None, int | None]:
    """Reasoning and output tokens, the first part of the second."""
    reasoning, total = _find(raw, _REASONING), _count(raw.get("total_tokens"))
    if output is None or prompt is None:
        return reasoning, output
    apart = total is not None and reasoning and total == prompt + output + reasoning
    if reasoning and (apart or (total is None and reasoning > output)):
        return reasoning, output + reasoning
    if total is not None and total != prompt + output:
        notes.append(_odd(f"{total} tokens in all, but {prompt} prompt and {output} completion tokens"))
    if reasoning is not None and reasoning > output:
        notes.append(_odd(f"{reasoning} reasoning tokens of {output} completion tokens"))
        reasoning = output
    return reasoning, output


def _odd(detail: str) -> Note:
    return Note(NoteCode.USAGE_INCONSISTENT, detail)
