"""Runs over a WebSocket whose peer does what it should not: other responses' events, deafness, the key in its words."""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import Any

import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ErrorClass, TierError, TransientError
from isthmus.models.fold import classify
from support.live_kit import KEY, USER, Talk, live_client, on
from support.loopback import LoopbackServer, whole


async def told(peer: Peer, response_id: str, *pieces: str, after: str | None = None) -> None:
    """One response with these words."""
    await peer.begin(response_id, after)
    await peer.text(*pieces)
    await peer.end()


async def test_the_end_of_an_earlier_response_ends_no_other() -> None:
    """Told again, before or inside the next one, it is shown and nothing more: each reply is its own."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await told(peer, "r1", "one")
        first = peer.response
        await peer.say("response.completed", response=first)
        await peer.hear()
        await peer.begin("r2", "r1")
        await peer.say("response.completed", response=first)
        await peer.text("two")
        await peer.end()
        request = await peer.hear()
        assert request["previous_response_id"] == "r2"
        await told(peer, "r3", "three", after="r2")

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk, said = Talk(run), []
        for _ in range(3):
            last = await talk.turn()
            said.append((last.response.id, last.response.choices[0].message.content))
            talk.add(USER)
    assert said == [("r1", "one"), ("r2", "two"), ("r3", "three")]


async def end_of_another(peer: Peer) -> None:
    """The end of a response that nobody knows, inside another."""
    await peer.begin("r2", "r1")
    await peer.say("response.completed", response={**peer.response, "id": "r9", "status": "completed"})


async def no_beginning(peer: Peer) -> None:
    """A response without its first event."""
    peer.response = {**peer.response, "id": "r2", "output": [], "status": "in_progress"}
    await peer.text("two")
    await peer.end()


async def same_id(peer: Peer) -> None:
    """A response with the id of the one before it."""
    await told(peer, "r1", "two")


@pytest.mark.parametrize("wrong", [end_of_another, no_beginning, same_id])
async def test_a_response_that_is_not_the_one_asked_for_fails_the_reply(wrong: Any) -> None:
    """It can neither be told apart nor gone on from: an error, not an answer."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await told(peer, "r1", "one")
        await peer.hear()
        await wrong(peer)
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run)
        await talk.turn()
        talk.add(USER)
        with pytest.raises(ResponseError, match="response 'r") as caught:
            await talk.turn()
    assert caught.value.error_class is ErrorClass.PROTOCOL


async def test_a_failure_without_a_beginning_says_why() -> None:
    """A provider may refuse a request that way."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await told(peer, "r1", "one")
        await peer.hear()
        error = {"code": "rate_limit_exceeded", "message": "slow down"}
        await peer.say("response.failed", response={**peer.response, "id": "r2", "status": "failed", "error": error})
        await peer.gone()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run)
        await talk.turn()
        talk.add(USER)
        with pytest.raises(ResponseError, match="slow down"):
            await talk.turn()


@pytest.mark.parametrize("how", ["waits", "cancel", "steer"])
async def test_a_peer_that_reads_nothing_is_given_up(how: str) -> None:
    """What cannot be sent in time fails as what does not come; who cancels waits no longer than for a goodbye."""
    over, huge = asyncio.Event(), "x" * 20_000_000

    async def deaf(peer: Peer) -> None:
        if how == "steer":
            await peer.hear()
            await peer.begin("r1")
        peer._connection.transport.pause_reading()
        await over.wait()
        peer.drop()

    async def work(server: Any) -> None:
        async with live_client(server, timeout=0.3 if how != "cancel" else 60.0) as model, model.open_run() as run:
            if how == "steer":
                await Talk(run).turn(on("response.created", lambda: run.steer(huge)))
            else:
                await Talk(run, {"role": "user", "content": huge}).turn()

    async with live_server(deaf) as server:
        task = asyncio.ensure_future(work(server))
        if how == "cancel":
            await asyncio.sleep(0.5)
            task.cancel()
        began = time.monotonic()
        await asyncio.wait([task], timeout=5)
        over.set()
        assert task.done()
        assert time.monotonic() - began < 3
        if how == "cancel":
            assert task.cancelled()
        else:
            failure = task.exception()
            assert isinstance(failure, TransientError), repr(failure)
            assert "0.3 s" in str(failure)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_peer_that_never_answers_the_handshake_is_given_up() -> None:
    """After the configured seconds, and nothing stays open."""
    open_ends: list[asyncio.StreamWriter] = []

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ends.append(writer)
        await reader.read()
        writer.close()
        open_ends.remove(writer)

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        began = time.monotonic()
        async with live_client(url, timeout=0.2) as model:
            with pytest.raises(TimeoutError) as caught:
                async with model.open_run():
                    pass
        assert time.monotonic() - began < 5
        assert classify(caught.value).error_class is ErrorClass.TRANSIENT
        while open_ends:
            await asyncio.sleep(0.01)


async def test_no_word_of_the_peer_shows_the_key() -> None:
    """Neither the reason that it closes with nor the body that it refuses with, in the error or behind it."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await going.wait()
        await peer._connection.close(1008, f"bad {KEY}")

    async def read(run: Any, stream: Any, steering: bool) -> None:
        if steering:
            await run.steer("Focus")
        async for _ in stream:
            pass

    shown: list[str] = []
    for steering in (False, True):
        going = asyncio.Event()
        async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
            stream = run.stream_response([USER])
            await anext(stream)
            going.set()
            while server.open:
                await asyncio.sleep(0.01)
            with pytest.raises(Exception, match="1008") as caught:
                await read(run, stream, steering)
            await stream.aclose()
        shown += [*traceback.format_exception(caught.value), repr(caught.value), repr(caught.value.__cause__)]
    async with LoopbackServer([[whole(f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode(), 401)]]) as refusing:
        async with live_client(f"{refusing.url}/v1") as model:
            with pytest.raises(Exception, match="401") as caught:
                async with model.open_run():
                    pass
        shown += [*traceback.format_exception(caught.value), repr(caught.value)]
    assert not [line for line in shown if KEY in line]


async def test_what_is_unknown_is_told_once() -> None:
    """A call after the one that lost the connection has nothing to tell of inputs."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        peer.drop()

    async with live_server(play) as server, live_client(server) as model, model.open_run() as run:
        talk = Talk(run)
        for _ in range(2):
            with pytest.raises(TierError):
                await talk.turn(on("response.created", lambda: run.steer("Focus")))
    assert [copy.status for event in talk.events for copy in event.steering or ()] == ["unknown"]
