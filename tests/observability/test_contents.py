"""What was said, cut to size and looked at by a hook."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.adapters.base import ModelAdapter
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, Text
from isthmus.models.tools import Tool
from isthmus.observability import contents
from isthmus.observability.contents import View
from support.telemetry import traced

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))
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


@pytest.mark.parametrize(
    ("finish", "word"),
    [("stop", "stop"), ("length", "length"), ("tool-calls", "tool_call"), ("content-filter", "content_filter")],
)
async def test_a_reply_is_in_the_form_that_the_conventions_publish(finish: str, word: str) -> None:
    """Each message has role, parts and a finish reason in their words, also where an adapter says the text itself."""

    class Saying(ModelAdapter):
        model = "m"

        async def stream(self, ctx: Any) -> Any:
            yield Text("hi")
            if finish == "tool-calls":
                yield Call("look", {"q": "x"}, "c1")
            yield Finish(finish)

    with traced(capture_content=True) as seen:
        await Saying().generate(ASK)
        (message,) = json.loads(seen.one("chat")["gen_ai.output.messages"])
    assert (message["role"], message["finish_reason"]) == ("assistant", word)
    assert message["parts"][0] == {"type": "text", "content": "hi"}
    if finish == "tool-calls":
        assert message["parts"][1] == {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"q": "x"}}
    (spoken,) = json.loads(contents.spoken("hi", View(capture=True)))
    assert set(spoken) == {"role", "parts", "finish_reason"}


def test_every_definition_of_a_tool_has_what_the_conventions_require() -> None:
    """Type, name and description are texts, also where nobody described it."""
    tool = Tool(name="bare", handler=lambda args: "x")
    ctx = GenerateContext(messages=ASK.messages, tools=(tool,))
    (told,) = json.loads(contents.asked(ctx, View(capture=True))["gen_ai.tool.definitions"])
    assert (told["type"], told["name"], type(told["description"])) == ("function", "bare", str)
