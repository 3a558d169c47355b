"""The examples of the page on custom adapters, in Python, changed in the import root and the language only."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus.chain import (
    ChainExhausted,
    GenerateContext,
    StreamEvent,
    Tier,
    consume_stream,
    define_chain,
    tier_error,
)
from isthmus.models.events import Text, Usage
from support.chain_doubles import FakeTime, Recorder

greeting_tier = Tier(
    id="local-greeting",
    window_tokens=8_000,
    max_output_tokens=256,
    generate=lambda ctx: {
        "events": [{"type": "text", "text": "Hello from the local adapter."}],
        "finish": "stop",
    },
)

local_chain = define_chain(
    id="local-chain",
    tiers=[greeting_tier],
)


async def do_stream(ctx: GenerateContext) -> AsyncIterator[StreamEvent | dict[str, Any]]:
    """Answer with the instructions."""
    yield {"type": "text", "text": "Answering: "}
    yield {"type": "text", "text": ctx.brief}
    yield {
        "type": "finish",
        "finish": "stop",
        "usage": {"inputTokens": 24, "outputTokens": 8, "estimated": True},
    }


streaming_tier = Tier(
    id="local-streaming",
    window_tokens=8_000,
    max_output_tokens=256,
    stream=do_stream,
    generate=lambda ctx: consume_stream(do_stream(ctx)),
)


def fail(ctx: GenerateContext) -> Any:
    """Be out of order."""
    raise tier_error("unavailable", "deliberate local outage")


unavailable = dataclasses.replace(
    greeting_tier,
    id="local-unavailable",
    generate=fail,
)


async def test_the_greeting_tier_greets() -> None:
    """The minimal tier, one sync function and no stream, answers through a chain, streamed and whole."""
    reply = await local_chain.generate(GenerateContext(brief="Whatever the prompt says."))
    assert (reply.text, reply.finish, reply.usage) == ("Hello from the local adapter.", "stop", None)
    texts = [event.text async for event in local_chain.stream(GenerateContext()) if isinstance(event, Text)]
    assert texts == ["Hello from the local adapter."]


async def test_the_streaming_tier_streams_each_delta() -> None:
    """Each delta reaches the caller by itself, and the usage arrives as the tier reported it."""
    chain = define_chain(id="streaming", tiers=[streaming_tier])
    events = [event async for event in chain.stream(GenerateContext(brief="forty-two"))]
    assert [event.text for event in events[:-1]] == ["Answering: ", "forty-two"]
    assert events[-1].usage == Usage(input_tokens=24, output_tokens=8, estimated=True)


async def test_generate_by_consume_stream_equals_the_stream() -> None:
    """`generate` made of `consume_stream` gives the same reply as the chain's own fold of the stream."""
    ctx = GenerateContext(brief="forty-two")
    assert streaming_tier.generate is not None
    direct: Any = await streaming_tier.generate(ctx)  # type: ignore[misc]
    assert direct == await define_chain(id="streaming", tiers=[streaming_tier]).generate(ctx)
    assert direct.text == "Answering: forty-two"


async def test_consume_stream_forwards_text_to_its_callback() -> None:
    """The optional callback of `consume_stream` gets each text delta, in order."""
    heard: list[str] = []
    await consume_stream(do_stream(GenerateContext(brief="x")), heard.append)
    assert heard == ["Answering: ", "x"]


async def test_an_unavailable_tier_falls_back_at_once() -> None:
    """F05: the injected `unavailable` gets one try, and the working tier after it answers."""
    time = FakeTime()
    chain = define_chain(id="faulted", tiers=[unavailable, greeting_tier], clock=time.clock())
    with Recorder() as seen:
        reply = await chain.generate(GenerateContext())
    assert reply.text == "Hello from the local adapter."
    assert [f["tier"] for f in seen.fields("attempt.started")] == ["local-unavailable", "local-greeting"]
    assert time.waits == []


async def test_a_transient_error_is_tried_again_on_the_same_tier() -> None:
    """F05: a `transient` failure exercises the same-tier retry."""
    tries: list[int] = []

    def shaky(ctx: GenerateContext) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise tier_error("transient", "deliberate hiccup")
        return {"events": [{"type": "text", "text": "second try"}], "finish": "stop"}

    tier = dataclasses.replace(greeting_tier, id="local-shaky", generate=shaky)
    chain = define_chain(id="shaky", tiers=[tier, greeting_tier], clock=FakeTime().clock())
    assert (await chain.generate(GenerateContext())).text == "second try"
    assert len(tries) == 2


async def test_only_failing_tiers_exhaust_the_chain() -> None:
    """A chain of failing tiers raises `ChainExhausted` that names each of them."""
    chain = define_chain(id="dead", tiers=[unavailable, dataclasses.replace(unavailable, id="local-second")])
    with pytest.raises(ChainExhausted, match=r"local-unavailable.*local-second") as caught:
        await chain.generate(GenerateContext())
    assert [failure.tier for failure in caught.value.failures] == ["local-unavailable", "local-second"]


async def test_a_fault_put_on_a_streaming_tier_fires() -> None:
    """T1: replacing `generate` alone leaves no old stream behind that would be preferred to it."""
    broken = dataclasses.replace(streaming_tier, id="local-broken", generate=fail)
    chain = define_chain(id="faulted", tiers=[broken, greeting_tier])
    assert (await chain.generate(GenerateContext())).text == "Hello from the local adapter."


async def test_a_throw_after_content_is_passed_through() -> None:
    """F05: a throw after a content event becomes "error-post", and the chain neither retries nor falls back."""

    async def breaks(ctx: GenerateContext) -> AsyncIterator[Any]:
        yield {"type": "text", "text": "half an ans"}
        raise tier_error("transient", "connection lost")

    tier = dataclasses.replace(streaming_tier, id="local-breaking", stream=breaks)
    chain = define_chain(id="breaking", tiers=[tier, greeting_tier])
    with Recorder() as seen:
        reply = await chain.generate(GenerateContext())
    assert (reply.text, reply.finish) == ("half an ans", "error-post")
    assert reply.error is not None
    assert reply.error.error_class == "transient"
    assert len(seen.fields("attempt.started")) == 1
