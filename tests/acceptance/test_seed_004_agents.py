"""Seed 004: the sample of a run, and what a run shows and leaves."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.harness import AgentDescriptor, AgentSnapshot, MemoryStateStore
from isthmus.harness.agents import DefaultAgent
from isthmus.models import Model, ModelResponse, ModelStreamEvent, ModelStreamEventKind, Tools, internal_message
from isthmus.models.responses import Choice, Message, ToolCall, ToolCallFunction
from support.turns import Turns, asks, call, says


class Scripted(Model):
    """Asks for the tool first, then streams an answer in two pieces."""

    supports = frozenset({"tools"})

    def __init__(self) -> None:
        self.calls = 0

    def _reply(self) -> ModelResponse:
        self.calls += 1
        asked = [ToolCall(id="c1", function=ToolCallFunction("lookup", '{"topic": "battery storage"}'))]
        message = Message(tool_calls=asked) if self.calls == 1 else Message(content="It stores power.")
        return ModelResponse(
            choices=[Choice(message=message, finish_reason="tool_calls" if self.calls == 1 else "stop")]
        )

    async def get_response(self, messages: Any, **kwargs: Any) -> ModelResponse:
        """Answer at once."""
        return self._reply()

    async def stream_response(self, messages: Any, **kwargs: Any) -> Any:
        """Answer piece by piece."""
        response = self._reply()
        yield ModelStreamEvent(
            kind="provider", provider_event_type="response.created", raw={"type": "response.created"}
        )
        for piece in ("It stores ", "power.") if response.choices[0].message.content else ():
            yield ModelStreamEvent(kind="text_delta", text=piece, provider_event_type="response.output_text.delta")
        yield ModelStreamEvent(kind="completed", response=response)


async def test_the_pages_sample_runs() -> None:
    """A descriptor with tools, `await agent.run_stream`, events of the model face, then the result."""

    async def lookup(topic: str) -> str:
        return f"Recorded topic: {topic}"

    agent = DefaultAgent(
        descriptor=AgentDescriptor(name="Research", model=Scripted(), tools=Tools([lookup])),
    )
    stream = await agent.run_stream("Look up battery storage and explain the result.")
    printed, kinds, named = "", [], []
    async for event in stream:
        assert isinstance(event, ModelStreamEvent)
        kinds.append(event.kind)
        named.append(event.provider_event_type)
        if event.text:
            printed += event.text
    result = await stream.result()
    assert (printed, result.final_output) == ("It stores power.", "It stores power.")
    assert kinds.count(ModelStreamEventKind.COMPLETED) == 2
    assert kinds[-1] == ModelStreamEventKind.COMPLETED
    # What the provider said of its own passes through, once a reply.
    assert [name for name, kind in zip(named, kinds, strict=True) if kind == "provider"] == ["response.created"] * 2
    assert [message["role"] for message in result.run_state.history] == ["user", "assistant", "tool", "assistant"]
    assert result.run_state.history[2]["content"] == "Recorded topic: battery storage"


async def test_a_completed_event_holds_the_reply_of_its_call() -> None:
    """Each model call of a run ends with one "completed" event, before the next call begins."""

    def look() -> str:
        """Look."""
        return "seen"

    model = Turns(asks(call("look")), says("A", "B"))
    agent = DefaultAgent(descriptor=AgentDescriptor(name="a", model=model, tools=[look]))
    seen = [(event.kind, event.text, event.response) async for event in agent.run_stream("x")]
    assert [(kind, text) for kind, text, _ in seen] == [
        ("completed", None),
        ("text_delta", "A"),
        ("text_delta", "B"),
        ("completed", None),
    ]
    assert seen[0][2].choices[0].message.tool_calls[0].function.name == "look"  # type: ignore[index, union-attr]
    assert seen[3][2].choices[0].message.content == "AB"  # type: ignore[union-attr]


@pytest.mark.parametrize("streamed", [False, True])
async def test_ephemeral_context_is_in_nothing_that_a_run_leaves(streamed: bool) -> None:
    """`RunResult.run_state`, the committed state, snapshots and stores do not contain it; internal context stays."""
    view = internal_message({"role": "user", "content": "The user views report.csv."}, origin="ui_view", ephemeral=True)
    files = internal_message({"role": "user", "content": "Available files: report.csv"}, origin="file_inventory")
    store = MemoryStateStore()
    model = Turns(says("A"))
    agent = DefaultAgent(descriptor=AgentDescriptor(name="a", model=model), state_store=store)
    given = [files, view, {"role": "user", "content": "What is this?"}]
    if streamed:
        async with agent.run_stream(given) as stream:
            result = await stream.result()
    else:
        result = await agent.run(given)
    assert view in model.seen[0].messages
    stored = store.load()
    assert stored is not None
    for history in (
        result.run_state.history,
        agent.run_state.history,  # type: ignore[union-attr]
        agent.snapshot().state["history"],
        stored.state["history"],
        AgentSnapshot.from_json(agent.snapshot().to_json()).to_run_state().history,
    ):
        assert [message["content"] for message in history] == [files["content"], "What is this?", "A"]
        assert history[0]["_isthmus"] == {"visibility": "internal", "origin": "file_inventory"}
