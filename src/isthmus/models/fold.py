"""The only fold: a stream of events to a `StepResult`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from inspect import isawaitable
from typing import Any, NoReturn

import msgspec

from isthmus.errors import ProtocolError, TierError, TransientError, UnclassifiedError, tier_error
from isthmus.models.batches import texts_of
from isthmus.models.contract import TextCallback
from isthmus.models.events import (
    EVENT_TYPES,
    Call,
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Native,
    Note,
    Reasoning,
    Reset,
    StepResult,
    Text,
    framed,
    tried,
)
from isthmus.models.normalise import identified, righted, settle, to_event, to_finish
from isthmus.secret import redact

_POST = FinishReason.ERROR_POST.value
_PREVIEWS = {CallDelta}
# What libraries call a lost connection that is none of Python's own kind; none of them need be there.
_LOST = frozenset(
    {
        *("aiohttp.client_exceptions.ClientConnectionError", "aiohttp.client_exceptions.ClientPayloadError"),
        *(f"{name}.{kind}" for name in ("httpx", "httpx2") for kind in ("NetworkError", "RemoteProtocolError")),
        *("httpx.TimeoutException", "httpx2.TimeoutException"),
        *("requests.exceptions.ConnectionError", "requests.exceptions.ChunkedEncodingError"),
        *("urllib3.exceptions.ProtocolError", "http.client.IncompleteRead", "asyncio.exceptions.IncompleteReadError"),
    }
)


def classify(error: BaseException) -> TierError:
    """The classified form of any failure of a model call.

    A `TierError` stands as it is, wherever in the chain of causes, and so does the one that another error holds as its
    `classified`; time-outs and lost connections are "transient", those of the usual HTTP libraries too, a refused
    connection is "unavailable", all else is "unclassified".
    """
    for cause in chain_of_causes(error):
        known = cause if isinstance(cause, TierError) else getattr(cause, "classified", None)
        if isinstance(known, TierError):
            return righted(known)
        if isinstance(cause, ConnectionRefusedError):
            return tier_error("unavailable", redact(str(cause)) or "connection refused", cause=error)
        if isinstance(cause, TimeoutError | ConnectionError):
            return tier_error("transient", redact(str(cause)) or type(cause).__name__, cause=error)
    lost = not _LOST.isdisjoint([_dotted(kind) for cause in chain_of_causes(error) for kind in type(cause).__mro__])
    failure = (TransientError if lost else UnclassifiedError)(redact(said(error)))
    failure.__cause__ = error
    return failure


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def reraise(failure: TierError) -> NoReturn:
    """Raise it with the cause that it has; no frame of its traceback holds it, so it goes when its last user does."""
    try:
        raise failure from failure.__cause__
    finally:
        del failure


def chain_of_causes(error: BaseException, depth: int = 8) -> Iterable[BaseException]:
    """The error, its cause or context, and so on, at most `depth` of them."""
    seen: BaseException | None = error
    for _ in range(depth):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def uninvited(error: asyncio.CancelledError) -> UnclassifiedError | None:
    """The failure behind a cancellation that nobody asked this task for: some work of an author's was cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        return None
    failure = UnclassifiedError("cancelled by itself: nobody cancelled the task that waited")
    failure.__cause__ = error
    return failure


def fail_if_uninvited(error: asyncio.CancelledError) -> None:
    """Raise the failure behind a cancellation that nobody asked this task for.

    Raises:
        UnclassifiedError: it is one.
    """
    failure = uninvited(error)
    if failure is not None:
        raise failure


def said(error: BaseException) -> str:
    """The type and the words of an exception; the type alone where it has none, or fails to say them."""
    try:
        words = str(error)
    except Exception:
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


class Fold(msgspec.Struct, eq=False):
    """Collects events as they pass and knows at any moment what they amount to.

    Args:
        settled: whether the events went through another fold before, as a chain's did: what that has made of calls and
            of the finish is not made again.
    """

    settled: bool = False
    _events: list[Text | Call] = []
    _texts: list[str] = []
    _reasoning: list[str] = []
    _native: list[Native] = []
    _notes: list[Note] = []
    _calls: set[str] = set()
    finish: Finish | None = None
    listening: bool = False
    """Whether somebody else's callback is at work: what it raises is no failure of the stream."""
    broken: Exception | None = None
    """What ended the stream instead of a finish, where its reader keeps that."""

    @property
    def has_content(self) -> bool:
        """Whether a non-empty text or any call has been seen."""
        return any(self._texts) or bool(self._events)

    def add(self, event: Event) -> Event:
        """Take one event; returns it, or the form that the rules make of it.

        Raises:
            ProtocolError: anything after `Finish`; a second call with the same id; a field that is not what it must be.
        """
        if self.finish is not None:
            raise ProtocolError(f"{to_event(event).type!r} after the finish: a stream ends with exactly one finish")
        if type(event) is Text:
            text = event.text
            # Not `isinstance`, not `type(text)`: once an event, and this costs no more than the truth of a text.
            if text.__class__ is str or isinstance(text, str):
                self._texts.append(text)
                return event
            raise ProtocolError(f"text event: 'text' must be str, not {type(text).__name__}")
        return self._add_other(event)

    def extend(self, events: Iterable[Event]) -> None:
        """Take several events; see `add`."""
        for event in events:
            self.add(event)

    def texts(self, events: Sequence[Event]) -> bool:
        """Take events that came together if all are plain text, or previews of calls; whether they are."""
        if self.finish is not None:
            return False
        texts = texts_of(events)
        if texts is None:
            return set(map(type, events)) == _PREVIEWS
        self._texts += texts
        return True

    def _add_other(self, event: Event) -> Event:
        if type(event) is Finish:
            return self._finished(event)
        if type(event) is CallDelta:
            return event
        if isinstance(event, Call):
            if not self.settled:
                event = identified(event, self._calls, notes=self._notes)
            self._flush()
            self._events.append(event)
        elif isinstance(event, Reasoning):
            if type(event.text) is not str:
                raise ProtocolError(f"reasoning event: 'text' must be str, not {type(event.text).__name__}")
            self._reasoning.append(event.text)
        elif isinstance(event, Native):
            self._native.append(event)
        elif isinstance(event, Reset):
            self._reasoning.clear()
            self._native.clear()
        # What a stranger's batch holds was not looked at before.
        return event if type(event) in EVENT_TYPES else self.add(to_event(event))

    def _finished(self, event: Finish) -> Finish:
        if self._texts:
            self._flush()
        if event.content:
            # A chain took markers out of the text; what the model wrote is what is kept.
            self._events = list(event.content)
        if not self.settled:
            event = to_finish(event)
        if event.finish == _POST and not self._events:
            # Nothing was said yet: a failure like any other, which may be tried again.
            raise event.error or ProtocolError("finish 'error-post' without content and without an error")
        self.finish = event if self.settled else self._settle(event)
        return self.finish

    def _settle(self, event: Finish) -> Finish:
        finish, notes = settle(event.finish, tuple(self._events), notes=(*self._notes, *event.notes))
        if finish != event.finish or notes != event.notes:
            settled = msgspec.structs.replace(event, finish=finish, notes=notes)
            return tried(framed(settled, event.raw), event.attempts)  # type: ignore[no-any-return]
        return event

    def _flush(self) -> None:
        text = "".join(self._texts)
        if text:
            self._events.append(Text(text))
        self._texts = []

    def result(self) -> StepResult:
        """The whole reply.

        Raises:
            ProtocolError: no finish has come.
        """
        end = self.finish
        if end is None:
            raise ProtocolError("the stream ended without a finish")
        native = (*self._native, end.native) if end.native is not None else tuple(self._native)
        whole = StepResult(
            events=tuple(self._events),
            finish=end.finish,
            raw_reason=end.raw_reason,
            usage=end.usage,
            reasoning="".join(self._reasoning),
            native=native,
            notes=end.notes,
            error=end.error,
        )
        return tried(whole, end.attempts)  # type: ignore[no-any-return]

    def failed(self, error: TierError) -> StepResult:
        """What had arrived, as an "error-post" reply."""
        self._flush()
        return StepResult(
            events=tuple(self._events),
            finish="error-post",
            usage=error.usage,
            reasoning="".join(self._reasoning),
            native=tuple(self._native),
            notes=tuple(self._notes),
            error=error,
        )


async def iterate(source: Any) -> AsyncIterator[Any]:
    """One async iterator over whatever an author returned: async or plain iterable, or an awaitable of one."""
    if isawaitable(source):
        source = await source
    if hasattr(source, "__aiter__"):
        try:
            async for item in source:
                yield item
        finally:
            await close(source)
        return
    if isinstance(source, Iterable | Iterator) and not isinstance(source, str | bytes | dict):
        for item in source:
            yield item
        return
    raise ProtocolError(f"stream must return an async iterator, not {type(source).__name__}")


async def close(source: Any) -> None:
    """Close a stream if it can be closed; a failure to close never replaces the outcome."""
    aclose = getattr(source, "aclose", None)
    if aclose is not None:
        # Not `suppress`: it costs more than the closing.
        try:
            await aclose()
        except Exception:
            return


async def consume_stream(stream: Any, on_text: TextCallback | None = None) -> StepResult:
    """Collect a stream into one `StepResult`.

    Stops at the first finish and closes the stream on every path. A failure after content becomes an "error-post"
    result that holds what arrived; the fold is the same with and without a callback.

    Args:
        stream: an async (or plain) iterator of events, structs or dicts.
        on_text: called with each non-empty piece of text as it arrives; may be async. What it raises is no failure of
            the stream and passes unchanged.

    Raises:
        TierError: the stream failed before any content.
        ProtocolError: it broke the contract before any content.
    """
    return await folded(_collect, stream, on_text)


async def _collect(fold: Fold, stream: Any, on_text: TextCallback | None) -> None:
    source = stream if hasattr(stream, "__anext__") else iterate(stream)
    try:
        async for item in source:
            event = fold.add(item if type(item) in EVENT_TYPES else to_event(item))
            if on_text is not None and isinstance(event, Text) and event.text:
                fold.listening = True
                heard = on_text(event.text)
                if isawaitable(heard):
                    await heard
                fold.listening = False
            if fold.finish is not None:
                return
    finally:
        await close(source)


async def folded(read: Callable[..., Awaitable[None]], *arguments: Any) -> StepResult:
    """What a reader puts into the fold that it is given first: the whole reply, or "error-post" with what arrived.

    Raises:
        TierError: the reader failed before any content.
    """
    fold = Fold()
    try:
        await read(fold, *arguments)
        return fold.result()
    except (Exception, asyncio.CancelledError) as error:
        own = uninvited(error) if isinstance(error, asyncio.CancelledError) else classify(error)
        if fold.listening or own is None:
            raise
        if fold.has_content:
            return fold.failed(own)
        try:
            raise own from own.__cause__
        finally:
            del own
