"""Runs of agents over a WebSocket against the scripted server, read either way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from isthmus.conformance.live import LiveServer
from isthmus.harness import AgentDescriptor, DefaultAgent, RunEvent, RunResult
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.steering import SteeringReceipt
from support.live_kit import live_client

WAYS = ("run_stream", "run_events")
ASYNC = {"async": True}


def live_agent(
    server: LiveServer, *, tools: Any = (), async_tools: Any = (), shims: Any = (), handoffs: Any = (), **settings: Any
) -> DefaultAgent:
    """An agent over a WebSocket; `settings` are the agent's."""
    model = live_client(server, async_tools=async_tools)
    made = AgentDescriptor(name="Research", model=model, tools=tools, shims=shims, handoffs=handoffs)
    return DefaultAgent(descriptor=made, owns_model=True, **settings)


@dataclass
class Told:
    """What a run showed, and how it ended."""

    events: list[ModelStreamEvent] = field(default_factory=list)
    steps: list[RunEvent] = field(default_factory=list)
    receipts: list[SteeringReceipt] = field(default_factory=list)
    result: RunResult | None = None
    error: BaseException | None = None

    @property
    def text(self) -> str:
        """The text that was shown."""
        return "".join(event.text or "" for event in self.events)

    @property
    def history(self) -> list[Any]:
        """The contents of the transcript, with the role; of a call its name, of a result its content."""
        assert self.result is not None
        return [(message["role"], _content(message)) for message in self.result.messages]

    @property
    def statuses(self) -> list[str]:
        """Those of the copies of receipts in events, in order."""
        return [copy.status for event in self.events for copy in event.steering or ()]


def _content(message: Any) -> Any:
    if message.get("openai_responses_input") and message["role"] == "user":
        return message["openai_responses_input"]
    calls = [call["function"]["name"] for call in message.get("tool_calls") or ()]
    return (message.get("content"), *calls) if calls else message.get("content")


Act = Callable[[ModelStreamEvent, Any, Told], Awaitable[Any]]


async def read(agent: DefaultAgent, act: Act | None = None, *, way: str = "run_stream", prompt: Any = "Hi") -> Told:
    """Run to the end, whatever that is, and close the agent.

    Args:
        agent: runs.
        act: called with each event of the model, the stream and what is told so far.
        way: which stream to read.
        prompt: what to answer.
    """
    told = Told()
    stream = getattr(agent, way)(prompt)
    async with agent, aclosing(stream):
        try:
            async for event in stream:
                if isinstance(event, RunEvent):
                    told.steps.append(event)
                shown = event.model_event if isinstance(event, RunEvent) else event
                if shown is not None:
                    told.events.append(shown)
                    if act is not None:
                        await act(shown, stream, told)
            told.result = await stream.result()
        except Exception as error:
            told.error = error
    return told


def at(kind: str, *inputs: Any) -> Act:
    """Steer these in, one after the other, at the first event of a type of the provider's."""
    left = list(inputs)

    async def act(event: ModelStreamEvent, stream: Any, told: Told) -> None:
        if event.provider_event_type == kind:
            while left:
                told.receipts.append(await stream.steer(left.pop(0)))

    return act
