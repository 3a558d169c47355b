"""The AWS event stream: framing, checksums, headers, and what a cut leaves."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from base64 import b64decode
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.wire.eventstream import EventStreamParser, read_headers
from isthmus.wire.frame import Frame
from support.bedrock_reading import message
from support.wirecorpus import CORPUS, needs_corpus, rows

NAMES = st.sampled_from(["chunk", "messageStart", "contentBlockDelta", "metadata", "ärger"])
MESSAGES = st.lists(st.tuples(NAMES, st.binary(max_size=60)), min_size=1, max_size=6)


def parse(data, **options):
    """The frames of these bytes, in one piece."""
    parser = EventStreamParser(**options)
    return [*parser.feed(data), *parser.close()]


def framed(prelude_fits=True, headers=b"", payload=b"{}", claimed=None):
    """A message made by hand, wrong where it is asked to be."""
    size = len(headers) if claimed is None else claimed
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), size)
    prelude += struct.pack(">I", zlib.crc32(prelude) if prelude_fits else 1)
    body = prelude + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


@given(MESSAGES, st.data())
@settings(max_examples=60, deadline=None)
def test_any_split_gives_the_same_frames(sent, data):
    """F06: whatever the chunks are, the frames are those that were sent."""
    body = b"".join(message(name, payload) for name, payload in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    parser, found = EventStreamParser(), []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += parser.feed(body[start:end])
    assert [*found, *parser.close()] == [Frame(payload, name) for name, payload in sent]


@given(MESSAGES, st.data())
@settings(max_examples=80, deadline=None)
def test_a_flipped_bit_is_never_a_frame(sent, data):
    """F06: a bit that changed on the way is an error or leaves the message unfinished; no other frame comes of it."""
    good = [message(name, payload) for name, payload in sent]
    body = bytearray(b"".join(good))
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    before = next(place for place in range(len(good)) if sum(map(len, good[: place + 1])) > bit // 8)
    parser, found = EventStreamParser(), []
    if before:
        found += parser.feed(bytes(body))
    with pytest.raises(ProtocolError, match="event stream"):
        parser.feed(bytes(body) if not before else b"")
    assert found == [Frame(payload, name) for name, payload in sent][:before]


@given(MESSAGES, st.data())
@settings(max_examples=60, deadline=None)
def test_a_message_that_was_cut_is_no_frame(sent, data):
    """F01: after a cut only the messages that arrived whole are frames, and closing adds none."""
    good = [message(name, payload) for name, payload in sent]
    at = data.draw(st.integers(0, sum(map(len, good)) - 1))
    whole = sum(1 for place in range(len(good)) if sum(map(len, good[: place + 1])) <= at)
    assert len(parse(b"".join(good)[:at])) == whole


def test_a_malformed_message_is_told_after_the_good_ones_before_it():
    """Whatever the split, the frames before a malformed message are given, and then it is an error each time."""
    parser = EventStreamParser()
    assert parser.feed(message("a", b"1") + framed(prelude_fits=False)) == [Frame(b"1", "a")]
    for again in (lambda: parser.feed(b""), parser.close):
        with pytest.raises(ProtocolError, match="prelude"):
            again()


def test_a_long_message_in_many_pieces_costs_no_more_than_its_length():
    """F06: the bytes before a piece are not joined again with each piece: 8 MiB so would take seconds."""
    body, parser = message("chunk", b"x" * (1 << 23)), EventStreamParser()
    began = process_time()
    found = [frame for at in range(0, len(body), 2048) for frame in parser.feed(body[at : at + 2048])]
    assert process_time() - began < 1
    assert [len(frame.data) for frame in found] == [1 << 23]


def test_a_server_that_names_every_event_anew_fills_no_memory():
    """What is kept of names for speed is bounded, as the messages are."""
    parser = EventStreamParser()
    bodies = [message(f"{number:01000}", b"{}") for number in range(2000)]
    tracemalloc.start()
    try:
        for body in bodies:
            parser.feed(body)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_500_000


def test_exceptions_and_errors_are_marked():
    """F01: the event of an exception or an error begins with "!", and an error's message is its data."""
    frames = parse(message("throttlingException", {"message": "slow"}, "exception") + message("E1", "bad", "error"))
    assert [frame.event for frame in frames] == ["!throttlingException", "!E1"]
    assert [json.loads(frame.data)["message"] for frame in frames] == ["slow", "bad"]


def test_a_message_larger_than_the_limit_is_refused_at_its_prelude():
    """F06: the limit is held before the bytes of the message are waited for."""
    assert len(parse(message("a", b"x" * 100), limit=1000)) == 1
    parser = EventStreamParser(limit=100)
    with pytest.raises(ProtocolError, match="more than 100"):
        parser.feed(message("a", b"x" * 100)[:12])


def test_headers_that_do_not_fit_are_refused():
    """A length of the headers that the message cannot hold is malformed, whatever its checksum."""
    with pytest.raises(ProtocolError, match="do not fit into"):
        parse(framed(claimed=4000))


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"\x01a\x07\x00\x09short", "malformed"),
        (b"\x05a", "malformed"),
        (b"\x01a\x63\x00", "type 99"),
        (b"\x01a\x07\x00\x01\xff", "malformed"),
        (b"\x01a\x00\x01a\x01", "twice"),
    ],
)
def test_malformed_headers_are_named(packed, said):
    """Headers that stop early, have an unknown type, no UTF-8 or a name twice are errors that say so."""
    with pytest.raises(ProtocolError, match=said):
        parse(framed(headers=packed))


@needs_corpus
def test_botocores_vectors():
    """Each vector of botocore's codec is read, or refused, as botocore does; all types of header values among them."""
    seen = 0
    for file in sorted((CORPUS / "_vectors/aws-eventstream").glob("*.json")):
        expected, data = json.loads(file.read_text("utf-8")), file.with_suffix(".bin").read_bytes()
        seen += 1
        if not expected["valid"]:
            with pytest.raises(ProtocolError):
                parse(data)
            continue
        (frame,) = parse(data)
        (size,) = struct.unpack(">I", data[4:8])
        values = {
            name: b64decode(value["bytes_b64"]) if isinstance(value, dict) else value
            for name, value in expected["headers"].items()
        }
        assert read_headers(data[12 : 12 + size]) == values, file.name
        if "error" not in file.name:
            assert frame.data == b64decode(expected["payload_b64"]), file.name
    assert seen == 15


@needs_corpus
def test_recorded_streams_are_read_as_botocore_reads_them():
    """Each recorded stream has the payloads and event types that botocore's own reader finds."""
    buffer = pytest.importorskip("botocore.eventstream").EventStreamBuffer
    seen = 0
    for row in rows(provider="bedrock", stream="yes", status="200"):
        body = (CORPUS / row["path"] / "response.body").read_bytes()
        theirs = buffer()
        theirs.add_data(body)
        found = [Frame(event.payload, event.headers[":event-type"]) for event in theirs]
        assert parse(body) == found, row["path"]
        seen += 1
    assert seen == 81
