"""What can go wrong with a reply on its way: values that turn a right reply into a damaged one.

`at` counts the bytes of the body from 0; `after` counts frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from isthmus.conformance.reply import End, Framing, Piece, Reply, cut_up, recut
from isthmus.conformance.wire import Wire, sse_frames
from isthmus.errors import ConfigError, TierError, tier_error

_GARBAGE = b"data: {\xff\x00 not JSON\n\n"


class Damage(Protocol):
    """One thing that goes wrong."""

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """The damaged reply.

        Args:
            reply: the reply so far; never changed.
            wire: the dialect that it speaks, where it is one that is known.

        Raises:
            ConfigError: this reply cannot have this damage.
        """
        ...


@dataclass(frozen=True)
class Split:
    """The body arrives in pieces of `size` bytes."""

    size: int = 1

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        return replace(reply, pieces=tuple(recut(reply.pieces, self.size)))


@dataclass(frozen=True)
class Drip:
    """The body arrives `size` bytes at a time, with `seconds` before each."""

    seconds: float
    size: int = 1

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        pieces: list[Piece] = []
        for piece in recut(reply.pieces, self.size):
            pieces += [self.seconds, piece] if isinstance(piece, bytes) else [piece]
        return replace(reply, pieces=tuple(pieces))


@dataclass(frozen=True)
class Cut:
    """The body stops: the connection is closed, or, where `framed`, what arrived is declared to be all."""

    at: int
    framed: bool = False

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        kept, _ = reply.until(self.at)
        if self.framed:
            return replace(kept, declared=None)
        return replace(kept, pieces=(*kept.pieces, End.CLOSE))


@dataclass(frozen=True)
class Reset:
    """The connection is reset; before the reply's head where `at` is None."""

    at: int | None = None

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        if self.at is None:
            return replace(reply, pieces=(End.RESET,), framing=Framing.RAW)
        kept, _ = reply.until(self.at)
        return replace(kept, pieces=(*kept.pieces, End.RESET))


@dataclass(frozen=True)
class Stall:
    """Nothing more arrives for `seconds`; for ever where that is None."""

    at: int
    seconds: float | None = None

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        kept, left = reply.until(self.at)
        if self.seconds is None:
            return replace(kept, pieces=(*kept.pieces, End.HOLD))
        return replace(kept, pieces=(*kept.pieces, self.seconds, *left), declared=reply.declared)


@dataclass(frozen=True)
class WrongType:
    """The reply says that it is something else."""

    content_type: str = "text/html"

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        return reply.header("content-type", self.content_type)


@dataclass(frozen=True)
class Status:
    """An error status in the place of the reply; `body` None for the dialect's own."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        said = tier_error("transient", f"scripted status {self.status}", status=self.status)
        body = self.body
        if body is None:
            body = wire.failure(said) if wire else b'{"error": {"message": "scripted failure"}}'
        headers = {"content-type": "application/json", **{name.lower(): value for name, value in self.headers.items()}}
        pieces = (body,) if body else ()
        return Reply(status=self.status, headers=tuple(headers.items()), pieces=pieces, framing=Framing.LENGTH)


@dataclass(frozen=True)
class ErrorInside:
    """After some frames of a stream with status 200 comes an error, and then its end."""

    after: int = 1
    error: TierError = field(default_factory=lambda: tier_error("unavailable", "overloaded", status=529))

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        wire = _known(wire, self)
        frames = _frames(reply, self)
        return _reframed(reply, [*frames[: self.after], wire.error_frame(self.error)])


@dataclass(frozen=True)
class NoEnd:
    """The stream lacks the frames that end it, and is framed all the same."""

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        wire = _known(wire, self)
        return _reframed(reply, [frame for frame in _frames(reply, self) if not wire.ends(frame)])


@dataclass(frozen=True)
class DoubleEnd:
    """The frames that end the stream come twice."""

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        wire = _known(wire, self)
        frames = _frames(reply, self)
        return _reframed(reply, [*frames, *[frame for frame in frames if wire.ends(frame)]])


@dataclass(frozen=True)
class Garbage:
    """Bytes that do not belong there."""

    at: int
    data: bytes = _GARBAGE

    def apply(self, reply: Reply, wire: Wire | None) -> Reply:
        """See `Damage`."""
        kept, left = reply.until(self.at)
        return replace(kept, pieces=(*kept.pieces, self.data, *left), declared=None)


def _known(wire: Wire | None, damage: object) -> Wire:
    if wire is None:
        raise ConfigError(f"{damage} needs a dialect that is known: name it as the play's dialect")
    return wire


def _frames(reply: Reply, damage: object) -> list[bytes]:
    kind = dict(reply.headers).get("content-type", "")
    if not kind.startswith("text/event-stream"):
        raise ConfigError(f"{damage} needs an event stream, and the reply is {kind or 'of no type'}")
    return sse_frames(reply.body)


def _reframed(reply: Reply, frames: list[bytes]) -> Reply:
    """The reply with other bytes, a frame a piece; its pauses are gone."""
    return replace(reply, pieces=tuple(cut_up(b"".join(frames), map(len, frames))), declared=None)
