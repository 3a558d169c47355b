"""The limits that a host tells of its models: beside a turn, once, and never in its way."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.adapters.anthropic import AnthropicAdapter, modelsapi
from isthmus.adapters.anthropic.modelsapi import ModelLookup
from isthmus.adapters.anthropic.server import MessagesServer
from isthmus.models.contract import GenerateContext
from isthmus.models.fold import consume_stream
from isthmus.secret import Address
from support.caught import MESSAGES, Caught
from support.loopback import CLOSE, HOLD, LoopbackServer, Seen, whole

ASK = GenerateContext(messages=({"role": "user", "content": "Hi"},))
ENTRY = {"type": "model", "id": "claude-x", "max_input_tokens": 200000, "max_tokens": 4096}
REPLY = json.dumps(MESSAGES).encode()
KEY = "sk-canary-0123456789"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test learnt is gone in the next."""
    monkeypatch.setattr(modelsapi, "_known", {})
    monkeypatch.setattr(modelsapi, "_asking", set())


def serving(entry: list[Any], slow: float = 0.05) -> Callable[[Seen], list[Any]]:
    """A host that answers about its models with `entry`, and each call a little later."""
    return lambda seen: entry if seen.method == "GET" else [slow, whole(REPLY)]


def adapter(server: LoopbackServer, **settings: Any) -> AnthropicAdapter:
    """An adapter whose own host is the server."""
    row = MessagesServer(
        provider="anthropic", base_url=server.url, hosts=("127.0.0.1",), models_path="/v1/models/{model}"
    )
    return AnthropicAdapter(**{"model": "claude-x", "api_key": KEY, "server": row, **settings})


async def test_limits_are_learnt_beside_the_first_turn_and_kept_for_the_process() -> None:
    """Seed 000: what the table leaves unset is filled in from the Models API, asked once for all adapters and turns."""
    async with LoopbackServer(serving([whole(json.dumps(ENTRY).encode())])) as server:
        async with adapter(server) as first:
            assert (first.window_tokens, first.max_output_tokens) == (None, 8192)
            assert (await first.generate(ASK)).text == "Hello"
            assert (first.window_tokens, first.max_output_tokens) == (200000, 4096)
            await consume_stream(first.stream(ASK))
        async with adapter(server) as second:
            assert second.capabilities().max_output_tokens == 4096
            await second.generate(ASK)
        asked = [seen for seen in server.requests if seen.method == "GET"]
        sent = [json.loads(seen.body)["max_tokens"] for seen in server.requests if seen.method == "POST"]
    assert [seen.path for seen in asked] == ["/v1/models/claude-x"]
    assert (asked[0].headers["x-api-key"], asked[0].headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert sent == [8192, 4096, 4096]


async def test_the_table_goes_first_then_the_host_then_the_family() -> None:
    """Seed 000: the table is authoritative; the host fills in numbers alone, the family says how the model thinks."""
    async with LoopbackServer(serving([whole(json.dumps(ENTRY).encode())])) as server:
        limits = {"claude": {"max_output_tokens": 2000}}
        async with adapter(server, model="claude-sonnet-5", model_limits=limits) as model:
            await model.generate(ASK)
            known = model.capabilities()
    assert (known.context_window, known.max_output_tokens, known.thinking_default_on) == (200000, 2000, True)


@pytest.mark.parametrize(
    "entry",
    [
        [whole(b'{"error": {"message": "no"}}', status=404)],
        [whole(b"<html>")],
        [whole(b'{"max_tokens": "many", "max_input_tokens": -1}')],
        [whole(b"[]")],
        [CLOSE],
    ],
)
async def test_a_failure_is_silent_and_is_not_tried_again(entry: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """Seed 000: where the Models API cannot be had the table alone holds, without a word and without another try."""
    async with LoopbackServer(serving(entry)) as server, adapter(server) as model:
        asked = []
        for _ in range(2):
            assert (await model.generate(ASK)).notes == ()
            asked.append(sum(seen.method == "GET" for seen in server.requests))
    assert model.window_tokens is None
    assert asked[0] == asked[1] > 0
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def test_a_turn_never_waits_for_it_and_leaves_nothing_behind() -> None:
    """Seed 000: a host that does not answer about its models delays no turn; the request ends with the turn."""
    before = asyncio.all_tasks()
    async with LoopbackServer(serving([HOLD], slow=0.0)) as server:
        async with adapter(server) as model, asyncio.timeout(2):
            await model.generate(ASK)
            await consume_stream(model.stream(ASK))
        await server.until(lambda: server.open == 0)
        assert asyncio.all_tasks() - before <= server._tasks


async def test_a_reply_that_is_left_early_leaves_no_task() -> None:
    """A stream that is closed in the middle takes the request about the model with it."""
    async with LoopbackServer(serving([HOLD])) as server, adapter(server) as model:
        before = asyncio.all_tasks()
        stream = model.stream(ASK)
        async with stream:
            async for _ in stream:
                break
        assert {task for task in asyncio.all_tasks() - before if "_ask" in repr(task)} == set()


async def test_other_hosts_are_not_asked() -> None:
    """A gateway, and a transport of one's own, get the calls alone: the table says what they hide."""
    async with LoopbackServer(lambda seen: [whole(REPLY)]) as server:
        async with AnthropicAdapter(model="claude-x", api_key=KEY, base_url=server.url) as model:
            await model.generate(ASK)
        assert [seen.method for seen in server.requests] == ["POST"]
    caught = Caught(MESSAGES)
    await AnthropicAdapter(model="claude-x", api_key=KEY, transport=caught).generate(ASK)
    assert [sent.method for sent in caught.sent] == ["POST"]


async def test_a_trusted_address_is_asked() -> None:
    """A base URL from the user's own configuration may be a proxy of the host, and is asked once."""
    async with LoopbackServer(serving([whole(json.dumps(ENTRY).encode())])) as server:
        made = AnthropicAdapter(model="claude-x", api_key=KEY, base_url=server.url, base_url_trusted=True)
        async with made as model:
            await model.generate(ASK)
            assert model.window_tokens == 200000


class Slow:
    """Keys that take a moment to let go, or that fail in a way nobody expects."""

    refreshable = False

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.leaving = asyncio.Event()

    async def headers(self, *, refresh: bool = False) -> dict[str, str]:
        """Never any."""
        if self.error is not None:
            raise self.error
        try:
            await asyncio.sleep(10)
        finally:
            self.leaving.set()
            await asyncio.sleep(0.05)
        return {}

    def secrets(self) -> tuple[str, ...]:
        """None."""
        return ()


async def test_a_turn_that_is_cancelled_while_the_request_is_given_up_is_cancelled() -> None:
    """F10: a cancellation of the turn that comes as it ends is not taken for that of the request beside it."""
    keys = Slow()
    lookup = ModelLookup(Address("http://h.invalid/v1/models/m"), {}, transport=Caught(MESSAGES), keys=keys)

    async def turn() -> None:
        async with lookup.beside():
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    task = asyncio.create_task(turn())
    await keys.leaving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_strangers_part_raises_beside_a_turn_is_not_the_turns_failure() -> None:
    """Seed 000: the lookup fails in silence, whatever it fails of."""
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
    lookup = ModelLookup(
        Address("http://h.invalid/v1/models/m"), {}, transport=Caught(MESSAGES), keys=Slow(RuntimeError("odd"))
    )
    async with lookup.beside():
        await asyncio.sleep(0.01)
    gc.collect()
    await asyncio.sleep(0)
    assert (lookup.found, lost) == ({}, [])
