"""Tiers that play plans, and a clock that waits in no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from isthmus.chain import GenerateContext, StepResult
from isthmus.models.events import Finish, Text
from isthmus.models.retry import Clock
from isthmus.observability import hooks

CTX = GenerateContext(brief="be brief", messages=({"role": "user", "content": "hi"},))
HANG = object()
STOP = Finish("stop")
OK = (Text("fine"), STOP)


@dataclass
class FakeTime:
    """Waits are written down and take no time, but let others run; `luck` is every draw."""

    luck: float = 1.0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    def clock(self) -> Clock:
        return Clock(now=lambda: self.seconds, sleep=self.sleep, random=lambda: self.luck)


class PlayTier:
    """Streams one plan a call, the last one again and again: events, an exception to raise, or HANG."""

    def __init__(self, id: str, *plans: Any, window: int = 8000, supports: frozenset[str] = frozenset()) -> None:
        self.id = id
        self.window_tokens = window
        self.max_output_tokens = 256
        self.supports = supports
        self.plans = plans
        self.calls: list[GenerateContext] = []
        self.open = 0

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        plan = self.plans[min(len(self.calls), len(self.plans) - 1)]
        self.calls.append(ctx)
        self.open += 1
        try:
            for item in plan:
                if isinstance(item, BaseException):
                    raise item
                if item is HANG:
                    await asyncio.get_running_loop().create_future()
                yield item
        finally:
            self.open -= 1


class Recorder:
    """Collects the events of chains while a block runs."""

    def __init__(self) -> None:
        self.events: list[hooks.ChainEvent] = []
        self._remove: Callable[[], None] = lambda: None

    def __enter__(self) -> Recorder:
        self._remove = hooks.add_sink(self._take)
        return self

    def __exit__(self, *exc: object) -> None:
        self._remove()

    def _take(self, record: Any) -> None:
        if isinstance(record, hooks.ChainEvent):
            self.events.append(record)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def fields(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event.fields) for event in self.events if event.type == kind]


async def events_of(adapter: Any, ctx: GenerateContext = CTX) -> list[Any]:
    """All events of one streamed call."""
    return [event async for event in adapter.stream(ctx)]


def whole(text: str) -> StepResult:
    """A reply of one text."""
    return StepResult((Text(text),), "stop")
