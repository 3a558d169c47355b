"""Runs a codec over a transport: the one path of every built-in HTTP adapter, streamed and whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Protocol

from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.codec import Codec, Decoder, Reply, Request, Transport
from isthmus.errors import ProtocolError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, Note, StepResult, framed
from isthmus.models.fold import consume_stream
from isthmus.observability import hooks
from isthmus.secret import HIDDEN, Secret, redact
from isthmus.wire.call import Ended, WireReply
from isthmus.wire.frame import Frame
from isthmus.wire.ndjson import NDJSONParser
from isthmus.wire.sse import SSEParser

_ERROR_BODY = 65_536
_PARSERS: Mapping[str, type[SSEParser] | type[NDJSONParser]] = {"sse": SSEParser, "ndjson": NDJSONParser}
_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl")


class Keys(Protocol):
    """Where an adapter's authorisation comes from."""

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
    """

    codec: Codec
    transport: Transport
    keys: Keys
    base_url: str

    def _wire(self, codec: Codec, transport: Transport, keys: Keys, base_url: str) -> None:
        self.codec, self.transport, self.keys, self.base_url = codec, transport, keys, base_url.rstrip("/")

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        """The reply's events as they arrive."""
        request = self.codec.encode(ctx, stream=True)
        async with self._open(request) as reply:
            async for event in decode_stream(self.codec, request, reply, self.keys.secrets()):
                yield event

    async def generate(self, ctx: GenerateContext) -> StepResult:
        """The reply whole, in one round trip."""
        request = self.codec.encode(ctx, stream=False)
        async with self._open(request) as reply:
            body = await reply.read()
            whole = decode_whole(self.codec, request, body, reply.ended, self.keys.secrets())
        return await consume_stream(whole)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncIterator[Reply]:
        refresh = False
        while True:
            headers = await self.keys.headers(refresh=refresh)
            async with self._sent(request, headers) as reply:
                if reply.status == 401 and self.keys.refreshable and not refresh:
                    refresh = True
                    continue
                if not 200 <= reply.status < 300:
                    await self._fail(reply)
                yield reply
                return

    @asynccontextmanager
    async def _sent(self, request: Request, headers: Mapping[str, str]) -> AsyncIterator[Reply]:
        call = request.call
        url = call.path if "://" in call.path else self.base_url + call.path
        if hooks.listening():
            shown = {name: HIDDEN if isinstance(value, Secret) else value for name, value in headers.items()}
            hooks.emit(hooks.WireSent(method=call.method, url=url, headers={**call.headers, **shown}, body=call.body))
        async with self.transport.open(url, call, headers) as reply:
            if hooks.listening():
                hooks.emit(hooks.WireReceived(url=url, status=reply.status, headers=dict(reply.headers)))
            yield reply

    async def _fail(self, reply: Reply) -> None:
        text = (await reply.read(_ERROR_BODY)).decode("utf-8", "replace")
        body = redact(text, self.keys.secrets()).encode()
        headers = {"date": formatdate(usegmt=True), **reply.headers}
        raise self.codec.classify(WireReply(reply.status, headers, body))

    async def aclose(self) -> None:
        """Close the adapter's connections in the running loop."""
        await self.transport.aclose()


def _noted(events: Iterable[Event], notes: tuple[Note, ...]) -> Iterable[Event]:
    """The events, with the encoder's notes in front of the finish's own."""
    if not notes:
        return events
    return [_with_notes(event, notes) if isinstance(event, Finish) else event for event in events]


def _with_notes(end: Finish, notes: tuple[Note, ...]) -> Finish:
    all_notes = (*notes, *end.notes)
    return framed(Finish(end.finish, end.usage, end.raw_reason, end.error, end.native, all_notes), end.raw)  # type: ignore[no-any-return]


def _scrubbed(error: BaseException, secrets: Iterable[str]) -> None:
    """Take keys out of an error that a decoder raised: providers repeat keys in their messages."""
    message = getattr(error, "message", None)
    if isinstance(message, str):
        clean = redact(message, secrets)
        error.message = clean  # type: ignore[attr-defined]
        error.args = (clean,)


async def decode_whole(
    codec: Codec, request: Request, body: bytes, ended: Ended, secrets: Iterable[str] = ()
) -> AsyncIterator[Event]:
    """The events of a whole reply: one frame through the same decoder as a stream.

    Raises:
        ProtocolError: the body is not what this codec reads.
        TransientError: it was cut.
    """
    decoder = codec.decoder(whole=True)
    try:
        events = [*decoder.feed(Frame(body)), *decoder.close(ended)]
    except Exception as error:
        _scrubbed(error, secrets)
        raise
    for event in _noted(events, request.notes):
        yield event


async def decode_stream(
    codec: Codec, request: Request, reply: Reply, secrets: Iterable[str] = ()
) -> AsyncIterator[Event]:
    """The events of a streamed reply, frame by frame.

    A body that is one JSON document instead of a stream is read as a whole reply.
    """
    chunks = reply.chunks()
    first = await _first_bytes(chunks)
    if _is_document(reply, first):
        body = first + b"".join([chunk async for chunk in chunks])
        async for event in decode_whole(codec, request, body, reply.ended, secrets):
            yield event
        return
    decoder = codec.decoder(whole=False)
    parser = _PARSERS[request.call.framing]()
    feed, parse = decoder.feed, parser.feed
    try:
        for frame in parse(first):
            for event in feed(frame):
                yield event
        if not decoder.done:
            async for chunk in chunks:
                for frame in parse(chunk):
                    for event in feed(frame):
                        yield event
                if decoder.done:
                    break
        if not decoder.done:
            for frame in parser.close():
                for event in feed(frame):
                    yield event
        for event in _end(decoder, reply, request):
            yield event
    except Exception as error:
        _scrubbed(error, secrets)
        raise
    await reply.settle()


async def _first_bytes(chunks: AsyncIterator[bytes]) -> bytes:
    """The body up to and including the first chunk that is more than white space."""
    first = b""
    async for chunk in chunks:
        first += chunk
        if first.strip():
            break
    return first


def _end(decoder: Decoder, reply: Reply, request: Request) -> Iterable[Event]:
    ended = Ended.FRAMED if decoder.done else reply.ended
    return _noted(decoder.close(ended), request.notes)


def _is_document(reply: Reply, first: bytes) -> bool:
    """Whether the body is one JSON document, or no stream at all, rather than the stream that was asked for."""
    kind = reply.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind in _STREAM_TYPES:
        return False
    start = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if kind == "application/json" or start in (b"{", b"["):
        return not start or start in (b"{", b"[")
    if kind.startswith("text/html"):
        raise ProtocolError(f"the reply is {kind}, not a stream: is the base URL right?")
    return False
