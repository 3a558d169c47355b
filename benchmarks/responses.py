"""What a streamed Responses reply costs here, as ratios to the floor and to the official SDK, measured in one run.

Prints medians and spreads of alternating rounds; exits 1 when a wanted ratio is missed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import aiohttp
import msgspec
import openai
from stream import Contender, Report, _no_limits, paired, rounds

from isthmus.adapters.openai_responses import OpenAIResponsesAdapter, ResponsesClient
from isthmus.models import Config
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Text

PIECES = 500
TEXT = " token"
ROUNDS = 9
BODY = {"model": "m", "input": [{"role": "user", "content": "hi"}], "stream": True}
CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))


def events() -> list[dict[str, object]]:
    """A reply of one message, as the API tells it."""
    item = {"id": "msg_0123456789abcdef0123456789abcdef", "type": "message", "role": "assistant"}
    part = {"type": "output_text", "annotations": [], "logprobs": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    usage = {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": PIECES}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20 + PIECES}
    response = {"id": "resp_0123456789abcdef0123456789abcdef", "object": "response", "created_at": 1764460800}
    response |= {"status": "in_progress", "model": "gpt-4o-mini-2024-07-18", "output": [], "error": None}
    response |= {"incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True}
    response |= {"temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": None, "store": True}
    done = {**item, "status": "completed", "content": [{**part, "text": TEXT * PIECES}]}
    told: list[dict[str, object]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
    ]
    delta = {"type": "response.output_text.delta", **place, "delta": TEXT, "logprobs": [], "obfuscation": "Zx81Yw"}
    told += [delta] * PIECES
    end = {"status": "completed", "output": [done], "usage": usage}
    told += [
        {"type": "response.output_text.done", **place, "text": TEXT * PIECES, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": {**part, "text": TEXT * PIECES}},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": {**response, **end},
        },
    ]
    return [{"type": event["type"], "sequence_number": at, **event} for at, event in enumerate(told)]


def serve(told: list[dict[str, object]]) -> None:
    """Answer every request with these events at once; print the port, end with the standard input."""
    data = b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode() for event in told
    )
    reply = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(data) + data

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
                await reader.readexactly(length)
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(main())


class Delta(msgspec.Struct):
    """What the floor reads of an event."""

    type: str
    delta: str | None = None


decode = msgspec.json.Decoder(Delta).decode


async def floor(session: aiohttp.ClientSession, url: str) -> AsyncIterator[str]:
    """aiohttp, and nothing but the decoding of the text."""
    async with session.post(url + "/responses", json=BODY, headers={"Authorization": "Bearer k"}) as reply:
        rest = b""
        async for data in reply.content.iter_any():
            *told, rest = (rest + data).split(b"\n\n")
            for event in told:
                read = decode(event[event.index(b"data: ") + 6 :])
                if read.type == "response.output_text.delta" and read.delta is not None:
                    yield read.delta


async def contenders(stack: AsyncExitStack, base: str) -> list[Contender]:
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    http = openai.DefaultAsyncHttpxClient(limits=_no_limits())
    sdk = openai.AsyncOpenAI(api_key="k", base_url=base, max_retries=0, http_client=http)
    stack.push_async_callback(sdk.close)
    adapter = await stack.enter_async_context(OpenAIResponsesAdapter("m", api_key="k", base_url=base))
    client = await stack.enter_async_context(ResponsesClient(Config(api_key="k", model="m", base_url=base)))

    async def by_sdk(_: str) -> AsyncIterator[str]:
        async with await sdk.responses.create(model="m", input="hi", stream=True) as told:
            async for event in told:
                if event.type == "response.output_text.delta":
                    yield event.delta

    async def by_client(_: str) -> AsyncIterator[str]:
        async for event in client.stream_response([{"role": "user", "content": "hi"}]):
            if event.text is not None:
                yield event.text

    return [
        Contender("floor", lambda url: floor(session, url)),
        Contender("adapter", lambda _: adapter.stream(CTX)),
        Contender("client", by_client),
        Contender("sdk", by_sdk),
    ]


async def cost(base: str, contender: Contender) -> float:
    """CPU time of a piece, in µs."""
    streams = 4 if contender.name == "sdk" else 30
    begun = time.process_time()
    for _ in range(streams):
        count = 0
        async for item in contender.stream(base):
            count += type(item) in (str, Text)
        assert count == PIECES, (contender.name, count)
    return (time.process_time() - begun) / streams / PIECES * 1e6


async def measure(base: str, report: Report) -> None:
    async with AsyncExitStack() as stack:
        figures = await rounds(await contenders(stack, base), partial(cost, base), ROUNDS)
    report.table("500 pieces of text at once: CPU a piece", "µs", figures)
    # The framing names each event, which the floor does not look at.
    report.want("adapter against the floor", paired(figures, "adapter", "floor"), 3.0)
    report.want("adapter: times less than the SDK", paired(figures, "sdk", "adapter"), 20.0, at_least=True)
    report.want("client: times less than the SDK's own iterator", paired(figures, "sdk", "client"), 5.0, at_least=True)


def run(told: list[dict[str, object]], measuring: Callable[[str, Report], Awaitable[None]]) -> int:
    """Measure against a server of these events, which is this program with `--serve`; the exit status."""
    if "--serve" in sys.argv:
        serve(told)
        return 0
    report = Report()
    command = [sys.executable, sys.argv[0], "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        asyncio.run(measuring(f"http://127.0.0.1:{process.stdout.readline().strip()}", report))
        assert process.stdin is not None
        process.stdin.close()
    print(f"\n{len(report.missed)} missed")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(run(events(), measure))
