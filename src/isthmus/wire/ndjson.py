"""Newline-delimited JSON, read as bytes."""

from __future__ import annotations

from isthmus.errors import ProtocolError
from isthmus.wire.frame import MOST_BYTES, Frame

_BOM = b"\xef\xbb\xbf"


class NDJSONParser:
    """Splits bytes into one frame a line, whatever the chunks are; blank lines are no frames.

    A CR before the LF is no part of the line, nor is a byte order mark before the first. The last line needs no LF.

    Args:
        limit: the most bytes that one line may have.
    """

    __slots__ = ("_limit", "_size", "_started", "_tail")

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._size = 0
        self._started = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.

        Raises:
            ProtocolError: a line is longer than the limit.
        """
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return []
        self._keep(head)
        lines = rest.split(b"\n")
        lines.insert(0, b"".join(self._tail))
        self._tail.clear()
        self._size = 0
        tail = lines.pop()
        frames = self._frames(lines)
        self._keep(tail)
        return frames

    def close(self) -> list[Frame]:
        """The last line, if it had no line end."""
        tail = b"".join(self._tail)
        self._tail.clear()
        return self._frames([tail])

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._size += len(data)
        if self._size > self._limit:
            self._refuse()

    def _refuse(self) -> None:
        raise ProtocolError(f"a line of the stream has more than {self._limit} bytes")

    def _frames(self, lines: list[bytes]) -> list[Frame]:
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        if max(map(len, lines)) > self._limit:
            self._refuse()
        return [Frame(line) for line in (raw.removesuffix(b"\r") for raw in lines) if line.strip()]
