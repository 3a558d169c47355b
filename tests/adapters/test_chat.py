"""The types of the chat face, and usage in every spelling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.chat import ChatResponse, plain, usage_of
from isthmus.models.events import StepResult, Usage


def test_a_reply_hides_its_raw() -> None:
    """The native object is no part of the repr, and optional."""
    assert "SECRET" not in repr(ChatResponse("x", [], "stop", "SECRET"))
    assert ChatResponse("x", [], "stop")._raw is None


def counts(usage: Usage | None) -> Any:
    """The four buckets that a chat-face reply may report."""
    assert usage is not None
    return usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens


ANTHROPIC = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 6}
CHAT = {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 7}}
BEDROCK = {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 6}


@pytest.mark.parametrize("wrap", [lambda usage: {"usage": usage}, lambda usage: SimpleNamespace(usage=usage)])
@pytest.mark.parametrize("inner", [dict, lambda usage: SimpleNamespace(**usage)])
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (ANTHROPIC, (3, 4, 5, 6)),
        (BEDROCK, (3, 4, 5, 6)),
        (CHAT, (3, 4, 7, None)),
        ({"prompt_tokens": 3, "completion_tokens": 0}, (3, 0, None, None)),
        ({"input_tokens": "3", "output_tokens": True, "cache_read_input_tokens": 1}, (None, None, 1, None)),
    ],
)
def test_usage_is_read_by_attribute_or_key_in_every_spelling(wrap: Any, inner: Any, usage: Any, expected: Any) -> None:
    """F11: disjoint buckets; cached tokens leave a prompt that holds them; what is no count is not said."""
    assert counts(usage_of(wrap(inner(usage)))) == expected


@pytest.mark.parametrize(
    "raw", [None, {}, {"usage": None}, {"usage": {}}, object(), "text", {"usage": {"input_tokens": -1}}]
)
def test_no_usage_is_none(raw: Any) -> None:
    """Missing usage stays None, never zeros."""
    assert usage_of(raw) is None


def test_our_own_reply_gives_its_usage() -> None:
    """A StepResult's usage is taken as it is."""
    usage = Usage(input_tokens=1)
    assert usage_of(StepResult(usage=usage)) is usage


@pytest.mark.parametrize("value", [None, "a", 1, 1.5, True, [1, {"a": None}], {"a": [1]}])
def test_plain_json_is_told_from_the_rest(value: Any) -> None:
    """Only what JSON gives back equal is plain."""
    assert plain(value) == (value, True)


@pytest.mark.parametrize("value", [object(), (1,), {1: 2}, b"x", float("nan"), [object()], {"a": {1}}])
def test_what_json_would_change_is_not_plain(value: Any) -> None:
    """Tuples, odd keys, bytes and numbers that are none are not."""
    assert plain(value) == (None, False)
