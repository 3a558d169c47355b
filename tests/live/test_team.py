"""A team on a real model: it hands over, and it sends an agent, by calls of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from isthmus.adapters.local import LocalAdapter
from isthmus.harness import AgentDescriptor, DefaultAgent
from isthmus.models import Tools

pytestmark = pytest.mark.model


@pytest.fixture
async def local() -> AsyncIterator[LocalAdapter]:
    """A running server of the test's own."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=2048) as adapter:
        await adapter.start()
        yield adapter


async def test_a_real_model_hands_over_and_the_other_agent_answers(local: LocalAdapter) -> None:
    """Asked about a bill it calls the handoff; the other agent goes on with the conversation, in the same stream."""
    billing = AgentDescriptor(
        name="billing",
        description="Hand over questions about bills and refunds.",
        instructions="You are the billing desk. Answer in one sentence.",
        tools=None,
        max_output_tokens=60,
    )
    triage = AgentDescriptor(name="triage", model=local, max_output_tokens=60, handoffs=[billing])
    agent = DefaultAgent(descriptor=triage)
    events = [event async for event in agent.run_events("Ask billing for a refund of my bill.")]
    assert [event.agent for event in events if event.kind == "agent_start"] == ["triage", "billing"]
    assert [event.kind for event in events if event.kind.startswith("handoff")] == ["handoff_start", "handoff_end"]
    said = "".join(event.model_event.text or "" for event in events if event.agent == "billing" and event.model_event)
    assert said.strip()
    assert events[-1].output == said
    assert agent.run_state is not None
    roles = [message["role"] for message in agent.run_state.history]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    assert "accepted by billing" in agent.run_state.history[2]["content"]


async def test_a_real_model_sends_an_agent_and_reads_its_answer(local: LocalAdapter) -> None:
    """It calls the agent with an argument; that one answers, and the first agent goes on."""
    from pydantic import BaseModel

    class City(BaseModel):
        city: str

    weather = AgentDescriptor(
        name="get_weather",
        description="The weather in a city.",
        instructions="You know: it is sunny everywhere. Answer with the weather of the city, in five words.",
        tools=None,
        max_output_tokens=30,
    )
    boss = AgentDescriptor(
        name="boss",
        model=local,
        max_output_tokens=60,
        tools=Tools([weather.as_tool(args_model=City)], max_tool_round_trips=1),
    )
    events = [event async for event in DefaultAgent(descriptor=boss).run_events("What is the weather in Rome?")]
    assert [(event.agent, event.depth) for event in events if event.kind == "agent_start"] == [
        ("boss", 0),
        ("get_weather", 1),
    ]
    (answer,) = [event.result for event in events if event.kind == "tool_end"]
    assert answer is not None
    assert answer.outcome == "ok"
    assert answer.text.strip()
    assert events[-1].output
