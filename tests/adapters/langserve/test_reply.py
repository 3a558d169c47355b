"""Corners of reading an output: spellings of reasoning, of tokens, and what a message holds beside its text."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.chat import usage_of
from isthmus.adapters.langserve.reply import entries, kept, read, reasonings
from isthmus.models.events import Reasoning
from support.langserve_frames import message


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "thinking", "thinking": "Hm", "signature": "s"}, Reasoning("Hm", signature="s")),
        ({"type": "reasoning", "reasoning": "Hm"}, Reasoning("Hm")),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}, Reasoning("Hm")),
        (
            {"type": "reasoning_content", "reasoning_content": {"text": "Hm", "signature": "s"}},
            Reasoning("Hm", signature="s"),
        ),
        ({"type": "redacted_thinking", "data": "x"}, Reasoning(encrypted="x")),
    ],
)
def test_reasoning_is_read_in_every_spelling(block: dict[str, Any], expected: Reasoning) -> None:
    """F03: the blocks of each provider's integration are reasoning, and the message that holds them is kept."""
    assert list(reasonings(message([block]))) == [expected]
    assert kept(message([block])) is not None


def test_a_block_without_reasoning_tells_none() -> None:
    """A block that says nothing and is not signed is no event."""
    assert not list(reasonings(message([{"type": "thinking", "thinking": ""}, {"type": "reasoning", "summary": []}])))


def test_reasoning_beside_the_content_is_read() -> None:
    """Older integrations put it into `additional_kwargs`."""
    assert list(reasonings(message("Hi", additional_kwargs={"reasoning_content": "Hm"}))) == [Reasoning("Hm")]


def test_a_plain_message_needs_no_native_form() -> None:
    """Text, or blocks of text alone, are said in full by the neutral message."""
    assert kept(message("Hi")) is None
    assert kept(message([{"type": "text", "text": "Hi", "index": 0}, "you"])) is None
    assert kept(message([{"type": "text", "text": "Hi", "citations": [{"n": 1}]}])) is not None
    assert kept(message("Hi", additional_kwargs={"refusal": "no"})) is not None


def test_tokens_that_are_counted_apart_are_not_made_negative() -> None:
    """F19: cached tokens beyond the sum mean that the integration counts them apart."""
    usage = {"input_tokens": 3, "output_tokens": 1, "input_token_details": {"cache_read": 8}}
    found = usage_of({"usage": read(message("Hi", usage_metadata=usage)).usage})
    assert found is not None
    assert (found.input_tokens, found.cache_read_tokens) == (3, 8)


def test_cache_writes_are_read_by_lifetime_too() -> None:
    """Newer integrations split the writes: their sum counts."""
    into = {"cache_read": 0, "cache_creation": 0, "ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 2}
    usage = {"input_tokens": 10, "output_tokens": 1, "input_token_details": into}
    found = usage_of({"usage": read(message("Hi", usage_metadata=usage)).usage})
    assert found is not None
    assert (found.input_tokens, found.cache_write_tokens) == (4, 6)


@pytest.mark.parametrize(
    "said",
    [{"token_usage": {"prompt_tokens": 5, "completion_tokens": 2}}, {"usage": {"input_tokens": 5, "output_tokens": 2}}],
)
def test_tokens_are_found_in_the_metadata_of_older_servers(said: dict[str, Any]) -> None:
    """Where a message has no `usage_metadata`, the response's own numbers count."""
    found = usage_of({"usage": read(message("Hi", response_metadata=said)).usage})
    assert found is not None
    assert (found.input_tokens, found.output_tokens) == (5, 2)


def test_the_written_arguments_go_before_the_parsed_ones() -> None:
    """Pieces, then the provider's own calls, then what LangChain made of them."""
    guess = {"name": "f", "args": {"x": 1}, "id": "c"}
    piece = {"name": "f", "args": '{"x": 1}', "id": "c", "index": 0}
    raw = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{ "x":1 }'}}
    texts = [
        entries(message(tool_calls=[guess], **more))
        for more in ({"tool_call_chunks": [piece]}, {"additional_kwargs": {"tool_calls": [raw]}}, {})
    ]
    assert [(found[0]["function"]["arguments"], written) for found, written in texts] == [
        ('{"x": 1}', True),
        ('{ "x":1 }', True),
        ('{"x":1}', False),
    ]


@pytest.mark.parametrize("output", [None, 5, [], {}, {"messages": []}, {"generations": []}, {"content": None}, True])
def test_reading_never_fails(output: object) -> None:
    """Whatever an output is, reading it gives an answer."""
    assert read(output).usage == {}
