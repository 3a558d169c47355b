"""A model that plays turns written down beforehand, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, Text, Usage
from isthmus.models.normalise import make_call


class Turns:
    """A plain object with `stream(ctx)`. A turn is a list of events; an exception in it is raised there.

    Args:
        turns: one a call, in order; a call beyond the last plays the last again.
    """

    supports = frozenset({"tools", "images", "documents", "audio"})
    handles_retries = True

    def __init__(self, *turns: Iterable[Any], id: str = "turns") -> None:
        self.id = id
        self.turns = [list(turn) for turn in turns]
        self.seen: list[GenerateContext] = []
        self.open = 0
        self.closed = 0

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        """Play the next turn; an `asyncio.Event` in it is waited for, a number is a pause in seconds."""
        turn = self.turns[min(len(self.seen), len(self.turns) - 1)]
        self.seen.append(ctx)
        self.open += 1
        try:
            for item in turn:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, asyncio.Event):
                    await item.wait()
                elif isinstance(item, int | float):
                    await asyncio.sleep(item)
                else:
                    yield item
        finally:
            self.open -= 1

    async def aclose(self) -> None:
        """Count it."""
        self.closed += 1


def call(tool: str, call_id: str = "c1", **arguments: Any) -> Call:
    """A whole call."""
    return make_call(tool, arguments, call_id=call_id)


def says(*texts: str, finish: str = "stop", usage: Usage | None = None) -> list[Any]:
    """A turn of text."""
    return [*map(Text, texts), Finish(finish, usage)]


def asks(*calls: Call, usage: Usage | None = None) -> list[Any]:
    """A turn of calls."""
    return [*calls, Finish("tool-calls", usage)]


def tasks() -> set[asyncio.Task[Any]]:
    """All tasks that are not done, but for this one."""
    return {task for task in asyncio.all_tasks() if not task.done()} - {asyncio.current_task()}  # type: ignore[arg-type]
