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

_CR, _LF = b"\r\n"

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
        "_between",
        "_cr",
        "_data",
        "_depth",
        "_event",
        "_lead",
        "_limit",
        "_names",
        "_size",
        "_tail",
        "_tail_size",
    )

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._lead: bytes | None = b""
        # Whether the next bytes begin an event: nothing of an earlier one is held.
        self._between = True
        self._cr = False
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._names: dict[bytes, str] = {}

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.

        Raises:
            ProtocolError: an event is larger than the limit.
        """
        if self._between and len(data) <= self._limit:
            # One event that came alone: each call and each slice here is dear beside what the event costs.
            line, _, rest = data.partition(b"\n")
            if rest == b"\n" and line[:6] == b"data: " and _CR not in line and line != b"data: ":
                self._lead = None
                return [_new(Frame, (line[6:], ""))]
            frames = _usual(data) if rest[-2:] == b"\n\n" else None
            if frames is not None:
                self._lead = None
                return frames
        frames = self._read(data)
        self._between = not (self._lead or self._cr or self._tail or self._size or self._event)
        return frames

    def _read(self, data: bytes) -> list[Frame]:
        if self._lead is not None:
            data = self._without_bom(data)
        if self._cr and data:
            self._cr = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            self._cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if _LF not in data:
            self._keep(data)
            return []
        if self._tail:
            self._tail.append(data)
            data = b"".join(self._tail)
            self._tail.clear()
            self._tail_size = 0
        between = not self._size and not self._event and len(data) <= self._limit
        end = data.rfind(b"\n\n") + 2 if between else 0
        frames = _usual(data[:end]) if end > 2 else None
        if frames is None:
            return self._split(data, between)
        if end < len(data):
            frames += self._split(data[end:], between)
        return frames

    def close(self) -> list[Frame]:
        """The frame that was begun and not ended by a blank line, if any."""
        frames: list[Frame] = []
        tail = (self._lead or b"") + b"".join(self._tail)
        self._lead = None
        self._tail.clear()
        self._tail_size = 0
        if tail:
            self._line(tail, frames)
        self._dispatch(frames)
        return frames

    def _without_bom(self, data: bytes) -> bytes:
        lead = (self._lead or b"") + data
        if len(lead) < len(_BOM) and _BOM.startswith(lead):
            self._lead = lead
            return b""
        self._lead = None
        return lead.removeprefix(_BOM)

    def _keep(self, data: bytes) -> None:
        """Hold the bytes of a line that has not ended."""
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            self._check(self._tail_size)

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise ProtocolError(f"an event of the stream has more than {self._limit} bytes")

    def _split(self, data: bytes, between: bool) -> list[Frame]:
        """Read a block of lines: an event of a usual shape whole, if one may begin here; any other line by line."""
        frames: list[Frame] = []
        names, small = self._names, len(data) <= self._limit
        events = data.split(b"\n\n")
        rest = events.pop()
        for event in events:
            if between:
                line, name = event, ""
                if event[:7] == b"event: ":
                    head, _, line = event.partition(b"\n")
                    name = names.get(head, "")
                if line[:7] == b"data: {" and _LF not in line and (name or line is event):
                    frames.append(_new(Frame, (line[6:], name)))
                    continue
            for line in event.split(b"\n"):
                self._line(line, frames)
            self._dispatch(frames)
            between = small
        if rest:
            lines = rest.split(b"\n")
            tail = lines.pop()
            for line in lines:
                self._line(line, frames)
            self._keep(tail)
        return frames

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        if not line:
            self._dispatch(frames)
            return
        if self._depth:
            self._more_of_document(line, frames)
            return
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        self._check(len(line))
        if name == b"data":
            self._data.append(value)
            self._size += len(line)
        elif name == b"event":
            self._event = self._name(line, value)
        elif name == b"error" and colon:
            self._begin_document(value, "error", frames)
        elif line.startswith(b"{"):
            self._begin_document(line, "", frames)

    def _name(self, line: bytes, value: bytes) -> str:
        name = value.decode("utf-8", "replace")
        if len(self._names) < _NAMES_KEPT and line.startswith(b"event: "):
            self._names[line] = name
        return name

    def _begin_document(self, text: bytes, event: str, frames: list[Frame]) -> None:
        self._dispatch(frames)
        self._event = event
        self._more_of_document(text, frames)

    def _more_of_document(self, text: bytes, frames: list[Frame]) -> None:
        self._check(len(text))
        self._data.append(text)
        self._size += len(text)
        self._depth = max(0, self._depth + text.count(b"{") - text.count(b"}"))
        if not self._depth:
            self._dispatch(frames)

    def _dispatch(self, frames: list[Frame]) -> None:
        if not self._data and not self._event:
            return
        data = b"\n".join(self._data)
        if data or self._event in _BARE:
            frames.append(Frame(data, self._event))
        self._data.clear()
        self._event = ""
        self._size = self._depth = 0


def _usual(data: bytes) -> list[Frame] | None:
    """The frames of whole events that have one data line each, split in two calls; None for any others."""
    # A byte is looked for by its number: several times faster here than by bytes.
    if data[:6] != b"data: " or _CR in data:
        return None
    values = data[6:-2].split(b"\n\ndata: ")
    if data.count(_LF) != 2 * len(values) or not all(values):
        return None
    return list(map(_new, _FRAME, zip(values, _NO_EVENT, strict=False)))
