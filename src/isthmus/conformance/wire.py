"""How a dialect says what a script does: the inverse of a decoder, for the server of tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.errors import ErrorClass, TierError
from isthmus.models.events import StepResult
from isthmus.models.jsontext import dumps

Asked = Mapping[str, Any]
"""The members of a request's body."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One dialect.

    Args:
        dialect: its name.
        paths: how the path of its requests ends.
        stream: the frames of a streamed reply, made from events and, as they stand, seconds to wait and exceptions.
        whole: the body of a reply asked for whole.
        failure: the body of an error status.
        error_frame: the same inside a stream.
        ends: whether a frame is part of the protocol's own end.
    """

    dialect: str
    paths: tuple[str, ...]
    stream: Callable[[Sequence[Any], Asked], Iterator[bytes | float | BaseException]]
    whole: Callable[[StepResult, Asked], bytes]
    failure: Callable[[TierError], bytes]
    error_frame: Callable[[TierError], bytes]
    ends: Callable[[bytes], bool]


_STATUSES: Mapping[str, int] = {
    ErrorClass.TRANSIENT: 500,
    ErrorClass.UNAVAILABLE: 503,
    ErrorClass.CREDENTIALS: 401,
    ErrorClass.OVERFLOW: 400,
    ErrorClass.REFUSED: 400,
    ErrorClass.INVALID: 400,
}


def status_of(error: TierError) -> int:
    """The HTTP status that says this error: its own, or the usual one of its class; 500 where there is none."""
    return error.status or _STATUSES.get(error.error_class, 500)


def sse(value: Any, event: str = "") -> bytes:
    """One server-sent event, its data as JSON unless it is text already."""
    data = value.encode() if isinstance(value, str) else dumps(value)
    return (b"event: " + event.encode() + b"\n" if event else b"") + b"data: " + data + b"\n\n"


_FRAME = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.S)


def sse_frames(body: bytes) -> list[bytes]:
    """A body cut after each blank line; joined they are the body."""
    return [frame for frame in _FRAME.findall(body) if frame]


def halves(text: str) -> tuple[str, str]:
    """A text in two parts, as arguments are streamed."""
    middle = len(text) // 2
    return text[:middle], text[middle:]
