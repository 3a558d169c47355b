"""Token counts of this dialect as disjoint buckets."""

from __future__ import annotations

from typing import Any

from isthmus.models.events import Note, NoteCode, Usage


def read_usage(raw: Any) -> tuple[Usage | None, list[Note]]:
    """The counts of a reply, and what was odd about them.

    Cached tokens, read and written, are part of the input's, reasoning tokens part of the output's. Counts that
    contradict each other are clamped, and noted. Source: the Responses API reference, 2026-11.
    """
    prompt, output = _count(raw, "input_tokens"), _count(raw, "output_tokens")
    if prompt is None and output is None:
        return None, []
    notes: list[Note] = []
    of_input, of_output = raw.get("input_tokens_details"), raw.get("output_tokens_details")
    read, write = _count(of_input, "cached_tokens"), _count(of_input, "cache_write_tokens")
    if prompt is not None and (read or 0) + (write or 0) > prompt:
        notes.append(_odd(f"{read or 0} cached and {write or 0} written of {prompt} input tokens"))
        read = None if read is None else min(read, prompt)
        write = None if write is None else min(write, prompt - (read or 0))
    reasoning, total = _count(of_output, "reasoning_tokens"), _count(raw, "total_tokens")
    if reasoning and prompt is not None and output is not None and total == prompt + output + reasoning:
        output += reasoning
    elif total is not None and prompt is not None and output is not None and total != prompt + output:
        notes.append(_odd(f"{total} tokens in all, but {prompt} input and {output} output tokens"))
    if reasoning is not None and output is not None and reasoning > output:
        notes.append(_odd(f"{reasoning} reasoning tokens of {output} output tokens"))
        reasoning = output
    usage = Usage(
        input_tokens=None if prompt is None else prompt - (read or 0) - (write or 0),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=reasoning,
        raw=raw,
    )
    return usage, notes


def _count(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _odd(detail: str) -> Note:
    return Note(NoteCode.USAGE_INCONSISTENT, detail)
