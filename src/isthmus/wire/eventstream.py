"""The AWS event stream (application/vnd.amazon.eventstream), read as bytes: length-prefixed messages with checksums.

A message is a prelude (total length, length of the headers, CRC-32 of these two), headers, payload, and the CRC-32 of
all that came before. Source: the specification in AWS's SDKs and the codec vectors of botocore, 2026-11.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import TypeAlias
from zlib import crc32

from isthmus.errors import ProtocolError
from isthmus.wire.frame import MOST_BYTES, Frame

HeaderValue: TypeAlias = bool | int | bytes | str

FAILED = "!"
"""Stands before the event name of a frame that carries an exception or an error."""

_PRELUDE = Struct(">III")
_CRC = Struct(">I")
_SMALLEST = _PRELUDE.size + _CRC.size
_NAMES_KEPT = 256

# Value types by their number: those of a fixed size by how they are packed; bytes and text have a length in front.
_FIXED = {2: Struct(">b"), 3: Struct(">h"), 4: Struct(">i"), 5: Struct(">q"), 8: Struct(">q"), 9: Struct("16s")}
_TRUE, _FALSE, _BYTES, _TEXT = 0, 1, 6, 7
_LENGTH = Struct(">H")


class EventStreamParser:
    """Splits the bytes of an event stream into frames, whatever the chunks are; a message that was cut is no frame.

    A frame's event is the header `:event-type`; of an exception its `:exception-type` and of an error its
    `:error-code`, with "!" in front, and an error's `:error-message` is its data, as the JSON that exceptions have.

    Args:
        limit: the most bytes that one message may have.
    """

    __slots__ = ("_broken", "_lack", "_limit", "_names", "_tail")

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._lack = _PRELUDE.size
        self._names: dict[bytes, str] = {}
        self._broken: ProtocolError | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete; those before a malformed message are still given, and then it raises.

        Raises:
            ProtocolError: a message is malformed, its checksum does not fit, or it is larger than the limit.
        """
        self._tail.append(data)
        self._lack -= len(data)
        if self._lack > 0:
            return []
        data = b"".join(self._tail)
        frames: list[Frame] = []
        at, size = 0, len(data)
        need = _PRELUDE.size
        try:
            while size - at >= _PRELUDE.size:
                total, headers = _prelude(data, at, self._limit)
                if size - at < total:
                    need = total
                    break
                frames.append(self._frame(data, at, total, headers))
                at += total
        except ProtocolError as error:
            self._broken = error
            if not frames:
                raise
        rest = data[at:]
        self._tail = [rest] if rest else []
        self._lack = need - len(rest)
        return frames

    def close(self) -> list[Frame]:
        """Nothing: what is left is a message that was cut.

        Raises:
            ProtocolError: a message was malformed, and nobody has been told yet.
        """
        if self._broken is not None:
            raise self._broken
        return []

    def _frame(self, data: bytes, at: int, total: int, headers: int) -> Frame:
        head, end = at + _PRELUDE.size, at + total - _CRC.size
        _check(data, at, total)
        packed, payload = data[head : head + headers], data[head + headers : end]
        event = self._names.get(packed)
        if event is not None:
            return Frame(payload, event)
        return self._named(packed, payload)

    def _named(self, packed: bytes, payload: bytes) -> Frame:
        headers = {name: str(value) for name, value in read_headers(packed).items()}
        kind = headers.get(":message-type")
        if kind == "error":
            said = json.dumps({"message": headers.get(":error-message", "")}).encode()
            return Frame(payload or said, FAILED + headers.get(":error-code", ""))
        if kind == "exception":
            return Frame(payload, FAILED + headers.get(":exception-type", ""))
        event = headers.get(":event-type", "")
        # Few differ in a stream, and reading them costs more than all else.
        if len(self._names) < _NAMES_KEPT:
            self._names[packed] = event
        return Frame(payload, event)


def _prelude(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """The lengths of the message and of its headers."""
    total, headers, given = _PRELUDE.unpack_from(data, at)
    if crc32(data[at : at + 8]) != given:
        raise ProtocolError(
            f"event stream: the checksum of a message's prelude does not fit: {data[at : at + _PRELUDE.size]!r}"
        )
    if headers > total - _SMALLEST:
        raise ProtocolError(f"event stream: {headers} bytes of headers do not fit into a message of {total} bytes")
    if total > limit:
        raise ProtocolError(f"event stream: a message has {total} bytes, more than {limit}")
    return total, headers


def _check(data: bytes, at: int, total: int) -> None:
    end = at + total - _CRC.size
    (given,) = _CRC.unpack_from(data, end)
    if crc32(data[at:end]) != given:
        raise ProtocolError(f"event stream: the checksum of a message of {total} bytes does not fit")


def read_headers(data: bytes) -> dict[str, HeaderValue]:
    """The headers of a message by name; a timestamp is whole milliseconds since 1970, a UUID its 16 bytes.

    Raises:
        ProtocolError: they are malformed, or one stands twice.
    """
    found: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(data):
            size = data[at]
            name = _slice(data, at + 1, size).decode()
            at += 1 + size
            value, at = _value(data, at + 1, kind=data[at])
            if name in found:
                raise ProtocolError(f"event stream: the header {name!r} stands twice in a message")
            found[name] = value
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"event stream: a message's headers are malformed: {error}") from None
    return found


def _value(data: bytes, at: int, *, kind: int) -> tuple[HeaderValue, int]:
    """A header's value, and where it ends."""
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in _FIXED:
        packed = _FIXED[kind]
        (value,) = packed.unpack(_slice(data, at, packed.size))
        return value, at + packed.size
    if kind not in (_BYTES, _TEXT):
        raise ProtocolError(f"event stream: no header's value has the type {kind}")
    (size,) = _LENGTH.unpack(_slice(data, at, _LENGTH.size))
    at += _LENGTH.size
    content = _slice(data, at, size)
    return (content.decode() if kind == _TEXT else content), at + size


def _slice(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) != size:
        raise IndexError(f"{size} bytes were to come, there are {len(part)}")
    return part
