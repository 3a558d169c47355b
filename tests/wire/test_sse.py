"""Server-sent events: the WHATWG rules, the deviations that servers force, and any split of the bytes (F06)."""

from __future__ import annotations

import re
import tracemalloc
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.wire.frame import Frame
from isthmus.wire.sse import SSEParser
from support.wirecorpus import CORPUS, needs_corpus, rows

GPUSTACK = "gpustack/chat-sse--rubyllm-chat-with-extended-thinking-gpustack-qwen3-streams-thinking-content-wh"


def read(body: bytes, split: int | None = None, limit: int = 1 << 20) -> list[Frame]:
    """All frames of a body, fed in pieces of `split` bytes."""
    parser = SSEParser(limit)
    step = split or max(1, len(body))
    frames = [frame for at in range(0, len(body), step) for frame in parser.feed(body[at : at + step])]
    return [*frames, *parser.close()]


def plainly(body: bytes) -> list[Frame]:
    """The standard's algorithm over all lines at once, with the documented deviations."""
    frames: list[Frame] = []
    data: list[bytes] = []
    event, depth = "", 0

    def dispatch() -> None:
        nonlocal event, depth
        joined = b"\n".join(data)
        if joined or event in ("end", "error"):
            frames.append(Frame(joined, event))
        data.clear()
        event, depth = "", 0

    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        found = re.fullmatch(rb"([^:]*)(?:: ?(.*))?", line, re.S)
        assert found
        name, value = found[1], found[2] or b""
        document = None
        if not line:
            dispatch()
        elif depth:
            document = line
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode("utf-8", "replace")
        elif name == b"error" and b":" in line:
            dispatch()
            event, document = "error", value
        elif line[:1] == b"{":
            dispatch()
            document = line
        if document is not None:
            data.append(document)
            depth = max(0, depth + document.count(b"{") - document.count(b"}"))
            if not depth:
                dispatch()
    dispatch()
    return frames


PIECES = st.sampled_from(
    [
        b"data: ", b"data:", b"data", b"event: ", b"event:end", b"id: 7", b"retry: 10", b": ping", b"error: ",
        b"error:",
        b"\n", b"\n\n", b"\r\n", b"\r", b"\r\n\r\n", b"{", b"}", b'{"a":1}', b"[DONE]", b" ", b":", b"x", b"\x00",
        b"\xef\xbb\xbf", "\u2028\u2029\x85".encode(), "語🙂".encode(), b"\xff",
        b'data: {"a":1}\n\n', b'event: d\ndata: {"b":2}\n\n', b'event: d\r\ndata: {"b":2}\r\n\r\n',
    ]
)  # fmt: skip
BODIES = st.lists(PIECES, max_size=24).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(BODIES, st.integers(1, 40))
@example(b"\xef\xbb", 1)
@example(b"data: {\n\nevent: d\ndata: {\n\nevent: d\ndata: {\n\n", 17)
def test_a_straightforward_reading_agrees_with_any_split(body: bytes, split: int) -> None:
    """F06: whatever the chunks are, the frames are those of a plain reading of the whole body."""
    assert read(body, split) == plainly(body)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=12).map(b"".join), st.integers(1, 9), st.integers(4, 30))
def test_the_limit_does_not_depend_on_the_split(body: bytes, split: int, limit: int) -> None:
    """F06: a body that is refused for its size is refused in every split, and one that is not, in none."""
    outcomes = set()
    for step in (split, len(body) or 1):
        try:
            outcomes.add(tuple(read(body, step, limit)))
        except ProtocolError:
            outcomes.add(None)
    assert len(outcomes) == 1


@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (b'data:{"x":1}\n\n', [Frame(b'{"x":1}')]),
        (b"data:  two\n\n", [Frame(b" two")]),
        (b"data: a\ndata: b\n\n", [Frame(b"a\nb")]),
        (b"data: a\ndata\ndata: b\n\n", [Frame(b"a\n\nb")]),
        (b"event: x\ndata: 1\n\ndata: 2\n\n", [Frame(b"1", "x"), Frame(b"2")]),
        (b"data: 1\nevent: x\n\n", [Frame(b"1", "x")]),
        (b"event: a\nevent: b\ndata: 1\n\n", [Frame(b"1", "b")]),
        (b"id: 1\ndata: {}\n\n: ping\n\n", [Frame(b"{}")]),
        (b"id: a\x00b\nretry: soon\ndata: 1\n\n", [Frame(b"1")]),
        (b"event: ping\n\ndata: 1\n\n", [Frame(b"1")]),
        (b"data:\n\ndata: \n\ndata: 1\n\n", [Frame(b"1")]),
        (b"unknown: 1\nDATA: 2\ndata: 3\n\n", [Frame(b"3")]),
        (b"\xef\xbb\xbfdata: 1\n\n", [Frame(b"1")]),
        (b"data: \xef\xbb\xbf1\n\n", [Frame(b"\xef\xbb\xbf1")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", [Frame(b"a"), Frame(b"b"), Frame(b"c")]),
        (b"data: [DONE]  \n\n", [Frame(b"[DONE]  ")]),
        ('data: a\u2028b\u2029c\x85d\n\n'.encode(), [Frame('a\u2028b\u2029c\x85d'.encode())]),
        (b"data: 1", [Frame(b"1")]),
        (b"data: 1\n", [Frame(b"1")]),
        (b"event: end\n\n", [Frame(b"", "end")]),
        (b"event: error\r\n\r\n", [Frame(b"", "error")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)  # fmt: skip
def test_the_rules_one_by_one(body: bytes, frames: list[Frame]) -> None:
    """F06: each rule of the standard, whole and byte by byte."""
    assert read(body) == frames
    assert read(body, 1) == frames


@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (b'error: {"detail":"no"}\n\n', [Frame(b'{"detail":"no"}', "error")]),
        (b'data: {"a":1}\nerror: plain\n\n', [Frame(b'{"a":1}'), Frame(b"plain", "error")]),
        (b'{"error":{"message":"x"}}\n', [Frame(b'{"error":{"message":"x"}}')]),
        (b'{\n "error": {\n  "code": 1\n }\n}\n', [Frame(b'{\n "error": {\n  "code": 1\n }\n}')]),
        (b'data: 1\n\n{"error":1}', [Frame(b"1"), Frame(b'{"error":1}')]),
        (b'{"error": "cut', [Frame(b'{"error": "cut')]),
        (b'{"open": "{"\n\ndata: 1\n\n', [Frame(b'{"open": "{"'), Frame(b"1")]),
    ],
)
def test_an_error_outside_of_the_grammar_is_a_frame(body: bytes, frames: list[Frame]) -> None:
    """F01, F06: an `error:` field or a bare JSON document never vanishes."""
    assert read(body) == frames
    assert read(body, 1) == frames


@pytest.mark.parametrize("limit", [64, 1000])
@pytest.mark.parametrize("split", [1, 7, 4096])
def test_an_endless_event_is_refused(limit: int, split: int) -> None:
    """F06: an event beyond the limit is a protocol error, as one line, as many lines, and as an open document."""
    for line in (b"data: " + b"x" * 2000, b"data: xxxxxxxx\n" * 300, b'{"a":\n' * 400):
        with pytest.raises(ProtocolError, match=str(limit)):
            read(line, split, limit)


def test_what_comes_after_a_lone_event_is_not_lost() -> None:
    """F06: an event that seems to come alone goes on in the next bytes, or another begins in its own."""
    parser = SSEParser()
    pieces = (b"data: {0}\n\n", b"data: {1}\nx\n", b"data: 2\n\n", b"data: {3}\n\nx", b"data: 4\n\n")
    assert [[frame.data for frame in parser.feed(piece)] for piece in pieces] == [
        [b"{0}"], [], [b"{1}\n2"], [b"{3}"], [],
    ]  # fmt: skip


def test_a_long_line_in_many_pieces_costs_no_more_than_its_length() -> None:
    """F06: the bytes before a piece are not read again with each piece: 8 MiB so would take seconds."""
    parser, began = SSEParser(1 << 24), process_time()
    parser.feed(b"data: ")
    assert not [frame for _ in range(4096) for frame in parser.feed(b"x" * 2048)]
    assert process_time() - began < 1
    assert len(parser.feed(b"\n\n")[0].data) == 1 << 23


def test_a_server_that_names_every_event_anew_fills_no_memory() -> None:
    """What is kept of names for speed is bounded, as the events are."""
    parser = SSEParser()
    tracemalloc.start()
    try:
        for number in range(2000):
            parser.feed(b"event: %01000d\ndata: {}\n\n" % number)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


def test_a_long_stream_of_small_events_is_no_long_event() -> None:
    """F06: the limit is an event's, not the stream's, nor that of comments between events."""
    body = b"data: {}\n\n" * 500 + b": ping\n" * 500
    assert len(read(body, 4096, 64)) == 500
    assert len(read(body, None, 64)) == 500


@pytest.mark.corpus
@needs_corpus
def test_a_recorded_error_field_becomes_a_frame() -> None:
    """F01: the recording whose only failure is an `error:` line ends with a frame of that name."""
    last = read((CORPUS / GPUSTACK / "response.body").read_bytes(), 1000)[-1]
    assert last.event == "error"
    assert last.data.startswith(b'{"detail":"failed to decode')


@pytest.mark.corpus
@needs_corpus
def test_every_recorded_stream_reads_alike_in_any_split() -> None:
    """F06: each recorded event stream gives the plain reading's frames, whole and in odd pieces."""
    streams = [row for row in rows(stream="yes") if row["events"] != "0" and int(row["bytes"]) < 60_000]
    streams = [row for row in streams if "bedrock" not in row["api"]]
    assert len(streams) > 300
    for row in streams:
        body = (CORPUS / row["path"] / "response.body").read_bytes()
        frames = plainly(body)
        assert read(body) == frames, row["path"]
        assert read(body, 97) == frames, row["path"]
