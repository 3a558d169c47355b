"""Newline-delimited JSON: any split gives the same lines (F06)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.wire.frame import Frame
from isthmus.wire.ndjson import NDJSONParser


def read(body: bytes, split: int | None = None, limit: int = 1 << 20) -> list[Frame]:
    """All frames of a body, fed in pieces of `split` bytes."""
    parser = NDJSONParser(limit)
    step = split or max(1, len(body))
    frames = [frame for at in range(0, len(body), step) for frame in parser.feed(body[at : at + step])]
    return [*frames, *parser.close()]


PIECES = st.sampled_from([b'{"a":1}', b"\n", b"\r\n", b"\r", b" ", "\u2028語".encode(), b"\n\n", b"\xef\xbb\xbf", b"x"])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=20).map(b"".join), st.integers(1, 30))
def test_any_split_gives_the_lines(body: bytes, split: int) -> None:
    """F06: whatever the chunks are, there is one frame for each line that is not blank."""
    lines = [line.removesuffix(b"\r") for line in body.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    assert read(body, split) == [Frame(line) for line in lines if line.strip()]


def test_the_last_line_needs_no_line_end() -> None:
    """F06: what follows the last LF is delivered at the end."""
    parser = NDJSONParser()
    assert parser.feed(b'{"a":1}\r\n\r\n{"b"') == [Frame(b'{"a":1}')]
    assert parser.feed(b":2}") == []
    assert parser.close() == [Frame(b'{"b":2}')]
    assert parser.close() == []


@pytest.mark.parametrize("split", [1, 7, 4096])
def test_an_endless_line_is_refused(split: int) -> None:
    """F06: a line beyond the limit is a protocol error, ended or not."""
    for body in (b"x" * 100, b"{}\n" + b"x" * 100 + b"\n{}\n"):
        with pytest.raises(ProtocolError, match="64"):
            read(body, split, 64)
    assert len(read(b"{}\n" * 500, split, 64)) == 500
