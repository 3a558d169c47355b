"""Faults that an adapter's author is the last to think of, each one change away from a right twin; and slow makers."""

from __future__ import annotations

import asyncio
import time
import unicodedata
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelCapabilities
from isthmus.adapters.faces import source_of
from isthmus.chain import define_chain
from isthmus.conformance import conform
from support.twins import TOOLS, Chat, Step


def but(twin: type, **changes: Any) -> type:
    """The twin with some methods changed."""
    source = source_of(twin)
    assert source is not None
    again = {**source.written, **({"stream_chat": vars(twin)["stream_chat"]} if twin is Chat else {})}
    return type(twin.__name__, (twin,), {**again, **changes})


def result_as(change: Any) -> type:
    """A twin whose tool turn says a result otherwise."""
    return but(Chat, answer=lambda self, call, output: Chat.answer(self, call, change(output)))


def grown(self: Any, response: Any, results: Any) -> Any:
    """A tool turn that holds all earlier ones."""
    self.__dict__.setdefault("turns", []).extend(Chat.make_tool_turn(self, response, results))
    return self.turns


def slow(self: Any) -> ModelCapabilities:
    """Capabilities that are asked for elsewhere."""
    time.sleep(0.15)
    return ModelCapabilities()


async def once(self: Any, messages: Any, tools: Any) -> ChatResponse:
    """A chat that works the first time."""
    self.count = getattr(self, "count", 0) + 1
    if self.count > 1:
        raise RuntimeError("the session is used up")
    reply: ChatResponse = await Chat.chat(self, messages, tools)
    return reply


async def marked(self: Any, ctx: Any) -> Any:
    """A stream that leaves its mark."""
    ctx.options["seen"] = True
    async for event in Step.stream(self, ctx):
        yield event


BROKEN = {
    "a result cut at 2000": (result_as(lambda text: text[:2000]), "turn-results"),
    "a result in small letters": (result_as(str.lower), "turn-results"),
    "a result normalised": (result_as(lambda text: unicodedata.normalize("NFKC", text)), "turn-results"),
    "a text of None as a word": (
        but(Chat, asked=lambda self, said, results: {**Chat.asked(self, said, results), "content": str(said.text)}),
        "turn-made",
    ),
    "results before their calls": (
        but(
            Chat,
            make_tool_turn=lambda self, said, results: [
                *(self.answer(call, output) for call, output in results),
                self.asked(said, results),
            ],
        ),
        "turn-assistant",
    ),
    "turns that grow": (but(Chat, make_tool_turn=grown), "turn-pure"),
    "capabilities that block": (but(Chat, capabilities=slow), "capabilities"),
    "an adapter for one call": (but(Chat, chat=once), "concurrent"),
    "the caller's options marked": (but(Step, stream=marked), "callers-data"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_from_outside_is_caught_by_its_law_alone(name: str) -> None:
    """F07, F10, F22: one change in a right adapter gives errors of the law that it breaks, and of no other."""
    kind, law = BROKEN[name]
    report = asyncio.run(conform(kind, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {law}, report.table()


async def never() -> None:
    """A factory that makes nothing."""
    await asyncio.sleep(1000)


class Stays(Chat):
    async def aclose(self) -> None:
        await never()


@pytest.mark.parametrize(("maker", "law"), [(never, "made"), (Stays, "answers")])
def test_what_never_ends_is_told_and_left(maker: Any, law: str) -> None:
    """F24: a factory that makes nothing, and an adapter that does not close, are findings after the time given."""
    started = time.monotonic()
    report = asyncio.run(conform(maker, tools=TOOLS, patience=0.4))
    assert law in {finding.law for finding in report.errors}, report.table()
    assert time.monotonic() - started < 30


def test_who_does_not_say_to_take_tools_may_refuse_them() -> None:
    """A chain of adapters that declare no tools refuses a request with tools, and is right."""
    report = asyncio.run(conform(lambda: define_chain(id="one", tiers=[Step()])))
    assert report.ok, report.table()
