"""Runs a codec over a transport: the one path of every built-in HTTP adapter, streamed and whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.utils import formatdate
from typing import Protocol, TypeAlias

from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.bodies import first_bytes, is_document, too_large
from isthmus.adapters.codec import Codec, Decoder, Reply, Request, Transport
from isthmus.adapters.observed import told
from isthmus.errors import InvalidRequestError, ProtocolError, TierError, TransientError
from isthmus.models.batches import Batches
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, Note, StepResult, framed
from isthmus.models.fold import Fold, close, folded
from isthmus.models.jsontext import loads
from isthmus.observability import hooks
from isthmus.secret import HIDDEN, Address, Secret, clean_url, redact
from isthmus.wire.call import Ended, WireReply
from isthmus.wire.eventstream import EventStreamParser
from isthmus.wire.frame import MOST_BYTES, Frame
from isthmus.wire.ndjson import NDJSONParser
from isthmus.wire.sse import SSEParser

_ERROR_BODY = 65_536
_EXCERPT = 300
_Parser: TypeAlias = SSEParser | NDJSONParser | EventStreamParser
_PARSERS: Mapping[str, Callable[[int], _Parser]] = {
    "sse": SSEParser,
    "ndjson": NDJSONParser,
    "eventstream": EventStreamParser,
}

# What a decoder raises on purpose, and on values of a form that it does not expect.
_FAULTS = (TierError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Keys(Protocol):
    """Where an adapter's authorisation comes from.

    Keys that sign what a request says also have `async sign(url, call, *, refresh=False)`, which gives the headers of
    that one request; it is asked instead of `headers`.
    """

    async def headers(self, *, refresh: bool = False) -> Mapping[str, str]:
        """The headers that authorise a request; `refresh` asks for a new key after a 401."""
        ...

    def secrets(self) -> Iterable[str]:
        """The keys known so far, to be taken out of any text."""
        ...

    @property
    def refreshable(self) -> bool:
        """Whether asking again can give another key."""
        ...


class WireAdapter(ModelAdapter):
    """An adapter made of a codec, a transport and keys; its subclasses only put the three together.

    Args:
        codec: what the provider says and how.
        transport: how it gets there.
        keys: what authorises it.
        base_url: where; paths are appended.
        max_reply_bytes: the most bytes that a reply may have, decompressed, and so a bound for the memory it takes.
    """

    max_reply_bytes: int = 256 * 1024 * 1024
    codec: Codec
    transport: Transport
    keys: Keys
    base_url: str

    def _wire(self, codec: Codec, transport: Transport, keys: Keys, base_url: str) -> None:
        self.codec, self.transport, self.keys, self.base_url = codec, transport, keys, Address(base_url.rstrip("/"))

    def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        """The reply's events as they arrive."""
        return Batches(self._batches(ctx))

    async def generate(self, ctx: GenerateContext) -> StepResult:
        """The reply whole, in one round trip."""
        return await folded(self._whole, ctx)

    # They return a bare generator and a settled result: the faces need not see to that.
    stream._isthmus_bare = generate._isthmus_bare = True  # type: ignore[attr-defined]

    async def aclose(self) -> None:
        """Close the adapter's connections in the running loop."""
        await self.transport.aclose()

    async def _batches(self, ctx: GenerateContext) -> AsyncGenerator[Sequence[Event], None]:
        """The one loop over a stream; the events of what one read of the socket gave come together.

        What the reply is decides how it is read, not what was asked for: servers answer either with either.
        """
        opened = self._open(self._encoded(ctx, stream=True))
        del ctx
        async with opened as reading:
            try:
                frames: Iterable[Frame] | None = ()
                while frames is not None:
                    frames = await reading.frames()
                    batch, failure = reading.end() if frames is None else reading.batch(frames)
                    if batch:
                        yield batch
                    if failure is not None:
                        raise failure from failure.__cause__
            except TierError as error:
                # What arrived may repeat the key, and the error keeps this frame.
                frames, batch, failure = None, [], None
                del reading
                raise error.with_traceback(None) from error.__cause__

    def _encoded(self, ctx: GenerateContext, *, stream: bool) -> Request:
        try:
            return self._encode(ctx, stream=stream)
        except (RecursionError, TypeError) as error:
            raise no_json_form(error) from error

    async def _whole(self, fold: Fold, ctx: GenerateContext) -> None:
        """The same for a reply asked for whole, into a fold: nobody waits for its events one by one."""
        opened = self._open(self._encoded(ctx, stream=False))
        del ctx
        async with opened as reading:
            try:
                frames: Iterable[Frame] | None = ()
                while frames is not None:
                    frames = await reading.frames()
                    batch, failure = reading.end() if frames is None else reading.batch(frames)
                    fold.extend(batch)
                    if failure is not None:
                        raise failure from failure.__cause__
            except TierError as error:
                frames, batch, failure = None, [], None
                del reading
                raise error.with_traceback(None) from error.__cause__

    def _encode(self, ctx: GenerateContext, *, stream: bool) -> Request:
        """The request for a context, once a call."""
        return self.codec.encode(ctx, stream=stream)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncGenerator[_Reading, None]:
        """The exchange as a block: sent, accepted, ready to be read, and closed or settled when it is left."""
        for last in (False, True):
            async with await self._exchange(request, refresh=last) as reply:
                if not await self._accepted(reply, request, last=last):
                    continue
                chunks, kind = reply.chunks(), _Reading
                if hooks.listening():
                    chunks, kind = self._heard(chunks, self._url(request)), _HeardReading
                reading = kind(self.codec, request, reply=reply, chunks=chunks, secrets=self.keys.secrets)
                reading.limit = self.max_reply_bytes
                # A body may be large, and a reply take long.
                del request
                try:
                    yield reading
                finally:
                    await close(chunks)
                    if reading.complete and reply.ended is not Ended.FRAMED:
                        await reply.settle()
                return

    async def _exchange(self, request: Request, *, refresh: bool) -> AbstractAsyncContextManager[Reply]:
        """The call, ready to be sent with the key of the moment or with a new one."""
        url, call = self._url(request), request.call
        sign = getattr(self.keys, "sign", None)
        headers = await (self.keys.headers(refresh=refresh) if sign is None else sign(url, call, refresh=refresh))
        if hooks.listening():
            shown = {name: HIDDEN if isinstance(value, Secret) else value for name, value in headers.items()}
            sent = {**call.headers, **shown}
            hooks.emit(hooks.WireSent(method=call.method, url=clean_url(url), headers=sent, body=call.body))
        return self.transport.open(url, call, headers=headers)

    async def _accepted(self, reply: Reply, request: Request, *, last: bool) -> bool:
        """Whether the status says success; False for a 401 that a new key may mend.

        Raises:
            TierError: the status says that it failed, and nothing else can be tried.
        """
        if hooks.listening():
            told = {name: redact(value, self.keys.secrets()) for name, value in reply.headers.items()}
            hooks.emit(hooks.WireReceived(url=clean_url(self._url(request)), status=reply.status, headers=told))
        if 200 <= reply.status < 300:
            return True
        if reply.status != 401 or last or not self.keys.refreshable:
            raise await self._failure(reply, self._url(request))
        await reply.settle()
        return False

    async def _failure(self, reply: Reply, url: str) -> TierError:
        text = (await reply.read(_ERROR_BODY)).decode("utf-8", "replace")
        body = redact(text, self.keys.secrets()).encode()
        if hooks.listening():
            hooks.emit(hooks.WireChunk(url=clean_url(url), data=body))
        headers = reply.headers if "date" in reply.headers else {**reply.headers, "date": formatdate(usegmt=True)}
        return self.codec.classify(WireReply(reply.status, headers, body))

    async def _heard(self, chunks: AsyncIterator[bytes], url: str) -> AsyncGenerator[bytes, None]:
        """The same chunks, shown to those who listen."""
        try:
            async for chunk in chunks:
                shown = chunk
                for secret in self.keys.secrets():
                    shown = shown.replace(secret.encode(), HIDDEN.encode())
                hooks.emit(hooks.WireChunk(url=clean_url(url), data=shown))
                yield chunk
        finally:
            await close(chunks)

    def _url(self, request: Request) -> Address:
        path = request.call.path
        if "://" in path:
            return Address(path)
        if "?" not in self.base_url and "#" not in self.base_url:
            return Address(self.base_url.rstrip("/") + path)
        base, mark, query = self.base_url.partition("#")[0].partition("?")
        joint = "&" if "?" in path else "?"
        return Address(base.rstrip("/") + path + (joint + query if mark and query else ""))


class _Reading:
    """One reply on its way through parser and decoder; whatever fails on that way leaves as a `TierError`."""

    __slots__ = (
        "_chunks",
        "_codec",
        "_framing",
        "_notes",
        "_parser",
        "_reply",
        "_secrets",
        "_size",
        "_streamed",
        "_whole",
        "complete",
        "decoder",
        "limit",
    )

    decoder: Decoder
    limit: int
    _parser: _Parser | None

    def __init__(
        self,
        codec: Codec,
        request: Request,
        *,
        reply: Reply,
        chunks: AsyncIterator[bytes],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        self._codec = codec
        self._notes = request.notes
        self._secrets = secrets
        self._streamed, self._framing = request.call.stream, request.call.framing
        self._reply, self._chunks = reply, chunks
        self._whole = False
        self._size = 0
        self._parser = None
        self.complete = False

    async def frames(self) -> Iterable[Frame] | None:
        """The frames in the next bytes; None at the end of the body, or of the reply.

        Raises:
            ProtocolError: the first bytes are neither of a stream nor of a document; an event, or all, is too large.
            TransientError: it is a document that was cut.
        """
        parser = self._parser
        if parser is None:
            return None if self._whole else await self._first()
        if self.decoder.done:
            return None
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            return None
        self._count(chunk)
        return parser.feed(chunk)

    def _count(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self.limit:
            raise too_large(self.limit)

    async def _first(self) -> Iterable[Frame]:
        """The frames in the first bytes, which tell what the reply is: the one of a document is all of it."""
        reply, chunks = self._reply, self._chunks
        kind = reply.headers.get("content-type", "")
        first = await first_bytes(kind, chunks, limit=self.limit)
        self._count(first)
        whole = self._whole = is_document(
            kind, first, streamed=self._streamed, framing=self._framing, secrets=self._secrets(), status=reply.status
        )
        self.decoder = self._codec.decoder(whole=whole)
        if not whole:
            parser = self._parser = _PARSERS[self._framing](min(self.limit, MOST_BYTES))
            return parser.feed(first)
        pieces = [first]
        async for chunk in chunks:
            self._count(chunk)
            pieces.append(chunk)
        frame = Frame(b"".join(pieces))
        if reply.ended is not Ended.FRAMED and not _is_whole(frame):
            raise TransientError(f"the reply was cut after {len(frame.data)} bytes")
        return (frame,)

    def end(self) -> tuple[list[Event], TierError | None]:
        """The events that are due at the end, the encoder's notes first in the finish's own; or what is wrong there."""
        decoder, notes = self.decoder, self._notes
        batch: list[Event] = []
        if self._parser is not None and not decoder.done:
            # A last frame that was cut is no frame: whether the reply is complete without it, the decoder knows.
            batch, failure = self.batch([frame for frame in self._parser.close() if _is_whole(frame)])
            if failure is not None:
                return batch, failure
        try:
            events = list(decoder.close(Ended.FRAMED if decoder.done else self._reply.ended))
        except _FAULTS as error:
            return batch, self.failure(error)
        self.complete = True
        batch += (_with_notes(event, notes) if notes and isinstance(event, Finish) else event for event in events)
        return batch, None

    def batch(self, frames: Iterable[Frame]) -> tuple[list[Event], TierError | None]:
        """The events in some frames, up to the protocol's own end, and what stopped them before it."""
        decoder, batch = self.decoder, list[Event]()
        decode = decoder.feed
        for frame in frames:
            try:
                batch += decode(frame)
            except _FAULTS as error:
                return batch, self.failure(error, frame)
            if decoder.done:
                break
        return batch, None

    def failure(self, error: Exception, frame: Frame | None = None) -> TierError:
        """The error without keys, which providers repeat in their messages; a decoder's own fault as "protocol"."""
        secrets = tuple(self._secrets())
        if not isinstance(error, TierError):
            shown = f": {frame.data[:_EXCERPT].decode('utf-8', 'replace')}" if frame is not None else " at the end"
            fault, error = error, ProtocolError(f"the reply is malformed ({type(error).__name__}: {error}){shown}")
            error.__cause__ = fault.with_traceback(None)
        said = frame.data.decode("utf-8", "replace") if frame is not None else ""
        if redact(said, secrets) != said:
            error.__cause__ = error.__context__ = None
        error.message = redact(error.message, secrets)
        error.args = (error.message,)
        error.body = redact(error.body, secrets) if error.body else error.body
        error.code = redact(error.code, secrets) if error.code else error.code
        return error


_MOST_ASKED = 8


class _HeardReading(_Reading):
    """The same for those who listen: the reply's id and model are taken out of its first frames."""

    __slots__ = ("_asked",)

    async def frames(self) -> Iterable[Frame] | None:
        frames = await super().frames()
        asked = getattr(self, "_asked", 0)
        if frames is None or asked >= _MOST_ASKED:
            return frames
        read = list(frames)
        known = any(told(frame.data) for frame in read[:_MOST_ASKED])
        self._asked = _MOST_ASKED if known else asked + len(read)
        return read


def no_json_form(error: Exception) -> InvalidRequestError:
    """The error of a request that cannot be written down: no other tier could say it either."""
    return InvalidRequestError(
        f"the request has no JSON form ({error}): its messages, tools and options must be plain values, "
        "and not nested hundreds deep"
    )


def _with_notes(end: Finish, notes: tuple[Note, ...]) -> Finish:
    all_notes = (*notes, *end.notes)
    return framed(Finish(end.finish, end.usage, end.raw_reason, end.error, end.native, all_notes), end.raw)  # type: ignore[no-any-return]


def _is_whole(frame: Frame) -> bool:
    """Whether a frame that nothing ended has all its bytes."""
    if frame.event == "error" or frame.data.strip() in (b"", b"[DONE]"):
        return True
    try:
        loads(frame.data)
    except (ValueError, RecursionError):
        return False
    return True
