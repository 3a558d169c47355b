"""Recorded traffic, played over real sockets."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import chain, islice
from typing import Any

import pytest

from isthmus import connect
from isthmus.conformance import Play, replay, serve
from isthmus.conformance.damage import Split
from isthmus.errors import TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from support.corpus import Recording, Row, corpus_root, load, recordings, rows
from support.rawclient import ask
from support.sdk_reading import Unreadable, read

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(corpus_root() is None, reason="no recordings beside the checkout")]

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
# api -> the provider whose adapter reads it.
READERS = {"openai-chat": "openai", "anthropic-messages": "anthropic"}


def play(row: Row) -> Play:
    """The play of a recording."""
    root = corpus_root()
    assert root is not None
    return Play.recording(root / row.path)


def some(api: str, count: int, **which: Any) -> list[tuple[Row, Recording]]:
    """Recordings of an API, always the same."""
    found = list(islice(recordings(api, **which), 400))
    return random.Random(7).sample(found, min(count, len(found)))


async def test_any_provider_s_bytes_come_as_they_were_recorded() -> None:
    """Status, body and chunk edges of recordings of every API, event streams and framings of any kind included."""
    apis = ["openai-responses", "bedrock-converse-stream", "bedrock-invoke-stream", "langserve-stream_events"]
    apis += ["openai-chat", "anthropic-messages", "ollama-native"]
    chosen = list(chain.from_iterable(islice(rows(api), 0, 60, 6) for api in apis))
    assert len({row.api for row in chosen}) >= 6
    async with serve([play(row) for row in chosen]) as server:
        for row in chosen:
            reply, recorded = await ask(server.url), load(row)
            assert (reply.status, reply.body) == (recorded.status, recorded.body), row.path
            if reply.chunks and recorded.chunk_sizes:
                assert [len(data) for data in reply.chunks] == [size for size in recorded.chunk_sizes if size], row.path
    assert not server.problems


@pytest.mark.parametrize("api", READERS)
@pytest.mark.parametrize("stream", [True, False])
async def test_our_adapters_read_them_as_from_a_file(api: str, stream: bool) -> None:
    """F16: over a socket, also byte by byte, a recording amounts to what its replay from the file amounts to."""
    root = corpus_root()
    assert root is not None
    chosen = some(api, 12, stream=stream)
    plays = [damaged for row, _ in chosen for damaged in (play(row), play(row).damaged(Split(7)))]
    async with serve(plays) as server, connect(f"{READERS[api]}:m", api_key="none", base_url=server.url) as adapter:
        for row, _ in chosen:
            expected = replay(root / row.path, adapter=READERS[api]).to_dict()
            for _ in range(2):
                found = await outcome(adapter, stream=stream)
                assert found == {name: expected[name] for name in found}, row.path


async def outcome(adapter: Any, *, stream: bool) -> dict[str, Any]:
    """What a reply amounts to, failed or not, but for when it failed."""
    try:
        result = await (adapter.stream(CTX).result() if stream else adapter.generate(CTX))
    except TierError as error:
        result = StepResult(finish="error-post", error=error)
    said = result.to_dict()
    if said["error"] is not None:
        return {"error": {**said["error"]}}
    return {name: said[name] for name in ("text", "reasoning", "calls", "finish", "raw_reason", "native")}


def readable(api: str) -> list[tuple[Row, str]]:
    """Recordings that the official client can read, with the text that it finds in their bytes."""
    found = []
    for row, recorded in some(api, 9, stream=False, status=200):
        with suppress(Unreadable):
            found.append((row, read(api, recorded, stream=False).text))
    assert len(found) > 4
    return found


ASKED: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def test_the_official_chat_client_reads_them_as_without_the_server() -> None:
    """The official client of Chat Completions finds over the socket the text that it finds in the bytes."""
    openai, chosen = pytest.importorskip("openai"), readable("openai-chat")
    async with (
        serve([play(row) for row, _ in chosen]) as server,
        openai.AsyncOpenAI(api_key="none", base_url=server.url, max_retries=0) as client,
    ):
        for row, text in chosen:
            message = (await client.chat.completions.create(**ASKED)).choices[0].message
            assert (message.content or "") + (message.refusal or "") == text, row.path


async def test_the_official_messages_client_reads_them_as_without_the_server() -> None:
    """The official client of the Messages API finds over the socket the text that it finds in the bytes."""
    anthropic, chosen = pytest.importorskip("anthropic"), readable("anthropic-messages")
    async with (
        serve([play(row) for row, _ in chosen]) as server,
        anthropic.AsyncAnthropic(api_key="none", base_url=server.url, max_retries=0) as client,
    ):
        for row, text in chosen:
            reply = await client.messages.create(**ASKED, max_tokens=9)
            assert "".join(block.text for block in reply.content if block.type == "text") == text, row.path
