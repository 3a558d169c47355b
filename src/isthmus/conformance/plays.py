"""What a server of tests answers with: recordings, scripts and bare bytes, whole or damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from isthmus.conformance.damage import Damage
from isthmus.conformance.reply import End, Framing, Piece, Reply, cut_up
from isthmus.conformance.wire import Asked, Wire, status_of
from isthmus.conformance.wire_chat import CHAT
from isthmus.conformance.wire_messages import MESSAGES
from isthmus.errors import ConfigError, TierError, tier_error
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold, classify
from isthmus.models.jsontext import loads
from isthmus.models.normalise import to_event
from isthmus.models.script import Step, items_of
from isthmus.secret import Address, Secret, names_secret
from isthmus.transport.recorder import META, request_form
from isthmus.transport.recording import Library, places_with, recorded_request
from isthmus.transport.scrub import secrets_in
from isthmus.wire.call import WireCall

WIRES: tuple[Wire, ...] = (CHAT, MESSAGES)
_NO_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "content-encoding", "keep-alive"})
_JSON = (("content-type", "application/json"),)
_SSE = (("content-type", "text/event-stream"),)


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived.

    Args:
        method: as sent.
        path: with its query, whose values no repr shows.
        headers: names in lower case; no repr shows those that hold a secret.
        body: as sent, without chunks.
        connection: the number of the connection, from 0.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)
    connection: int = 0

    def __post_init__(self) -> None:
        shown = {name: Secret(value) if names_secret(name) else value for name, value in self.headers.items()}
        object.__setattr__(self, "headers", shown)
        object.__setattr__(self, "path", Address(self.path))

    @property
    def asked(self) -> Asked:
        """The members of the body; none where it is no JSON object."""
        try:
            value = loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One reply to come; made by one of its builders.

    Args:
        reply: its bytes; or
        step: a step of a script, said in the dialect of the request when that arrives.
        path: how the path of the requests must end that it answers; "" for any.
        dialect: the name of its dialect; None to tell it from the request's path.
        damages: what goes wrong with it, in this order.
    """

    reply: Reply | None = None
    step: Any = None
    path: str = ""
    dialect: str | None = None
    damages: tuple[Damage, ...] = ()

    @classmethod
    def recording(cls, folder: str | os.PathLike[str], *, timed: bool = False) -> Play:
        """A recorded reply, in the network's own reads where the recorder kept them.

        Args:
            folder: holds `response.meta.json` and `response.body`.
            timed: keep the recorded waits between the reads, too.

        Raises:
            ConfigError: it holds no recording.
        """
        place = Path(folder)
        try:
            meta = json.loads((place / "response.meta.json").read_text(encoding="utf-8"))
            body = (place / "response.body").read_bytes()
            headers = tuple((name, value) for name, value in meta.get("headers", ()) if name.lower() not in _NO_FRAMING)
            pieces: list[Piece] = [*cut_up(body, meta.get("chunk_sizes") or ())]
            status = int(meta["status"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"holds no recording ({error})", where=str(place)) from error
        if timed:
            pieces = list(_timed(pieces, meta.get("chunk_times") or ()))
        streamed = meta.get("stream") is True or len(pieces) > 1
        framing = Framing.CHUNKED if streamed else Framing.LENGTH
        return cls(reply=Reply(status=status, headers=headers, pieces=tuple(pieces), framing=framing))

    @classmethod
    def recordings(cls, folder: str | os.PathLike[str]) -> Callable[[Received], Play]:
        """The recorded replies below a folder, each to the request that it answered, wherever that had gone.

        Raises:
            ConfigError: there is no recording in it; when asked: none of this request.
        """
        root = Path(folder)
        library = Library(root, [(place, _key(recorded_request(place))) for place in places_with(root, META)])

        def find(request: Received) -> Play:
            call = WireCall(path=request.path, body=request.body, method=request.method)
            secrets = secrets_in(request.path, request.headers)
            place = library.find(_key(request_form(f"http://localhost{request.path}", call, secrets=secrets)))
            return cls.recording(place)

        return find

    @classmethod
    def steps(cls, *steps: Step) -> tuple[Play, ...]:
        """A reply for each step of a script; see `isthmus.conformance.scripted` for what a step is.

        A request that asks for a stream gets one. An exception before any content becomes an error status, later an
        error inside the stream; a `ConnectionError` resets the connection, a `TimeoutError` says nothing more.
        """
        return tuple([cls(step=step) for step in steps])

    @classmethod
    def whole(cls, body: bytes | str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Play:
        """A body with its length; JSON unless its headers say otherwise."""
        data = body.encode() if isinstance(body, str) else body
        pieces = (data,) if data else ()
        return cls(reply=Reply(status=status, headers=_over(_JSON, headers), pieces=pieces, framing=Framing.LENGTH))

    @classmethod
    def stream(cls, *pieces: Piece, status: int = 200, headers: Mapping[str, str] | None = None) -> Play:
        """A chunked body, a chunk a piece; server-sent events unless its headers say otherwise."""
        return cls(reply=Reply(status=status, headers=_over(_SSE, headers), pieces=pieces))

    @classmethod
    def raw(cls, *pieces: Piece) -> Play:
        """These bytes and nothing else: not even a head."""
        return cls(reply=Reply(pieces=pieces, framing=Framing.RAW))

    def damaged(self, *damages: Damage) -> Play:
        """The same with more damage, applied in this order."""
        return replace(self, damages=(*self.damages, *damages))

    def at(self, path: str) -> Play:
        """The same for requests whose path ends so."""
        return replace(self, path=path)

    def framed(self, framing: Framing) -> Play:
        """The same with another framing.

        Raises:
            ConfigError: it is a step, whose framing follows from the request.
        """
        if self.reply is None:
            raise ConfigError("the framing of a step follows from the request")
        return replace(self, reply=replace(self.reply, framing=framing))

    def fits(self, request: Received) -> bool:
        """Whether it answers this request."""
        return request.path.partition("?")[0].endswith(self.path)

    def answer(self, request: Received) -> Reply:
        """The reply to a request, damage done.

        Raises:
            ConfigError: the step cannot be said at this path, or the reply cannot have the damage.
        """
        wire = wire_of(request.path, self.dialect)
        reply = self.reply if self.reply is not None else _said(self.step, request, wire)
        for damage in self.damages:
            reply = damage.apply(reply, wire)
        return reply


def wire_of(path: str, dialect: str | None = None) -> Wire | None:
    """The dialect of that name, or whose requests go to such a path; None where none is known."""
    bare = path.partition("?")[0].rstrip("/")
    if dialect is not None:
        return next((wire for wire in WIRES if wire.dialect == dialect), None)
    return next((wire for wire in WIRES if any(bare.endswith(end) for end in wire.paths)), None)


def _key(form: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: form[name] for name in ("method", "path", "query", "body")}


def _over(usual: Sequence[tuple[str, str]], headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    given = {name.lower(): value for name, value in (headers or {}).items()}
    return tuple({**dict(usual), **given}.items())


def _timed(pieces: Sequence[Piece], times: Sequence[float]) -> Iterator[Piece]:
    waits = [later - sooner for sooner, later in pairwise((0.0, *times))]
    for index, piece in enumerate(pieces):
        if index < len(waits) and waits[index] > 0:
            yield waits[index]
        yield piece


def _said(step: Any, request: Received, wire: Wire | None) -> Reply:
    """A step in the dialect of the request."""
    if wire is None:
        known = ", ".join(end for wire in WIRES for end in wire.paths)
        raise ConfigError(f"a step cannot be said at {request.path!r}: only at {known}, or give the play a dialect")
    items = [item if isinstance(item, int | float | BaseException) else to_event(item) for item in items_of(step)]
    waits = [item for item in items if isinstance(item, int | float)]
    failure = next((item for item in items if isinstance(item, BaseException)), None)
    streamed = request.asked.get("stream") is True
    began = any(isinstance(item, Event) for item in items[: items.index(failure)]) if failure is not None else True
    if failure is not None and not (streamed and began):
        return _failed(failure, waits, wire)
    if streamed:
        frames = wire.stream(items, request.asked)
        return Reply(headers=_SSE, pieces=tuple(_pieces(frames, wire)))
    return Reply(headers=_JSON, pieces=(*waits, wire.whole(_folded(items), request.asked)), framing=Framing.LENGTH)


def _failed(error: BaseException, waits: Iterable[float], wire: Wire) -> Reply:
    end = _ended(error)
    if end is not None:
        return Reply(pieces=(*waits, end), framing=Framing.RAW)
    failure = classify(error)
    headers = dict(_JSON)
    if failure.retry_after is not None:
        headers["retry-after"] = f"{failure.retry_after:g}"
    body = wire.failure(failure)
    return Reply(
        status=status_of(failure), headers=tuple(headers.items()), pieces=(*waits, body), framing=Framing.LENGTH
    )


def _ended(error: BaseException) -> End | None:
    """What a failure of the connection itself does to it; None for an error that is said."""
    if isinstance(error, TimeoutError):
        return End.HOLD
    return End.RESET if isinstance(error, ConnectionError) else None


def _pieces(frames: Iterable[bytes | float | BaseException], wire: Wire) -> Iterator[Piece]:
    for frame in frames:
        if not isinstance(frame, BaseException):
            yield frame
            continue
        end = _ended(frame)
        yield end if end is not None else wire.error_frame(_classified(frame))
        return


def _classified(error: BaseException) -> TierError:
    return error if isinstance(error, TierError) else tier_error("unclassified", str(error))


def _folded(items: Iterable[Any]) -> StepResult:
    fold = Fold()
    fold.extend(item for item in items if not isinstance(item, int | float))
    return fold.result()
