"""The names of a finish on the three faces."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.models.events import FinishReason
from isthmus.models.finish import CHAT_NAMES, MODEL_NAMES, finish_of, is_output_truncation, is_unreadable

TRUNCATIONS = [
    "max_tokens",
    "length",
    "model_length",
    "max_output_tokens",
    "max_completion_tokens",
    "MAX_TOKENS",
    " Length ",
    "maxTokens",
    "max tokens",
    "max-output-tokens",
    "model_context_window_exceeded",
]


@pytest.mark.parametrize("reason", TRUNCATIONS)
def test_every_spelling_of_a_truncation_is_one(reason: str) -> None:
    """Case, spaces and separators don't matter."""
    assert is_output_truncation(reason)
    assert finish_of(reason) == "length"


@pytest.mark.parametrize("reason", [None, "", "  ", "end_turn", "stop", "tool_use", "refusal", 3, b"length"])
def test_nothing_else_is_a_truncation(reason: Any) -> None:
    """None, nothing and every other reason are none."""
    assert not is_output_truncation(reason)


@pytest.mark.parametrize(
    ("finish", "chat", "model"),
    [
        ("stop", "end_turn", "stop"),
        ("tool-calls", "tool_use", "tool_calls"),
        ("length", "max_tokens", "length"),
        ("content-filter", "content_filter", "content_filter"),
        ("refusal", "refusal", "stop"),
        ("pause", "pause_turn", "stop"),
        ("other", "end_turn", "stop"),
    ],
)
def test_the_table_of_names(finish: str, chat: str, model: str) -> None:
    """Each finish has one name a face, and is read back from it where the name is its own."""
    assert CHAT_NAMES[finish] == chat
    assert MODEL_NAMES[finish] == model
    if finish != "other":
        assert finish_of(chat) == finish
    if model != "stop":
        assert finish_of(model) == finish


def test_error_post_has_no_name_on_the_other_faces() -> None:
    """A failure is raised there; every other finish has a name."""
    assert set(CHAT_NAMES) == set(MODEL_NAMES) == set(FinishReason) - {"error-post"}


def test_an_unknown_reason_is_other() -> None:
    """What nobody knows, and nothing at all, is "other"."""
    assert finish_of("tired") == finish_of("") == finish_of(None) == "other"


@pytest.mark.parametrize(
    ("reason", "unreadable"),
    [
        ("malformed_tool_use", True),
        ("MALFORMED_FUNCTION_CALL", True),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", True),
        ("unexpectedToolCall", True),
        ("tool_use", False),
        ("content_filter: SAFETY", False),
        ("", False),
        (None, False),
    ],
)
def test_reasons_that_say_that_there_is_no_reply(reason: str | None, unreadable: bool) -> None:
    """F01: what the server could not read of a model's output is told from every other reason, in any spelling."""
    assert is_unreadable(reason) == unreadable
