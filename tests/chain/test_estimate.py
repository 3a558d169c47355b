"""The estimate of tokens: cheap, steady, and blind to what is not sent."""

from __future__ import annotations

import pytest

from isthmus.chain.context import render
from isthmus.chain.estimate import MEDIA_TOKENS, estimate_sections, estimated_tokens, message_tokens
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.internal import internal_message
from support.transcripts import blocks, call, items, result, user


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語", 3), ("\ud800", 1)]
)
def test_four_bytes_are_a_token(text: str, tokens: int) -> None:
    """One token for four bytes of UTF-8, rounded up, whatever the text."""
    assert estimated_tokens(text) == tokens


def test_an_image_counts_by_the_piece() -> None:
    """An image costs the same however many bytes it has, in any spelling, in a tool's result too."""
    url = "data:image/png;base64," + "iVBORw0KGgo" * 40_000
    image = {"type": "image_url", "image_url": {"url": url}}
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url[22:]}}
    for part in (image, block):
        message = {"role": "user", "content": [{"type": "text", "text": "look"}, part]}
        assert MEDIA_TOKENS < message_tokens(message) < MEDIA_TOKENS + 20
    assert MEDIA_TOKENS < message_tokens({**result("1"), "content": [block]}) < MEDIA_TOKENS + 30


def test_marks_that_nobody_is_sent_do_not_count() -> None:
    """An internal message counts as the same message without its mark."""
    assert message_tokens(internal_message(user("x" * 40), origin="o" * 400)) == message_tokens(user("x" * 40))


def test_a_native_form_counts_in_place_of_the_projection() -> None:
    """A message with a native form has the tokens of that form, which is what is sent."""
    native = {"dialect": "d", "of": "f", "json": '{"thinking": "' + "t" * 400 + '"}'}
    assert message_tokens({"role": "assistant", "content": "x", "_isthmus": {"native": native}}) > 100


@pytest.mark.parametrize(
    "messages", [[call("1"), result("1", "r" * 400)], blocks("1", "r" * 400), items("1", "r" * 400)]
)
def test_calls_and_results_count_alike_in_any_spelling(messages: list[dict[str, object]]) -> None:
    """The same call and result have about the same tokens however they are spelled."""
    assert 100 < sum(map(message_tokens, messages)) < 145


def test_a_request_counts_part_by_part() -> None:
    """Instructions, tools and messages are counted apart, and a counter of one's own is used for all of them."""
    tool = ToolSpec(name="look", description="d" * 100)
    ctx = GenerateContext(brief="b" * 40, tools=(tool,), messages=(user("u" * 80),))
    sections = estimate_sections(ctx)
    assert (sections.brief, sections.messages) == (10, (24,))
    assert 25 < sections.tools < 60
    assert sections.total == sections.brief + sections.tools + 24
    assert estimate_sections(ctx, len).messages == (84,)
    assert render(ctx, window=None, ceiling=None, estimate=len)[1].brief == 40
