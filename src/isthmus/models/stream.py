"""The stream that callers hold, and the one watchdog that it owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from time import monotonic
from types import TracebackType
from typing import Any

from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.contract import Timeouts
from isthmus.models.events import EVENT_TYPES, Event, StepResult, Text
from isthmus.models.fold import Fold, classify, close, iterate
from isthmus.models.normalise import to_event


class Watchdog:
    """One timer a stream: interrupts the task that waits for the next event once that has taken too long.

    Counts only while somebody waits: a slow consumer never runs into it.
    """

    __slots__ = (
        "_baseline",
        "_handle",
        "_loop",
        "_started",
        "_timeouts",
        "closing",
        "expired",
        "seen",
        "since",
        "task",
    )

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._baseline = 0
        self.task: asyncio.Task[Any] | None = None
        self.since = 0.0
        self.seen = False
        self.expired: str | None = None
        self.closing = False

    def start(self) -> None:
        """Arm the timer in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._started = self.since = monotonic()
        self.task = asyncio.current_task()
        self._arm()

    def stop(self) -> None:
        """Disarm it."""
        self.task = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _limit(self) -> tuple[str, float] | None:
        """What expires next, and in how many seconds from now."""
        now = monotonic()
        limits = []
        waiting = self._timeouts.idle if self.seen else self._timeouts.first_content
        if waiting is not None:
            name = "idle" if self.seen else "first content"
            limits.append((self.since + waiting - now, f"{name}: no event for {waiting:g} s"))
        if self._timeouts.total is not None:
            limits.append((self._started + self._timeouts.total - now, f"total: {self._timeouts.total:g} s are over"))
        if not limits:
            return None
        left, why = min(limits)
        return why, left

    def _arm(self) -> None:
        limit = self._limit()
        if limit is not None and self._loop is not None:
            self._handle = self._loop.call_later(max(limit[1], 0.001), self._tick)

    def _tick(self) -> None:
        limit = self._limit()
        if limit is None:
            return
        if self.task is None and self._loop is not None:
            self._handle = self._loop.call_later(max(limit[1], self._pause()), self._tick)
        elif limit[1] > 0:
            self._arm()
        else:
            self.expired = limit[0]
            self._handle = None
            self.interrupt()

    def _pause(self) -> float:
        """How long to leave a stream alone whose consumer is busy."""
        return min(t for t in (self._timeouts.idle, self._timeouts.first_content, 1.0) if t)

    def interrupt(self) -> None:
        """Cancel the task that waits, if one does."""
        if self.task is not None:
            self._baseline = self.task.cancelling()
            self.task.cancel()

    def claim(self) -> bool:
        """Whether a cancellation that was just caught is this watchdog's own; if so it is taken back."""
        task = self.task
        if task is None or not (self.expired or self.closing):
            return False
        return task.uncancel() <= self._baseline


async def _pump(source: Any, fold: Fold, watch: Watchdog) -> AsyncGenerator[Event, None]:
    current = asyncio.current_task
    texts = fold.add
    inner: AsyncIterator[Any] = source if hasattr(source, "__anext__") else iterate(source)
    watch.start()
    try:
        async for event in inner:
            if type(event) not in EVENT_TYPES:
                event = to_event(event)
            event = texts(event)
            watch.task = None
            watch.seen = True
            yield event
            watch.since = monotonic()
            watch.task = current()
        if fold.finish is None:
            raise ProtocolError("the stream ended without a finish")
    except asyncio.CancelledError:
        if not watch.claim():
            raise
        if not watch.closing:
            raise TransientError(f"time-out: {watch.expired}") from None
    finally:
        watch.stop()
        await close(inner)


class EventStream:
    """The events of one call, as the outermost caller holds them.

    Iterate it, or use it as a block; leaving the block, or dropping the last reference, closes the connection.
    One `Finish` ends it; an event after that is a `ProtocolError`.

    Args:
        source: an async iterator of events, as an author wrote it.
        timeouts: how long to wait for the first event, between events, and in all.
    """

    __slots__ = ("__weakref__", "_fold", "_pump", "_source", "_watch")

    def __init__(self, source: Any, timeouts: Timeouts | None = None) -> None:
        self._source: Any = source
        self._fold = Fold()
        self._watch = Watchdog(timeouts or Timeouts())
        self._pump: AsyncGenerator[Event, None] | None = None

    @staticmethod
    def bare(stream: Any) -> Any:
        """The author's own iterator behind a stream that nobody has begun, for a level that adds its own door."""
        if isinstance(stream, EventStream) and stream._pump is None:
            return stream._source
        return stream

    def _begun(self) -> AsyncGenerator[Event, None]:
        pump = self._pump
        if pump is None:
            pump = self._pump = _pump(self._source, self._fold, self._watch)
            self._source = None
        return pump

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    def __anext__(self) -> Any:
        pump = self._pump
        return (self._begun() if pump is None else pump).__anext__()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; harmless twice, and from a task other than the reader's."""
        if self._pump is None:
            source, self._source = self._source, None
            await close(source)
            return
        watch = self._watch
        if watch.task is not None and watch.task is not asyncio.current_task():
            watch.closing = True
            watch.interrupt()
        while getattr(self._pump, "ag_running", False):
            await asyncio.sleep(0)
        await self._pump.aclose()

    def partial(self, error: TierError) -> StepResult:
        """What has arrived so far, as an "error-post" reply with this error."""
        return self._fold.failed(error)

    async def result(self) -> StepResult:
        """Read to the end and return the whole reply; what was already read counts.

        A failure after content gives an "error-post" result.

        Raises:
            TierError: it failed before any content.
        """
        try:
            async for _ in self:
                pass
        except asyncio.CancelledError:
            raise
        except Exception as error:
            failure = classify(error)
            if not self._fold.has_content:
                raise failure from (None if failure is error else error)
            return self._fold.failed(failure)
        return self._fold.result()

    @property
    def text(self) -> AsyncIterator[str]:
        """Only the text, piece by piece."""
        return _texts(self)


async def _texts(stream: EventStream) -> AsyncIterator[str]:
    async for event in stream:
        if isinstance(event, Text) and event.text:
            yield event.text
