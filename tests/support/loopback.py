"""A scripted HTTP server over real sockets: exact bytes, edges, delays, ends, and a record of what the client did."""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from types import TracebackType
from typing import Any


class End(Enum):
    """Steps that end or hold a connection."""

    CLOSE = "close"
    RESET = "reset"
    HOLD = "hold until the client is gone"


CLOSE, RESET, HOLD = End.CLOSE, End.RESET, End.HOLD

Step = bytes | float | asyncio.Event | End


@dataclass(frozen=True)
class Seen:
    """One request as it arrived: header names in lower case; `connection` counts from 0."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True)
class Gone:
    """The moment (monotonic seconds) at which a client left a connection."""

    connection: int
    at: float


Answer = Iterable[Step]
Script = Sequence[Answer] | Callable[[Seen], Answer]


def head(status: int = 200, **headers: str) -> bytes:
    """The head of a reply; underscores in names become hyphens."""
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def whole(body: bytes, status: int = 200, **headers: str) -> bytes:
    """A reply with its length."""
    return head(status, **{"content_type": "application/json", **headers, "content_length": str(len(body))}) + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; of no data: the last."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LAST = chunk(b"")


def stream(*pieces: bytes | float | asyncio.Event, last: bool = True, **headers: str) -> list[Step]:
    """A chunked event stream; bytes become chunks, the rest are steps."""
    steps: list[Step] = [head(**{"content_type": "text/event-stream", "transfer_encoding": "chunked", **headers})]
    steps += [chunk(piece) if isinstance(piece, bytes) else piece for piece in pieces]
    return [*steps, LAST] if last else steps


@dataclass
class LoopbackServer:
    """Answers the n-th request with the n-th answer (the last one again after that), or by a function.

    Args:
        script: answers: steps of bytes to write, seconds to wait, events to await, or `CLOSE`, `RESET`, `HOLD`.
            Without an end the connection stays open for the next request.
        ssl: a context to speak TLS with.
    """

    script: Script
    ssl: tls.SSLContext | None = None
    requests: list[Seen] = field(default_factory=list)
    disconnects: list[Gone] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> LoopbackServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.ssl)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"{'https' if self.ssl else 'http'}://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self.connections - len(self.disconnects)

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait until something that this server records has happened.

        Raises:
            TimeoutError: it has not.
        """
        async with asyncio.timeout(seconds):
            while not condition():
                self._change.clear()
                await self._change.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[Seen | None] = asyncio.Queue()
        gone = asyncio.Event()
        self._tasks.add(asyncio.create_task(self._watch(reader, queue, self.connections, gone)))
        self._tasks.add(asyncio.create_task(self._serve(writer, queue, gone)))
        self.connections += 1
        self._change.set()

    async def _serve(
        self, writer: asyncio.StreamWriter, queue: asyncio.Queue[Seen | None], gone: asyncio.Event
    ) -> None:
        try:
            while (seen := await queue.get()) is not None:
                if not await self._answer(seen, writer, gone):
                    break
        except (ConnectionError, tls.SSLError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError, tls.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter, gone: asyncio.Event) -> bool:
        if callable(self.script):
            steps = self.script(seen)
        else:
            steps = self.script[min(len(self.requests) - 1, len(self.script) - 1)]
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, End):
                if step is HOLD:
                    await gone.wait()
                elif step is RESET:
                    sock = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                return False
            else:
                await asyncio.sleep(step)
        return True

    async def _watch(
        self, reader: asyncio.StreamReader, queue: asyncio.Queue[Seen | None], number: int, gone: asyncio.Event
    ) -> None:
        try:
            while True:
                seen = await self._read(reader, number)
                self.requests.append(seen)
                self._change.set()
                queue.put_nowait(seen)
        except (asyncio.IncompleteReadError, ConnectionError, tls.SSLError):
            self.disconnects.append(Gone(number, monotonic()))
            self._change.set()
            gone.set()
            queue.put_nowait(None)

    @staticmethod
    async def _read(reader: asyncio.StreamReader, number: int) -> Seen:
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        method, path, _ = start.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Seen(method, path, headers, body, number)
