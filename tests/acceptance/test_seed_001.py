"""What the page on tiers and chains promises, held by an agent that runs the chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest

from isthmus import Agent, Tier, define_chain
from isthmus.chain import CutReason, GenerateContext, ModelEvent, StreamEvent, consume_stream, tier_error
from isthmus.errors import InvalidRequestError, ProtocolError
from isthmus.models.contract import ToolSpec
from isthmus.models.events import Call, Finish, Text


def tier(id: str = "local", **faces: Any) -> Tier:
    """A tier as the page writes it."""
    return Tier(id=id, window_tokens=8_000, max_output_tokens=256, **faces)


def greets(ctx: GenerateContext) -> dict[str, Any]:
    """The fixed reply of the page."""
    return {"events": [{"type": "text", "text": "Hello from the local adapter."}], "finish": "stop"}


def look(q: str) -> str:
    """Look something up."""
    return f"<{q}>"


def asks(ctx: GenerateContext) -> dict[str, Any]:
    """A call, each time."""
    call = {"type": "call", "tool": "look", "input": {"q": "x"}, "callId": f"c{len(ctx.messages)}"}
    return {"events": [call], "finish": "tool-calls"}


def test_there_are_two_content_events_and_one_terminal_frame() -> None:
    """`ModelEvent` is text or call, `StreamEvent` these and the finish, and nothing else."""
    assert get_args(ModelEvent) == (Text, Call)
    assert get_args(StreamEvent) == (Text, Call, Finish)


@pytest.mark.parametrize("kind", ["thought", "tool", "", None])
async def test_there_is_no_other_event_kind(kind: Any) -> None:
    """An event of a kind that does not exist is a breach, whole and streamed."""
    event = {"type": kind, "text": "x"}
    with pytest.raises(ProtocolError):
        await consume_stream([event, {"type": "finish", "finish": "stop"}])
    broken = tier(generate=lambda ctx: {"events": [event], "finish": "stop"})
    with pytest.raises(Exception, match="protocol"):
        await define_chain(id="c", tiers=[broken]).generate(GenerateContext())


async def test_a_fixed_reply_does_not_change_with_the_prompt() -> None:
    """The greeting tier serves a text-only agent, whatever it is asked."""
    agent = Agent(model=define_chain(id="local-chain", tiers=[tier(generate=greets)]), tools=[])
    assert {(await agent.run(text)).text for text in ("a", "b")} == {"Hello from the local adapter."}


async def test_tools_without_support_are_refused_before_anything_runs() -> None:
    """A capability that no one declared is refused when the agent is made, and in a direct call before the tier is."""
    ran: list[int] = []
    chain = define_chain(id="c", tiers=[tier(generate=lambda ctx: ran.append(1))])
    with pytest.raises(InvalidRequestError, match="tools"):
        Agent(model=chain, tools=[look])
    with pytest.raises(InvalidRequestError, match="'local' does not support tools"):
        await chain.generate(GenerateContext(tools=(ToolSpec(name="look"),)))
    assert ran == []


async def test_an_omitted_ceiling_is_left_to_the_adapter() -> None:
    """A direct caller may leave `max_output_tokens` out: the tier sees None and uses its own."""
    seen: list[GenerateContext] = []

    def generate(ctx: GenerateContext) -> dict[str, Any]:
        seen.append(ctx)
        return greets(ctx)

    await define_chain(id="c", tiers=[tier(generate=generate)]).generate(GenerateContext(brief="b"))
    assert [ctx.max_output_tokens for ctx in seen] == [None]


async def test_a_tier_reads_the_results_of_its_calls_in_the_transcript() -> None:
    """The rendered transcript of a later step holds the call and its result, by the id that the tier gave."""

    def generate(ctx: GenerateContext) -> dict[str, Any]:
        last = ctx.messages[-1]
        if last["role"] != "tool":
            return asks(ctx)
        text = f"{last['tool_call_id']} is {last['content']}"
        return {"events": [{"type": "text", "text": text}], "finish": "stop"}

    result = await Agent(model=tier(generate=generate, supports={"tools"}), tools=[look]).run("hi")
    assert result.text == "c1 is <x>"


async def test_a_call_repeated_for_ever_meets_the_budget() -> None:
    """A tier that never reads its results ends at the runtime's budget: ten rounds with tools, twenty steps."""
    steps: list[int] = []

    def generate(ctx: GenerateContext) -> dict[str, Any]:
        steps.append(len(ctx.tools))
        return asks(ctx)

    result = await Agent(model=tier(generate=generate, supports={"tools"}), tools=[look]).run("hi")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", CutReason.BUDGET_STEPS)
    assert steps == [1] * 10 + [0] * 10


async def test_each_delta_reaches_the_reader_before_the_next_is_made() -> None:
    """A delta is in the reader's hands while the tier still waits to make the next one."""
    go = asyncio.Event()

    async def stream(ctx: GenerateContext) -> AsyncIterator[Any]:
        yield {"type": "text", "text": "Answering: "}
        await go.wait()
        yield {"type": "text", "text": ctx.brief}
        yield {"type": "finish", "finish": "stop"}

    heard: list[str] = []
    async with Agent(model=tier(stream=stream), instructions="x").run_stream("hi") as run:
        async for event in run:
            if isinstance(event, Text):
                heard.append(event.text)
                go.set()
    assert heard == ["Answering: ", "x"]


async def test_a_throw_after_content_cuts_the_turn_as_a_stream_error() -> None:
    """What was shown stays, nothing is tried again, and the turn is cut with the typed reason."""
    tries: list[int] = []

    async def stream(ctx: GenerateContext) -> AsyncIterator[Any]:
        tries.append(1)
        yield {"type": "text", "text": "half an ans"}
        raise tier_error("transient", "connection lost")

    chain = define_chain(id="c", tiers=[tier("first", stream=stream), tier("second", generate=greets)])
    result = await Agent(model=chain).run("hi")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", CutReason.STREAM_ERROR)
    assert (result.text, tries, result.outcome.finish) == ("half an ans", [1], "error-post")


async def test_a_throw_before_content_is_tried_again_and_nobody_sees_it() -> None:
    """A transient throw before any content is retried on the tier; the reader sees one clean answer."""
    tries: list[int] = []

    async def stream(ctx: GenerateContext) -> AsyncIterator[Any]:
        tries.append(1)
        if len(tries) == 1:
            raise tier_error("transient", "connection lost", retry_after=0)
        yield {"type": "text", "text": "whole"}
        yield {"type": "finish", "finish": "stop"}

    run = Agent(model=define_chain(id="c", tiers=[tier(stream=stream)])).run_stream("hi")
    events = [event async for event in run]
    assert (events, len(tries)) == ([Text("whole")], 2)
