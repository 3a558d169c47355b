"""The one path of every HTTP adapter: a codec over a real socket, streamed and whole."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from isthmus.adapters.classify import classify_in_band, classify_reply
from isthmus.adapters.codec import Request
from isthmus.adapters.drive import WireAdapter
from isthmus.errors import CredentialsError, ProtocolError, TierError, TransientError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, Note, Text
from isthmus.models.fold import consume_stream
from isthmus.models.stream import EventStream
from isthmus.observability import hooks
from isthmus.transport.credentials import KeySource
from isthmus.transport.http import HttpTransport
from isthmus.transport.recording import RecordingTransport
from isthmus.wire.call import Ended, WireCall, WireReply
from isthmus.wire.frame import Frame
from support.loopback import CLOSE, HOLD, LoopbackServer, head, stream, whole

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
CANARY = "cnry-8f3a1b2c4d5e6f70"


def text(said: str) -> bytes:
    """One event of the toy protocol."""
    return b"data: " + json.dumps({"text": said}).encode() + b"\n\n"


END = b'data: {"end":"stop"}\n\n'
DONE = b"data: [DONE]\n\n"


class ToyDecoder:
    """`{"text"}` frames, an `{"end"}` frame, `[DONE]`; a whole reply is `{"texts", "end"}`."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.done = False
        self.reason: str | None = None

    def feed(self, frame: Frame) -> Iterable[Event]:
        if frame.data.strip() == b"[DONE]":
            self.done = True
            return
        value = json.loads(frame.data)
        if frame.event == "error" or "error" in value:
            raise classify_in_band(value)
        for said in value["texts"] if self.whole else [value["text"]] if "text" in value else []:
            yield Text(said)
        self.reason = value.get("end", self.reason)

    def close(self, ended: Ended) -> Iterable[Event]:
        if self.reason is None or not (self.done or ended is Ended.FRAMED):
            raise TransientError(f"cut: {ended}")
        return [Finish(self.reason, raw_reason=f"{ended}", notes=(Note("own"),))]


class ToyCodec:
    """Encodes nothing but the mode."""

    dialect = "toy"
    framing = "sse"

    def __init__(self) -> None:
        self.replies: list[WireReply] = []

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: Any = None) -> Request:
        call = WireCall(path="/chat", body=json.dumps({"stream": stream}).encode(), stream=stream, framing=self.framing)
        return Request(call, (Note("encoder", "first"),))

    def decoder(self, *, whole: bool) -> ToyDecoder:
        return ToyDecoder(whole)

    def classify(self, reply: WireReply) -> TierError:
        self.replies.append(reply)
        return classify_reply(reply)


class Toy(WireAdapter):
    """The toy protocol at a base URL."""

    def __init__(self, url: str, keys: KeySource | None = None, transport: Any = None) -> None:
        self.toy = ToyCodec()
        self._wire(self.toy, transport or HttpTransport(), keys or KeySource(required=False), url + "/v1/")


async def events(adapter: WireAdapter) -> list[Event]:
    """All events of a streamed reply."""
    return [event async for event in adapter.stream(CTX)]


def said(found: Iterable[Any]) -> str:
    """The text of events."""
    return "".join(event.text for event in found if isinstance(event, Text))


@pytest.mark.parametrize("mode", ["stream", "generate"])
async def test_stream_and_whole_are_one_path(mode: str) -> None:
    """Either call sends its own request and folds to the same reply, the encoder's notes first."""
    answer = (
        stream(text("Hel"), text("lo"), END, DONE) if mode == "stream" else [whole(b'{"texts":["Hello"],"end":"stop"}')]
    )
    async with LoopbackServer([answer]) as server:
        adapter = Toy(server.url)
        result = await (consume_stream(adapter.stream(CTX)) if mode == "stream" else adapter.generate(CTX))
        await adapter.aclose()
    assert (result.text, result.finish) == ("Hello", "stop")
    assert [note.code for note in result.notes] == ["encoder", "own"]
    assert server.requests[0].path == "/v1/chat"
    assert json.loads(server.requests[0].body) == {"stream": mode == "stream"}


SSE = text("Hel") + text("lo") + END + DONE
DOCUMENT = b'\n{\n "texts": ["Hello"],\n "end": "stop"\n}\n'


@pytest.mark.parametrize("mode", ["stream", "generate"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/event-stream; charset=utf-8", SSE),
        ("text/plain", SSE),
        ("application/json", SSE),
        ("", SSE),
        ("", b"\xef\xbb\xbf\r\n: hello\r\n\r\n" + SSE),
        ("application/json", DOCUMENT),
        ("text/plain", DOCUMENT),
        ("", DOCUMENT),
    ],
)
@pytest.mark.parametrize("split", [1, 7, None])
async def test_what_the_reply_is_decides_how_it_is_read(
    mode: str, kind: str, body: bytes, split: int | None, tmp_path: Path
) -> None:
    """F06: a document for a stream, a stream for a document and a wrong content type are read for what they are."""
    headers = [["Content-Type", kind]] if kind else []
    (tmp_path / "response.meta.json").write_text(json.dumps({"status": 200, "headers": headers}))
    (tmp_path / "response.body").write_bytes(body)
    adapter = Toy("http://x", transport=RecordingTransport(tmp_path, split=split))
    result = await (consume_stream(adapter.stream(CTX)) if mode == "stream" else adapter.generate(CTX))
    assert (result.text, result.finish, result.error) == ("Hello", "stop", None)


@pytest.mark.parametrize("mode", ["stream", "generate"])
@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/octet-stream"])
async def test_a_page_is_no_reply(mode: str, kind: str) -> None:
    """F18: a 200 that is neither events nor JSON is a protocol error with an excerpt, and without the key in it."""
    page = f"<html>Please log in, {CANARY}</html>".encode()
    async with LoopbackServer([[whole(page, content_type=kind)]]) as server:
        adapter = Toy(server.url, KeySource(api_key=CANARY))
        with pytest.raises(ProtocolError, match=rf"{kind}.*Please log in") as caught:
            await (events(adapter) if mode == "stream" else adapter.generate(CTX))
        assert CANARY not in f"{caught.value} {caught.value.body}"
        await adapter.aclose()


async def test_an_error_document_in_an_event_stream_is_that_error() -> None:
    """F06: a pretty-printed error with the content type of a stream is classified, not lost."""
    body = b'{\n "error": {\n  "code": 503,\n  "message": "gone"\n }\n}\n'
    async with LoopbackServer([stream(body[:20], body[20:])]) as server:
        adapter = Toy(server.url)
        with pytest.raises(TierError, match="gone") as caught:
            await events(adapter)
        assert caught.value.status == 503
        await adapter.aclose()


async def test_an_error_reply_is_bounded_clean_and_dated() -> None:
    """F18, F29: of an error reply at most 64 KiB are read, keys are taken out, and it carries a date for its waits."""
    body = json.dumps({"error": {"message": f"bad key {CANARY}", "code": "c"}}).encode() + b" " * 100_000
    async with LoopbackServer([[whole(body, 429)], [whole(body, 429, date="Wed, 21 Oct 2026 07:28:00 GMT")]]) as server:
        adapter = Toy(server.url, KeySource(api_key=CANARY))
        for _ in range(2):
            with pytest.raises(TransientError) as caught:
                await events(adapter)
            assert "bad key ***" in str(caught.value)
            assert CANARY not in f"{caught.value.body}"
        first, second = adapter.toy.replies
        assert len(first.body) <= 65_536
        assert CANARY.encode() not in first.body
        assert parsedate_to_datetime(first.headers["date"]).tzinfo is not None
        assert second.headers["date"] == "Wed, 21 Oct 2026 07:28:00 GMT"
        await adapter.aclose()


DENIED = [whole(b'{"error":{"message":"no"}}', 401)]


@pytest.mark.parametrize(
    ("command", "answers", "keys"),
    [
        (True, [DENIED, stream(END, DONE)], 2),
        (True, [DENIED, DENIED], 2),
        (False, [DENIED], 1),
    ],
)
async def test_a_401_asks_for_a_new_key_once(command: bool, answers: list[Any], keys: int, tmp_path: Path) -> None:
    """A key that was refused is fetched anew once where a command can give another; the second 401 is the answer."""
    log = tmp_path / "log"
    vend = f"echo run >> {log}; echo key-$(wc -l < {log})"
    options: dict[str, Any] = {"api_key_command": vend, "api_key_ttl_ms": 60_000} if command else {"api_key": "key-1"}
    async with LoopbackServer(answers) as server:
        adapter = Toy(server.url, KeySource(**options))
        if len(answers) == 2 and answers[1] is not DENIED:
            await events(adapter)
        else:
            with pytest.raises(CredentialsError):
                await events(adapter)
        sent = [seen.headers["authorization"] for seen in server.requests]
        await adapter.aclose()
    assert sent == [f"Bearer key-{i + 1}" for i in range(keys)]


async def test_listeners_see_the_wire_without_keys() -> None:
    """F29: request, head and every piece of the body are shown to listeners, with the key taken out everywhere."""
    every: list[Any] = []
    echo = text(f"your key is {CANARY}")
    refused = [whole(json.dumps({"error": f"bad {CANARY}"}).encode(), 400)]
    async with LoopbackServer([stream(echo, 0.02, END, DONE), refused]) as server:
        adapter = Toy(server.url, KeySource(api_key=CANARY))
        with hooks.sink(every.append):
            assert CANARY in said(await events(adapter))
            with pytest.raises(TierError):
                await events(adapter)
        await adapter.aclose()
    records = [record for record in every if type(record).__name__.startswith("Wire")]
    assert [type(record).__name__ for record in records] == [
        *("WireSent", "WireReceived", "WireChunk", "WireChunk"),
        *("WireSent", "WireReceived", "WireChunk"),
    ]
    assert records[0].headers["authorization"] == "***"
    assert (records[0].method, records[0].body) == ("POST", b'{"stream": true}')
    assert {record.url for record in records} == {server.url + "/v1/chat"}
    assert records[1].status == 200
    assert b"your key is ***" in records[2].data
    assert CANARY not in repr(every)


@pytest.mark.parametrize("mode", ["stream", "generate"])
async def test_an_error_inside_the_reply_loses_its_keys(mode: str) -> None:
    """F29: message, code and body of an error that a decoder raises hold no key."""
    value = {"error": {"message": f"bad {CANARY}", "code": f"code {CANARY}", "type": "server_error"}}
    data = json.dumps(value).encode()
    answer = stream(b"data: " + data + b"\n\n") if mode == "stream" else [whole(data)]
    async with LoopbackServer([answer]) as server:
        adapter = Toy(server.url, KeySource(api_key=CANARY))
        with pytest.raises(TierError) as caught:
            await (events(adapter) if mode == "stream" else adapter.generate(CTX))
        await adapter.aclose()
    assert (str(caught.value), caught.value.code) == ("bad ***", "code ***")
    assert CANARY not in repr(caught.value.__dict__)


@pytest.mark.parametrize(
    "frame", [b"{not json", b"[1]", b"null", b'{"text":7}x', b'"a"', b"[" * 100_000], ids=lambda frame: str(frame[:9])
)
@pytest.mark.parametrize("mode", ["stream", "generate"])
async def test_a_malformed_frame_is_a_protocol_error_with_an_excerpt(frame: bytes, mode: str) -> None:
    """F01: what a decoder trips over is a protocol error that shows it and keeps the cause, never a short success."""
    body = stream(text("a"), b"data: " + frame + b"\n\n", END, DONE) if mode == "stream" else [whole(b"{" + frame)]
    async with LoopbackServer([body]) as server:
        adapter = Toy(server.url)
        with pytest.raises(ProtocolError, match="malformed") as caught:
            await (events(adapter) if mode == "stream" else adapter.generate(CTX))
        await adapter.aclose()
    assert frame[:40].decode() in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert mode == "generate" or caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (stream(text("a"), END, DONE), "framed"),
        (stream(text("a"), END), "framed"),
        ([head(connection="close", content_type="text/event-stream"), text("a"), END, CLOSE], "cut: unframed"),
        ([*stream(text("a"), END, last=False), CLOSE], "cut: broken"),
        ([*stream(text("a"), END, DONE, last=False), CLOSE], "framed"),
        ([head(connection="close", content_type="text/event-stream"), text("a"), END, DONE, CLOSE], "framed"),
        (stream(text("a")), "cut: framed"),
        (stream(), "cut: framed"),
        ([whole(b"")], "cut: framed"),
    ],
)
async def test_the_decoder_learns_how_the_body_ended(answer: list[Any], outcome: str) -> None:
    """F01: at the end the decoder is told framed, unframed or broken; after its own end mark it is framed."""
    async with LoopbackServer([answer]) as server:
        adapter = Toy(server.url)
        try:
            end = (await events(adapter))[-1]
            assert isinstance(end, Finish)
            seen = end.raw_reason
        except TransientError as error:
            seen = str(error)
        await adapter.aclose()
    assert seen == outcome


@pytest.mark.parametrize(
    ("tail", "finish"),
    [(b'data: {"te', "stop"), (b"data: [DO", "stop"), (b"data: [DONE]", "stop"), (b'data: {"end":"length"}', "length")],
)
async def test_a_last_frame_that_was_cut_is_no_frame(tail: bytes, finish: str) -> None:
    """F01: a reply that is complete but for a frame cut at the very end is complete; a whole last frame counts."""
    async with LoopbackServer([stream(text("a"), END, tail)]) as server:
        adapter = Toy(server.url)
        *_, end = await events(adapter)
        await adapter.aclose()
    assert isinstance(end, Finish)
    assert (end.raw_reason, end.finish) == ("framed", finish)


@pytest.mark.parametrize("last", [True, False])
async def test_a_stream_cut_inside_a_frame_is_transient(last: bool) -> None:
    """F01: bytes that just end, even within a frame, are a lost connection and no broken protocol."""
    steps = stream(text("a"), b'data: {"text": "b', last=last)
    async with LoopbackServer([[*steps, 0.01, CLOSE]]) as server:
        adapter = Toy(server.url)
        with pytest.raises(TransientError):
            await events(adapter)
        await adapter.aclose()


async def test_a_whole_reply_that_was_cut_is_transient() -> None:
    """F01: a document that stops short of its length is a lost connection; one that is whole but wrong is not."""
    async with LoopbackServer(
        [[head(content_length="99", content_type="application/json"), b'{"texts":["a', CLOSE]]
    ) as server:
        adapter = Toy(server.url)
        with pytest.raises(TransientError, match="cut after 12 bytes"):
            await adapter.generate(CTX)
        server.script = [[whole(b'{"texts":["a')]]
        with pytest.raises(ProtocolError):
            await adapter.generate(CTX)
        await adapter.aclose()


@pytest.mark.parametrize(
    "answer",
    [stream(text("a")), [head(content_length="99", content_type="application/json"), b'{"texts":["a', CLOSE]],
    ids=["stream", "document"],
)
async def test_the_error_of_a_cut_reply_has_no_context(answer: list[Any]) -> None:
    """How the end of the bytes was noticed is nobody's business, and its frames hold the reply and what was read."""
    async with LoopbackServer([answer]) as server:
        adapter = Toy(server.url)
        with pytest.raises(TransientError) as caught:
            await events(adapter)
        await adapter.aclose()
    assert caught.value.__context__ is None


@pytest.mark.parametrize("together", [True, False])
async def test_nothing_after_the_end_mark_is_read(together: bool) -> None:
    """An end mark ends the reply, whether what follows it came in the same piece or later."""
    late = b'data: {"error":"late"}\n\n'
    pieces = [END + DONE + late] if together else [END + DONE, late]
    async with LoopbackServer([stream(*pieces)]) as server:
        adapter = Toy(server.url)
        assert isinstance((await events(adapter))[-1], Finish)
        await adapter.aclose()


async def test_ndjson_is_read_line_by_line() -> None:
    """A codec that asks for lines of JSON gets one frame a line, under either content type."""
    for kind in ("application/x-ndjson", "text/plain", ""):
        body = b'{"text":"Hel"}\n{"text":"lo"}\r\n{"end":"stop"}'
        answer = [head(content_type=kind, content_length=str(len(body))), body]
        async with LoopbackServer([answer]) as server:
            adapter = Toy(server.url)
            adapter.toy.framing = "ndjson"
            assert said(await events(adapter)) == "Hello"
            assert server.requests[0].headers["accept"] == "application/x-ndjson"
            await adapter.aclose()


async def consumed(adapter: WireAdapter) -> None:
    """Stop at the finish, as the fold does."""
    await consume_stream(adapter.stream(CTX))


async def iterated(adapter: WireAdapter) -> None:
    """Read to the end of the iterator."""
    await events(adapter)


async def held(adapter: WireAdapter) -> None:
    """Read as callers do."""
    async with EventStream(adapter.stream(CTX)) as found:
        await found.result()


@pytest.mark.parametrize("late", [0.0, 0.02])
@pytest.mark.parametrize("read", [consumed, iterated, held])
async def test_the_connection_serves_again_after_a_finish(read: Any, late: float) -> None:
    """The rest of a finished reply is read, so that the next call needs no new connection, last chunk late or not."""
    async with LoopbackServer([stream(text("a"), END, DONE, late)]) as server:
        adapter = Toy(server.url)
        for _ in range(3):
            await read(adapter)
        assert (server.connections, len(server.requests)) == (1, 3)
        await adapter.aclose()


async def test_the_finish_does_not_wait_for_the_last_chunk() -> None:
    """The finish is handed out at the end mark; what the server sends after it is waited for afterwards."""
    gate = asyncio.Event()
    async with LoopbackServer([stream(text("a"), END, DONE, gate)]) as server:
        adapter = Toy(server.url)
        async for event in adapter.stream(CTX):
            if isinstance(event, Finish):
                assert not gate.is_set()
                gate.set()
        await adapter.aclose()


async def stop_by_break(found: AsyncIterator[Event]) -> None:
    """Leave the loop after the first event, the iterator still held."""
    async for _ in found:
        break
    await found.aclose()  # type: ignore[attr-defined]


async def stop_by_drop(found: AsyncIterator[Event]) -> None:
    """Forget the iterator after the first event."""
    await anext(found)


async def stop_by_cancel(found: AsyncIterator[Event]) -> None:
    """Be cancelled while the second event is awaited."""
    task = asyncio.current_task()
    assert task
    async for _ in found:
        asyncio.get_running_loop().call_soon(task.cancel)


@pytest.mark.parametrize("stop", [stop_by_break, stop_by_drop, stop_by_cancel])
@pytest.mark.parametrize("heard", [False, True])
async def test_a_stream_that_is_left_closes_its_socket(stop: Any, heard: bool) -> None:
    """F10: break, drop and cancel close the connection within 0.2 s, without the collector, and leave no task."""
    moments: list[float] = []

    async def run(adapter: WireAdapter) -> None:
        try:
            await stop(adapter.stream(CTX))
        finally:
            moments.append(monotonic())

    remove = hooks.add_sink(lambda record: None) if heard else None
    gc.disable()
    try:
        async with LoopbackServer([[*stream(text("a"), last=False), HOLD]]) as server:
            adapter = Toy(server.url)
            await asyncio.wait([asyncio.create_task(run(adapter))])
            await server.until(lambda: server.open == 0)
            assert server.disconnects[0].at - moments[0] < 0.2
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await adapter.aclose()
    finally:
        gc.enable()
        if remove:
            remove()


async def test_concurrent_calls_share_nothing() -> None:
    """Fifty calls at once each get their own reply."""

    def answer(seen: Any) -> list[Any]:
        return stream(text(f"{seen.connection}"), 0.02, text("!"), END, DONE)

    async with LoopbackServer(answer) as server:
        adapter = Toy(server.url)
        results = await asyncio.gather(*(consume_stream(adapter.stream(CTX)) for _ in range(50)))
        await adapter.aclose()
    assert sorted(result.text for result in results) == sorted(f"{i}!" for i in range(50))


async def test_headers_of_a_call_need_no_key() -> None:
    """An adapter without a key sends no authorisation."""
    keys: Mapping[str, Any] = {"required": False}
    async with LoopbackServer([stream(END, DONE)]) as server:
        adapter = Toy(server.url, KeySource(**keys))
        await events(adapter)
        assert "authorization" not in server.requests[0].headers
        await adapter.aclose()
