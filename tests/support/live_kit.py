"""Runs over a WebSocket against the scripted server, as a loop of an application has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.conformance.live import LiveServer, Peer
from isthmus.models import Config
from isthmus.models.responses import ModelStreamEvent

KEY = "sk-canary-0123456789"
USER = {"role": "user", "content": "Hi"}


def live_client(server: LiveServer | str, *, max_retries: int = 1, timeout: float = 5.0, **options: Any) -> Any:
    """A client over a WebSocket for the server."""
    url = server if isinstance(server, str) else server.url
    limiter = options.pop("rate_limiter", None)
    config = Config(
        api_key=KEY, model="m", base_url=url, max_retries=max_retries, timeout=timeout, rate_limiter=limiter
    )
    return ResponsesClient(config, websocket=True, **options)


class Talk:
    """A history, and the turns of one run that add to it.

    Args:
        run: what `open_run()` gave.
        messages: the history so far.
        options: of every call.
    """

    def __init__(self, run: Any, *messages: Any, **options: Any) -> None:
        self.run, self.options = run, options
        self.history: list[Any] = list(messages or [USER])
        self.events: list[ModelStreamEvent] = []
        self._sent = 0

    def add(self, *messages: Any) -> None:
        """Make the history longer by these."""
        self.history += messages

    async def turn(
        self, act: Callable[[ModelStreamEvent], Awaitable[Any]] | None = None, **options: Any
    ) -> ModelStreamEvent:
        """Read one reply, commit it and what was steered in, and return its last event.

        Args:
            act: called with each event.
            options: of this call.
        """
        before = self._sent
        stream = self.run.stream_response(list(self.history), **{**self.options, **options})
        async with aclosing(stream) as events:
            async for event in events:
                self.events.append(event)
                if event.kind == "completed":
                    self.history.append(event.response.choices[0].message.to_dict())
                    self._sent = len(self.history)
                    self.history += event.input_messages or []
                    self._sent = len(self.history)
                elif event.input_messages:
                    self.history[before:before] = event.input_messages
                if act is not None:
                    await act(event)
        return self.events[-1]

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(event.text or "" for event in self.events)


def on(kind: str, act: Callable[[], Awaitable[Any]]) -> Callable[[ModelStreamEvent], Awaitable[None]]:
    """Do something at the first event of a type of the provider's."""
    done: list[bool] = []

    async def at(event: ModelStreamEvent) -> None:
        if event.provider_event_type == kind and not done:
            done.append(True)
            await act()

    return at


def output(call_id: str, content: str = "done") -> dict[str, Any]:
    """The result of a call, as a message."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


class Pace:
    """When the calls of a played run end: as its script says, and one by one where nothing else can go on."""

    def __init__(self) -> None:
        self.gates: list[asyncio.Event] = []
        self.idle = self.ended = False

    async def hear(self, peer: Peer) -> dict[str, Any]:
        """The client's next request; until then the provider has said all."""
        self.idle = True
        try:
            return await peer.hear()
        finally:
            self.idle = False

    def open_one(self) -> None:
        """Let the call end that has waited longest."""
        for gate in [each for each in self.gates if not each.is_set()][:1]:
            gate.set()

    async def let_go(self) -> None:
        """Let a call end whenever the provider has said all and the run waits, until it has ended."""
        while not self.ended:
            await asyncio.sleep(0.003)
            if self.idle:
                self.open_one()


async def steered(peer: Peer) -> None:
    """A reply that is steered at a word, and the successor that has the input."""
    await peer.hear()
    await peer.begin("r1")
    await peer.text("Batteries", " store")
    await peer.hear("response.steer")
    await peer.accept("st1")
    await peer.end("steered")
    await peer.begin("r2", "r1")
    await peer.text("At home")
    await peer.end()
