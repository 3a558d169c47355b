"""Any order of what a provider says, of inputs, of tools and of ends: nothing is lost, and nothing happens twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.adapters.openai_responses.history import render
from isthmus.conformance.live import Peer, live_server
from isthmus.models import Tools, as_tool
from isthmus.models.jsontext import loads
from isthmus.models.messages import sendable
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.steering import SteeringReceipt
from support.live_kit import USER, Pace, Talk, live_client, output

ACTIONS = (
    "say",
    "steer",
    "steer twice",
    "accept",
    "refuse",
    "call",
    "async call",
    "tool",
    "end",
    "end",
    "drop",
    "cancel",
)


@as_tool
async def look() -> str:
    """Look."""
    return "seen"


class Application:
    """A loop as the harness has it: runs each call once, commits what is steered in, waits for async results."""

    def __init__(self, run: Any, gates: list[asyncio.Event]) -> None:
        self.talk = Talk(run, tools=Tools([look]))
        self.run, self.gates = run, gates
        self.receipts: list[SteeringReceipt] = []
        self.ran: Counter[str] = Counter()
        self.running: dict[str, asyncio.Event] = {}
        self._left: list[str] = []

    async def work(self) -> None:
        """Run to the end."""
        while True:
            last = await self.talk.turn(self._seen)
            if last.continuation == "automatic":
                continue
            assert last.response is not None
            calls = [call.id for call in last.response.choices[0].message.tool_calls or ()]
            now = [call_id for call_id in calls if call_id not in self._left]
            for call_id in now:
                self.ran[call_id] += 1
                self.talk.add(output(call_id))
            if not now and self._left:
                await asyncio.wait(
                    [asyncio.ensure_future(self.running[call_id].wait()) for call_id in self._left],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            ready = [call_id for call_id in self._left if self.running[call_id].is_set()]
            self._left = [call_id for call_id in self._left if call_id not in ready]
            self.talk.add(*(output(call_id) for call_id in ready))
            if not now and not ready:
                return

    async def _seen(self, event: ModelStreamEvent) -> None:
        call = event.async_tool_call
        if call is not None:
            self.ran[call.id] += 1
            self.running[call.id] = gate = asyncio.Event()
            self.gates.append(gate)
            self._left.append(call.id)

    async def steer(self, text: str) -> None:
        """Send an input as soon as there is a reply to send it into."""
        for _ in range(2000):
            try:
                self.receipts.append(await self.run.steer(text))
            except RuntimeError:
                await asyncio.sleep(0.001)
            else:
                return
        raise AssertionError("the reply never came to be steered")


class Provider(Pace):
    """A provider that keeps its own rules, and does what it is told when that is possible."""

    def __init__(self, actions: Iterator[str]) -> None:
        super().__init__()
        self.actions = actions
        self.app: Application | None = None
        self.task: asyncio.Task[None] | None = None
        self.items: list[Any] = []
        self.outputs: Counter[str] = Counter()
        self.sent: list[str] = []
        self.accepted: list[str] = []
        self.stopped = ""
        self._waiting: list[str] = []
        self._queued: list[tuple[str, str]] = []
        self._asked: list[str] = []
        self._number = self._calls = self._steers = 0
        self._hold: list[str] = []

    async def play(self, peer: Peer) -> None:
        """One connection."""
        while not self.stopped:
            try:
                request = await self.hear(peer)
            except EOFError:
                return
            before = request.get("previous_response_id")
            assert before == (f"r{self._number}" if self._number else None)
            for item in request["input"]:
                if item.get("type") == "function_call_output":
                    self.outputs[item["call_id"]] += 1
            self.items += [*self._inputs(), *request["input"]]
            await self._respond(peer, before)

    def _inputs(self) -> list[Any]:
        """The queued inputs, which the next response has."""
        queued, self._queued, self._hold = self._queued, [], []
        self.accepted += [text for _, text in queued]
        return [{"role": "user", "content": text} for _, text in queued]

    async def _respond(self, peer: Peer, before: str | None) -> None:
        self._number += 1
        await peer.begin(f"r{self._number}", before)
        self._asked = []
        action = ""
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
            self.items += self._inputs()
            await self._respond(peer, f"r{self._number}")

    async def _act(self, peer: Peer, action: str) -> None:
        assert self.app is not None
        if action == "say":
            await peer.text(f"word {len(self.items)}")
        elif action in ("call", "async call"):
            self._calls += 1
            call_id = f"c{self._calls}"
            flagged = {"async": True} if action == "async call" else {}
            self._asked += [] if flagged else [call_id]
            await peer.call("look", "{}", call_id=call_id, **flagged)
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
        elif action == "tool":
            self.open_one()
        elif action in ("drop", "cancel"):
            self.stopped = action
            if action == "drop":
                peer.drop()
            elif self.task is not None:
                self.task.cancel()

    async def _steered(self, peer: Peer, count: int) -> None:
        assert self.app is not None
        texts = [f"input {len(self.sent) + number}" for number in range(count)]
        self.sent += texts
        sending = asyncio.gather(*(self.app.steer(text) for text in texts))
        for _ in texts:
            message = await peer.hear("response.steer")
            into, text = message["previous_response_id"], message["input"]
            if into == peer.response["id"]:
                self._waiting.append(text)
            else:
                # It was sent before the client had read that this response is over.
                await peer.refuse("response_not_active", text, into=into)
        await sending


async def played(actions: list[str]) -> tuple[Provider, Application, BaseException | None, int]:
    """A run against a provider that does this."""
    provider = Provider(iter(actions))
    async with live_server(provider.play) as server, live_client(server, async_tools=["look"]) as model:
        failure: BaseException | None = None
        async with model.open_run() as run:
            app = provider.app = Application(run, provider.gates)
            provider.task = asyncio.ensure_future(app.work())
            ending = asyncio.ensure_future(provider.let_go())
            try:
                async with asyncio.timeout(20):
                    await asyncio.wait([provider.task])
            finally:
                ending.cancel()
            with suppress(asyncio.CancelledError):
                failure = provider.task.exception()
        await asyncio.sleep(0)
        opened = len(server.peers)
        for _ in range(100):
            if not server.open:
                break
            await asyncio.sleep(0.01)
        assert server.open == 0
    return provider, app, failure, opened


@settings(max_examples=40)
@given(st.lists(st.sampled_from(ACTIONS), max_size=14))
@example(["say", "steer", "accept", "say", "end", "say", "end"])
@example(["call", "steer twice", "accept", "end", "refuse", "say", "end"])
@example(["async call", "steer", "end", "accept", "async call", "end", "tool", "tool"])
@example(["steer twice", "accept", "drop"])
@example(["async call", "steer", "accept", "cancel"])
def test_any_order_loses_nothing_and_does_nothing_twice(actions: list[str]) -> None:
    """The history is what the provider has, every tool ran once, every receipt is final, one connection was opened."""
    provider, app, failure, opened = asyncio.run(played(actions))
    assert opened == 1
    assert (failure is not None) == (provider.stopped == "drop")
    statuses = {receipt.input: receipt.status for receipt in app.receipts}
    assert set(statuses.values()) <= ({"applied", "failed", "unknown"} if provider.stopped else {"applied", "failed"})
    inputs = Counter(message.get("content") for message in app.talk.history)
    for text in provider.sent:
        assert inputs[text] == (statuses.get(text) == "applied")
    assert set(app.ran.values()) <= {1}
    assert set(provider.outputs.values()) <= {1}
    if not provider.stopped:
        assert {text for text, status in statuses.items() if status == "applied"} == set(provider.accepted)
        assert app.ran == provider.outputs
        assert loads(sendable(render(app.talk.history, stateless=False)[0])) == [USER, *provider.items[1:]]
