"""F04, F11: token counts in every spelling, as disjoint buckets."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.models.events import NoteCode, Usage
from support.chat_frames import chunk, sse, step, whole


def _usage(raw: Any) -> Usage | None:
    message = {"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}
    complete = whole({"choices": [message], "usage": raw})
    streamed = step([sse(chunk({"content": "Hi"}), chunk(finish="stop"), {"choices": [], "usage": raw})])
    assert complete.usage == streamed.usage
    assert [note for note in complete.notes if note.code == NoteCode.USAGE_INCONSISTENT] == [
        note for note in streamed.notes if note.code == NoteCode.USAGE_INCONSISTENT
    ]
    return complete.usage


ROWS: list[tuple[dict[str, Any], tuple[int | None, int | None, int | None, int | None, int | None]]] = [
    ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, (10, None, None, 5, None)),
    (
        {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}},
        (86, 1920, None, 300, None),
    ),
    (
        {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        (36, 64, None, 1, None),
    ),
    ({"prompt_tokens": 10, "completion_tokens": 1, "num_cached_tokens": 4}, (6, 4, None, 1, None)),
    (
        {
            "prompt_tokens": 100,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 30},
        },
        (60, 10, 30, 1, None),
    ),
    (
        {
            "prompt_tokens": 100,
            "completion_tokens": 1,
            "cache_read_input_tokens": 10,
            "cache_creation_input_tokens": 30,
        },
        (60, 10, 30, 1, None),
    ),
    (
        {
            "prompt_tokens": 9,
            "completion_tokens": 20,
            "total_tokens": 29,
            "completion_tokens_details": {"reasoning_tokens": 15},
        },
        (9, None, None, 20, 15),
    ),
    (
        {
            "prompt_tokens": 9,
            "completion_tokens": 20,
            "total_tokens": 44,
            "completion_tokens_details": {"reasoning_tokens": 15},
        },
        (9, None, None, 35, 15),
    ),
    ({"prompt_tokens": 9, "completion_tokens": 2, "reasoning_tokens": 7}, (9, None, None, 9, 7)),
    ({"prompt_tokens": None, "completion_tokens": 7}, (None, None, None, 7, None)),
    ({"prompt_tokens": 9.0, "completion_tokens": 7}, (9, None, None, 7, None)),
    ({"prompt_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None}, (9, None, None, 0, None)),
]


@pytest.mark.parametrize(("raw", "expected"), ROWS)
def test_buckets_are_disjoint(raw: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    """F11: cached and written tokens are taken out of the input, reasoning is part of the output."""
    seen = _usage(raw)
    assert seen is not None
    buckets = (seen.input_tokens, seen.cache_read_tokens, seen.cache_write_tokens)
    assert (*buckets, seen.output_tokens, seen.reasoning_tokens) == expected
    assert seen.raw == raw


@pytest.mark.parametrize("raw", [None, {}, {"prompt_tokens": None, "completion_tokens": None}, "many", 7])
def test_missing_usage_is_noted(raw: Any) -> None:
    """F04: usage that is absent, empty, null or nonsense is None, not zero, and noted."""
    seen = whole({"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": raw})
    assert seen.usage is None
    assert NoteCode.USAGE_MISSING in [note.code for note in seen.notes]


@pytest.mark.parametrize(
    ("raw", "prompt", "output", "reasoning"),
    [
        ({"prompt_tokens": 29, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 157}}, 29, 6, None),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 16,
                "total_tokens": 25,
                "completion_tokens_details": {"reasoning_tokens": 19},
            },
            *(9, 16, 16),
        ),
        ({"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}, 35, 12, None),
    ],
)
def test_counts_that_contradict_are_clamped_and_noted(
    raw: dict[str, Any], prompt: int, output: int, reasoning: int | None
) -> None:
    """F11: contradicting counts never make a bucket negative or the parts larger than the sum, and are noted."""
    seen = whole({"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": raw})
    assert seen.usage is not None
    assert (seen.usage.prompt_tokens, seen.usage.output_tokens, seen.usage.reasoning_tokens) == (
        prompt,
        output,
        reasoning,
    )
    assert min(seen.usage.input_tokens or 0, seen.usage.cache_read_tokens or 0) >= 0
    assert NoteCode.USAGE_INCONSISTENT in [note.code for note in seen.notes]


def test_later_counts_replace_earlier_ones_field_by_field() -> None:
    """F04, F11: usage from any chunk counts, the latest number of each field wins, null takes nothing back, no sums."""
    body = sse(
        chunk({"content": "H"}, usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}),
        chunk({"content": "i"}, usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}),
        chunk(finish="stop", usage={"prompt_tokens": None, "completion_tokens": 3}),
        chunk(usage=None),
    )
    seen = step([body]).usage
    assert seen is not None
    assert (seen.input_tokens, seen.output_tokens) == (5, 3)


def test_usage_in_the_servers_own_field() -> None:
    """F04: usage in `x_groq`, with or without choices, is read and isn't kept twice."""
    counts = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    body = sse(chunk({"content": "Hi"}), chunk(finish="stop"), {"choices": [], "x_groq": {"id": "r", "usage": counts}})
    seen = step([body])
    assert seen.usage is not None
    assert seen.usage.raw == counts
    assert [item.payload for item in seen.native] == [{"id": "r"}]
