"""Replies written byte by byte for the server of tests: exact heads, chunks, waits and ends."""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Callable, Iterable, Sequence

from isthmus.conformance.plays import Play
from isthmus.conformance.plays import Received as Seen
from isthmus.conformance.reply import End, Piece
from isthmus.conformance.server import Server

CLOSE, RESET, HOLD = End.CLOSE, End.RESET, End.HOLD

Step = Piece
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


class LoopbackServer(Server):
    """Answers the n-th request with the n-th answer (the last one again after that), or by a function.

    Args:
        script: answers: steps of bytes to write, seconds to wait, events to await, or `CLOSE`, `RESET`, `HOLD`.
            Without an end the connection stays open for the next request.
        ssl: a context to speak TLS with.
    """

    def __init__(self, script: Script, ssl: tls.SSLContext | None = None) -> None:
        super().__init__([self._scripted], ssl=ssl)
        self.script = script

    def _scripted(self, seen: Seen) -> Play:
        if callable(self.script):
            return Play.raw(*self.script(seen))
        return Play.raw(*self.script[min(len(self.requests) - 1, len(self.script) - 1)])
