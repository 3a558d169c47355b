"""Exchanges kept as recordings, over any transport."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import InvalidRequestError, TransientError
from isthmus.transport.recorder import RecordingCarrier, keep
from isthmus.transport.recording import RecordingTransport, ReplayTransport
from isthmus.wire.call import Ended, WireCall

CALL = WireCall(path="/chat", body=b'{"model": "m", "stream": true}')
URL = "https://api.example.com/v1/chat?api-version=1"


class Canned:
    """A transport and its reply."""

    def __init__(self, *pieces: bytes, ended: Ended = Ended.FRAMED, headers: Mapping[str, str] | None = None) -> None:
        self.pieces, self.final, self.headers = pieces, ended, headers or {"content-type": "text/event-stream"}
        self.status, self.ended, self.settled, self.closed = 200, Ended.BROKEN, 0, 0

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> Canned:
        return self

    async def __aenter__(self) -> Canned:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed += 1

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        self.ended = self.final

    async def read(self, limit: int | None = None) -> bytes:
        self.ended = self.final
        return b"".join(self.pieces)[:limit]

    async def settle(self) -> None:
        self.settled += 1

    async def aclose(self) -> None:
        self.closed += 1


async def exchanged(carrier: Any, call: WireCall = CALL, **headers: str) -> list[bytes]:
    """One exchange, read to its end."""
    async with carrier.open(URL, call, headers=headers) as reply:
        return [data async for data in reply.chunks()]


def meta_of(folder: Path) -> Any:
    """What a recording says of its reply."""
    return json.loads((folder / "response.meta.json").read_text())


PIECES = st.lists(st.binary(min_size=1, max_size=20), max_size=6)


@settings(max_examples=40, deadline=None)
@given(PIECES, st.sampled_from(Ended))
def test_what_was_read_is_kept_and_plays_again(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], ended: Ended
) -> None:
    """Bytes, edges and the manner of the end are the same in the reader's hands, on disk and when played again."""
    folder = tmp_path_factory.mktemp("kept")

    async def main() -> None:
        assert await exchanged(RecordingCarrier(Canned(*pieces, ended=ended), folder)) == pieces
        (place,) = folder.iterdir()
        assert [len(piece) for piece in pieces] == meta_of(place)["chunk_sizes"]
        assert len(meta_of(place)["chunk_times"]) == len(pieces)
        async with ReplayTransport(folder).open(URL, CALL, headers={}) as reply:
            assert [data async for data in reply.chunks()] == pieces
            assert (reply.status, reply.ended) == (200, ended)

    asyncio.run(main())


async def test_a_recording_has_the_layout_of_recordings(tmp_path: Path) -> None:
    """Three files: the request taken apart, status, headers, edges and times of the reply, and its bytes."""
    await exchanged(RecordingCarrier(Canned(b"data: 1\n\n"), tmp_path / "deep" / "down"))
    (place,) = (tmp_path / "deep" / "down").iterdir()
    assert place.name == "001-chat"
    assert sorted(file.name for file in place.iterdir()) == ["request.json", "response.body", "response.meta.json"]
    request = json.loads((place / "request.json").read_text())
    assert {name: request[name] for name in ("method", "host", "path", "query", "body")} == {
        "method": "POST",
        "host": "api.example.com",
        "path": "/v1/chat",
        "query": "api-version=1",
        "body": {"model": "m", "stream": True},
    }
    meta = meta_of(place)
    assert (meta["status"], meta["stream"], meta["ended"]) == (200, True, "framed")
    assert meta["headers"] == [["content-type", "text/event-stream"]]
    assert RecordingTransport(place)


async def test_f29_no_secret_is_kept(tmp_path: Path) -> None:
    """F29: keys, cookies and accounts of either side are in no file, wherever they turn up."""
    call = WireCall(path="/", body=b'{"api_key": "CANARYinbody", "messages": ["my key is CANARYkey+1"]}')
    said = {"set-cookie": "s=CANARYcookie", "openai-organization": "CANARYorg", "x-request-id": "for CANARYkey+1"}
    reply = Canned(
        b'data: {"echo": "CANARY', b"key+1", b' CANARYkey%2B1 CANARYpass org-CANARY1234567"}\n\n', headers=said
    )
    carrier = RecordingCarrier(reply, tmp_path)
    url = "https://me:CANARYpass@host/v1?key=CANARYquery"
    headers = {"authorization": "Bearer CANARYkey+1", "cookie": "CANARYcookie2"}
    async with carrier.open(url, call, headers=headers) as opened:
        assert b"CANARY" in b"".join([data async for data in opened.chunks()])
    texts = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(texts) == 3
    assert not [text for text in texts if "CANARY" in text]
    (place,) = tmp_path.iterdir()
    assert (place / "response.body").stat().st_size == sum(map(len, reply.pieces))


async def test_what_its_reader_gave_up_leaves_nothing(tmp_path: Path) -> None:
    """A break, a cancellation and a call that never was leave no recording, not even half of one."""
    carrier = RecordingCarrier(Canned(b"a", b"b"), tmp_path / "kept")
    async with carrier.open(URL, CALL, headers={}) as reply:
        async for _ in reply.chunks():
            break

    async def read() -> None:
        async with carrier.open(URL, CALL, headers={}) as reply:
            async for _ in reply.chunks():
                await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not (tmp_path / "kept").exists()


async def test_what_failed_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    """A reply that its decoder could not stand is kept broken; one that was settled or read is whole."""
    carrier = RecordingCarrier(Canned(b"a", b"b"), tmp_path)

    async def fail() -> None:
        async with carrier.open(URL, CALL, headers={}) as reply:
            async for _ in reply.chunks():
                raise TransientError("cut")

    with pytest.raises(TransientError):
        await fail()
    async with carrier.open(URL, CALL, headers={}) as reply:
        async for _ in reply.chunks():
            break
        await reply.settle()
    async with carrier.open(URL, CALL, headers={}) as reply:
        assert await reply.read() == b"ab"
    places = sorted(tmp_path.iterdir())
    assert [place.name[:3] for place in places] == ["001", "002", "003"]
    found = [((place / "response.body").read_bytes(), meta_of(place)["ended"]) for place in places]
    assert found == [(b"a", "broken"), (b"a", "framed"), (b"ab", "framed")]


async def test_a_body_that_was_decoded_has_no_length_of_its_own(tmp_path: Path) -> None:
    """The length of a compressed body says nothing of what is kept, and is left out."""
    headers = {"content-encoding": "gzip", "content-length": "999", "content-type": "application/json"}
    await exchanged(RecordingCarrier(Canned(b"{}", headers=headers), tmp_path))
    (place,) = tmp_path.iterdir()
    assert meta_of(place)["headers"] == [["content-type", "application/json"]]
    async with RecordingTransport(place).open(URL, CALL, headers={}) as reply:
        assert reply.ended is Ended.FRAMED


async def test_closing_closes_what_carries(tmp_path: Path) -> None:
    """The transport inside is closed with the recorder."""
    inner = Canned()
    await RecordingCarrier(inner, tmp_path).aclose()
    assert inner.closed == 1


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Files that cannot be written leave nothing; writers side by side each get a number of their own."""
    with pytest.raises(OSError, match="absent"):
        keep(tmp_path, "x", files={"a": b"1", "absent/b": b"2"})
    assert not list(tmp_path.iterdir())
    threads = [threading.Thread(target=keep, args=(tmp_path, "x"), kwargs={"files": {"a": b"1"}}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(place.name for place in tmp_path.iterdir()) == [f"{number:03}-x" for number in range(1, 9)]
    assert all((place / "a").read_bytes() == b"1" for place in tmp_path.iterdir())


async def recorded(folder: Path, *bodies: bytes) -> ReplayTransport:
    """Recordings of requests with these bodies, each answered by its number."""
    for number, body in enumerate(bodies):
        carrier = RecordingCarrier(Canned(f"{number}".encode()), folder)
        await exchanged(carrier, WireCall(path="/chat", body=body, headers={"x-beta": "b"}))
    return ReplayTransport(folder)


async def test_a_request_finds_its_recording(tmp_path: Path) -> None:
    """Each request gets the reply to it; asked again, the next recording of it, then the last one for good."""
    transport = await recorded(tmp_path, b'{"a": 1}', b'{"a": 2}', b'{"a": 1}')
    asked = [b'{"a":2}', b'{"a":1}', b'{"a":1}', b'{"a":1}', b'{"a":2}']
    headers = {"x-beta": "b"}
    found = [await exchanged(transport, WireCall(path="/chat", body=body, headers=headers)) for body in asked]
    assert found == [[b"1"], [b"0"], [b"2"], [b"2"], [b"1"]]


SAME = b'{"a": {"b": [1, 2]}, "x": "one"}'


@pytest.mark.parametrize(
    ("body", "more", "where"),
    [
        (b'{"a": {"b": [1, 2]}, "x": "other"}', {}, r'body\.x: recorded "one", asked "other"'),
        (b'{"a": {"b": [1, 3]}, "x": "one"}', {}, r"body\.a\.b\[1\]: recorded 2, asked 3"),
        (b'{"a": {"b": [1]}, "x": "one"}', {}, r"body\.a\.b\[1\]: recorded 2, asked \(absent\)"),
        (SAME[:-1] + b', "y-z": true}', {}, r'body\["y-z"\]: recorded \(absent\), asked true'),
        (b'{"a": {"b": [true, 2]}, "x": "one"}', {}, r"body\.a\.b\[0\]: recorded 1, asked true"),
        (SAME, {"method": "PUT"}, r'method: recorded "POST", asked "PUT"'),
        (SAME, {"headers": {"x-beta": "c"}}, r'headers\["x-beta"\]: recorded "b", asked "c"'),
        (b"not JSON", {}, r'body: recorded \{.*\}, asked "not JSON"'),
    ],
)
async def test_a_miss_shows_the_first_difference_from_the_nearest(
    tmp_path: Path, body: bytes, more: dict[str, Any], where: str
) -> None:
    """F27: a request that was not recorded is an error that names the nearest one and, by its path, what differs."""
    transport = await recorded(tmp_path, SAME, b'{"quite": "another", "thing": 1, "a": 2, "x": 3}')
    with pytest.raises(InvalidRequestError, match=rf"among the 2 in .*: the nearest, 001-chat, differs at \$\.{where}"):
        transport.open(URL, WireCall(path="/", body=body, **more), headers={})


async def test_a_miss_by_address_names_it(tmp_path: Path) -> None:
    """F27: host, path and query are part of what was asked; a key in the query is not."""
    transport = await recorded(tmp_path, b"{}")
    for url, member in (
        ("https://api.other.com/v1/chat?api-version=1", "host"),
        ("https://api.example.com/v2/chat?api-version=1", "path"),
        ("https://api.example.com/v1/chat?api-version=2", "query"),
    ):
        with pytest.raises(InvalidRequestError, match=rf"\$\.{member}: recorded"):
            transport.open(url, WireCall(path="/", body=b"{}"), headers={})


async def test_another_key_finds_the_same_recording(tmp_path: Path) -> None:
    """Requests are compared scrubbed: with another key in header and body the recording is found."""
    for key in ("CANARYone", "CANARYtwo"):
        call = WireCall(path="/", body=json.dumps({"messages": [f"key {key}"]}).encode())
        if key == "CANARYone":
            await exchanged(RecordingCarrier(Canned(b"1"), tmp_path), call, authorization=f"Bearer {key}")
        assert await exchanged(ReplayTransport(tmp_path), call, authorization=f"Bearer {key}") == [b"1"]
