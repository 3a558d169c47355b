"""What was said, cut to size and looked at by a hook."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.observability import contents
from isthmus.observability.contents import View

TEXTS = ["a", "é", "😀", "👨‍👩‍👧", "\x00", '"', "\\"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("limit", [100, 999, 16_384])
def test_a_message_that_is_too_long_fills_what_it_may(text: str, limit: int) -> None:
    """It stays JSON whatever its characters take there, within the limit, and a good part of that is used."""
    view = View(capture=True, limit=limit)
    sent = view.sent({"gen_ai.input.messages": contents.messages([{"role": "user", "content": text * 20_000}], view)})
    shown = sent["gen_ai.input.messages"]
    ((part,),) = (message["parts"] for message in json.loads(shown))
    assert len(shown) <= limit
    assert text[0] in part["content"]
    assert len(shown) > limit * 0.45


def test_the_last_messages_are_kept_whole_before_others() -> None:
    """Of many, as many of the last as fit."""
    view = View(capture=True, limit=300)
    told = [{"role": "user", "content": f"{number}" * 30} for number in range(9)]
    assert [each["parts"][0]["content"][0] for each in json.loads(contents.messages(told, view))] == ["6", "7", "8"]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_limit_holds_however_small(limit: int) -> None:
    """Nothing is nothing."""
    sent = View(capture=True, limit=limit).sent({"gen_ai.tool.call.result": "hello there"})
    assert len(sent["gen_ai.tool.call.result"]) == limit


@pytest.mark.parametrize("made", [5, b"x", None, ["x"], "", "x" * 100_000])
def test_whatever_a_hook_returns_is_no_more_than_a_text_of_the_size_allowed(made: Any) -> None:
    """No text is nothing, a long one is cut, and a span has a name all the same."""
    view = View(capture=True, limit=50, redact=lambda name, text: made)
    sent = view.sent({"gen_ai.tool.call.result": "hello", "custom": "hello", "list": ["a", "b"]})
    assert len(sent.get("gen_ai.tool.call.result", "")) <= 50
    assert len(str(sent)) < 9000
    assert 0 < len(view.title("chat m")) <= contents.MOST_CHARS
