"""Keeps what passes over a transport as recordings, scrubbed, one folder an exchange."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Protocol

from isthmus.models.jsontext import loads
from isthmus.transport.request import merged_headers, parts_of
from isthmus.transport.scrub import (
    scrubbed_bytes,
    scrubbed_headers,
    scrubbed_query,
    scrubbed_text,
    scrubbed_value,
    secrets_in,
)
from isthmus.wire.call import Ended, WireCall

META = "response.meta.json"
HALF = ".half-"
"""How the name of a recording begins that is not whole yet."""


class Carrier(Protocol):
    """What a recorder is wrapped around; see `isthmus.adapters.codec.Transport`."""

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Any]:
        """Send a call."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class RecordingCarrier:
    """A transport that hands everything on and keeps each exchange that came to its end.

    One that its reader gave up leaves nothing behind; one that failed on the way is kept as far as it came. Secrets in
    the address and in headers are taken out of everything, and so is what is shaped like a key or an account.

    Args:
        carrier: the transport that does the work.
        folder: where the recordings go, as `001-…`; made when the first is written.
    """

    def __init__(self, carrier: Carrier, folder: str | os.PathLike[str]) -> None:
        self._carrier = carrier
        self._folder = Path(folder)

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> _Recorded:
        """Send the call; see `isthmus.adapters.codec.Transport`."""
        return _Recorded(self._carrier.open(url, call, headers=headers), _Exchange(url, call, headers), self._folder)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._carrier.aclose()


class _Exchange:
    """A request as it is kept; its secrets are known only here."""

    __slots__ = ("_secrets", "call", "request")

    def __init__(self, url: str, call: WireCall, headers: Mapping[str, str]) -> None:
        merged = merged_headers(call, headers)
        self.call = call
        self._secrets = secrets_in(url, merged)
        self.request = {
            **request_form(url, call, secrets=self._secrets),
            "headers": scrubbed_headers(merged, self._secrets)[0],
        }

    def files(self, reply: _Tapped, ended: Ended) -> dict[str, bytes]:
        """The files of the recording."""
        body = scrubbed_bytes(b"".join(reply.pieces), self._secrets)
        headers, dropped = scrubbed_headers(reply.headers, self._secrets)
        if "content-encoding" in headers:
            # What is kept is the body decoded, and its length is another.
            headers.pop("content-length", None)
        meta = {
            "status": reply.status,
            "headers": [[name, value] for name, value in headers.items() if name != "content-encoding"],
            "dropped_headers": dropped,
            "stream": self.call.stream,
            "chunk_sizes": [len(piece) for piece in reply.pieces],
            "chunk_times": [round(at, 4) for at in reply.times],
            "ended": ended.value,
        }
        return {"request.json": as_text(self.request), META: as_text(meta), "response.body": body}


class _Recorded:
    """One exchange under way, as a block."""

    def __init__(self, opened: AbstractAsyncContextManager[Any], exchange: _Exchange, folder: Path) -> None:
        self._opened = opened
        self._exchange = exchange
        self._folder = folder
        self._reply: _Tapped | None = None

    async def __aenter__(self) -> _Tapped:
        self._reply = _Tapped(await self._opened.__aenter__())
        return self._reply

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reply = self._reply
        try:
            # A reader closes a stream that is over, too: only what came of it tells whether it was given up.
            if reply is not None and (reply.over or isinstance(error, Exception)):
                ended = reply.ended if reply.exhausted else Ended.FRAMED if reply.over else Ended.BROKEN
                name = self._exchange.request["path"].strip("/").rpartition("/")[2]
                keep(self._folder, name, files=self._exchange.files(reply, ended))
        finally:
            await self._opened.__aexit__(kind, error, trace)


class _Tapped:
    """A reply that remembers what was read of it."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply
        self._began = monotonic()
        self.status: int = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self.pieces: list[bytes] = []
        self.times: list[float] = []
        self.exhausted = False
        self.over = False

    @property
    def ended(self) -> Ended:
        """How the body ended."""
        ended: Ended = self._reply.ended
        return ended

    def _take(self, data: bytes) -> bytes:
        if data:
            self.pieces.append(data)
            self.times.append(monotonic() - self._began)
        return data

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives."""
        source = self._reply.chunks()
        try:
            async for data in source:
                yield self._take(data)
            self.exhausted = self.over = True
        finally:
            if hasattr(source, "aclose"):
                await source.aclose()

    async def read(self, limit: int | None = None) -> bytes:
        """The rest of the body, or its first `limit` bytes."""
        data = self._take(await self._reply.read(limit))
        self.exhausted = self.over = True
        return data

    async def settle(self) -> None:
        """Read what little is left: whoever asks has seen the end that the protocol itself marks."""
        self.over = True
        await self._reply.settle()


def request_form(url: str, call: WireCall, *, secrets: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A request without its headers as it is kept and looked up: scrubbed, its body decoded where it is JSON."""
    parts = parts_of(url)
    try:
        body = loads(call.body) if call.body else None
    except ValueError:
        body = call.body.decode("utf-8", "replace")
    return {
        "method": call.method,
        "host": parts.hostname or "",
        "path": scrubbed_text(parts.path, secrets),
        "query": scrubbed_query(parts.query, secrets),
        "body": scrubbed_value(body, secrets),
    }


def as_text(value: Any) -> bytes:
    """JSON for people to read."""
    return (json.dumps(value, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def keep(folder: Path, name: str, *, files: Mapping[str, bytes]) -> Path:
    """Put files into a new folder, which is there with all of them or not at all.

    Args:
        folder: where it goes; made where it is missing.
        name: what it is called after its number.
        files: by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=HALF, dir=folder))
    try:
        for file, data in files.items():
            (half / file).write_bytes(data)
        number = sum(1 for place in folder.iterdir() if place.name[:3].isdigit())
        while True:
            number += 1
            whole = folder / f"{number:03}-{name}"
            if any(folder.glob(f"{number:03}-*")):
                continue
            try:
                return half.rename(whole)
            except OSError:
                # Somebody else took the number in between.
                if not whole.exists():
                    raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
