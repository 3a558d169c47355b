"""The base class as its documents show it, and what a class gets without writing it."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters import base
from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall, as_adapter, is_output_truncation
from isthmus.errors import AdapterError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.checks import check_reply
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Finish, StepResult, Text
from isthmus.models.fold import consume_stream
from isthmus.models.model import Model
from isthmus.models.stream import EventStream
from isthmus.models.turn_checks import check_tool_turn
from support.face_kit import CTX, HELLO, TOOL_DICTS, Chats, Generates, Responds, Streams, model_response


class FakeClient:
    """A gateway that answers from a list."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies, self.asked = list(replies), []  # type: ignore[var-annotated]

    async def invoke(self, **request: Any) -> dict[str, Any]:
        """The next reply."""
        self.asked.append(request)
        return self.replies.pop(0)


class MyCorpAdapter(ModelAdapter):
    """The adapter of seed 000, with a client in the place of its dots."""

    def __init__(
        self, *, base_url: Any = None, api_key: Any = None, model: str = "", max_tokens: Any = 8192, client: Any = None
    ) -> None:
        self.model = model
        self.max_tokens = int(max_tokens) or 8192
        self.client = client

    async def chat(self, messages: Any, tools: Any) -> ChatResponse:
        raw = await self.client.invoke(messages=list(messages), tools=tools, max_tokens=self.max_tokens)
        tool_calls = [ToolCall(id=c["id"], name=c["name"], input=json.loads(c["args"])) for c in raw["calls"]]
        if tool_calls:
            stop_reason = "tool_use"
        elif is_output_truncation(raw["finish"]):
            stop_reason = "max_tokens"
        else:
            stop_reason = "end_turn"
        return ChatResponse(raw["text"], tool_calls, stop_reason, raw)

    async def stream_chat(self, messages: Any, tools: Any = None) -> Any:
        yield (await self.chat(messages, tools)).text

    def make_tool_turn(self, response: Any, results: Any) -> list[dict[str, Any]]:
        return [
            {"role": "assistant", "content": response.text or "", "calls": [call.id for call, _ in results]},
            *({"role": "user", "result_of": call.id, "content": output} for call, output in results),
        ]


ASKS = {"text": None, "calls": [{"id": "1", "name": "look", "args": '{"q": "x"}'}], "finish": "tool"}
ENDS = {"text": "done", "calls": [], "finish": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
CUT = {"text": "half a", "calls": [], "finish": "Length"}


def test_seed_000_verifying_block() -> None:
    """The seed's own test, with our checks: a reply with calls, and its tool turn, have no finding."""
    adapter = MyCorpAdapter(base_url="…", client=FakeClient(ASKS))
    reply = asyncio.run(adapter.chat([{"role": "user", "content": "hi"}], TOOL_DICTS))
    assert reply.tool_calls == [ToolCall("1", "look", {"q": "x"})]
    assert check_reply(reply) == []
    results = [(reply.tool_calls[0], "ok")]
    assert check_tool_turn(adapter.make_tool_turn(reply, results), results) == []


async def test_seed_000_truncation_snippet() -> None:
    """A truncation in any spelling is "max_tokens" on the chat face and `length` on the step face."""
    adapter = MyCorpAdapter(client=FakeClient(CUT, CUT))
    assert (await adapter.chat(HELLO, [])).stop_reason == "max_tokens"
    step = await adapter.stream(CTX).result()
    assert (step.finish, step.text) == ("length", "half a")


async def test_seed_000_inherited_stream_calls_chat_and_emits_it_in_one_shot() -> None:
    """Without streaming the whole text comes once, then done with the author's usage on the step face."""
    adapter = MyCorpAdapter(client=FakeClient(ENDS, ENDS, ENDS))
    pairs = [pair async for pair in adapter.stream_with_tools(HELLO, [])]
    assert [kind for kind, _ in pairs] == ["text", "done"]
    assert pairs[0][1] == "done"
    step = await adapter.generate(CTX)
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (3, 4)
    assert [text async for text in adapter.stream_chat(HELLO)] == ["done"]


async def test_seed_000_max_tokens_is_a_ceiling_with_a_default() -> None:
    """Falsy means 8192; what is configured is sent; a context's lower ceiling is sent instead."""
    assert MyCorpAdapter(max_tokens=0).max_tokens == 8192
    client = FakeClient(ENDS, ENDS)
    adapter = MyCorpAdapter(max_tokens=100, client=client)
    await adapter.generate(CTX)
    await adapter.generate(GenerateContext(messages=CTX.messages, max_output_tokens=50))
    assert [request["max_tokens"] for request in client.asked] == [100, 50]


async def test_seed_001_streaming_tier() -> None:
    """The streaming tier of seed 001 as a class and as a plain object says the same on both paths."""

    async def do_stream(ctx: GenerateContext) -> Any:
        yield {"type": "text", "text": "Answering: "}
        yield {"type": "text", "text": ctx.brief}
        yield {
            "type": "finish",
            "finish": "stop",
            "usage": {"inputTokens": 24, "outputTokens": 8, "estimated": True},
        }

    class StreamingTier(ModelAdapter):
        id = "local-streaming"
        window_tokens = 8_000
        max_output_tokens = 256

        def stream(self, ctx: Any) -> Any:
            return do_stream(ctx)

        def generate(self, ctx: Any) -> Any:
            return consume_stream(do_stream(ctx))

    plain = SimpleNamespace(
        id="local-streaming",
        window_tokens=8_000,
        max_output_tokens=256,
        stream=do_stream,
        generate=lambda ctx: consume_stream(do_stream(ctx)),
    )
    for adapter in (StreamingTier(), as_adapter(plain)):
        ctx = GenerateContext(brief="be brief")
        whole = await adapter.generate(ctx)
        assert whole.text == "Answering: be brief"
        assert whole.usage.estimated
        assert await adapter.stream(ctx).result() == whole
        assert (adapter.id, adapter.window_tokens, adapter.max_output_tokens) == ("local-streaming", 8_000, 256)
        assert adapter.supports == frozenset()


async def test_seed_001_minimal_tier() -> None:
    """A plain object with a `generate` that returns a dict is an adapter."""
    tier = SimpleNamespace(
        id="local-greeting",
        window_tokens=8_000,
        max_output_tokens=256,
        generate=lambda ctx: {
            "events": [{"type": "text", "text": "Hello from the local adapter."}],
            "finish": "stop",
        },
        stream=None,
    )
    adapter = as_adapter(tier)
    assert (await adapter.stream(CTX).result()).text == "Hello from the local adapter."
    assert (await adapter.chat(HELLO, [])).text == "Hello from the local adapter."


async def test_a_model_is_an_adapter() -> None:
    """A `Model` with `get_response` alone is one, with tools in what it supports; closing and runs reach it."""

    class Client(Model):
        closed = False
        handles_retries = True

        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return model_response()

        async def aclose(self) -> None:
            self.closed = True

    client = Client()
    async with as_adapter(client) as adapter:
        assert (await adapter.generate(CTX)).text == "one two"
        assert (adapter.supports, adapter.handles_retries) == (frozenset({"tools"}), True)
        async with adapter.open_run() as active:
            assert active is adapter
    assert client.closed


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (SimpleNamespace(chat=lambda messages, tools: None), "is no adapter"),
        (3, "int is no adapter"),
        (Streams, "Streams is a class"),
        (SimpleNamespace(stream=None, generate=None), "is no adapter"),
        (SimpleNamespace(generate=lambda: None), "cannot take its arguments"),
    ],
)
def test_what_is_no_adapter_is_refused(thing: Any, said: str) -> None:
    """A chat face alone, a class, and anything else are refused with what to write."""
    with pytest.raises(AdapterError, match=said):
        as_adapter(thing)


def test_an_adapter_is_itself() -> None:
    """`as_adapter` gives an adapter back unchanged."""
    adapter = Streams()
    assert as_adapter(adapter) is adapter


@dataclass
class Limited(Chats):
    """Takes its limits from a table, as seed 000 says."""

    model: str = "claude-x"
    max_tokens: int = 8192
    _model_limits: Any = None


def test_limits_come_from_capabilities_and_the_adapters_own_ceiling() -> None:
    """window_tokens and max_output_tokens are worked out; the lower ceiling counts; unknown is None."""
    table = {"claude": {"context_window": "200000", "max_output_tokens": 4096}}
    limited = Limited(_model_limits=table)
    assert limited.capabilities() == ModelCapabilities(context_window=200000, max_output_tokens=4096)
    assert (limited.window_tokens, limited.max_output_tokens) == (200000, 4096)
    assert Limited(max_tokens=100, _model_limits=table).max_output_tokens == 100
    assert (Streams().window_tokens, Streams().max_output_tokens) == (None, None)


def test_an_id_is_provider_and_model_unless_set() -> None:
    """The class's name stands for the provider; class and instance attributes win."""

    class Named(Streams):
        id = "mine"

    class Provided(Streams):
        provider = "corp"
        model = "m-1"

    own = Streams()
    own.id = "set"
    assert (MyCorpAdapter(model="m").id, MyCorpAdapter().id) == ("mycorp:m", "mycorp")
    assert (Named().id, own.id, Provided().id) == ("mine", "set", "corp:m-1")


def test_support_follows_the_face_unless_declared() -> None:
    """Step-face adapters declare nothing by default, chat- and model-face ones tools."""

    class Declares(Streams):
        supports = frozenset({"tools", "images"})

    assert Streams().supports == Generates().supports == frozenset()
    assert Chats().supports == Responds().supports == frozenset({"tools"})
    assert Declares().supports == {"tools", "images"}


async def test_an_adapter_is_a_block_and_its_own_run() -> None:
    """`async with` closes it; `open_run` yields it; steering is not implemented unless written."""
    closed = []

    class Closes(Streams):
        async def aclose(self) -> None:
            closed.append(True)

    async with Closes() as adapter, adapter.open_run() as run:
        assert run is adapter
        with pytest.raises(NotImplementedError):
            await adapter.steer("x")
    assert closed == [True]
    await Streams().aclose()


async def test_an_adapters_own_timeouts_guard_its_streams() -> None:
    """F24: the class attribute `timeouts` reaches the stream."""

    class Silent(ModelAdapter):
        timeouts = Timeouts(first_content=0.02)

        async def stream(self, ctx: Any) -> Any:
            await asyncio.get_running_loop().create_future()
            yield Finish("stop")

    with pytest.raises(Exception, match="first content"):
        await Silent().stream(CTX).result()


def test_the_registry_is_reached_through_base_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """register_adapter, load_adapter and available_providers are those of the registry module."""
    registry = types.ModuleType("isthmus.adapters.registry")
    for name in ("register_adapter", "load_adapter", "available_providers"):
        setattr(registry, name, object())
    monkeypatch.setitem(sys.modules, "isthmus.adapters.registry", registry)
    assert base.load_adapter is registry.load_adapter
    assert base.available_providers is registry.available_providers
    assert base.register_adapter is registry.register_adapter
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = base.nothing_such


async def test_a_written_stream_is_handed_out_once_wrapped() -> None:
    """`super().stream(ctx)` and the outermost call both give an EventStream."""

    class Twice(Streams):
        def stream(self, ctx: Any) -> Any:
            return super().stream(ctx)

    stream = Twice().stream(CTX)
    assert isinstance(stream, EventStream)
    assert (await stream.result()).text == "one two"


async def test_a_struct_is_taken_from_generate() -> None:
    """A StepResult from a plain object's async `generate` passes as it is."""

    async def generate(ctx: Any) -> Any:
        return StepResult(events=(Text("x"),))

    assert (await as_adapter(SimpleNamespace(generate=generate)).generate(CTX)).text == "x"
