"""Recordings played as a transport."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.errors import ConfigError
from isthmus.transport.recording import RecordingTransport
from isthmus.wire.call import Ended, WireCall
from support.wirecorpus import CORPUS, needs_corpus, rows

BODY = b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"


def record(folder: Path, **more: object) -> Path:
    """A small recording."""
    headers = [["Content-Type", "text/event-stream"], ["X-A", "1"], ["x-a", "2"]]
    (folder / "response.meta.json").write_text(json.dumps({"status": 200, "headers": headers, **more}))
    (folder / "response.body").write_bytes(BODY)
    return folder


async def play(transport: RecordingTransport) -> list[bytes]:
    """The chunks of the reply."""
    async with transport.open("http://x", WireCall(path="/"), headers={}) as reply:
        assert reply.ended is Ended.FRAMED
        return [data async for data in reply.chunks()]


@pytest.mark.parametrize(
    ("sizes", "split", "lengths"),
    [
        ({}, None, [len(BODY)]),
        ({"chunk_sizes": [9, 9, 14]}, None, [9, 9, 14]),
        ({"chunk_sizes": [9, 0, 9]}, None, [9, 9, 14]),
        ({"chunk_sizes": [9, 9, 14]}, 10, [10, 10, 10, 2]),
        ({}, 31, [31, 1]),
    ],
)
async def test_the_chunks_are_the_recorded_ones_or_as_asked(
    tmp_path: Path, sizes: dict[str, object], split: int | None, lengths: list[int]
) -> None:
    """A recording is played in the network's own reads if they were kept, in one piece if not, or in `split` bytes."""
    chunks = await play(RecordingTransport(record(tmp_path, **sizes), split=split))
    assert [len(data) for data in chunks] == lengths
    assert b"".join(chunks) == BODY


async def test_it_plays_again_for_each_call_and_closes(tmp_path: Path) -> None:
    """Each call gets the whole reply; `read` takes what is left, up to a limit; headers are joined by name."""
    transport = RecordingTransport(record(tmp_path))
    for _ in range(2):
        async with transport.open("http://x", WireCall(path="/"), headers={"authorization": "k"}) as reply:
            assert (reply.status, reply.headers["x-a"]) == (200, "1, 2")
            assert await reply.read(7) == b"data: 1"
            await reply.settle()
    await transport.aclose()


@pytest.mark.parametrize("damage", ["absent", "no body", "not JSON", "no status"])
def test_a_folder_without_a_recording_is_named(tmp_path: Path, damage: str) -> None:
    """A folder that holds no recording is an error that names it and what it needs."""
    folder = record(tmp_path)
    if damage == "absent":
        folder = tmp_path / "absent"
    elif damage == "no body":
        (folder / "response.body").unlink()
    else:
        (folder / "response.meta.json").write_text("{}" if damage == "no status" else "{")
    with pytest.raises(ConfigError, match=r"response\.meta\.json") as caught:
        RecordingTransport(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.corpus
@needs_corpus
async def test_every_recording_plays() -> None:
    """Each folder of the recorded traffic gives its body and status."""
    for row in rows():
        folder = CORPUS / row["path"]
        transport = RecordingTransport(folder)
        assert b"".join(await play(transport)) == (folder / "response.body").read_bytes()
        async with transport.open("", WireCall(path="/"), headers={}) as reply:
            assert str(reply.status) == row["status"]


@pytest.mark.parametrize(
    ("more", "ended"),
    [
        ({"headers": [["Content-Length", str(len(BODY) + 1)]]}, Ended.BROKEN),
        ({"chunk_sizes": [len(BODY), 1]}, Ended.BROKEN),
        ({"headers": [["Content-Length", str(len(BODY))]]}, Ended.FRAMED),
        ({"headers": [["Content-Length", "many"]]}, Ended.FRAMED),
        ({"chunk_sizes": None}, Ended.FRAMED),
    ],
)
async def test_f01_a_body_shorter_than_it_was_recorded_is_broken(
    tmp_path: Path, more: dict[str, object], ended: Ended
) -> None:
    """F01: a file that was cut after it was recorded does not pass for a whole body."""
    async with RecordingTransport(record(tmp_path, **more)).open("http://x", WireCall(path="/"), headers={}) as reply:
        assert reply.ended is ended
