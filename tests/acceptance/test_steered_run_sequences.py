"""Any order of what a provider says, of inputs, of tools and of ends in one run: nothing is lost, or done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.adapters.openai_responses.history import render
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ModelBehaviorError
from isthmus.harness import AgentDescriptor, Limits, RunEvent, RunStream
from isthmus.models import Tools, as_tool
from isthmus.models.jsontext import loads
from isthmus.models.messages import sendable
from isthmus.models.steering import SteeringReceipt
from support.live_kit import Pace
from support.live_runs import ASYNC, WAYS, live_agent

ACTIONS = (
    "say",
    "steer",
    "steer twice",
    "accept",
    "refuse",
    "call",
    "async call",
    "repeat",
    "hand over",
    "tool",
    "end",
    "end",
    "drop",
    "cancel",
    "close",
)
FINAL = {"applied", "failed", "unknown"}


class Stage(Pace):
    """A provider that keeps its own rules and does what it is told when that is possible, and an agent's tools.

    Args:
        actions: what happens, in order.
        way: which stream the run is read by.
    """

    def __init__(self, actions: Iterator[str], way: str) -> None:
        super().__init__()
        self.actions, self.way = actions, way
        self.stream: RunStream | None = None
        self.reader: asyncio.Task[None] | None = None
        self.receipts: list[SteeringReceipt] = []
        self.ran: Counter[str] = Counter()
        self.items: list[Any] = []
        self.outputs: Counter[str] = Counter()
        self.sent: list[str] = []
        self.applied: list[str] = []
        self.stopped = ""
        self.handed = self.taken_over = False
        self._asynchronous: list[str] = []
        self._waiting: list[str] = []
        self._queued: list[tuple[str, str]] = []
        self._asked: list[str] = []
        self._number = self._calls = self._steers = 0

    # The agent's tools.

    async def look(self, name: str) -> str:
        """Look, at once."""
        self.ran[name] += 1
        return f"seen {name}"

    async def search(self, name: str) -> str:
        """Search, until it is told to end."""
        self.ran[name] += 1
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return f"found {name}"

    # The provider.

    async def play(self, peer: Peer) -> None:
        """One connection."""
        while not self.stopped:
            try:
                request = await self.hear(peer)
            except EOFError:
                return
            before = request.get("previous_response_id")
            if self.handed and not self.taken_over:
                # The other agent has instructions of its own, so that all is sent anew.
                self.taken_over, self.items = True, []
                self.outputs.clear()
            else:
                assert before == (f"r{self._number}" if self._number else None)
            for item in request["input"]:
                if item.get("type") == "function_call_output":
                    self.outputs[item["call_id"]] += 1
            self.items += [*self._joining(), *request["input"]]
            await self._respond(peer, before)

    def _joining(self) -> list[Any]:
        queued, self._queued = self._queued, []
        self.applied += [text for _, text in queued]
        return [{"role": "user", "content": text} for _, text in queued]

    async def _respond(self, peer: Peer, before: str | None) -> None:
        self._number += 1
        await peer.begin(f"r{self._number}", before)
        self._asked, action = [], ""
        while action != "end" and not self.stopped:
            action = next(self.actions, "end")
            await self._act(peer, action)
        if self.stopped:
            return
        await peer.end("steered" if self._queued and not self._asked else None)
        self.items += list(peer.response["output"])
        while self._waiting:
            await self._act(peer, "refuse" if next(self.actions, "accept") == "refuse" else "accept")
        if self._queued and self._asked:
            for steer_id, _ in self._queued:
                await peer.await_outputs(steer_id, *(("look", call_id) for call_id in self._asked))
        elif self._queued:
            self.items += self._joining()
            await self._respond(peer, f"r{self._number}")

    async def _act(self, peer: Peer, action: str) -> None:
        if action == "say":
            await peer.text(f"word {len(self.items)}")
        elif action in ("call", "async call", "repeat"):
            await self._call(peer, action)
        elif action == "hand over" and not self.handed:
            self.handed = True
            self._asked.append("h1")
            await peer.call("expert", "{}", call_id="h1")
        elif action in ("steer", "steer twice"):
            await self._steered(peer, 2 if action == "steer twice" else 1)
        elif action in ("accept", "refuse") and self._waiting:
            # What is refused is refused at once, before what came earlier is accepted.
            text = self._waiting.pop(-1 if action == "refuse" else 0)
            if action == "refuse":
                await peer.refuse("invalid_input", text)
            else:
                self._steers += 1
                self._queued.append((f"st{self._steers}", text))
                await peer.accept(f"st{self._steers}")
        elif action in ("tool", "drop", "cancel", "close"):
            await self._happen(peer, action)

    async def _happen(self, peer: Peer, action: str) -> None:
        if action == "tool":
            self.open_one()
            return
        self.stopped = action
        if action == "drop":
            peer.drop()
        elif action == "cancel" and self.reader is not None:
            self.reader.cancel()
        elif self.stream is not None:
            await self.stream.aclose()

    async def _call(self, peer: Peer, action: str) -> None:
        if action == "repeat" and self._asynchronous:
            name = self._asynchronous[-1]
            await peer.call("search", f'{{"name": "{name}"}}', call_id=name, **ASYNC)
        elif action != "repeat":
            self._calls += 1
            name, flagged = f"c{self._calls}", action == "async call"
            (self._asynchronous if flagged else self._asked).append(name)
            tool = "search" if flagged else "look"
            await peer.call(tool, f'{{"name": "{name}"}}', call_id=name, **(ASYNC if flagged else {}))

    async def _steered(self, peer: Peer, count: int) -> None:
        texts = [f"input {len(self.sent) + number}" for number in range(count)]
        self.sent += texts
        sending = asyncio.gather(*(self._steer(text) for text in texts))
        for _ in texts:
            message = await peer.hear("response.steer")
            into, text = message["previous_response_id"], message["input"]
            if into == peer.response["id"]:
                self._waiting.append(text)
            else:
                # It was sent before the client had read that this response is over.
                await peer.refuse("response_not_active", text, into=into)
        await sending

    async def _steer(self, text: str) -> None:
        assert self.stream is not None
        for _ in range(3000):
            try:
                self.receipts.append(await self.stream.steer(text))
            except RuntimeError:
                await asyncio.sleep(0.001)
            else:
                return
        raise AssertionError("the reply never came to be steered")

    # The run.

    async def read(self, agent: Any) -> None:
        """Read the run to its end."""
        self.stream = getattr(agent, self.way)("Hi")
        async with aclosing(self.stream):
            async for event in self.stream:
                assert isinstance(event, RunEvent) == (self.way == "run_events")


async def staged(actions: list[str], way: str) -> tuple[Stage, BaseException | None]:
    """A run in which this happens."""
    stage = Stage(iter(actions), way)
    tools = Tools([as_tool(stage.look), as_tool(stage.search)], max_tool_round_trips=50)
    failure: BaseException | None = None
    async with live_server(stage.play) as server:
        expert = AgentDescriptor(name="Expert", instructions="You know all.")
        limits = Limits(max_steps=60)
        agent = live_agent(server, tools=tools, async_tools=["search"], handoffs=(expert,), limits=limits)
        async with agent:
            stage.reader = asyncio.ensure_future(stage.read(agent))
            ending = asyncio.ensure_future(stage.let_go())
            async with asyncio.timeout(20):
                await asyncio.wait([stage.reader])
            stage.ended = True
            await ending
            with suppress(asyncio.CancelledError):
                failure = stage.reader.exception()
        assert len(server.peers) == 1
        for _ in range(200):
            if not server.open:
                break
            await asyncio.sleep(0.005)
        assert server.open == 0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return stage, failure


@settings(max_examples=60)
@given(st.lists(st.sampled_from(ACTIONS), max_size=14), st.sampled_from(WAYS))
@example(["say", "steer", "accept", "say", "end", "say", "end"], "run_stream")
@example(["call", "steer twice", "accept", "end", "refuse", "say", "end"], "run_events")
@example(["async call", "steer", "end", "accept", "async call", "repeat", "end", "tool", "tool"], "run_stream")
@example(["async call", "call", "steer", "accept", "end", "say", "steer", "end", "accept", "repeat"], "run_events")
@example(["steer twice", "accept", "drop"], "run_stream")
@example(["async call", "say", "steer", "accept", "cancel"], "run_events")
@example(["async call", "steer", "accept", "end", "close"], "run_stream")
@example(["say", "steer", "accept", "end", "hand over", "end", "async call", "steer", "accept"], "run_events")
@example(["async call", "hand over", "end"], "run_stream")
@example(["hand over", "steer", "accept", "end"], "run_stream")
def test_any_order_loses_nothing_and_does_nothing_twice(actions: list[str], way: str) -> None:
    """The history is what the provider has, each tool ran once, each receipt is final, one connection was opened."""
    stage, failure = asyncio.run(staged(actions, way))
    assert stage.stream is not None
    outcome = stage.stream.outcome
    assert outcome is not None
    # A handoff beside other calls, or while something is pending, fails the run; nothing else does.
    refused = isinstance(failure, ModelBehaviorError) and stage.handed and not stage.taken_over
    stopped = stage.stopped or refused
    if not stopped:
        assert (failure, outcome.outcome) == (None, "completed")
    statuses = {receipt.input: receipt.status for receipt in stage.receipts}
    assert set(statuses.values()) <= FINAL - ({"unknown"} if not stopped else set())
    assert set(stage.ran.values()) <= {1}
    assert set(stage.outputs.values()) <= {1}
    calls = Counter(call["id"] for message in outcome.messages for call in message.get("tool_calls") or ())
    results = Counter(message["tool_call_id"] for message in outcome.messages if message["role"] == "tool")
    inputs = Counter(message.get("content") for message in outcome.messages)
    if outcome.outcome != "failed":
        assert calls == results
        assert set(calls.values()) <= {1}
        assert set(stage.ran) <= set(calls)
        for text in stage.sent:
            assert inputs[text] <= 1
            assert inputs[text] == (statuses.get(text) == "applied") or stopped
    if not stopped:
        assert {text for text, status in statuses.items() if status == "applied"} == set(stage.applied)
        assert stage.ran == stage.outputs - Counter({"h1": 1})
        sent = loads(sendable(render(outcome.messages, stateless=False)[0]))
        assert sent == [item for item in stage.items if item.get("role") != "developer"]
