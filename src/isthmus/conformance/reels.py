"""Recordings as a kit plays them to an adapter: through its transport, or from a server at its base URL."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from isthmus.conformance.damage import Cut, Split
from isthmus.conformance.plays import Play, Received
from isthmus.conformance.recorder import NoKeys, has_transport, over
from isthmus.conformance.reply import Framing
from isthmus.conformance.server import serve
from isthmus.conformance.subject import Subject
from isthmus.errors import ConfigError
from isthmus.transport.recorder import META
from isthmus.transport.recording import places_with
from isthmus.wire.call import Ended, WireCall

_WAITS = 4
"""Chunks before which others get their turn, as they would while the network is awaited."""


@dataclass(frozen=True, slots=True)
class Reel:
    """One recording.

    Args:
        place: its folder.
        status: the HTTP status.
        headers: names in lower case.
        body: the recorded bytes.
        sizes: the network's own reads, where they were kept.
        streamed: whether the reply is a stream.
        asked: the recorded request.
        ended: how the body ended.
    """

    place: Path
    status: int
    headers: Mapping[str, str]
    body: bytes
    sizes: tuple[int, ...]
    streamed: bool
    asked: Mapping[str, Any]
    ended: Ended = Ended.FRAMED

    @property
    def name(self) -> str:
        """The last two parts of its place."""
        return "/".join(self.place.parts[-2:])

    def beside(self, file: str) -> dict[str, Any] | None:
        """The JSON object in a file of its folder; None where there is none."""
        path = self.place / file
        if not path.is_file():
            return None
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return value

    @classmethod
    def of(cls, place: Path) -> Reel:
        """Read the recording in a folder.

        Raises:
            ConfigError: it holds none.
        """
        try:
            meta = json.loads((place / META).read_text(encoding="utf-8"))
            body = (place / "response.body").read_bytes()
            headers = {str(name).lower(): str(value) for name, value in meta.get("headers") or ()}
            request = place / "request.json"
            asked = json.loads(request.read_text(encoding="utf-8")) if request.is_file() else {}
            sizes = tuple(meta.get("chunk_sizes") or ())
            said = asked.get("body")
            streamed = meta.get("stream") is True or (isinstance(said, dict) and said.get("stream") is True)
            ended = Ended(meta.get("ended") or (Ended.BROKEN if len(body) < sum(sizes) else Ended.FRAMED))
            return cls(place, int(meta["status"]), headers, body, sizes, streamed, asked, ended)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"holds no recording ({error!r})", where=str(place)) from error


def reels_in(recordings: Any) -> list[Reel]:
    """The recordings in one folder or in several, at any depth.

    Raises:
        ConfigError: there is none, or one that cannot be read.
    """
    folders = [recordings] if isinstance(recordings, str | os.PathLike) else list(recordings)
    return [Reel.of(place) for folder in folders for place in places_with(Path(folder), META)]


@dataclass(frozen=True, slots=True)
class Showing:
    """How a recording is played.

    Args:
        reel: the recording.
        split: bytes in a chunk; the recorded reads where None.
        cut: the byte before which it stops; the end where None.
        ended: how it ends where it is cut.
    """

    reel: Reel
    split: int | None = None
    cut: int | None = None
    ended: Ended = Ended.BROKEN

    def pieces(self) -> Iterable[bytes]:
        """The body in its chunks."""
        body, at = self.reel.body[: self.cut], 0
        for size in () if self.split else self.reel.sizes:
            if at < len(body):
                yield body[at : at + size]
                at += size
        step = self.split or max(1, len(body))
        for start in range(at, len(body), step):
            yield body[start : start + step]


class Sent:
    """One request that arrived: its body, and all of it as text."""

    def __init__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> None:
        self.body = body
        self.url = url
        self.headers = dict(headers)

    @property
    def json(self) -> Any:
        """The body as a value; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Projector:
    """A transport that answers each call with what is on; counts what is open."""

    def __init__(self) -> None:
        self.showing: Showing | None = None
        self.sent: list[Sent] = []
        self.open_now = 0

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> _Shown:
        """What is on; see `isthmus.adapters.codec.Transport`."""
        self.sent.append(Sent(url, headers={**call.headers, **headers}, body=call.body))
        if self.showing is None:
            raise ConfigError("no recording is on")
        return _Shown(self, self.showing)

    async def aclose(self) -> None:
        """Nothing is open."""


class _Shown:
    """One reply under way."""

    def __init__(self, projector: Projector, showing: Showing) -> None:
        self._projector = projector
        self._pieces = iter(showing.pieces())
        self.status = showing.reel.status
        self.headers = showing.reel.headers
        self.ended = showing.reel.ended if showing.cut is None else showing.ended

    async def __aenter__(self) -> _Shown:
        await asyncio.sleep(0)
        self._projector.open_now += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._projector.open_now -= 1
        self._pieces = iter(())

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body in its chunks."""
        for place, data in enumerate(self._pieces):
            if place < _WAITS:
                await asyncio.sleep(0)
            yield data

    async def read(self, limit: int | None = None) -> bytes:
        """The rest of the body, or its first `limit` bytes."""
        return b"".join(self._pieces)[:limit]

    async def settle(self) -> None:
        """Nothing is left open."""


class Cinema:
    """Recordings, and the way in which they reach one adapter.

    Args:
        reels: the recordings.
        projector: what was asked, and what is open.
        through: "transport" or "base_url".
    """

    def __init__(self, reels: list[Reel], projector: Projector, *, through: str) -> None:
        self.reels = reels
        self.projector = projector
        self.through = through
        self.best: Reel | None = None
        self.best_whole: Reel | None = None

    def put_on(self, showing: Showing) -> None:
        """Play this from now on."""
        self.projector.showing = showing

    def put_on_usual(self, *, whole: bool = False) -> None:
        """Answer ordinary requests from now on."""
        self.put_on(Showing(self.usual(whole=whole)))

    def usual(self, *, whole: bool = False) -> Reel:
        """The recording that answers ordinary requests; those for a whole reply have one of their own on two wires."""
        return (self.best_whole if whole else None) or self.best or self.candidates()[0]

    @property
    def has_two_wires(self) -> bool:
        """Whether the provider streams in a form that its whole replies don't have, so that each face reads its own."""
        return self.best_whole is not None

    def candidates(self) -> list[Reel]:
        """The successes, those first that show most: streams, with tools, short ones.

        Raises:
            ConfigError: there is none.
        """
        good = [reel for reel in self.reels if reel.status == 200 and reel.body]
        if not good:
            raise ConfigError("none of the recordings is a success")
        return sorted(good, key=lambda reel: (not reel.streamed, b'"tool_' not in reel.body, len(reel.body)))


@asynccontextmanager
async def opened_cinema(subject: Subject, recordings: Any) -> AsyncIterator[Cinema]:
    """Attach recordings to an adapter, and put the usual one on.

    Raises:
        ConfigError: no recording, or an adapter that takes neither a transport nor a base URL.
    """
    projector = Projector()
    reels = await asyncio.to_thread(reels_in, recordings)
    if subject.declares("transport"):
        subject.settings["transport"] = projector
    elif not subject.fresh and has_transport(subject.given):
        subject.given = over(subject.given, transport=projector, keys=NoKeys())
    elif subject.is_movable:
        async with serve(lambda request: _play(projector, request)) as server:
            subject.settings["base_url"] = server.url
            cinema = Cinema(reels, projector, through="base_url")
            cinema.put_on_usual()
            yield cinema
        return
    else:
        raise ConfigError(
            "recordings cannot reach this adapter: its maker needs a parameter `base_url` (or `transport`, or a Config "
            "`config`), so that the kit can stand in for its provider"
        )
    cinema = Cinema(reels, projector, through="transport")
    cinema.put_on_usual()
    yield cinema


def _play(projector: Projector, request: Received) -> Play:
    projector.sent.append(Sent(request.path, headers=request.headers, body=request.body))
    showing = projector.showing
    if showing is None:
        raise ConfigError("no recording is on")
    play = Play.recording(showing.reel.place)
    if showing.split is not None:
        play = play.damaged(Split(showing.split))
    if showing.cut is not None:
        unframed = showing.ended == Ended.UNFRAMED
        play = (play.framed(Framing.CLOSE) if unframed else play).damaged(Cut(showing.cut))
    return play
