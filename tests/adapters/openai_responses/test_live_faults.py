"""Runs over a WebSocket whose peer does what it should not: other responses' events, deafness, the key in its words."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ErrorClass, TierError
from support.live_kit import USER, Talk, live_client, on


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
