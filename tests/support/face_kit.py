"""Adapters that write one generating method each and say the same thing, and a way to hear each face."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, Finish, StepResult, Text, Usage
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent, ToolCallFunction
from isthmus.models.responses import ToolCall as ModelToolCall
from isthmus.models.responses import Usage as ModelUsage

LOOK = ToolSpec(
    name="look",
    description="Look something up.",
    parameters_schema={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
TOOL_DICTS = [{"name": "look", "description": "Look something up.", "input_schema": LOOK.parameters}]
HELLO = [{"role": "user", "content": "hi"}]
CTX = GenerateContext(messages=tuple(HELLO), tools=(LOOK,))


class Raw:
    """A stranger's native reply, with usage as attributes."""

    usage = SimpleNamespace(input_tokens=5, output_tokens=7)


def response() -> ChatResponse:
    """The reply of the chat-face adapters."""
    return ChatResponse("one two", [ToolCall("c1", "look", {"q": "x"})], "tool_use", Raw())


def model_response() -> ModelResponse:
    """The reply of the model-face adapters."""
    calls = [ModelToolCall(id="c1", function=ToolCallFunction("look", json.dumps({"q": "x"}, separators=(",", ":"))))]
    return ModelResponse(
        id="m",
        choices=[Choice(message=Message(content="one two", tool_calls=calls), finish_reason="tool_calls")],
        usage=ModelUsage(prompt_tokens=5, completion_tokens=7, total_tokens=12),
    )


class Streams(ModelAdapter):
    """Writes `stream`."""

    async def stream(self, ctx: Any) -> Any:
        yield Text("one ")
        yield Text("two")
        yield Call("look", {"q": "x"}, "c1", '{"q":"x"}')
        yield Finish("tool-calls", Usage(input_tokens=5, output_tokens=7))


class Generates(ModelAdapter):
    """Writes `generate`."""

    async def generate(self, ctx: Any) -> Any:
        events = (Text("one two"), Call("look", {"q": "x"}, "c1", '{"q":"x"}'))
        return StepResult(events=events, finish="tool-calls", usage=Usage(input_tokens=5, output_tokens=7))


class StreamsWithTools(ModelAdapter):
    """Writes `stream_with_tools`."""

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        yield "text", "one "
        yield "text", "two"
        yield "done", response()


class Chats(ModelAdapter):
    """Writes `chat`."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        return response()


class StreamsResponse(ModelAdapter):
    """Writes `stream_response`."""

    async def stream_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        yield ModelStreamEvent(kind="text_delta", text="one ")
        yield ModelStreamEvent(kind="text_delta", text="two")
        yield ModelStreamEvent(kind="completed", response=model_response())


class Responds(ModelAdapter):
    """Writes `get_response`."""

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return model_response()


WRITERS = {
    "stream": Streams,
    "generate": Generates,
    "stream_with_tools": StreamsWithTools,
    "chat": Chats,
    "stream_response": StreamsResponse,
    "get_response": Responds,
}
FACES = tuple(WRITERS)


def _step(result: StepResult) -> tuple[Any, ...]:
    usage = result.usage
    assert usage is not None
    calls = [(call.call_id, call.tool, call.input) for call in result.calls]
    return result.text, calls, result.finish, (usage.input_tokens, usage.output_tokens)


def _chat(reply: ChatResponse, streamed: str | None = None) -> tuple[Any, ...]:
    calls = [(call.id, call.name, call.input) for call in reply.tool_calls]
    finish = {"tool_use": "tool-calls", "end_turn": "stop"}[reply.stop_reason]
    usage = reply._raw.usage
    text = streamed if reply.text is None else reply.text
    return text, calls, finish, (usage.input_tokens, usage.output_tokens)


def _model(reply: ModelResponse) -> tuple[Any, ...]:
    message, usage = reply.choices[0].message, reply.usage
    assert usage is not None
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    finish = {"tool_calls": "tool-calls", "stop": "stop"}[reply.choices[0].finish_reason]
    return message.content, calls, finish, (usage.prompt_tokens, usage.completion_tokens)


async def heard(adapter: Any, face: str) -> tuple[Any, ...]:
    """What one face says: text, calls, finish, (input, output) tokens; a stream's pieces must join to its text."""
    if face == "stream":
        return _step(await adapter.stream(CTX).result())
    if face == "generate":
        return _step(await adapter.generate(CTX))
    if face == "stream_with_tools":
        pairs = [pair async for pair in adapter.stream_with_tools(HELLO, TOOL_DICTS)]
        streamed = "".join(value for kind, value in pairs if kind == "text")
        said = _chat(pairs[-1][1], streamed)
        assert streamed == said[0]
        return said
    if face == "chat":
        return _chat(await adapter.chat(HELLO, TOOL_DICTS))
    if face == "stream_response":
        shown = [event async for event in adapter.stream_response(HELLO, tools=TOOL_DICTS)]
        said = _model(shown[-1].response)
        assert "".join(event.text for event in shown if event.kind == "text_delta") == said[0]
        return said
    return _model(await adapter.get_response(HELLO, tools=TOOL_DICTS))
