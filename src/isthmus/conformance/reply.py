"""A reply as the bytes that a server will write, before and after it is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain, repeat
from typing import TypeAlias


class End(Enum):
    """What happens to the connection in the place of the reply's proper end."""

    CLOSE = "close"
    RESET = "reset"
    HOLD = "hold until the client is gone"


Piece: TypeAlias = bytes | float | asyncio.Event | End
"""Bytes to write, seconds to wait, an event to wait for, or an end before the end."""


class Framing(Enum):
    """What tells a client where the body ends."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"
    RAW = "raw"
    """Nothing: the pieces are all that is written, head included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply.

    Args:
        status: the HTTP status.
        headers: names and values; those of the framing are made.
        pieces: the body; each run of bytes is one chunk where it is chunked.
        framing: what ends the body.
        declared: the length that the head states with the framing "length", in bytes; None for that of the body.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()
    framing: Framing = Framing.CHUNKED
    declared: int | None = None

    @property
    def body(self) -> bytes:
        """All bytes, joined."""
        return b"".join([piece for piece in self.pieces if isinstance(piece, bytes)])

    def header(self, name: str, value: str) -> Reply:
        """The reply with this header and none other of the name."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=(*kept, (name, value)))

    def until(self, at: int) -> tuple[Reply, tuple[Piece, ...]]:
        """The reply up to its body's byte `at`, still declared in full, and the pieces that are left."""
        before: list[Piece] = []
        left = list(self.pieces)
        while left:
            piece = left[0]
            if isinstance(piece, bytes):
                if len(piece) > at:
                    before, left[0] = [*before, piece[:at]], piece[at:]
                    break
                at -= len(piece)
            before.append(left.pop(0))
        declared = len(self.body) if self.declared is None else self.declared
        return replace(self, pieces=tuple(piece for piece in before if piece != b""), declared=declared), tuple(left)


def cut_up(body: bytes, sizes: Iterable[int] = (), *, size: int | None = None) -> list[bytes]:
    """A body in pieces of these sizes; what they leave is one piece, or pieces of `size` bytes."""
    pieces, at = [], 0
    for length in chain(sizes, repeat(size or max(1, len(body)))):
        if at >= len(body):
            break
        pieces.append(body[at : at + length])
        at += length
    return [piece for piece in pieces if piece]


def recut(pieces: Sequence[Piece], size: int) -> Iterator[Piece]:
    """The pieces with each run of bytes in parts of at most `size`."""
    for piece in pieces:
        if isinstance(piece, bytes):
            yield from cut_up(piece, size=size)
        else:
            yield piece
