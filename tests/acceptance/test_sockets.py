"""Every way out of a stream closes its socket at once, through every door, on every loop, without the collector."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any

import pytest
import uvloop

from isthmus import define_chain, stream_sync
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.errors import TierError
from isthmus.harness import DefaultAgent
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Text
from support.loopback import CLOSE, HOLD, RESET, LoopbackServer, chunk, stream
from support.sockets import CHAT, CHAT_END, Elsewhere, data

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))
AT_ONCE = 0.2
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


MESSAGES = (
    data("message_start", message={"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}),
    data("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    *(data("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in ("one", "two")),
)
MESSAGES_END = (
    data("content_block_stop", index=0),
    data("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    data("message_stop"),
)
Make = Callable[[str], Any]
CODECS: dict[str, tuple[Make, tuple[bytes, ...], tuple[bytes, ...]]] = {
    "chat": (lambda url: OpenAIChatAdapter(model="m", base_url=url, api_key="k"), CHAT, CHAT_END),
    "messages": (lambda url: AnthropicAdapter(model="m", base_url=url, api_key="k"), MESSAGES, MESSAGES_END),
}


async def _pairs(adapter: Any) -> AsyncIterator[Any]:
    """The chat face, with its texts as events."""
    source = adapter.stream_with_tools([{"role": "user", "content": "hello"}], [])
    try:
        async for kind, value in source:
            if kind == "text":
                yield Text(value)
    finally:
        await source.aclose()


def two_tiers(adapter: Any, other: Any) -> Any:
    """A chain of the adapter and one that stands behind it."""
    other.model = "spare"
    return define_chain(id="pair", tiers=[adapter, other])


Door = Callable[[Any, Any], Any]
DOORS: dict[str, Door] = {
    "adapter": lambda adapter, other: adapter.stream(ASK),
    "chain": lambda adapter, other: two_tiers(adapter, other).stream(ASK),
    "agent": lambda adapter, other: DefaultAgent(model=adapter).run_stream("hello"),
    "agent-over-chain": lambda adapter, other: DefaultAgent(model=two_tiers(adapter, other)).run_stream("hello"),
    "chat-face": lambda adapter, other: adapter.stream_with_tools([{"role": "user", "content": "hello"}], []),
    "chat-face-generator": lambda adapter, other: _pairs(adapter),
}


def is_text(item: Any) -> bool:
    """Whether it is a piece of text, in the form of either face."""
    return isinstance(item, Text) or (isinstance(item, tuple) and item[0] == "text")


async def leave_the_block(begin: Callable[[], Any], reading: asyncio.Event) -> None:
    """Break within the stream's block."""
    source = begin()
    if not hasattr(source, "__aenter__"):
        source = aclosing(source)
    async with source as events:
        async for item in events:
            if is_text(item):
                break
    reading.set()


async def raise_within(begin: Callable[[], Any], reading: asyncio.Event) -> None:
    """Raise within a loop over a stream that no variable holds."""
    with suppress(ZeroDivisionError):
        async for item in begin():
            if is_text(item):
                raise ZeroDivisionError
    reading.set()


async def break_out(begin: Callable[[], Any], reading: asyncio.Event) -> None:
    """Break out of a loop over a stream that no variable holds."""
    async for item in begin():
        if is_text(item):
            break
    reading.set()


async def drop(begin: Callable[[], Any], reading: asyncio.Event) -> None:
    """Read one piece, and let go of the stream."""
    source = begin()
    while not is_text(await anext(source)):
        pass
    del source
    reading.set()


async def cancel(begin: Callable[[], Any], reading: asyncio.Event) -> None:
    """Be cancelled while the next piece is awaited."""

    async def read() -> None:
        async for item in begin():
            if is_text(item):
                asyncio.get_running_loop().call_later(0.02, reading.set)

    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def close_elsewhere(begin: Callable[[], Any], reading: asyncio.Event) -> None:
    """Have another task close it while the next piece is awaited."""
    source = begin()
    if not hasattr(source, "__aenter__"):
        return await leave_the_block(lambda: source, reading)

    async def read() -> None:
        async for item in source:
            if is_text(item):
                asyncio.get_running_loop().call_later(0.02, reading.set)

    task = asyncio.create_task(read())
    await reading.wait()
    await source.aclose()
    with suppress(asyncio.CancelledError, TierError):
        await task
    return None


WAYS = [leave_the_block, raise_within, break_out, drop, cancel, close_elsewhere]


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Nothing here may depend on the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def alone() -> None:
    """Wait, at most briefly, until this task is the only one."""
    async with asyncio.timeout(AT_ONCE):
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0)


async def leaves_at_once(adapter: Any, other: Any, server: LoopbackServer, door: Door, way: Any) -> None:
    """Go out by one way, and see the server notice."""
    reading = asyncio.Event()
    before = len(server.disconnects)
    await way(lambda: door(adapter, other), reading)
    left = monotonic()
    await server.until(lambda: len(server.disconnects) > before, 2)
    assert server.disconnects[-1].at - left < AT_ONCE


async def in_a_server_s_sight(answer: Any, work: Callable[[LoopbackServer], Awaitable[None]]) -> None:
    """Work beside a server; afterwards no task is left but the server's own."""
    async with LoopbackServer([answer]) as server:
        await work(server)
    await alone()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("door", DOORS)
def test_every_way_out_closes_the_socket_at_once(loop: str, codec: str, door: str) -> None:
    """F10: by whatever way a reader leaves, the server sees it within 0.2 s, in one loop after another."""
    make, pieces, _ = CODECS[codec]
    adapter, other = make("http://127.0.0.1:9"), make("http://127.0.0.1:9")
    for way in WAYS:

        async def work(server: LoopbackServer, way: Any = way) -> None:
            adapter.base_url = server.url
            await leaves_at_once(adapter, other, server, DOORS[door], way)

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(in_a_server_s_sight([*stream(*pieces, last=False), HOLD], work))


BROKEN: dict[str, Any] = {
    "reset": lambda pieces: [*stream(*pieces, 0.02, last=False), RESET],
    "cut": lambda pieces: [*stream(*pieces, 0.02, last=False), CLOSE],
    "cut-in-a-chunk": lambda pieces: [*stream(*pieces, 0.02, last=False), chunk(b"data: more")[:7], CLOSE],
    "malformed-chunk": lambda pieces: [*stream(*pieces, 0.02, last=False), b"zz\r\n", HOLD],
    "malformed-frame": lambda pieces: [*stream(*pieces, b"data: {nonsense\n\n", b"data: {}\n\n", last=False), HOLD],
    "reset-before-the-head": lambda pieces: [RESET],
    "closed-before-the-head": lambda pieces: [CLOSE],
}


async def ends_badly(source: Any) -> None:
    """Read a stream whose end is an error, an "error-post" finish or, of a run, a cut."""
    last: Any = None
    try:
        async for item in source:
            last = item
    except TierError:
        return
    outcome = getattr(source, "outcome", None)
    assert outcome.outcome == "cut" if outcome is not None else last.finish == "error-post"


@pytest.mark.parametrize(("door", "loop"), [*((door, "asyncio") for door in DOORS), ("adapter", "uvloop")])
@pytest.mark.parametrize("codec", CODECS)
def test_a_dead_server_leaves_nothing_behind(loop: str, codec: str, door: str) -> None:
    """F01, F10: a server that resets, cuts, garbles or refuses makes an error or a cut run and leaves nothing."""
    make, pieces, _ = CODECS[codec]
    adapter, other = make("http://127.0.0.1:9"), make("http://127.0.0.1:9")
    for answer in BROKEN.values():

        async def work(server: LoopbackServer) -> None:
            adapter.base_url = server.url
            await ends_badly(DOORS[door](adapter, other))
            left = monotonic()
            await server.until(lambda: server.open == 0, 2)
            assert server.disconnects[-1].at - left < AT_ONCE

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(in_a_server_s_sight(answer(pieces), work))
    adapter.base_url = "http://127.0.0.1:9"

    async def refused() -> None:
        with pytest.raises(TierError):
            async for _ in DOORS[door](adapter, other):
                pass
        await alone()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(refused())


def closed_early(events: Any) -> None:
    """Close the generator."""
    next(events)
    events.close()


def dropped_early(events: Any) -> None:
    """Nothing holds the generator any more once this returns."""
    next(events)


def broken_early(events: Any) -> None:
    """Raise while it is being read."""
    with suppress(ZeroDivisionError):
        for _ in events:
            raise ZeroDivisionError


@pytest.mark.parametrize("leave", [closed_early, dropped_early, broken_early])
@pytest.mark.parametrize("codec", CODECS)
def test_sync_readers_close_the_socket_too(codec: str, leave: Callable[[Any], None]) -> None:
    """F10: a sync generator that is closed, dropped or left by an error closes its socket, and ends its thread."""
    make, pieces, _ = CODECS[codec]
    with Elsewhere([*stream(*pieces, last=False), HOLD]) as there:
        threads = set(threading.enumerate())
        leave(stream_sync(make(there.server.url), "hello"))
        left = monotonic()
        assert there.gone() - left < AT_ONCE
        assert set(threading.enumerate()) == threads


def test_a_second_run_with_the_same_adapter_works() -> None:
    """F10: one adapter object serves `asyncio.run` after `asyncio.run`, the first of which left a stream half read."""
    for make, pieces, end in CODECS.values():
        with Elsewhere([*stream(*pieces, last=False), HOLD], stream(*pieces, *end)) as there:
            adapter = make(there.server.url)

            async def half() -> None:
                async for item in adapter.stream(ASK):  # noqa: B023
                    if is_text(item):
                        return

            async def all_of_it() -> str:
                return (await adapter.stream(ASK).result()).text  # noqa: B023

            asyncio.run(half())
            assert [asyncio.run(all_of_it()), asyncio.run(all_of_it())] == ["onetwo", "onetwo"]
            assert [event.text for event in stream_sync(adapter, "hello") if is_text(event)] == ["one", "two"]
