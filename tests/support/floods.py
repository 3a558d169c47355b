"""Replies without end: what a decoder gets must end it at its limit, and with memory in proportion to that."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any

from isthmus.models.contract import GenerateContext
from support import fuzzing

LIMIT = 2**17
_ASKED = GenerateContext(messages=({"role": "user", "content": "hi"},))
_TINY: Mapping[str, tuple[bytes, bytes]] = {
    "openai": (b"", b'{"choices":[{"delta":{"content":"a"}}]}'),
    "anthropic": (
        (
            b'data: {"type":"message_start","message":{}}\n\n'
            b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
        ),
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}',
    ),
    "openai-responses": (
        b'data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}\n\n',
        b'{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}',
    ),
}
_CALLS: Mapping[str, tuple[bytes, bytes]] = {
    "openai": (
        b"",
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"1"}}]}}]}',
    ),
    "anthropic": (
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f"}}\n\n',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1"}}',
    ),
    "openai-responses": (
        b'data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f"}}\n\n',
        b'{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"f","delta":"1"}',
    ),
}


def _event(data: bytes, count: int = 100) -> bytes:
    return (b"data: " + data + b"\n\n") * count


def _fresh(data: bytes) -> Iterator[bytes]:
    """The same bytes again and again, in memory of their own each time, as the network gives them."""
    while True:
        yield bytes(bytearray(data))


def floods(provider: str) -> Mapping[str, tuple[str, Iterator[bytes]]]:
    """Endless bodies by name, each with its content type."""
    sse, json, text, calls = *fuzzing.KINDS[:2], _TINY[provider], _CALLS[provider]
    return {
        "endless line": (sse, chain([b"data: "], _fresh(b"x" * 4096))),
        "endless event": (sse, repeat(b"data: x\n" * 500)),
        "endless comment": (sse, repeat(b": ping\n\n" * 500)),
        "nothing but line ends": (sse, repeat(b"\r\n" * 2000)),
        "empty objects": (sse, repeat(_event(b"{}"))),
        "tiny texts": (sse, chain([text[0]], repeat(_event(text[1])))),
        "tiny arguments": (sse, chain([calls[0]], repeat(_event(calls[1])))),
        "endless depth": (sse, chain([b"data: "], _fresh(b"[" * 4096))),
        "endless document": (json, chain([b'{"a":"'], _fresh(b"x" * 4096))),
        "deep document": (json, _fresh(b"[" * 4096)),
        "nothing but spaces": (json, _fresh(b" \n" * 2000)),
        "byte by byte": (json, chain([b"{"], repeat(b" "))),
    }


async def _drained(adapter: Any, whole: bool) -> Exception:
    try:
        if whole:
            return (await adapter.generate(_ASKED)).error or AssertionError("a reply without end has ended")
        async for _ in adapter.stream(_ASKED):
            pass
    except Exception as error:
        return error
    return AssertionError("a reply without end has ended")


def flooded(provider: str, name: str, *, whole: bool = False) -> tuple[Exception, int]:
    """What ended a flood, and the most bytes of Python's memory that it took on the way."""
    kind, chunks = floods(provider)[name]
    adapter = fuzzing.adapter_of(provider, chunks, kind=kind)
    adapter.max_reply_bytes = LIMIT
    tracemalloc.start()
    try:
        error = fuzzing.run(_drained, adapter, whole)
        return error, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def all_of() -> Iterator[tuple[str, str, Exception, int]]:
    """Every flood at every decoder: its name, the provider, what ended it, its peak in bytes."""
    for provider in fuzzing.PROVIDERS:
        for name in floods(provider):
            yield name, provider, *flooded(provider, name)
