"""Events that came together: read one by one, or handed on as they came by a level that only passes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from typing import Protocol

from isthmus.models.events import Event, Text


def texts_of(events: Sequence[Event]) -> list[str] | None:
    """The texts of events that are all plain text; None where one is anything else."""
    texts = []
    # Not a comprehension: one calls a function of its own, and most batches hold a single event.
    for event in events:
        if type(event) is not Text or event.text.__class__ is not str:
            return None
        texts.append(event.text)
    return texts


class BatchSource(Protocol):
    """An async iterator of batches of events, none of them empty, that can be closed, and holds nothing at its end."""

    def __aiter__(self) -> AsyncIterator[Sequence[Event]]: ...

    def __anext__(self) -> Awaitable[Sequence[Event]]: ...

    async def aclose(self) -> None:
        """Close it; harmless twice."""


class Batches:
    """An async iterator of events that keeps them together for whoever hands them on: a level costs once a batch.

    Args:
        batches: what they come from; closed with this.
    """

    __slots__ = ("_single", "batches")

    def __init__(self, batches: BatchSource) -> None:
        self.batches = batches
        self._single: AsyncGenerator[Event, None] | None = None

    def _each(self) -> AsyncGenerator[Event, None]:
        if self._single is None:
            self._single = _singly(self.batches)
        return self._single

    def __aiter__(self) -> AsyncIterator[Event]:
        # The generator itself, so that a loop takes each event without a call through this object.
        return self._each()

    def __anext__(self) -> Awaitable[Event]:
        return self._each().__anext__()

    async def aclose(self) -> None:
        """Close both; harmless twice."""
        if self._single is not None:
            await self._single.aclose()
        await self.batches.aclose()


async def _singly(batches: BatchSource) -> AsyncGenerator[Event, None]:
    try:
        async for batch in batches:
            for event in batch:
                yield event
    finally:
        await batches.aclose()


async def texts_in(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """Only the text of a reply, piece by piece."""
    async for event in events:
        if isinstance(event, Text) and event.text:
            yield event.text
