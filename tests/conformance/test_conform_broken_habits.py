"""Adapters that answer rightly and misbehave in one thing each are caught by the law that they break."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from isthmus.adapters.base import ModelAdapter, ModelCapabilities
from isthmus.conformance import LAWS, conform
from isthmus.models.events import Finish, Text
from support.twins import TOOLS, Chat, Client, Step, misfortunes

BACKGROUND: set[Any] = set()


class AddsSystem(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        messages.insert(0, {"role": "system", "content": "Be brief."})
        return await super().chat(messages, tools)


class AddsReply(Chat):
    def request(self, messages: Any, tools: Any) -> Any:
        made = super().request(messages, tools)
        messages.append({"role": "assistant", "content": ""})
        return made


class MarksMessages(Step):
    def request(self, messages: Any, tools: Any) -> Any:
        messages[-1]["cache_control"] = {"type": "ephemeral"}
        return super().request(messages, tools)


class SortsTools(Chat):
    def request(self, messages: Any, tools: Any) -> Any:
        tools.sort(key=lambda tool: tool["name"])
        return super().request(messages, tools)


class MarksTools(Chat):
    def request(self, messages: Any, tools: Any) -> Any:
        if tools:
            tools[-1]["cache_control"] = {"type": "ephemeral"}
        return super().request(messages, tools)


class TrimsSchemas(Chat):
    def request(self, messages: Any, tools: Any) -> Any:
        for tool in tools:
            tool["input_schema"].pop("required", None)
        return super().request(messages, tools)


class Sleeps(Chat):
    def response(self, said: Any) -> Any:
        time.sleep(0.15)
        return super().response(said)


class Computes(Step):
    def asked(self, ctx: Any) -> Any:
        until = time.monotonic() + 0.15
        while time.monotonic() < until:
            sum(range(1000))
        return super().asked(ctx)


class SwallowsCancel(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        try:
            return await super().chat(messages, tools)
        except asyncio.CancelledError:
            return self.response({"pieces": ["stopped"], "calls": [], "finish": "stop", "usage": (1, 1)})


class TurnsCancel(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        try:
            return await super().chat(messages, tools)
        except BaseException as error:
            raise RuntimeError("the gateway failed") from error


class StreamsOn(Step):
    async def stream(self, ctx: Any) -> Any:
        try:
            async for event in Step.stream.__wrapped__(self, ctx):  # type: ignore[attr-defined]
                yield event
        except asyncio.CancelledError:
            yield Finish("stop")


class IgnoresCancel(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        work = asyncio.ensure_future(super().chat(messages, tools))
        while not work.done():
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                await asyncio.sleep(2)
        return work.result()


class Leaks(Chat):
    open = 0

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        self.open += 1
        async for item in super().stream_with_tools(messages, tools):
            yield item
        self.open -= 1


class HoldsLock(Step):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.lock = asyncio.Lock()

    async def stream(self, ctx: Any) -> Any:
        await self.lock.acquire()
        async for event in Step.stream.__wrapped__(self, ctx):  # type: ignore[attr-defined]
            yield event
        self.lock.release()


class NeverCloses(Step):
    closed = False

    async def stream(self, ctx: Any) -> Any:
        async for event in Step.stream.__wrapped__(self, ctx):  # type: ignore[attr-defined]
            yield event
        self.closed = True


class IgnoresClose(Chat):
    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        stream = super().stream_with_tools(messages, tools)
        try:
            async for item in stream:
                yield item
        except GeneratorExit:
            yield "text", "one more"
        finally:
            await stream.aclose()


class LeavesReader(Chat):
    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue(1)

        async def read() -> None:
            async for item in Chat.stream_with_tools(self, messages, tools):
                await queue.put(item)

        BACKGROUND.add(asyncio.ensure_future(read()))
        while True:
            item = await queue.get()
            yield item
            if item[0] == "done":
                return


class LeavesTask(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        BACKGROUND.add(asyncio.ensure_future(asyncio.sleep(30)))
        return await super().chat(messages, tools)


class SharesText(Chat):
    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        self.pieces: list[str] = []
        async for kind, value in super().stream_with_tools(messages, tools):
            if kind == "text":
                self.pieces.append(value)
                yield kind, value
            else:
                value.text = "".join(self.pieces)
                yield kind, value


class WaitsForItself(Step):
    """Two calls at once each hold what the other waits for."""

    first = True
    alone = True

    async def stream(self, ctx: Any) -> Any:
        mine, self.first = self.first, False
        await asyncio.sleep(0)
        self.alone = self.alone and mine
        try:
            async for event in super().stream(ctx):
                yield event
            while not (self.alone or mine):
                await asyncio.sleep(0.01)
        finally:
            self.first = mine or self.first


class SharesRequest(Step):
    def asked(self, ctx: Any) -> Any:
        self.now = super().asked(ctx)
        return self.now

    async def generate(self, ctx: Any) -> Any:
        self.asked(ctx)
        await asyncio.sleep(0)
        said = await self.client.send(**self.now)
        return {"events": [Text("".join(said["pieces"])), *map(self.call, said["calls"])], "finish": self.finish(said)}


class AddsUp(Chat):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.text = ""

    def response(self, said: Any) -> Any:
        reply = super().response(said)
        self.text += reply.text
        reply.text = self.text
        return reply

    stream_with_tools = None  # type: ignore[assignment]
    stream_chat = None  # type: ignore[assignment]


class NoCeiling(Chat):
    def __init__(self, *, model: str = "m", max_tokens: int = 8192) -> None:
        super().__init__(model=model)


class SendsNoCeiling(Chat):
    def request(self, messages: Any, tools: Any) -> Any:
        made = super().request(messages, tools)
        del made["max_tokens"]
        return made


class SendsAnotherCeiling(Step):
    def request(self, messages: Any, tools: Any) -> Any:
        return {**super().request(messages, tools), "max_tokens": 4096}


class SendsBookkeeping(Step):
    def request(self, messages: Any, tools: Any) -> Any:
        return {**super().request(messages, tools), "messages": [dict(message) for message in messages]}


def able(what: Any) -> type:
    """A twin whose capabilities() does this."""
    return type("Able", (Chat,), {"capabilities": lambda self: what() if callable(what) else what})


async def _later() -> ModelCapabilities:
    return ModelCapabilities()


def _fails() -> None:
    raise KeyError("model")


class ShowsKey(Chat):
    def __repr__(self) -> str:
        return f"ShowsKey(model={self.model!r}, api_key={self._api_key!r})"


@dataclass
class DataKey(ModelAdapter):
    """A dataclass shows all of its fields."""

    model: str = "m"
    api_key: str = ""
    client: Any = field(default_factory=Client)

    async def chat(self, messages: Any, tools: Any) -> Any:
        return await Chat(client=self.client).chat(messages, tools)


class KeyInError(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        if self.client.mode == "error":
            raise ConnectionError(f"the gateway refused the key {self._api_key}")
        return await super().chat(messages, tools)


class KeyInLog(Chat):
    def request(self, messages: Any, tools: Any) -> Any:
        logging.getLogger(__name__).debug("sending with %s", self._api_key)
        return super().request(messages, tools)


class KeyInReply(Chat):
    def call_id(self, call: Any) -> Any:
        return f"{call[0]}-{self._api_key}"


class Opaque(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        try:
            return await super().chat(messages, tools)
        except Exception:
            raise RuntimeError("error") from None


class Wordless(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        if self.client.mode == "error":
            raise RuntimeError
        return await super().chat(messages, tools)


class ErrorAsText(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        try:
            return await super().chat(messages, tools)
        except Exception as error:
            return self.response({"pieces": [f"Error: {error}"], "calls": [], "finish": "stop", "usage": (0, 0)})


class ErrorAsNothing(Step):
    async def stream(self, ctx: Any) -> Any:
        try:
            async for event in Step.stream.__wrapped__(self, ctx):  # type: ignore[attr-defined]
                yield event
        except Exception:
            yield Finish("stop")


class HidesTruncation(Chat):
    def stop(self, said: Any) -> Any:
        return "tool_use" if said["calls"] else "end_turn"


class HidesLength(Step):
    def finish(self, said: Any) -> Any:
        return "tool-calls" if said["calls"] else "stop"


class SwallowsArguments(Chat):
    def call_input(self, call: Any) -> Any:
        try:
            return super().call_input(call)
        except ValueError:
            return {}


class MendsArguments(Chat):
    def call_input(self, call: Any) -> Any:
        try:
            return super().call_input(call)
        except ValueError:
            return {"query": call[2].partition(": ")[2].strip('"')}


class Hangs(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        await asyncio.Event().wait()


class Raises(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        raise KeyError("choices")


class NeedsTools(Chat):
    async def chat(self, messages: Any, tools: Any) -> Any:
        tools[0]["name"]
        return await super().chat(messages, tools)


def _no_init(self: Any) -> None:
    raise ValueError("no gateway is configured")


HABITS: dict[str, tuple[Any, str]] = {
    "a system message added to the caller's": (AddsSystem, "callers-data"),
    "a reply added to the caller's messages": (AddsReply, "callers-data"),
    "a marker set in the caller's message": (MarksMessages, "callers-data"),
    "the caller's tools sorted": (SortsTools, "callers-data"),
    "a marker set in the caller's tool": (MarksTools, "callers-data"),
    "the caller's schemas changed": (TrimsSchemas, "callers-data"),
    "the loop blocked by a sleep": (Sleeps, "loop-free"),
    "the loop blocked by work": (Computes, "loop-free"),
    "cancellation swallowed": (SwallowsCancel, "cancel"),
    "cancellation turned into an error": (TurnsCancel, "cancel"),
    "cancellation taken for the end": (StreamsOn, "cancel"),
    "cancellation ignored": (IgnoresCancel, "cancel"),
    "a count that stays up": (Leaks, "early-break"),
    "a lock that stays held": (HoldsLock, "early-break"),
    "a flag that stays down": (NeverCloses, "early-break"),
    "closing ignored": (IgnoresClose, "early-break"),
    "a reader left behind": (LeavesReader, "early-break"),
    "a task left behind": (LeavesTask, "tasks"),
    "text shared between calls": (SharesText, "concurrent"),
    "a request shared between calls": (SharesRequest, "concurrent"),
    "text kept from the last call": (AddsUp, "concurrent"),
    "two calls at once that wait for each other": (WaitsForItself, "concurrent"),
    "the ceiling not kept": (NoCeiling, "ceiling"),
    "the ceiling not sent": (SendsNoCeiling, "ceiling"),
    "another ceiling sent": (SendsAnotherCeiling, "ceiling"),
    "bookkeeping sent": (SendsBookkeeping, "bookkeeping"),
    "capabilities as a dict": (able({"context_window": 1}), "capabilities"),
    "capabilities missing": (able(None), "capabilities"),
    "a window as text": (able(ModelCapabilities(context_window="200k")), "capabilities"),  # type: ignore[arg-type]
    "a window of nothing": (able(ModelCapabilities(context_window=0)), "capabilities"),
    "a flag as text": (able(ModelCapabilities(strict_tools="no")), "capabilities"),  # type: ignore[arg-type]
    "capabilities that are awaited": (able(_later), "capabilities"),
    "capabilities that fail": (able(_fails), "capabilities"),
    "a name that is none": (type("Nameless", (Chat,), {"id": 7}), "identity"),
    "a window that is none": (type("Windowless", (Chat,), {"window_tokens": "200k"}), "identity"),
    "supports as one word": (type("Word", (Chat,), {"supports": "tools"}), "identity"),
    "the key in the repr": (ShowsKey, "secrets"),
    "the key in a dataclass": (DataKey, "secrets"),
    "the key in an error": (KeyInError, "secrets"),
    "the key in the log": (KeyInLog, "secrets"),
    "the key in a reply": (KeyInReply, "secrets"),
    "an error of one word": (Opaque, "errors-speak"),
    "an error without words": (Wordless, "errors-speak"),
    "an error as text": (ErrorAsText, "errors-raised"),
    "an error as an empty reply": (ErrorAsNothing, "errors-raised"),
    "a truncation as the end": (HidesTruncation, "truncation-shown"),
    "a length as the end": (HidesLength, "truncation-shown"),
    "broken arguments swallowed": (SwallowsArguments, "arguments-told"),
    "broken arguments mended": (MendsArguments, "arguments-told"),
    "no answer": (Hangs, "answers"),
    "an error for an answer": (Raises, "answers"),
    "no answer without tools": (NeedsTools, "answers"),
    "a maker that raises": (type("Unmade", (Chat,), {"__init__": _no_init}), "made"),
    "no method that answers": (type("Mute", (ModelAdapter,), {}), "made"),
    "a method without arguments": (type("Deaf", (ModelAdapter,), {"chat": lambda self: None}), "made"),
    "no adapter at all": (object, "made"),
}
"""A habit, the adapter that has it, and the law that it breaks."""


def scenes(kind: Any) -> dict[str, Any]:
    """The misfortunes of a kind that takes a client; one of its own key each."""
    if kind is LeavesReader:
        return {}
    if kind is KeyInError:
        return {"error": lambda: kind(client=Client("error"), api_key="sk-canary-of-this-test")}
    return (
        misfortunes(kind) if issubclass(kind, Chat | Step) and kind.__init__ in (Chat.__init__, Step.__init__) else {}
    )


@pytest.mark.parametrize("name", HABITS)
def test_a_bad_habit_is_caught_by_its_law_alone(name: str) -> None:
    """F10, F21, F22, F29: one change in a right adapter gives errors of the law that it breaks, and of no other."""
    kind, law = HABITS[name]
    report = asyncio.run(
        conform(kind, tools=TOOLS, scenarios=scenes(kind), api_key_canary="sk-canary-of-this-test", patience=1.0)
    )
    assert {finding.law for finding in report.errors} == {law}, report.table()
    assert "sk-canary-of-this-test" not in report.to_json()


def test_a_loop_that_stands_still_is_left() -> None:
    """A call that never gives the loop back ends the run in bounded time, as a finding."""

    class Stands(Chat):
        async def chat(self, messages: Any, tools: Any) -> Any:
            time.sleep(8)

    started = time.monotonic()
    report = asyncio.run(conform(Stands, tools=TOOLS, patience=0.5))
    assert time.monotonic() - started < 5
    assert [finding.law for finding in report.errors] == ["loop-free"], report.table()
    assert len(report.laws) == len(LAWS)
