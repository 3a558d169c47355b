"""Plays a recorded exchange as if it came from the network."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from itertools import chain, repeat
from pathlib import Path
from types import TracebackType
from typing import Any

from isthmus.errors import ConfigError
from isthmus.wire.call import Ended, WireCall


class RecordingTransport:
    """Answers every call with the reply of one recording; a body shorter than it was recorded is a broken one.

    Args:
        folder: holds `response.body` and `response.meta.json` ({"status", "headers": [[name, value], …]} and, where
            the recorder kept the network's reads, "chunk_sizes" in bytes).
        split: bytes in a chunk, instead of the recorded sizes.

    Raises:
        ConfigError: the folder does not hold a recording.
    """

    def __init__(self, folder: str | Path, *, split: int | None = None) -> None:
        place = Path(folder)
        try:
            meta = json.loads((place / "response.meta.json").read_text(encoding="utf-8"))
            self._body = (place / "response.body").read_bytes()
            self._status = int(meta["status"])
            self._headers = _joined(meta.get("headers", ()))
            self._size = _declared(meta, self._headers)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"no recording ({error}): it needs response.meta.json with a status, and response.body",
                where=str(place),
            ) from error
        sizes = () if split else meta.get("chunk_sizes") or ()
        self._chunks = _cut(self._body, sizes, split)

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> _Played:
        """The recorded reply; see `isthmus.adapters.codec.Transport`."""
        ended = Ended.BROKEN if len(self._body) < self._size else Ended.FRAMED
        return _Played(self._status, self._headers, self._chunks, ended)

    async def aclose(self) -> None:
        """Nothing is open."""


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


def _declared(meta: Mapping[str, Any], headers: Mapping[str, str]) -> int:
    """The bytes that the body had when it was recorded, as far as its length or the recorder's reads say so."""
    length = headers.get("content-length", "")
    return max(int(length) if length.isascii() and length.isdigit() else 0, sum(meta.get("chunk_sizes") or ()))


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
