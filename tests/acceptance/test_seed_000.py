"""What the page on custom adapters promises its author, held by an agent that runs his adapter."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus import Agent, Tools
from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall
from isthmus.errors import ChainExhausted
from isthmus.harness import Limits
from isthmus.harness.loop import CUT_OFF
from isthmus.models.events import Text

ASKS = ChatResponse(None, [ToolCall("t1", "look", {"q": "x"})], "tool_use")


class Gateway(ModelAdapter):
    """All four methods, as the page asks for them; answers from a list."""

    def __init__(self, *replies: ChatResponse, model: str = "m", max_tokens: int = 8192) -> None:
        self.model, self.max_tokens = model, max_tokens
        self.replies, self.seen, self.said = list(replies), [], []  # type: ignore[var-annotated]

    async def chat(self, messages: Any, tools: Any) -> ChatResponse:
        self.said.append("chat")
        self.seen.append((list(messages), tools))
        return self.replies.pop(0)

    async def stream_chat(self, messages: Any, tools: Any) -> Any:
        self.said.append("stream_chat")
        yield (await self.chat(messages, tools)).text

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        self.said.append("stream_with_tools")
        self.seen.append((list(messages), tools))
        response = self.replies.pop(0)
        for token in (response.text or "").split(" "):
            yield "text", token + " "
        yield "done", response

    def make_tool_turn(self, response: Any, results: Any) -> list[dict[str, Any]]:
        self.said.append("make_tool_turn")
        return [
            {"role": "assistant", "content": "asked", "ids": [call.id for call in response.tool_calls]},
            *({"role": "user", "content": f"{call.name} gave {output}"} for call, output in results),
        ]


class Whole(ModelAdapter):
    """Only `chat`; the base class streams it."""

    def __init__(self, *replies: ChatResponse) -> None:
        self.replies, self.seen = list(replies), []  # type: ignore[var-annotated]

    async def chat(self, messages: Any, tools: Any) -> ChatResponse:
        self.seen.append(list(messages))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def look(q: str) -> str:
    """Look something up."""
    return f"<{q}>"


def says(text: str, stop_reason: str = "end_turn") -> ChatResponse:
    """A reply without calls."""
    return ChatResponse(text, [], stop_reason)


async def test_a_turn_is_stream_with_tools_and_the_authors_own_tool_turn() -> None:
    """The loop streams with tools, runs them, and shows the results in the shape that the author's method made."""
    gateway = Gateway(ASKS, says("It is x."))
    result = await Agent(model=gateway, tools=[look]).run("Look up x.")
    assert result.text.strip() == "It is x."
    assert gateway.said == ["stream_with_tools", "make_tool_turn", "stream_with_tools"]
    (_, tools), (later, _) = gateway.seen
    assert [sorted(tool) for tool in tools] == [["description", "input_schema", "name"]]
    assert later[1:] == [
        {"role": "assistant", "content": "asked", "ids": ["t1"]},
        {"role": "user", "content": "look gave <x>"},
    ]


async def test_tokens_are_seen_as_they_come() -> None:
    """Each ("text", str) of the author is one text event of the run."""
    run = Agent(model=Gateway(says("one two three"))).run_stream("hi")
    assert [event.text async for event in run if isinstance(event, Text)] == ["one ", "two ", "three "]


@pytest.mark.parametrize("reason", ["tool_use", "end_turn", "stop", "max_tokens", "length", "whatever"])
async def test_calls_run_whatever_the_stop_reason(reason: str) -> None:
    """A reply with tool calls runs them; the exact stop reason changes nothing."""
    model = Whole(ChatResponse("a", [ToolCall("t1", "look", {"q": "x"})], reason), says("b"))
    result = await Agent(model=model, tools=[look]).run("hi")
    assert [message["content"] for message in result.messages if message["role"] == "tool"] == ["<x>"]


@pytest.mark.parametrize(
    "spelling",
    ["max_tokens", "length", "model_length", "max_output_tokens", "max_completion_tokens", "MAX_TOKENS", "Length"],
)
async def test_a_truncation_in_any_spelling_is_continued(spelling: str) -> None:
    """A reply cut by length goes on: its text and a short user turn are put behind, and the answer is one."""
    model = Whole(says("The answer is forty", spelling), says("-two."))
    result = await Agent(model=model).run("hi")
    assert (result.text, result.outcome.outcome) == ("The answer is forty-two.", "completed")
    assert [message["role"] for message in model.seen[1]] == ["user", "assistant", "user"]
    assert model.seen[1][1]["content"] == "The answer is forty"
    assert [message["role"] for message in result.messages] == ["user", "assistant"]


@pytest.mark.parametrize(("limits", "calls"), [(None, 4), (Limits(max_continuations=1), 2)])
async def test_continuations_end_with_a_visible_marker(limits: Limits | None, calls: int) -> None:
    """Three continuations unless configured otherwise, by the loop and not by the adapter; then the marker."""
    model = Whole(says("Word", "length"))
    result = await Agent(model=model, limits=limits).run("hi")
    assert len(model.seen) == calls
    assert result.text.endswith("(response was cut off at the output limit)")
    assert CUT_OFF not in result.messages[-1]["content"]


async def test_a_natural_end_ends_the_turn_without_a_marker() -> None:
    """What an adapter reports as its end is the end; a wrongly reported cut is nobody else's to find."""
    model = Whole(says("half an ans"))
    result = await Agent(model=model).run("hi")
    assert (result.text, len(model.seen), result.outcome.outcome) == ("half an ans", 1, "completed")


async def test_arguments_as_a_string_are_refused_with_the_remedy() -> None:
    """A call whose input is the raw JSON text is a breach that says to parse it, never a tool without arguments."""
    raw: Any = '{"q": "x"}'
    with pytest.raises(ChainExhausted, match=r"json\.loads"):
        await Agent(model=Whole(ChatResponse(None, [ToolCall("t1", "look", raw)], "tool_use")), tools=[look]).run("hi")


async def test_a_pure_tool_turn_has_no_text() -> None:
    """None for the text of a tool turn is no content of the transcript."""
    result = await Agent(model=Whole(ASKS, says("b")), tools=[look]).run("hi")
    assert result.messages[1]["content"] is None


async def test_the_messages_and_tools_of_a_call_are_the_authors_to_change() -> None:
    """F22: an author who empties and edits what he was given changes nothing of anybody else's."""

    class Edits(Whole):
        async def chat(self, messages: Any, tools: Any) -> ChatResponse:
            for message in messages:
                message["content"] = "edited"
            for tool in tools:
                tool["input_schema"].clear()
            messages.clear()
            return await super().chat(messages, tools)

    tools, history = Tools((look,)), [{"role": "user", "content": [{"type": "text", "text": "old"}]}]
    before = dict(tools.executable_tools[0].parameters)
    result = await Agent(model=Edits(says("a")), tools=tools).run("new", history)
    assert [message["content"] for message in result.messages] == [[{"type": "text", "text": "old"}], "new", "a"]
    assert history == [{"role": "user", "content": [{"type": "text", "text": "old"}]}]
    assert tools.executable_tools[0].parameters == before
