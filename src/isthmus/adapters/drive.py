"""Runs a codec over a transport: the one path of every built-in HTTP adapter, streamed and whole."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from email.utils import formatdate
from typing import Any, Protocol, TypeAlias

from isthmus.adapters.adjust import with_own
from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.bodies import Document, first_bytes, is_document, media_type, too_large
from isthmus.adapters.codec import Codec, Decoder, Reply, Request, Transport
from isthmus.adapters.observed import told
from isthmus.errors import ErrorClass, InvalidRequestError, ProtocolError, TierError, TransientError
from isthmus.models.batches import Batches, BatchSource
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
_NOT_HERE = (404, 405)
_EXCERPT = 300
_MOST_ASKED = 8
_EMPTY = GenerateContext()
_Parser: TypeAlias = SSEParser | NDJSONParser | EventStreamParser | Document
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
    _last_url: tuple[str, str, Address] = ("", "", Address(""))

    def _wire(self, codec: Codec, transport: Transport, keys: Keys, base_url: str) -> None:
        self.codec, self.transport, self.keys, self.base_url = codec, transport, keys, Address(base_url.rstrip("/"))

    def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        """The reply's events as they arrive."""
        return Batches(self._batches(ctx, stream=True))

    def generate(self, ctx: GenerateContext) -> Awaitable[StepResult]:
        """The reply whole, in one round trip."""
        return folded(self._whole, ctx)

    # They return a bare iterator and a settled result: the faces need not see to that.
    stream._isthmus_bare = generate._isthmus_bare = True  # type: ignore[attr-defined]

    async def aclose(self) -> None:
        """Close the adapter's connections in the running loop."""
        await self.transport.aclose()

    def _batches(self, ctx: GenerateContext, *, stream: bool) -> BatchSource:
        """The events of one call, asked for as a stream or whole; those of one read of the socket come together."""
        return _Reading(self, ctx, stream=stream)

    async def _whole(self, fold: Fold, ctx: GenerateContext) -> None:
        batches = self._batches(ctx, stream=False)
        try:
            async for batch in batches:
                fold.extend(batch)
                if fold.finish is not None:
                    break
        finally:
            await batches.aclose()
            # What arrived may repeat the key, and an error keeps this frame.
            batch = ()
            del batches

    def _encoded(self, ctx: GenerateContext, *, stream: bool) -> Request:
        try:
            return self._encode(ctx, stream=stream)
        except (RecursionError, TypeError) as error:
            raise no_json_form(error) from error

    def _encode(self, ctx: GenerateContext, *, stream: bool) -> Request:
        """The request for a context, once a call."""
        return self.codec.encode(with_own(self, ctx), stream=stream, capabilities=self.capabilities())

    async def _exchange(self, request: Request, *, refresh: bool) -> AbstractAsyncContextManager[Reply]:
        """The call, ready to be sent with the key of the moment or with a new one."""
        url, call, keys = self._url(request), request.call, self.keys
        sign = getattr(keys, "sign", None)
        headers = await (keys.headers(refresh=refresh) if sign is None else sign(url, call, refresh=refresh))
        if hooks.listening():
            shown = {name: HIDDEN if isinstance(value, Secret) else value for name, value in headers.items()}
            sent = {**call.headers, **shown}
            hooks.emit(hooks.WireSent(method=call.method, url=clean_url(url), headers=sent, body=call.body))
        return self.transport.open(url, call, headers=headers)

    def _tell(self, reply: Reply, request: Request) -> None:
        """Tell those who listen of the head of a reply."""
        told = {name: redact(value, self.keys.secrets()) for name, value in reply.headers.items()}
        hooks.emit(hooks.WireReceived(url=clean_url(self._url(request)), status=reply.status, headers=told))

    async def _refused(self, reply: Reply, request: Request, *, last: bool) -> None:
        """Settle a reply whose status is none of success: a 401 that a new key may mend.

        Raises:
            TierError: the status says that it failed, and nothing else can be tried.
        """
        if reply.status != 401 or last or not self.keys.refreshable:
            raise await self._failure(reply, self._url(request))
        await reply.settle()

    async def _failure(self, reply: Reply, url: str) -> TierError:
        text = (await reply.read(_ERROR_BODY)).decode("utf-8", "replace")
        body = redact(text, self.keys.secrets()).encode()
        if hooks.listening():
            hooks.emit(hooks.WireChunk(url=clean_url(url), data=body))
        headers = reply.headers if "date" in reply.headers else {**reply.headers, "date": formatdate(usegmt=True)}
        error = self.codec.classify(WireReply(reply.status, headers, body))
        # AWS names by an exception of its own what is missing: the address was right.
        named = (error.code or "").endswith("Exception")
        if reply.status in _NOT_HERE and error.error_class is ErrorClass.INVALID and not named:
            error.message += f" (there is nothing like it at {clean_url(url)}: is base_url right?)"
            error.args = (error.message,)
        return error

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
        path, base = request.call.path, self.base_url
        # Most calls of an adapter go to one place.
        known = self._last_url
        if known[0] != base or known[1] != path:
            known = self._last_url = (base, path, _address(base, path))
        return known[2]


def _address(base: str, path: str) -> Address:
    """Where a path leads from a base URL, whose query goes last."""
    if "://" in path:
        return Address(path)
    base, mark, query = base.partition("#")[0].partition("?")
    joint = "&" if "?" in path else "?"
    return Address(_joined(base, path) + (joint + query if mark and query else ""))


def _joined(base: str, path: str) -> str:
    """A path at a base URL that may say the version, or all of the path, already."""
    base, bare = base.rstrip("/"), path.partition("?")[0]
    version = bare.partition("/v1/")[0] + "/v1"
    said = next((part for part in (bare, version) if bare.startswith(part) and base.endswith(part)), "")
    return base + path.removeprefix(said)


class _Reading:
    """One call, sent at the first step, and its reply on the way through parser and decoder, batch by batch.

    What the reply is decides how it is read, not what was asked for: servers answer either with either. Whatever fails
    leaves as a `TierError`. The exchange is closed or settled at the end, after a failure, and by `aclose`.
    """

    __slots__ = (
        "_adapter",
        "_asks",
        "_begun",
        "_chunks",
        "_complete",
        "_ctx",
        "_decoder",
        "_exchange",
        "_failed",
        "_left",
        "_notes",
        "_over",
        "_parser",
        "_reply",
        "_stream",
    )

    _chunks: AsyncIterator[bytes]
    _decoder: Decoder
    _left: int
    _notes: tuple[Note, ...]
    _reply: Reply

    def __init__(self, adapter: WireAdapter, ctx: GenerateContext, *, stream: bool) -> None:
        self._adapter = adapter
        self._ctx = ctx
        self._stream = stream
        self._exchange: AbstractAsyncContextManager[Reply] | None = None
        # While there is more to read for the decoder.
        self._parser: _Parser | None = None
        self._failed: TierError | None = None
        self._asks = 0
        self._begun = self._complete = self._over = False

    def __aiter__(self) -> _Reading:
        return self

    # No generator, and the one coroutine of a read: each level costs as much as all that is done in it.
    async def __anext__(self) -> list[Event]:
        """The events of the next bytes that complete any."""
        batch: list[Event] = []
        try:
            try:
                while not self._over:
                    parser = self._parser
                    if parser is not None:
                        try:
                            chunk: bytes | None = await self._chunks.__anext__()
                        except StopAsyncIteration:
                            chunk = None
                        if chunk is None:
                            # Not where that was caught: its frames, and what they hold, would be an error's context.
                            batch = self._end()
                        else:
                            self._left -= len(chunk)
                            if self._left < 0:
                                raise too_large(self._adapter.max_reply_bytes)
                            batch = self._batch(parser.feed(chunk))
                    elif self._begun:
                        batch = self._end()
                    else:
                        batch = self._batch(await self._first())
                    if batch:
                        return batch
                failure, self._failed = self._failed, None
                if failure is not None:
                    raise failure from failure.__cause__
                if self._exchange is not None:
                    await self._leave()
            finally:
                if not batch:
                    self._over = True
                    if self._exchange is not None:
                        await self._leave(*sys.exc_info())
        except TierError as error:
            # What arrived may repeat the key, and the error keeps this frame, as parser and decoder may the error.
            chunk, parser, failure = b"", None, None
            self._parser = self._decoder = None  # type: ignore[assignment]
            del self
            raise error.with_traceback(None) from error.__cause__
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the exchange; harmless twice."""
        self._over, self._failed = True, None
        if self._exchange is not None:
            await self._leave()

    async def _leave(self, *failure: Any) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        try:
            if hasattr(self._chunks, "aclose"):
                await close(self._chunks)
            if self._complete and self._reply.ended is not Ended.FRAMED:
                await self._reply.settle()
        finally:
            await exchange.__aexit__(*(failure or (None, None, None)))

    async def _send(self) -> str:
        """Have the call accepted, with a new key if that of the moment was refused; give how a stream is framed."""
        adapter, self._begun = self._adapter, True
        request = adapter._encoded(self._ctx, stream=self._stream)
        # It may be large, and a reply take long.
        self._ctx = _EMPTY
        for last in (False, True):
            exchange = await adapter._exchange(request, refresh=last)
            reply = self._reply = await exchange.__aenter__()
            self._exchange, self._chunks = exchange, reply.chunks()
            heard = hooks.listening()
            if heard:
                adapter._tell(reply, request)
            if 200 <= reply.status < 300:
                break
            await adapter._refused(reply, request, last=last)
            await self._leave()
        if heard:
            self._asks = _MOST_ASKED
            self._chunks = adapter._heard(self._chunks, adapter._url(request))
        self._notes, self._stream = request.notes, request.call.stream
        return request.call.framing

    async def _first(self) -> Iterable[Frame]:
        """The frames in the first bytes, which tell what the reply is.

        Raises:
            ProtocolError: the first bytes are neither of a stream nor of a document; an event, or all, is too large.
        """
        framing = await self._send()
        adapter, reply, most = self._adapter, self._reply, self._adapter.max_reply_bytes
        kind = media_type(reply.headers.get("content-type", ""))
        first = await first_bytes(kind, self._chunks, limit=most)
        self._left = most - len(first)
        whole = is_document(
            kind, first, streamed=self._stream, framing=framing, secrets=adapter.keys.secrets(), status=reply.status
        )
        self._decoder = adapter.codec.decoder(whole=whole)
        parser = self._parser = Document() if whole else _PARSERS[framing](min(most, MOST_BYTES))
        return parser.feed(first)

    def _named(self, frames: Iterable[Frame]) -> Iterable[Frame]:
        """The same for those who listen: the reply's id and model are taken out of its first frames."""
        read = list(frames)
        known = any(told(frame.data) for frame in read[:_MOST_ASKED])
        self._asks = 0 if known else max(0, self._asks - len(read))
        return read

    def _batch(self, frames: Iterable[Frame]) -> list[Event]:
        """The events in some frames, up to the protocol's own end, or to what is wrong with one of them."""
        if self._asks:
            frames = self._named(frames)
        decoder = self._decoder
        batch: list[Event] = []
        for frame in frames:
            try:
                batch += decoder.feed(frame)
            except _FAULTS as error:
                self._over, self._failed = True, self._failure(error, frame)
                break
            if decoder.done:
                self._parser = None
                break
        return batch

    def _end(self) -> list[Event]:
        """The events that are due at the end, the encoder's notes first in the finish's own.

        Raises:
            TransientError: it is a document that was cut.
        """
        parser, decoder, ended, notes = self._parser, self._decoder, self._reply.ended, self._notes
        batch: list[Event] = []
        self._over = True
        if parser is not None:
            frames = parser.close()
            if type(parser) is not Document:
                # A last frame that was cut is no frame: whether the reply is complete without it, the decoder knows.
                frames = [frame for frame in frames if _is_whole(frame)]
            elif ended is not Ended.FRAMED and not _is_whole(frames[0]):
                raise TransientError(f"the reply was cut after {len(frames[0].data)} bytes")
            batch = self._batch(frames)
            if self._failed is not None:
                return batch
        try:
            events = list(decoder.close(Ended.FRAMED if decoder.done else ended))
        except _FAULTS as error:
            self._failed = self._failure(error)
            return batch
        self._complete = True
        if notes:
            events = [_with_notes(event, notes) if isinstance(event, Finish) else event for event in events]
        return batch + events

    def _failure(self, error: Exception, frame: Frame | None = None) -> TierError:
        """The error without keys, which providers repeat in their messages; a decoder's own fault as "protocol"."""
        secrets = tuple(self._adapter.keys.secrets())
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
