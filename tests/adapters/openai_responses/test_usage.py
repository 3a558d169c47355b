"""Token counts as disjoint buckets."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.openai_responses.usage import read_usage


@pytest.mark.parametrize("raw", [None, {}, [], "x", {"input_tokens": None, "output_tokens": "many"}])
def test_what_says_nothing_is_no_usage(raw: Any) -> None:
    """Missing and unreadable counts are None, not zero."""
    assert read_usage(raw) == (None, [])


def test_cache_reads_and_writes_are_apart_from_the_input() -> None:
    """The three input buckets add up to what the provider counts as input."""
    details = {"cached_tokens": 30, "cache_write_tokens": 20}
    usage, notes = read_usage({"input_tokens": 100, "input_tokens_details": details, "output_tokens": 5})
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (50, 30, 20)
    assert usage.prompt_tokens == 100
    assert notes == []


def test_reasoning_that_is_counted_apart_is_added_to_the_output() -> None:
    """Where only the sum with reasoning gives the total, the output is both."""
    details = {"reasoning_tokens": 7}
    usage, _ = read_usage(
        {"input_tokens": 10, "output_tokens": 3, "output_tokens_details": details, "total_tokens": 20}
    )
    assert usage is not None
    assert (usage.output_tokens, usage.reasoning_tokens) == (10, 7)


@pytest.mark.parametrize(
    "raw",
    [
        {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}, "output_tokens": 1},
        {"input_tokens": 5, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 4}},
        {"input_tokens": 5, "output_tokens": 1, "total_tokens": 60},
    ],
)
def test_counts_that_contradict_each_other_are_noted_and_never_negative(raw: dict[str, Any]) -> None:
    """Parts that are more than their whole are clamped, with a note."""
    usage, notes = read_usage(raw)
    assert usage is not None
    assert len(notes) == 1
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.reasoning_tokens)
    assert all(count is None or count >= 0 for count in counts)
