"""The scripted server over a WebSocket: what it lets pass, and what it finds."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from isthmus.conformance.live import Peer, live_server


async def hello(peer: Peer) -> None:
    """One reply with everything in it."""
    await peer.hear()
    await peer.begin("r1")
    await peer.text("Hel", "lo")
    await peer.call("look", '{"x": 1}', call_id="c1", **{"async": True})
    await peer.end()


async def connected(url: str, *messages: dict[str, Any]) -> list[Any]:
    """What the SDK's own client hears for these messages."""
    client = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0)
    heard = []
    async with client, client.responses.connect(max_retries=0) as connection:
        for message in messages:
            await connection.send_raw(json.dumps(message))
        async for event in connection:
            heard.append(event)
            if event.type == "response.completed":
                break
    return heard


async def test_the_official_sdk_understands_it() -> None:
    """Its own client reads every event as one of its models."""
    async with live_server(hello) as server:
        events = await connected(server.url, {"type": "response.create", "model": "m", "input": "Hi"})
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello"
    call = events[-1].response.output[1]
    assert (call.name, call.async_, call.call_id) == ("look", True, "c1")


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"type": "response.create", "model": "m", "input": 3}, "do not allow"),
        ({"type": "response.create", "model": "m", "input": "Hi", "made_up": 1}, "made_up"),
        ({"type": "response.steer", "input": "Focus", "previous_response_id": "r1"}, "should come"),
        ({"type": "response.steer", "input": "Focus"}, "do not allow"),
        ({"type": "response.cancel"}, "do not allow"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_wrong_message_of_a_client_is_found(message: dict[str, Any], fault: str) -> None:
    """A wrong field, an unknown one, a message out of turn, an unknown one: the block of the server fails."""
    with pytest.raises(AssertionError, match=fault):
        async with live_server(hello) as server:
            await connected(server.url, message)


async def test_what_the_api_takes_is_let_pass() -> None:
    """An image without its detail, what an assistant said without an id, and messages of any size."""
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{'A' * 2_000_000}"}
    said = {"type": "message", "role": "assistant", "status": "completed", "content": []}
    said["content"] = [{"type": "output_text", "text": "Hello", "annotations": []}]
    request = {"type": "response.create", "model": "m", "input": [said, {"role": "user", "content": [image]}]}
    async with live_server(hello) as server:
        assert (await connected(server.url, request))[-1].type == "response.completed"
    assert server.peers[0].heard_all == [request]


async def test_a_script_that_fails_is_shown() -> None:
    """With its own error, whatever that is."""

    async def wrong(peer: Peer) -> None:
        assert (await peer.hear())["tools"]

    with pytest.raises(KeyError, match="tools"):
        async with live_server(wrong) as server:
            await connected(server.url, {"type": "response.create", "model": "m", "input": "Hi"})


async def test_a_wrong_event_of_a_script_is_found() -> None:
    """What the SDK's models do not allow is never sent."""

    async def wrong(peer: Peer) -> None:
        await peer.hear()
        await peer.say("response.output_text.delta", delta=3)

    with pytest.raises(AssertionError, match="a script sends"):
        async with live_server(wrong) as server:
            await connected(server.url, {"type": "response.create", "model": "m", "input": "Hi"})


async def test_a_client_that_leaves_too_early_is_found() -> None:
    """And one that says something where it should leave."""

    async def late(peer: Peer) -> None:
        await hello(peer)
        await peer.hear()

    async def over(peer: Peer) -> None:
        await peer.gone()

    request = {"type": "response.create", "model": "m", "input": "Hi"}
    with pytest.raises(EOFError, match=r"response\.create"):
        async with live_server(late) as server:
            await connected(server.url, request)
    with pytest.raises(AssertionError, match="should close"):
        async with live_server(over) as server:
            await connected(server.url, request)
