"""Pieces of a chat stream, and a server in a thread of its own."""

from __future__ import annotations

import json
from typing import Any

from support.loopback import LoopbackServer


def data(event: str = "", **value: Any) -> bytes:
    """One event of a stream."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps({'type': event, **value} if event else value)}\n\n".encode()


def said(text: str) -> bytes:
    """A piece of text of Chat Completions."""
    return data(id="c", choices=[{"index": 0, "delta": {"content": text}}])


CHAT = (said("one"), said("two"))
CHAT_END = (data(id="c", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]), b"data: [DONE]\n\n")


class Elsewhere:
    """A server in a loop and a thread of its own, for clients that block theirs."""

    def __init__(self, *answers: Any) -> None:
        self.server = LoopbackServer(list(answers))

    def gone(self, count: int = 1) -> float:
        """Wait until so many clients have left; when the last one did."""
        self.server.wait(lambda: len(self.server.disconnects) >= count)
        return self.server.disconnects[-1].at

    def __enter__(self) -> Elsewhere:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__(None, None, None)
