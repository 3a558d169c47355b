"""The stream that callers hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any

from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.batches import Batches, texts_in
from isthmus.models.contract import Timeouts
from isthmus.models.events import EVENT_TYPES, Event, StepResult
from isthmus.models.fold import Fold, classify, close, iterate, uninvited
from isthmus.models.normalise import to_event
from isthmus.models.watchdog import CLOSED, Watchdog, running_task

_TIMEOUTS = Timeouts()
_CLOSED = "the stream was closed before its finish"


async def _pump(source: Any, fold: Fold, *, watch: Watchdog, together: bool) -> AsyncGenerator[Any, None]:
    """The events of a source, folded as they pass: each for itself, or texts as they came together."""
    loop = asyncio.get_running_loop()
    add, task_of, clock = fold.add, running_task, monotonic
    batched = isinstance(source, Batches)
    inner: Any = source.batches if batched else source if hasattr(source, "__anext__") else iterate(source)
    watch.start(loop)
    try:
        async for item in inner:
            batch: Any = item if batched else (item if type(item) in EVENT_TYPES else to_event(item),)
            if together and fold.texts(batch):
                yield batch
            else:
                # A call that is folded before it is shown would stand in the transcript of who stops before it.
                for event in batch:
                    yield (add(event),) if together else add(event)
            watch.since = clock()
            watch.task = task_of(loop)
        if fold.finish is None:
            raise ProtocolError("the stream ended without a finish")
    except asyncio.CancelledError as error:
        why = watch.claim()
        if why is None:
            fold.broken = uninvited(error)
            if fold.broken is None:
                raise
            raise fold.broken from error
        if not watch.closing:
            fold.broken = TransientError(f"time-out: {why}")
            raise fold.broken from None
    except Exception as error:
        fold.broken = error
        # The error keeps this frame, and the fold the error.
        del fold, add
        raise
    finally:
        watch.stop()
        # A generator that has come to its end has nothing left to do.
        if getattr(inner, "ag_frame", inner) is not None:
            await close(inner)


class EventStream:
    """The events of one call, as the outermost caller holds them.

    Iterate it, or use it as a block; leaving the block, or dropping the last reference, closes the connection.
    One `Finish` ends it; an event after that is a `ProtocolError`.

    Args:
        source: an async iterator of events, as an author wrote it.
        timeouts: how long to wait for the first event, between events, and in all; or the watchdog that the source
            restarts by itself.
    """

    __slots__ = ("__weakref__", "_fold", "_pump", "_source", "_timeouts", "_watch")

    def __init__(self, source: Any, timeouts: Timeouts | Watchdog | None = None) -> None:
        self._source: Any = source
        self._timeouts = timeouts
        self._pump: AsyncGenerator[Event, None] | None = None

    @staticmethod
    def bare(stream: Any) -> Any:
        """The author's own iterator behind a stream that nobody has begun, for a level that adds its own door.

        A stream whose source shares its watchdog stays as it is: nothing else would time that source.
        """
        if not isinstance(stream, EventStream) or stream._pump is not None:
            return stream
        return stream if isinstance(stream._timeouts, Watchdog) else stream._source

    def _begun(self, *, together: bool = False) -> AsyncGenerator[Any, None]:
        pump = self._pump
        if pump is None:
            source, times, self._source = self._source, self._timeouts, None
            watch = self._watch = times if isinstance(times, Watchdog) else Watchdog(times or _TIMEOUTS)
            # Only a chain shares its watchdog, and what it shows has been through a fold.
            fold = self._fold = Fold(settled=watch is times)
            pump = self._pump = _pump(source, fold, watch=watch, together=together)
            watch.guard(pump)
        return pump

    def __aiter__(self) -> AsyncIterator[Event]:
        # The generator itself, so that a loop takes each event without a call through this object.
        pump: Any = self._begun()
        if self._watch.closing or pump.ag_frame is not None or self._fold.finish is not None:
            return pump  # type: ignore[no-any-return]
        return _ended(self._fold)

    def __anext__(self) -> Awaitable[Event]:
        return self._begun().__anext__()

    def batches(self) -> AsyncGenerator[Sequence[Event], None]:
        """Texts as they came together, all else by itself, for a level that hands them on; in place of reading singly.

        A batch of texts counts as read when it is taken; who stops within one knows himself how much he showed.
        """
        return self._begun(together=True)

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; harmless twice, and from a task other than the reader's."""
        source = self._source
        pump: Any = self._begun()
        watch = self._watch
        if self._fold.finish is None:
            watch.closing = True
        elif pump.ag_frame is None:
            return
        while watch.waiting():
            watch.interrupt(CLOSED)
            await watch.respite()
        await pump.aclose()
        await close(source)

    def partial(self, error: TierError) -> StepResult:
        """What has arrived so far, as an "error-post" reply with this error."""
        fold = Fold() if self._pump is None else self._fold
        return fold.failed(error)

    async def result(self) -> StepResult:
        """Read to the end and return the whole reply; what was already read counts.

        A failure after content gives an "error-post" result; asked again, the answer is the same.

        Raises:
            TierError: it failed before any content.
            RuntimeError: somebody else is reading it.
        """
        pump: Any = self._begun(together=True)
        try:
            # What was read to its end is not asked again.
            if pump.ag_frame is not None:
                async for _ in pump:
                    pass
        except Exception:
            if self._fold.broken is None:
                raise
        if self._fold.broken is not None:
            failure = self.failure(self._fold.broken)
            if self._fold.has_content:
                return failure.partial  # type: ignore[no-any-return]
            # The error will keep this frame, and the stream the error.
            del self
            try:
                raise failure from failure.__cause__
            finally:
                del failure
        if self._fold.finish is None:
            raise ProtocolError(_CLOSED)
        return self._fold.result()

    def failure(self, error: Exception) -> TierError:
        """The classified form of what a read of this stream raised, with what had arrived as its `partial`."""
        failure = classify(error)
        if self._pump is not None and self._fold.has_content:
            # Whatever stands there already is of an inner layer, or of another call that raised the same object.
            failure.partial = self._fold.failed(failure)
        return failure

    @property
    def text(self) -> AsyncIterator[str]:
        """Only the text, piece by piece."""
        return texts_in(self)


async def _ended(fold: Fold) -> AsyncIterator[Event]:
    """What somebody reads of a stream that is over and never came to its finish."""
    raise fold.broken or ProtocolError(_CLOSED)
    yield
