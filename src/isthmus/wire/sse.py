"""Server-sent events, read as bytes: the WHATWG rules, and what servers send outside of them that must not vanish.

Source: HTML Living Standard section 9.2.6, 2026-11.
"""

from __future__ import annotations

from itertools import repeat

from isthmus.errors import ProtocolError
from isthmus.wire.frame import MOST_BYTES, Frame

_BOM = b"\xef\xbb\xbf"
_BARE = frozenset({"end", "error"})
_NAMES_KEPT = 256

# A byte is looked for by its number: several times faster than by bytes.
_CR, _LF = b"\r\n"

_EMPTY = len(b"data: ")

_new = tuple.__new__
_FRAME, _NO_EVENT = repeat(Frame), repeat("")


class SSEParser:
    """Splits the bytes of an event stream into frames, whatever the chunks are.

    Beyond the standard: a line `error: …` is a frame with the event name "error"; a line that begins with `{` is a
    frame of that JSON document, over as many lines as its braces need; an event named "end" or "error" is a frame
    even without data. Events with empty data are no frames otherwise. The last event needs no blank line.

    Args:
        limit: the most bytes that one event may have.
    """

    __slots__ = (
        "_cr",
        "_data",
        "_depth",
        "_event",
        "_first",
        "_idle",
        "_limit",
        "_names",
        "_size",
        "_tail",
        "_tail_size",
    )

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._first = True
        self._idle = False
        self._cr = False
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._depth = 0
        # What stands above the data of an event of a usual shape: nothing, or a line that names the event.
        self._names = {b"": ""}

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.

        Raises:
            ProtocolError: an event is larger than the limit.
        """
        if self._idle and len(data) <= self._limit:
            # One event that came alone: each call and each slice here is dear beside what the event costs.
            line, _, rest = data.partition(b"\n")
            if rest == b"\n" and line[:6] == b"data: " and _CR not in line and len(line) > _EMPTY:
                return [_new(Frame, (line[6:], ""))]
        frames = self._read(data)
        self._idle = not (self._first or self._cr or self._tail or self._data or self._event)
        return frames

    def _read(self, data: bytes) -> list[Frame]:
        if self._first and not self._tail and data[:1] not in (b"", _BOM[:1]):
            self._first = False
        if data and (self._cr or _CR in data):
            data = self._with_line_feeds(data)
        if self._tail:
            if _LF not in data:
                self._keep(data)
                return []
            self._tail.append(data)
            data = b"".join(self._tail)
            self._tail.clear()
            self._tail_size = 0
        usual = not (self._first or self._data or self._event) and len(data) <= self._limit
        if usual:
            end = data.rfind(b"\n\n") + 2
            frames = _usual(data[:end])
            if frames is not None:
                return frames if end == len(data) else self._split(data[end:], usual, frames)
        return self._split(data, usual, [])

    def close(self) -> list[Frame]:
        """The frame that was begun and not ended by a blank line, if any."""
        frames: list[Frame] = []
        self._line(b"".join(self._tail), frames)
        self._tail.clear()
        self._dispatch(frames)
        return frames

    def _with_line_feeds(self, data: bytes) -> bytes:
        rest = data.removeprefix(b"\n") if self._cr else data
        self._cr = rest.endswith(b"\r")
        return rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, data: bytes) -> None:
        """Hold the bytes of a line that has not ended."""
        self._tail.append(data)
        self._tail_size += len(data)
        self._check(self._tail_size)

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise ProtocolError(f"an event of the stream has more than {self._limit} bytes")

    def _split(self, data: bytes, usual: bool, frames: list[Frame]) -> list[Frame]:
        """Read a block of lines: an event of a usual shape whole, if one may begin here; any other line by line."""
        names, small = self._names, len(data) <= self._limit
        events = data.split(b"\n\n")
        rest = events.pop()
        for event in events:
            if usual:
                head, _, line = event.rpartition(b"\n")
                if line[:7] == b"data: {" and head in names:
                    frames.append(_new(Frame, (line[6:], names[head])))
                    continue
            for line in event.split(b"\n"):
                self._line(line, frames)
            self._dispatch(frames)
            usual = small
        if rest:
            lines = rest.split(b"\n")
            tail = lines.pop()
            for line in lines:
                self._line(line, frames)
            self._keep(tail)
        return frames

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        self._check(len(line))
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(frames)
            return
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if self._depth:
            self._more_of_document(line, frames)
        elif name == b"data":
            self._data.append(value)
            self._size += len(line)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
            # Few differ in a stream.
            if len(self._names) < _NAMES_KEPT:
                self._names[line] = self._event
        elif name == b"error" and colon:
            self._begin_document(value, "error", frames)
        elif line.startswith(b"{"):
            self._begin_document(line, "", frames)

    def _begin_document(self, text: bytes, event: str, frames: list[Frame]) -> None:
        self._dispatch(frames)
        self._event = event
        self._more_of_document(text, frames)

    def _more_of_document(self, text: bytes, frames: list[Frame]) -> None:
        self._data.append(text)
        self._size += len(text)
        self._depth = max(0, self._depth + text.count(b"{") - text.count(b"}"))
        if not self._depth:
            self._dispatch(frames)

    def _dispatch(self, frames: list[Frame]) -> None:
        data = b"\n".join(self._data)
        if data or self._event in _BARE:
            frames.append(Frame(data, self._event))
        self._data.clear()
        self._event = ""
        self._size = self._depth = 0


def _usual(data: bytes) -> list[Frame] | None:
    """The frames of whole events that have one line of data each, made in a few calls; None for any others."""
    if data[:7] != b"data: {":
        return None
    values = data[6:-2].split(b"\n\ndata: ")
    # Not counted: looking for one byte that is not there takes a tenth of that.
    if _LF in b"".join(values) or not all(values):
        return None
    return list(map(_new, _FRAME, zip(values, _NO_EVENT, strict=False)))
