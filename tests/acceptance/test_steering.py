"""Steering through every level below a run: the step face, a chain, and the events that an agent shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.adapters.base import as_adapter
from isthmus.chain import RetryPolicy, define_chain
from isthmus.conformance import faulty
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import TransientError
from isthmus.harness import AgentDescriptor
from isthmus.harness.agents import DefaultAgent
from isthmus.models import SteeringReceipt
from isthmus.models.aside import Aside
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text
from isthmus.models.messages import assistant_message
from isthmus.models.steering import Steerable
from support.chain_doubles import PlayTier
from support.live_kit import USER, live_client, steered

FOCUS = {"role": "user", "content": "Focus"}


async def asides(stream: Any, steer: Any = None) -> tuple[Any, list[Any]]:
    """The reply of a stream, and what it showed aside."""
    shown = []
    async with stream as events:
        async for event in events:
            if isinstance(event, Aside):
                shown.append(event.event)
                if steer is not None and event.event.provider_event_type == "response.created":
                    await steer()
        return await events.result(), shown


@pytest.mark.parametrize("nested", [False, True], ids=["chain", "chain in a chain"])
async def test_a_chain_steers_the_tier_at_work(nested: bool) -> None:
    """Its streams show the provider's events and the continuation; the next call reads the successor."""
    async with live_server(steered) as server, live_client(server) as model:
        inner = define_chain(id="inner", tiers=[model])
        chain = define_chain(id="outer", tiers=[inner]) if nested else inner
        with pytest.raises(RuntimeError, match="no active steering channel"):
            await chain.steer("Focus")
        async with chain.open_run() as run:
            assert isinstance(run, Steerable)
            with pytest.raises(RuntimeError, match="no active steering channel"):
                await run.steer("Focus")
            receipts: list[SteeringReceipt] = []

            async def steer() -> None:
                receipts.append(await run.steer("Focus"))

            first, shown = await asides(run.stream(GenerateContext(messages=(USER,))), steer)
            last = shown[-1]
            assert (last.kind, last.continuation, last.input_messages) == ("completed", "automatic", [FOCUS])
            assert (first.text, first.raw_reason, first.usage.output_tokens) == ("Batteries store", "steered", 6)
            history = (USER, assistant_message(first), *last.input_messages)
            second, shown = await asides(run.stream(GenerateContext(messages=history)))
            assert (second.text, second.finish) == ("At home", "stop")
            assert [event.kind for event in shown if event.continuation] == []
        assert (receipts[0].status, receipts[0].response_id) == ("applied", "r2")
        await asyncio.sleep(0.05)
        assert server.open == 0
    assert len(server.peers) == 1


async def test_a_tier_that_cannot_be_steered_says_so() -> None:
    """A plain tier has no channel at all."""
    async with define_chain(id="plain", tiers=[PlayTier("a", [Text("Hello"), Finish("stop")])]).open_run() as run:
        await run.generate(GenerateContext(messages=(USER,)))
        with pytest.raises(RuntimeError):
            await run.steer("Focus")


async def test_a_connection_lost_before_content_falls_back() -> None:
    """What was shown aside is taken back by a `Reset`; the next tier answers."""

    async def lost(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        peer.drop()

    async with live_server(lost) as server, live_client(server) as model:
        chain = define_chain(id="two", tiers=[model, PlayTier("b", [Text("From b"), Finish("stop")])])
        async with chain.open_run() as run:
            events = [event async for event in run.stream(GenerateContext(messages=(USER,)))]
            assert [event.type for event in events if event.type != "text"][:2] == ["aside", "reset"]
            assert (await run.generate(GenerateContext(messages=(USER,)))).text == "From b"
    assert len(server.peers) == 1


async def test_a_steered_reply_goes_on_at_the_tier_that_served_it() -> None:
    """Also in a chain that begins each call with its first tier, which is well again by then."""
    first = PlayTier("a", [TransientError("busy")], [Text("From a"), Finish("stop")])
    async with live_server(steered) as server, live_client(server) as model:
        tiers = [first, faulty(as_adapter(model), [])]
        chain = define_chain(id="two", tiers=tiers, sticky="none", retry=RetryPolicy(max_retries=0))
        async with chain.open_run() as run:
            reply, shown = await asides(run.stream(GenerateContext(messages=(USER,))), lambda: run.steer("Focus"))
            history = (USER, assistant_message(reply), *shown[-1].input_messages)
            assert (await run.generate(GenerateContext(messages=history))).text == "At home"
            assert (await run.generate(GenerateContext(messages=(USER,)))).text == "From a"


async def test_an_agent_shows_the_providers_events() -> None:
    """Each as it is, beside the text, and the whole reply last."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Hel", "lo")
        await peer.end()

    async with live_server(play) as server, live_client(server) as model:
        agent = DefaultAgent(descriptor=AgentDescriptor(name="Research", model=model))
        stream = await agent.run_stream("Hi")
        events = [event async for event in stream]
        result = await stream.result()
    assert events[0].provider_event_type == "response.created"
    assert "".join(event.text or "" for event in events) == "Hello"
    assert events[-1].kind == "completed"
    assert result.final_output == "Hello"
