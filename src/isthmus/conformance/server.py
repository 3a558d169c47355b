"""A real HTTP server on loopback that answers as a provider would, or as none should."""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from types import TracebackType
from typing import Any, TypeAlias, cast

from isthmus.conformance.plays import Play, Received
from isthmus.conformance.reply import End, Framing, Piece, Reply
from isthmus.errors import ConfigError
from isthmus.models.jsontext import dumps
from isthmus.sync import LoopThread

Answer: TypeAlias = Play | Callable[[Received], Play]

_HEAD_BYTES = 1 << 18
_RESET = struct.pack("ii", 1, 0)
_BROKEN = (ValueError, ConnectionError, tls.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


@dataclass(frozen=True, slots=True)
class Gone:
    """The moment (monotonic seconds) at which a connection was lost."""

    connection: int
    at: float


def serve(
    *plays: Answer | Iterable[Answer], repeat: bool = False, port: int = 0, ssl: tls.SSLContext | None = None
) -> Server:
    """A server, as an async context manager; as a plain one it runs in a thread of its own, for clients that block.

    Args:
        plays: what it answers: each request takes the first play left that fits its path. A function of the request
            stands for any number of plays.
        repeat: whether the last play that fits answers all further requests; otherwise they get status 400.
        port: where it listens; 0 for any port that is free.
        ssl: a context to speak TLS with.

    Raises:
        ConfigError: one of them is neither a play nor a function.
    """
    answers: list[Answer] = []
    for given in plays:
        one = callable(given) or not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping)
        answers += cast("Iterable[Answer]", (given,) if one else given)
    for each in answers:
        if not callable(each):
            _known(each)
    return Server(answers, repeat=repeat, port=port, ssl=ssl)


def _known(given: Any) -> Play:
    """A play as it is; whoever wrote a step, or bytes, in its place is told how to make one of it."""
    if isinstance(given, Play):
        return given
    raise ConfigError(
        f"a server answers with plays, not with {type(given).__name__} {given!r:.80}: make some with "
        "Play.steps(step, …), Play.whole(body), Play.stream(*pieces) or Play.recording(folder)",
        where="serve",
    )


class Server:
    """What `serve` returns.

    Attributes:
        url: where it is; without a path.
        requests: those that arrived whole, in order.
        problems: why requests could not be answered as asked.
        connections: how many were made.
        disconnects: those that are over.
    """

    def __init__(
        self, answers: Iterable[Answer], *, repeat: bool = False, port: int = 0, ssl: tls.SSLContext | None = None
    ) -> None:
        self._answers = list(answers)
        self._given = len(self._answers)
        self._repeat = repeat
        self._port = port
        self._ssl = ssl
        self._tasks: set[asyncio.Task[Any]] = set()
        self._change = asyncio.Event()
        self.url = ""
        self.requests: list[Received] = []
        self.problems: list[Exception] = []
        self.connections = 0
        self.disconnects: list[Gone] = []

    async def __aenter__(self) -> Server:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", self._port, ssl=self._ssl)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"{'https' if self._ssl else 'http'}://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Server:
        self._helper = LoopThread()
        return self._helper.call(self.__aenter__())  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._helper.finish(self.__aexit__(kind, error, trace))

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self.connections - len(self.disconnects)

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait until something that this server keeps account of has happened.

        Raises:
            TimeoutError: it has not.
        """
        async with asyncio.timeout(seconds):
            while not condition():
                self._change.clear()
                await self._change.wait()

    def wait(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """The same for the plain context manager.

        Raises:
            TimeoutError: it has not.
        """
        self._helper.call(self.until(condition, seconds))

    def answer(self, request: Received) -> Reply:
        """The reply to a request, taken from the plays; one that says why where there is none."""
        self.requests.append(request)
        self._change.set()
        try:
            return self._next(request).answer(request)
        except Exception as error:
            self.problems.append(error)
            body = dumps({"error": {"message": f"scripted server: {error}", "type": "invalid_request_error"}})
            return Reply(
                status=400, headers=(("content-type", "application/json"),), pieces=(body,), framing=Framing.LENGTH
            )

    def _next(self, request: Received) -> Play:
        fitting = [each for each in self._answers if not isinstance(each, Play) or each.fits(request)]
        if not fitting:
            raise ConfigError(
                f"request {len(self.requests)}, {request.method} {request.path!r}: "
                f"no play is left of the {self._given} that were given: add one for it"
            )
        chosen = fitting[0]
        if not isinstance(chosen, Play):
            return _known(chosen(request))
        if not (self._repeat and len(fitting) == 1):
            self._answers.remove(chosen)
        return chosen

    def _connection(self) -> _Connection:
        number, self.connections = self.connections, self.connections + 1
        self._change.set()

        def lost() -> None:
            self.disconnects.append(Gone(number, monotonic()))
            self._change.set()

        def begin(task: asyncio.Task[None]) -> None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return _Connection(number, self.answer, lost, begin=begin)


class _Connection(asyncio.StreamReaderProtocol):
    """One connection: reads requests, writes replies, and knows when the client has gone."""

    def __init__(
        self,
        number: int,
        answer: Callable[[Received], Reply],
        lost: Callable[[], None],
        begin: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._incoming = asyncio.StreamReader(_HEAD_BYTES, asyncio.get_running_loop())
        super().__init__(self._incoming, self._accept)
        self._number, self._answer, self._lost, self._begin = number, answer, lost, begin
        self._gone = asyncio.Event()

    def eof_received(self) -> bool | None:
        self._leave()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        if not self._gone.is_set():
            self._gone.set()
            self._lost()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._begin(asyncio.get_running_loop().create_task(self._converse(reader, writer)))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except _BROKEN:
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            writer.close()
            with suppress(*_BROKEN):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; whether the connection can serve another."""
        request, lasting = await _request(reader, writer, number=self._number)
        reply = self._answer(request)
        if reply.framing is not Framing.RAW:
            writer.write(_head(reply, request.method))
        chunked = reply.framing is Framing.CHUNKED
        bodiless = request.method == "HEAD" and reply.framing is not Framing.RAW
        for piece in () if bodiless else reply.pieces:
            if isinstance(piece, bytes):
                writer.write(_chunk(piece) if chunked and piece else piece)
                await writer.drain()
            elif not await self._still(piece, writer):
                return False
        if chunked and not bodiless:
            writer.write(_chunk(b""))
            await writer.drain()
        return lasting and reply.framing is not Framing.CLOSE

    async def _still(self, piece: Piece, writer: asyncio.StreamWriter) -> bool:
        """Wait, or end the connection; whether the reply goes on."""
        if isinstance(piece, End):
            if piece is End.HOLD:
                await self._gone.wait()
            elif piece is End.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            return False
        waits = [asyncio.ensure_future(self._gone.wait())]
        if isinstance(piece, asyncio.Event):
            waits.append(asyncio.ensure_future(piece.wait()))
        try:
            seconds = piece if isinstance(piece, int | float) else None
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return not self._gone.is_set()


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, number: int) -> tuple[Received, bool]:
    """The next request, and whether the client wants to use the connection again."""
    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    method, path, version = start.split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length") or 0))
    lasting = headers.get("connection", "").lower() != "close" and version.strip() != "HTTP/1.0"
    return Received(method, path, headers, body, number), lasting


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass
    return b"".join(pieces)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _head(reply: Reply, method: str) -> bytes:
    phrase = next((each.phrase for each in HTTPStatus if each == reply.status), "Scripted")
    framing = {
        Framing.CHUNKED: "transfer-encoding: chunked",
        Framing.LENGTH: f"content-length: {len(reply.body) if reply.declared is None else reply.declared}",
        Framing.CLOSE: "connection: close",
    }[reply.framing]
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in reply.headers), framing]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
