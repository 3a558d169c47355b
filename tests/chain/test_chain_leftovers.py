"""A call that failed leaves nothing that waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.chain import TierError, define_chain, tier_error
from isthmus.conformance import Play, serve
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, Text
from isthmus.models.retry import RetryPolicy

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
ONCE = RetryPolicy(max_retries=0)


class Down(ModelAdapter):
    def __init__(self, model: str = "down") -> None:
        self.model = model

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        raise tier_error("unavailable", "not today")
        yield


class Up(Down):
    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        yield Text("yes")
        yield Finish("stop")


class Cut(Down):
    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        yield Text("ye")
        raise tier_error("transient", "cut")


CHAINS = {
    "falls back": [Down("a"), Up("b")],
    "exhausted": [Down("a"), Down("b")],
    "cut": [Cut("a"), Up("b")],
    "nested": [define_chain(id="inner", tiers=[Down("a"), Up("b")], retry=ONCE), Up("c")],
    "nested, exhausted": [define_chain(id="inner", tiers=[Down("a"), Down("b")], retry=ONCE), Down("c")],
}


@contextmanager
def _garbage() -> Iterator[list[Any]]:
    """What only a collection would free of what the block made, once the block is left."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def _read(adapter: Any) -> None:
    with suppress(TierError):
        # A name for the stream would be in this frame, which the error keeps, as the stream does the error.
        async for _ in adapter.stream(CTX):
            pass


async def _asked(adapter: Any) -> None:
    with suppress(TierError):
        await adapter.generate(CTX)


@pytest.mark.parametrize("ask", [_read, _asked])
@pytest.mark.parametrize("case", CHAINS)
async def test_a_chain_leaves_no_cycle_behind(case: str, ask: Any) -> None:
    """Whether it failed or was mended."""
    if case == "cut" and sys.version_info >= (3, 12):
        pytest.skip("from 3.12 on the frames behind an error keep their callers, and these the reply that holds it")
    chain = define_chain(id="chain", tiers=CHAINS[case], retry=ONCE)
    await ask(chain)
    with _garbage() as found:
        await ask(chain)
    assert [type(each).__qualname__ for each in found] == []


@pytest.mark.parametrize("ask", [_read, _asked])
async def test_neither_does_an_adapter(ask: Any) -> None:
    """One that a stranger wrote."""
    await ask(Down())
    with _garbage() as found:
        await ask(Down())
    assert [type(each).__qualname__ for each in found] == []


@pytest.mark.parametrize("ask", [_read, _asked])
@pytest.mark.parametrize("status", [503, 400, None])
async def test_neither_does_a_wire(ask: Any, status: int | None) -> None:
    """A status, or a reply that cannot be read."""
    play = Play.whole("{}", status=status) if status else Play.stream(b"data: {not json}\n\n")
    with serve(play, repeat=True) as server:
        async with OpenAIChatAdapter(model="m", api_key="k", base_url=server.url) as adapter:
            await ask(adapter)
            with _garbage() as found:
                await ask(adapter)
                await asyncio.sleep(0)
    held = [each for each in found if isinstance(each, BaseException) or type(each).__module__.startswith("isthmus.")]
    assert [type(each).__qualname__ for each in held] == []
