"""Right adapters of each face, whose parts a test replaces one at a time; and the client that they share."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall, is_output_truncation
from isthmus.models.events import Call, CallDelta, Finish, StepResult, Text, Usage
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent, ToolCallFunction
from isthmus.models.responses import ToolCall as ModelToolCall
from isthmus.models.responses import Usage as ModelUsage

TOOLS = [
    {
        "name": "look_up",
        "description": "Look something up.",
        "input_schema": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "deep": {"type": "object"}},
            "required": ["query"],
        },
    },
    {"name": "add_note", "description": "Keep a note.", "input_schema": {"type": "object", "properties": {}}},
]


class GatewayError(Exception):
    """What the client raises on an error status."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(f"{status_code}: {message}")
        self.status_code = status_code


class Client:
    """A gateway that answers by itself; `mode` makes it misbehave."""

    def __init__(self, mode: str = "plain") -> None:
        self.mode = mode
        self.sent: list[dict[str, Any]] = []
        self.open = 0

    async def send(self, **request: Any) -> dict[str, Any]:
        """One reply: pieces of text, calls (id, name, arguments as JSON), a finish reason, usage."""
        self.sent.append(request)
        await asyncio.sleep(0)
        if self.mode == "error":
            raise GatewayError(503, "overloaded")
        told = str(request["messages"][-1].get("content"))[-12:]
        arguments = '{"query": "Zürich", "limit": 3}' if self.mode != "broken" else '{"query": "Zü'
        asks = request["tools"] and not any("tool" in str(m.get("role")) for m in request["messages"])
        calls = [("c1", "look_up", arguments), ("c2", "look_up", '{"query": "Bern"}')] if asks else []
        finish = "length" if self.mode == "truncated" else "tool_calls" if calls else "stop"
        calls = [] if self.mode == "truncated" else calls
        return {"pieces": ["Zürich ", "is sunny 🦔 ", told], "calls": calls, "finish": finish, "usage": (5, 7)}

    async def stream(self, **request: Any) -> Any:
        """The pieces, then the whole reply."""
        self.open += 1
        try:
            reply = await self.send(**request)
            for piece in reply["pieces"]:
                await asyncio.sleep(0)
                yield piece
            yield reply
        finally:
            self.open -= 1


class _Made(ModelAdapter):
    def __init__(self, *, model: str = "m", api_key: str = "", max_tokens: int = 8192, client: Any = None) -> None:
        self.model = model
        self.max_tokens = int(max_tokens) or 8192
        self._api_key = api_key
        self.client = client or Client()

    def request(self, messages: Any, tools: Any) -> dict[str, Any]:
        """What goes to the gateway."""
        said = [{key: value for key, value in m.items() if key != "_isthmus"} for m in messages]
        return {"model": self.model, "max_tokens": self.max_tokens, "messages": said, "tools": list(tools or ())}

    def call_id(self, call: Any) -> Any:
        """The id of a call."""
        return call[0]

    def call_name(self, call: Any) -> Any:
        """The name of a call."""
        return call[1]

    def call_input(self, call: Any) -> Any:
        """The arguments of a call."""
        return json.loads(call[2])


class Chat(_Made):
    """A right adapter of the chat face."""

    def stop(self, said: Any) -> Any:
        """The stop reason of a reply."""
        if said["calls"]:
            return "tool_use"
        return "max_tokens" if is_output_truncation(said["finish"]) else "end_turn"

    def calls(self, said: Any) -> Any:
        """The calls of a reply."""
        return [ToolCall(self.call_id(call), self.call_name(call), self.call_input(call)) for call in said["calls"]]

    def response(self, said: Any) -> Any:
        """The reply."""
        raw = {"usage": {"input_tokens": said["usage"][0], "output_tokens": said["usage"][1]}}
        return ChatResponse("".join(said["pieces"]) or None, self.calls(said), self.stop(said), raw)

    async def chat(self, messages: Any, tools: Any) -> Any:
        return self.response(await self.client.send(**self.request(messages, tools)))

    async def stream_chat(self, messages: Any, tools: Any = None) -> Any:
        async for item in self.client.stream(**self.request(messages, tools)):
            if isinstance(item, str):
                yield item

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        stream = self.client.stream(**self.request(messages, tools))
        try:
            async for item in stream:
                yield ("text", item) if isinstance(item, str) else ("done", self.response(item))
        finally:
            await stream.aclose()

    def answer(self, call: Any, output: Any) -> dict[str, Any]:
        """The turn of one result."""
        return {"role": "tool", "tool_call_id": call.id, "content": output}

    def asked(self, response: Any, results: Any) -> dict[str, Any]:
        """The assistant's turn."""
        calls = [{"id": c.id, "name": c.name, "arguments": self.told(c.input)} for c, _ in results]
        return {"role": "assistant", "content": response.text or "", "tool_calls": calls}

    def told(self, arguments: Any) -> Any:
        """The arguments as the assistant's turn has them."""
        return json.dumps(arguments)

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        return [self.asked(response, results), *(self.answer(call, output) for call, output in results)]


class Step(_Made):
    """A right adapter of the step face."""

    def call(self, said: Any) -> Any:
        """One call event."""
        return Call(self.call_name(said), self.call_input(said), self.call_id(said), said[2])

    def finish(self, said: Any) -> Any:
        """The finish of a reply."""
        if said["calls"]:
            return "tool-calls"
        return "length" if said["finish"] == "length" else "stop"

    def terminal(self, said: Any) -> Any:
        """The last event."""
        return Finish(self.finish(said), Usage(input_tokens=5, output_tokens=7), said["finish"])

    def asked(self, ctx: Any) -> dict[str, Any]:
        """What goes to the gateway."""
        return self.request(ctx.messages, [tool.name for tool in ctx.tools])

    async def stream(self, ctx: Any) -> Any:
        stream = self.client.stream(**self.asked(ctx))
        try:
            async for item in stream:
                if isinstance(item, str):
                    yield Text(item)
                    continue
                for place, call in enumerate(item["calls"]):
                    yield CallDelta(place, call[0], self.call_name(call), call[2][:5])
                    yield CallDelta(place, None, None, call[2][5:])
                    yield self.call(call)
                yield self.terminal(item)
        finally:
            await stream.aclose()

    async def generate(self, ctx: Any) -> Any:
        said = await self.client.send(**self.asked(ctx))
        events = (Text("".join(said["pieces"])), *(self.call(call) for call in said["calls"]))
        end = self.terminal(said)
        return StepResult(events=events, finish=end.finish, usage=end.usage, raw_reason=end.raw_reason)


class Modelled(_Made):
    """A right adapter of the model face."""

    def response(self, said: Any) -> Any:
        """The reply."""
        calls = [
            ModelToolCall(id=self.call_id(call), function=ToolCallFunction(self.call_name(call), call[2]))
            for call in said["calls"]
        ]
        message = Message(content="".join(said["pieces"]), tool_calls=calls or None)
        usage = ModelUsage(prompt_tokens=5, completion_tokens=7, total_tokens=12)
        return ModelResponse(id="r", choices=[Choice(message=message, finish_reason=said["finish"])], usage=usage)

    async def get_response(self, messages: Any, *args: Any, tools: Any = None, **kwargs: Any) -> Any:
        return self.response(await self.client.send(**self.request(messages, _names(tools))))

    async def stream_response(self, messages: Any, *args: Any, tools: Any = None, **kwargs: Any) -> Any:
        stream = self.client.stream(**self.request(messages, _names(tools)))
        try:
            async for item in stream:
                if isinstance(item, str):
                    yield ModelStreamEvent(kind="text_delta", text=item)
                else:
                    yield ModelStreamEvent(kind="completed", response=self.response(item))
        finally:
            await stream.aclose()


def _names(tools: Any) -> list[str]:
    return [tool.name for tool in tools.normalized_tools] if tools else []


def misfortunes(kind: Any) -> dict[str, Any]:
    """The scenarios of a twin: its gateway truncates, fails, sends broken arguments."""
    return {
        "truncated": lambda: kind(client=Client("truncated")),
        "error": lambda: kind(client=Client("error")),
        "broken arguments": lambda: kind(client=Client("broken")),
    }
