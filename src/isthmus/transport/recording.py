"""Plays recorded exchanges as if they came from the network."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from itertools import chain, repeat, zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from isthmus.errors import ConfigError, InvalidRequestError
from isthmus.models.jsontext import loads
from isthmus.transport.recorder import HALF, META, request_form
from isthmus.transport.scrub import scrubbed_headers, scrubbed_query, scrubbed_value, secrets_in
from isthmus.wire.call import Ended, WireCall

_MOST_SHOWN = 200


class RecordingTransport:
    """Answers every call with the reply of one recording; a body shorter than it was recorded is a broken one.

    Args:
        folder: holds `response.body` and `response.meta.json` ({"status", "headers": [[name, value], …]} and, where
            the recorder kept the network's reads, "chunk_sizes" in bytes).
        split: bytes in a chunk, instead of the recorded sizes.

    Raises:
        ConfigError: the folder does not hold a recording.
    """

    def __init__(self, folder: str | os.PathLike[str], *, split: int | None = None) -> None:
        place = Path(folder)
        try:
            meta = json.loads((place / META).read_text(encoding="utf-8"))
            self._body = (place / "response.body").read_bytes()
            self._status = int(meta["status"])
            self._headers = _joined(meta.get("headers", ()))
            self._ended = _ended(meta, self._headers, body=self._body)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"no recording ({error}): it needs response.meta.json with a status, and response.body",
                where=str(place),
            ) from error
        sizes = () if split else meta.get("chunk_sizes") or ()
        self._chunks = _cut(self._body, sizes, split)

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> _Played:
        """The recorded reply; see `isthmus.adapters.codec.Transport`."""
        return _Played(self._status, self._headers, self._chunks, self._ended)

    async def aclose(self) -> None:
        """Nothing is open."""


class ReplayTransport:
    """Answers each call with the recording of the same request; the same request again with the next recording of it.

    Requests are compared scrubbed, and in all that recordings keep of them: method, host, path, query, body, and those
    headers that the call itself sets.

    Args:
        folder: holds recordings, at any depth.
        split: bytes in a chunk, instead of the recorded sizes.

    Raises:
        ConfigError: there is no recording in it, or one that cannot be read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, split: int | None = None) -> None:
        places = places_with(Path(folder), META)
        self._library = Library(Path(folder), [(place, recorded_request(place)) for place in places])
        self._split = split

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> _Played:
        """The recorded reply to this request.

        Raises:
            InvalidRequestError: there is none; names the nearest, and the first member in which it differs.
        """
        secrets = secrets_in(url, {**call.headers, **headers})
        asked = {
            **request_form(url, call, secrets=secrets),
            "headers": scrubbed_headers(call.headers, secrets)[0],
        }
        return RecordingTransport(self._library.find(asked), split=self._split).open(url, call, headers=headers)

    async def aclose(self) -> None:
        """Nothing is open."""


def places_with(folder: Path, file: str) -> list[Path]:
    """The recordings below a folder that hold this file, in the order of their names.

    Raises:
        ConfigError: there is none.
    """
    found = sorted(each.parent for each in folder.rglob(file) if not each.parent.name.startswith(HALF))
    if not found:
        raise ConfigError(f"there is no recording in it: none has a {file}", where=str(folder))
    return found


class Library:
    """Recordings that are found by what was asked.

    Args:
        folder: where they lie.
        recordings: each with its request.
    """

    def __init__(self, folder: Path, recordings: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
        self._folder = folder
        self._recordings = recordings
        self._played: Counter[Path] = Counter()

    def find(self, asked: Mapping[str, Any]) -> Path:
        """The recording of a request: of several the next one, the last one for good.

        Raises:
            InvalidRequestError: there is none; names the nearest, and the first member in which it differs.
        """
        gaps = [(list(differences(kept, asked)), place) for place, kept in self._recordings]
        fitting = [place for gap, place in gaps if not gap]
        if fitting:
            turn = self._played[fitting[0]]
            self._played[fitting[0]] += 1
            return fitting[min(turn, len(fitting) - 1)]
        gap, place = min(gaps, key=lambda each: len(each[0]))
        raise InvalidRequestError(
            f"no recording of this request among the {len(gaps)} in {self._folder}: the nearest, "
            f"{place.relative_to(self._folder)}, differs at {gap[0].path}: "
            f"recorded {_shown(gap[0].recorded)}, asked {_shown(gap[0].asked)}"
        )


class Difference(NamedTuple):
    """A place in which two requests differ; `ABSENT` is the value of a member that is not there."""

    path: str
    recorded: Any
    asked: Any


ABSENT: Any = object()


def differences(recorded: Any, asked: Any, *, path: str = "$") -> Iterator[Difference]:
    """Where two JSON values differ, in the order in which the recorded one is written.

    Of the member "headers" only those are compared that are asked for.
    """
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        wanted = asked if path == "$.headers" else {**recorded, **asked}
        for name in wanted:
            yield from differences(recorded.get(name, ABSENT), asked.get(name, ABSENT), path=f"{path}{_member(name)}")
    elif isinstance(recorded, list) and isinstance(asked, list):
        for index, (one, other) in enumerate(zip_longest(recorded, asked, fillvalue=ABSENT)):
            yield from differences(one, other, path=f"{path}[{index}]")
    elif recorded != asked or isinstance(recorded, bool) != isinstance(asked, bool):
        yield Difference(path, recorded, asked)


def _member(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{json.dumps(name)}]"


def _shown(value: Any) -> str:
    text = "(absent)" if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text)} characters)"


def recorded_request(place: Path) -> dict[str, Any]:
    """A recorded request in the form in which requests are compared.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        value = loads((place / "request.json").read_bytes())
        headers = {name.lower(): text for name, text in (value.get("headers") or {}).items()}
        form = {
            "method": value["method"],
            "host": value["host"],
            "path": value["path"],
            "query": scrubbed_query(value.get("query") or "", ()),
            "headers": scrubbed_headers(headers, ())[0],
            "body": scrubbed_value(value.get("body"), ()),
        }
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"holds no recorded request ({error!r})", where=str(place / "request.json")) from None
    return form


class _Played:
    """The recorded reply, and the block that it is open in."""

    def __init__(self, status: int, headers: Mapping[str, str], chunks: tuple[bytes, ...], ended: Ended) -> None:
        self.status = status
        self.headers = headers
        self.ended = ended
        self._chunks = iter(chunks)

    async def __aenter__(self) -> _Played:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._chunks = iter(())

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body in its chunks."""
        for data in self._chunks:
            yield data

    async def read(self, limit: int | None = None) -> bytes:
        """The rest of the body, or its first `limit` bytes."""
        return b"".join(self._chunks)[:limit]

    async def settle(self) -> None:
        """Nothing is left open."""


def _ended(meta: Mapping[str, Any], headers: Mapping[str, str], *, body: bytes) -> Ended:
    """How the body ended: as the recorder says, and broken where it is shorter than its length or the reads kept."""
    length = headers.get("content-length", "")
    declared = max(int(length) if length.isascii() and length.isdigit() else 0, sum(meta.get("chunk_sizes") or ()))
    return Ended.BROKEN if len(body) < declared else Ended(meta.get("ended") or Ended.FRAMED)


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _cut(body: bytes, sizes: list[int] | tuple[int, ...], split: int | None) -> tuple[bytes, ...]:
    """The body in pieces of the sizes; what they do not cover is the last piece, or pieces of `split` bytes."""
    pieces = []
    at = 0
    for size in chain(sizes, repeat(split or max(1, len(body)))):
        if at >= len(body):
            break
        pieces.append(body[at : at + size])
        at += size
    return tuple(piece for piece in pieces if piece)
