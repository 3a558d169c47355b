"""Adapters that are unusual and right are refused by no law."""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections import OrderedDict, UserDict
from collections.abc import AsyncIterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter, ModelCapabilities, ToolCall
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.conformance import conform
from isthmus.models.events import Call, Finish, Reasoning, StepResult, Text
from isthmus.models.model import Model
from isthmus.models.responses import Choice, Message, ModelResponse
from support.twins import TOOLS, Chat, Client, Modelled, Step, misfortunes

CALL = ToolCall("c1", "look_up", {"query": "x"})


def replying(**fields: Any) -> type:
    """A chat-face adapter with one canned reply."""

    class Replies(ModelAdapter):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return ChatResponse(**{"text": "Hi.", "tool_calls": [], "stop_reason": "end_turn", **fields})

    return Replies


def traced(method: Any) -> Any:
    """A decorator that hides what kind of function it decorates."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return call


class Decorated(Chat):
    chat = traced(Chat.chat)
    stream_with_tools = traced(Chat.stream_with_tools)
    make_tool_turn = traced(Chat.make_tool_turn)


class Returns(Chat):
    def stream_with_tools(self, messages: Any, tools: Any) -> AsyncIterator[Any]:
        return super().stream_with_tools(messages, tools)


class Awaits(Chat):
    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        return Chat.stream_with_tools(self, messages, tools)


class Iterator:
    """An async iterator that is no generator."""

    def __init__(self, items: list[Any]) -> None:
        self.items = iter(items)

    def __aiter__(self) -> Iterator:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self.items)
        except StopIteration:
            raise StopAsyncIteration from None


class Iterates(ModelAdapter):
    def stream(self, ctx: Any) -> Any:
        return Iterator([Text("Hi."), Finish("stop")])


class SyncGenerator(ModelAdapter):
    def stream(self, ctx: Any) -> Any:
        yield {"type": "text", "text": "Hi."}
        yield {"type": "finish", "finish": "stop", "usage": {"inputTokens": 3, "outputTokens": 1}}


class SyncPairs(ModelAdapter):
    def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        yield ["text", "Hi."]
        yield ["done", ChatResponse(None, [], "STOP")]


class ListOfEvents(ModelAdapter):
    def stream(self, ctx: Any) -> Any:
        return [Text("Hi."), Finish("stop")]


class SyncWhole(ModelAdapter):
    def generate(self, ctx: Any) -> Any:
        return {"events": [{"type": "text", "text": "Hi."}], "finish": "stop"}


class WholeOfEvents(ModelAdapter):
    async def generate(self, ctx: Any) -> Any:
        return iter([Text("Hi."), Finish("stop")])


class Plain:
    """A plain object with a stream."""

    async def stream(self, ctx: Any) -> Any:
        yield Text("Hi.")
        yield Finish("stop")


class PlainWhole:
    """A plain object with a whole reply."""

    id = "mine"

    def generate(self, ctx: Any) -> Any:
        return StepResult(events=(Text("Hi."),))


class PlainSlots:
    """A plain object without a dict."""

    __slots__ = ("name",)

    def __init__(self, name: str = "x") -> None:
        self.name = name

    async def generate(self, ctx: Any) -> Any:
        return StepResult(events=(Text("Hi."),))


class Minimal(Model):
    """A `Model` with its one method."""

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(id="r", choices=[Choice(message=Message(content="Hi."))])


class ShapedAlike(Model):
    """A `Model` that returns another library's object."""

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        message = SimpleNamespace(content="Hi.", tool_calls=None, refusal=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="eos")], usage=None)


class RandomIds(Chat):
    def call_id(self, call: Any) -> Any:
        return uuid.uuid4().hex


class NoIds(Step):
    def call_id(self, call: Any) -> Any:
        return None


class Pair(NamedTuple):
    """A named pair."""

    kind: str
    value: Any


class NamedPairs(ModelAdapter):
    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        yield Pair("thinking", "Hm.")
        yield Pair("text", "Hi.")
        yield Pair("done", ChatResponse("Hi.\n", [], "end_turn"))


class OneShot(ModelAdapter):
    async def chat(self, messages: Any, tools: Any) -> Any:
        return ChatResponse("Hi.", [], "end_turn")

    async def stream_chat(self, messages: Any, tools: Any = None) -> Any:
        yield (await self.chat(messages, tools)).text


class Inherits(Chat):
    """Writes nothing of its own."""


class Mixin:
    """Writes a face beside the base."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        return ChatResponse("Hi.", [], "end_turn")


class Mixed(Mixin, ModelAdapter):
    """Takes its face from a mixin."""


class OrderedInput(Chat):
    def call_input(self, call: Any) -> Any:
        return json.loads(call[2], object_pairs_hook=OrderedDict)

    def answer(self, call: Any, output: Any) -> Any:
        return OrderedDict(super().answer(call, output))


class Blocks(Chat):
    """Speaks of tools in blocks."""

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        asked = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c, _ in results]
        said = [{"type": "text", "text": response.text}] if response.text else []
        told = [
            {"type": "tool_result", "tool_use_id": c.id, "content": [{"type": "text", "text": o}]} for c, o in results
        ]
        return [{"role": "assistant", "content": [*said, *asked]}, {"role": "user", "content": told}]


class Converse(Chat):
    """Speaks of tools in nested blocks."""

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        asked = [{"toolUse": {"toolUseId": c.id, "name": c.name, "input": c.input}} for c, _ in results]
        told = [{"toolResult": {"toolUseId": c.id, "content": [{"text": o}], "status": "success"}} for c, o in results]
        return [{"role": "assistant", "content": asked}, {"role": "user", "content": told}]


class Parts(Chat):
    """Calls the assistant a model, and answers with functions."""

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        asked = [{"functionCall": {"id": c.id, "name": c.name, "args": c.input}} for c, _ in results]
        told = [{"functionResponse": {"id": c.id, "name": c.name, "response": {"result": o}}} for c, o in results]
        return [{"role": "model", "parts": asked}, {"role": "user", "parts": told}]


class Items(Chat):
    """Speaks in items that have a type and no role."""

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        asked = [
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": json.dumps(c.input)}
            for c, _ in results
        ]
        return [*asked, *({"type": "function_call_output", "call_id": c.id, "output": o} for c, o in results)]


class Prose(Chat):
    """Tells of tools in prose."""

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        asked = "\n".join(f"{c.id}: {c.name} {json.dumps(c.input)}" for c, _ in results)
        told = "\n\n".join(f"Result of {c.id}:\n{o}" for c, o in results)
        return [{"role": "assistant", "content": asked}, {"role": "user", "content": told}]


class Envelope(Chat):
    """Puts results into JSON."""

    def answer(self, call: Any, output: Any) -> Any:
        return {**super().answer(call, output), "content": json.dumps({"output": output})}


class Terse(Chat):
    """Says little in the assistant's turn."""

    def asked(self, response: Any, results: Any) -> Any:
        return {"role": "Assistant", "content": response.text or ""}


class OwnCapabilities(Chat):
    """Describes itself with an object of its own."""

    def capabilities(self) -> Any:
        return SimpleNamespace(**vars(ModelCapabilities(context_window=200_000)))


class Configured(Chat):
    """Names what it needs without defaults."""

    def __init__(self, base_url: str, tenant_id: str, *, model: str, max_tokens: int = 0) -> None:
        super().__init__(model=model, max_tokens=max_tokens or 4096)
        self.base_url = base_url


class KeepsNothing(Chat):
    """Sets its ceiling on its client."""

    def __init__(self, *, max_tokens: int = 8192) -> None:
        super().__init__()
        self.settings = UserDict({"limit": max_tokens or 8192})
        self.max_tokens = self.settings["limit"]


class Thinks(Step):
    """Thinks first."""

    async def stream(self, ctx: Any) -> Any:
        yield Reasoning("Hm.")
        async for event in Step.stream.__wrapped__(self, ctx):  # type: ignore[attr-defined]
            yield event

    async def generate(self, ctx: Any) -> Any:
        step = await Step.generate.__wrapped__(self, ctx)  # type: ignore[attr-defined]
        return StepResult(events=step.events, finish=step.finish, usage=step.usage, reasoning="Hm.")


class Slow(Chat):
    """Takes its time, and lets others run."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        await asyncio.sleep(0.05)
        return await super().chat(messages, tools)


class Counts(Chat):
    """Counts its calls, and releases in `finally`."""

    calls_made = 0

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        self.calls_made += 1
        lock = self.__dict__.setdefault("_lock", asyncio.Lock())
        async with lock:
            async for item in super().stream_with_tools(messages, tools):
                yield item


class OddSetting(Chat):
    """Cleans up on cancellation and passes it on."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        try:
            return await super().chat(messages, tools)
        except asyncio.CancelledError:
            self.stopped = True
            raise


UNUSUAL: dict[str, Any] = {
    **{f"stop_reason {reason!r}": replying(stop_reason=reason) for reason in (
        "MAX_TOKENS", "Length", "maxTokens", "stop_sequence", "refusal", "pause_turn", "content_filter", "COMPLETE",
        "model_context_window_exceeded", "eos_token", "something_new",
    )},
    "a call and TOOL_USE": replying(tool_calls=[CALL], stop_reason="TOOL_USE", text=None),
    "a call and tool_calls": replying(tool_calls=[CALL], stop_reason="tool_calls"),
    "calls in a tuple": replying(tool_calls=(CALL,), stop_reason="toolUse"),
    "no calls as None": replying(tool_calls=None),
    "no text": replying(text=None),
    "empty text": replying(text=""),
    "an object for a reply": lambda: SimpleNamespace(
        generate=lambda ctx: StepResult(events=(Text("Hi."), Call("look_up", {"query": "x"})), finish="tool-calls")
    ),
    "a script": lambda: ScriptedAdapter(["one", "two", "three"]),
    "a factory with settings": lambda model="m", api_key=None: Chat(model=model, api_key=api_key or ""),
    "a partial": functools.partial(Chat, model="m"),
    **{kind.__name__: kind for kind in (
        Decorated, Returns, Awaits, Iterates, SyncGenerator, SyncPairs, ListOfEvents, SyncWhole, WholeOfEvents, Plain,
        PlainWhole, PlainSlots, Minimal, ShapedAlike, RandomIds, NoIds, NamedPairs, OneShot, Inherits, Mixed,
        OrderedInput, Blocks, Converse, Parts, Items, Prose, Envelope, Terse, OwnCapabilities, Configured, KeepsNothing,
        Thinks, Slow, Counts, OddSetting,
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("tools", [TOOLS, None], ids=["with its tools", "with the kit's"])
def test_an_unusual_adapter_is_refused_by_no_law(name: str, tools: Any) -> None:
    """No law finds an error in an adapter that is right in a way of its own."""
    report = asyncio.run(conform(UNUSUAL[name], tools=tools))
    assert report.ok, report.table()
    assert not [each for each in report.laws if each.reason.startswith("could not be judged")]


@pytest.mark.parametrize("name", ["Plain", "Blocks", "a script", "Thinks", "Minimal"])
def test_one_adapter_instead_of_its_class_is_refused_by_no_law(name: str) -> None:
    """An adapter that was made already is judged as far as one alone can be."""
    report = asyncio.run(conform(UNUSUAL[name](), tools=TOOLS))
    assert report.ok, report.table()


@pytest.mark.parametrize("kind", [Chat, Step, Modelled])
def test_a_right_adapter_passes_every_law_that_applies(kind: type) -> None:
    """The twins keep every law, misfortunes included, and within five seconds."""
    report = asyncio.run(conform(kind, tools=TOOLS, scenarios=misfortunes(kind)))
    assert not report.findings, report.table()
    assert not [each for each in report.laws if each.status == "skip"]
    assert report.seconds < 5


class _Queue(Client):
    """A machine that answers one request after the other, reads for long and writes quickly."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Semaphore(1)

    async def send(self, **request: Any) -> dict[str, Any]:
        """The same after a while."""
        async with self.turn:
            await asyncio.sleep(0.18)
            return await super().send(**request)

    async def stream(self, **request: Any) -> Any:
        """The pieces, a few milliseconds apart."""
        async with aclosing(super().stream(**request)) as items:
            async for item in items:
                yield item
                await asyncio.sleep(0.004)


class _Slow(Step):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, client=_Queue())


def test_a_slow_adapter_that_answers_is_not_taken_for_one_that_mixes_or_holds_back() -> None:
    """Two calls at once that take longer than the patience for one are not judged; what takes long is not late."""
    report = asyncio.run(conform(_Slow, tools=TOOLS, patience=0.3))
    assert not report.findings, report.table()
    concurrent = next(each for each in report.laws if each.id == "concurrent")
    assert (concurrent.status, "more patience" in concurrent.reason) == ("skip", True), report.table()


def test_scenarios_may_change_an_adapter_in_place() -> None:
    """A scenario that takes a fresh adapter changes it, and returns it or nothing; it may be async."""

    def truncates(adapter: Any) -> None:
        adapter.client = Client("truncated")

    async def fails(adapter: Any) -> Any:
        adapter.client = Client("error")
        return adapter

    report = asyncio.run(conform(Chat, tools=TOOLS, scenarios={"truncates": truncates, "fails": fails}))
    assert report.ok, report.table()
    assert report.standing("truncation-shown") == report.standing("errors-raised") == "pass"
