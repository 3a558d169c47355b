"""Every way out of a stream leaves one ended span of each kind, on every adapter and through every door."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from isthmus import Agent, define_chain
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.adapters.langserve import LangServeAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.openai_responses import OpenAIResponsesAdapter
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.chain import RetryPolicy, Tier
from isthmus.errors import InvalidRequestError, IsthmusError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Finish, StepResult, Text
from isthmus.models.model import Model
from isthmus.models.responses import Choice, Message, ModelResponse
from support import bedrock_kit, langserve_frames, responses_frames
from support.bedrock_reading import message
from support.loopback import CLOSE, HOLD, LoopbackServer, stream
from support.sockets import CHAT, CHAT_END, data
from support.telemetry import Traced, traced

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))
SHORT = Timeouts(first_content=0.3, idle=0.15)
KEY = {"model": "m", "api_key": "k"}
MESSAGES = (
    data("message_start", message={"id": "m1", "model": "m-2", "role": "assistant", "content": []}),
    data("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    *(data("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in ("one", "two")),
)
MESSAGES_END = (
    data("content_block_stop", index=0),
    data("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    data("message_stop"),
)
RESPONSES = [
    responses_frames.sse([frame])
    for frame in responses_frames.streamed(responses_frames.response(responses_frames.message("one two")))
]
CONVERSE = [message(name, value) for name, value in (bedrock_kit.text("one"), bedrock_kit.text("two"))]
CONVERSE_END = [message(name, value) for name, value in bedrock_kit.tail()]
RUNNABLE = [
    langserve_frames.stream_bytes([frame])
    for frame in langserve_frames.model_run(
        langserve_frames.said("one"), langserve_frames.said("two"), output=langserve_frames.message("onetwo")
    )
]
EVENTS = {"content_type": "application/vnd.amazon.eventstream"}
WIRES: dict[str, tuple[Callable[[str], Any], list[bytes], list[bytes], dict[str, str]]] = {
    "chat": (lambda url: OpenAIChatAdapter(base_url=url, **KEY), list(CHAT), list(CHAT_END), {}),
    "messages": (lambda url: AnthropicAdapter(base_url=url, **KEY), list(MESSAGES), list(MESSAGES_END), {}),
    "responses": (lambda url: OpenAIResponsesAdapter(base_url=url, **KEY), RESPONSES[:-2], RESPONSES[-2:], {}),
    "converse": (lambda url: BedrockAdapter(base_url=url, **KEY), CONVERSE, CONVERSE_END, EVENTS),
    "runnable": (
        lambda url: LangServeAdapter(base_url=url, **KEY),
        RUNNABLE[:-1],
        [RUNNABLE[-1], langserve_frames.stream_bytes([langserve_frames.END])],
        {},
    ),
}


async def _events(how: str) -> AsyncIterator[Any]:
    yield Text("one")
    await asyncio.sleep(0)
    yield Text("two")
    if how == "error":
        raise InvalidRequestError("no")
    if how == "cut":
        return
    if how == "hold":
        await asyncio.Event().wait()
    yield Finish("stop")


class Step(ModelAdapter):
    """Writes the step face."""

    model = "m"
    timeouts = SHORT

    def __init__(self, how: str) -> None:
        self.how = how

    async def stream(self, ctx: Any) -> Any:
        async for event in _events(self.how):
            yield event


class Child(Step):
    """Reaches for its parent's stream."""

    async def stream(self, ctx: Any) -> Any:
        async for event in super().stream(ctx):
            yield event


class Chat(ModelAdapter):
    """Writes the chat face."""

    model = "m"
    timeouts = SHORT

    def __init__(self, how: str) -> None:
        self.how = how

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        async for event in _events(self.how):
            if isinstance(event, Text):
                yield "text", event.text
        if self.how != "cut":
            yield "done", ChatResponse("onetwo", [], "end_turn", None)


class Plain:
    """A plain object with a stream."""

    id = "plain"
    timeouts = SHORT

    def __init__(self, how: str) -> None:
        self.how = how

    def stream(self, ctx: Any) -> Any:
        return _events(self.how)


class Responding(Model[Any]):
    """Writes the model face alone."""

    model = "m"

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return ModelResponse(choices=[Choice(message=Message(role="assistant", content="onetwo"))])


def _tier(how: str) -> Tier:
    async def generate(ctx: Any) -> StepResult:
        if how == "error":
            raise InvalidRequestError("no")
        if how in ("hold", "cut"):
            await asyncio.Event().wait()
        return StepResult((Text("onetwo"),))

    return Tier(id="tier", window_tokens=1000, max_output_tokens=100, generate=generate)


def _scripted(how: str) -> ScriptedAdapter:
    steps: dict[str, list[Any]] = {
        "error": [Text("one"), Text("two"), InvalidRequestError("no")],
        "cut": [Text("one"), Text("two")],
        "hold": [Text("one"), Text("two"), 60.0, Finish("stop")],
    }
    return ScriptedAdapter([steps.get(how, [Text("one"), Text("two"), Finish("stop")])])


STRANGERS: dict[str, Callable[[str], Any]] = {
    "step": Step,
    "child": Child,
    "chat-face": Chat,
    "scripted": _scripted,
}
TIERS: dict[str, Callable[[str], Any]] = {**STRANGERS, "plain": Plain, "tier": _tier}
DOORS: dict[str, Callable[[Any], Any]] = {
    "adapter": lambda adapter: adapter.stream(ASK),
    "chat": lambda adapter: adapter.stream_with_tools([{"role": "user", "content": "hello"}], []),
    "model": lambda adapter: adapter.stream_response([{"role": "user", "content": "hello"}]),
    "chain": lambda adapter: _chain(adapter).stream(ASK),
    "chain-in-chain": lambda adapter: define_chain(id="outer", tiers=[_chain(adapter)]).stream(ASK),
    "agent": lambda adapter: Agent(model=_chain(adapter)).run_stream("hello"),
}
WAYS = ("finish", "break", "close", "cancel", "error", "cut", "late")
HOWS = {"break": "hold", "close": "hold", "cancel": "hold", "late": "hold"}


def _chain(adapter: Any) -> Any:
    return define_chain(id="c", tiers=[adapter], retry=RetryPolicy(max_retries=0))


async def leave(stream: Any, way: str) -> None:
    """Read a stream and leave it this way."""
    if way == "break":
        async for _ in stream:
            break
        return
    if way == "close":
        async with aclosing(stream):
            async for _ in stream:
                break
        return
    reading = asyncio.ensure_future(_read(stream))
    if way == "cancel":
        await asyncio.sleep(0.05)
        reading.cancel()
    with suppress(IsthmusError, asyncio.CancelledError):
        await reading


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


async def _gone(seen: Traced) -> None:
    """Wait until streams that were dropped have been closed."""
    for _ in range(10):
        await asyncio.sleep(0.005)
    seen.settled()


OUTCOMES = {
    "finish": {"ok"},
    "break": {"closed"},
    "close": {"closed"},
    "cancel": {"cancelled"},
    "error": {"error"},
    "cut": {"error", "closed"},
    "late": {"error"},
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TIERS)
async def test_a_strangers_stream_leaves_one_ended_span(kind: str, way: str, door: str) -> None:
    """F23: finish, break, close, cancel, error, cut and time-out end the span of a call once, and those above."""
    if kind not in STRANGERS and door in ("adapter", "chat", "model"):
        pytest.skip("a plain object has no such door")
    if kind == "chat-face" and door == "chat":
        pytest.skip("it is the author's own method, with nothing of ours around it")
    if kind == "tier" and way not in ("finish", "cancel", "error"):
        pytest.skip("a whole reply cannot be left early")
    adapter = TIERS[kind](HOWS.get(way, way))
    if kind == "scripted":
        adapter.timeouts = SHORT
    with traced() as seen:
        stream: Any = DOORS[door](adapter)
        await leave(stream, way)
        del stream
        await _gone(seen)
        assert seen.one("chat")["isthmus.outcome"] in OUTCOMES[way]
        above = {"chain": ("attempt", "chain"), "agent": ("attempt", "chain", "invoke_agent")}
        for name in above.get(door, ()):
            assert len(seen.named(name)) == 1


@pytest.mark.parametrize("door", ["adapter", "chat", "model", "chain", "agent"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_built_in_adapters_stream_leaves_one_ended_span(wire: str, way: str, door: str) -> None:
    """F23: the same for each provider's own dialect, over a socket."""
    make, pieces, end, headers = WIRES[wire]
    answers: dict[str, list[Any]] = {
        "finish": stream(*pieces, *end, **headers),
        "error": [b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n"],
        "cut": [*stream(*pieces, last=False, **headers), CLOSE],
    }
    held = [*stream(*pieces, last=False, **headers), HOLD]
    async with LoopbackServer([answers.get(way, held)]) as server:
        adapter = make(server.url)
        adapter.timeouts = SHORT if way == "late" else None
        with traced() as seen:
            opened = DOORS[door](adapter)
            await leave(opened, way)
            del opened
            await _gone(seen)
            said = seen.one("chat")
            assert said["isthmus.outcome"] in OUTCOMES[way], said
            if way in ("error", "late"):
                assert said["error.type"] in ("invalid", "unavailable", "timeout")
        await adapter.aclose()


@pytest.mark.parametrize("kind", [*STRANGERS, "whole"])
async def test_a_whole_reply_is_one_span_too(kind: str) -> None:
    """F23: `generate`, `chat` and `get_response` are one span each, whichever method the author wrote."""
    adapter: Any = TIERS[kind]("finish") if kind in TIERS else _chain(Responding())
    asks: list[Callable[[], Any]] = [lambda: adapter.generate(ASK)]
    if kind in STRANGERS:
        asks += [
            lambda: TIERS[kind]("finish").chat([{"role": "user", "content": "hello"}], []),
            lambda: TIERS[kind]("finish").get_response([{"role": "user", "content": "hello"}]),
        ]
    with traced() as seen:
        for ask in asks:
            await ask()
        await _gone(seen)
        assert [dict(span.attributes or {})["isthmus.outcome"] for span in seen.named("chat")] == ["ok"] * len(asks)


def test_a_stream_dropped_with_its_loop_gone_still_ends() -> None:
    """F23: where no loop is left to close an abandoned iterator, its span ends when it is collected."""
    with traced() as seen:
        loop = asyncio.new_event_loop()
        events = aiter(Step("hold").stream(ASK))
        loop.run_until_complete(anext(events))  # type: ignore[arg-type]
        loop.close()
        del events
        gc.collect()
        assert seen.one("chat")["isthmus.outcome"] in ("closed", "abandoned")
