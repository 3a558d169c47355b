"""A transport that keeps what is sent and answers with one prepared reply."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from isthmus.wire.call import Ended, WireCall

CHAT: dict[str, Any] = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]
}
MESSAGES: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 1},
}


@dataclass
class Sent:
    """One request as the transport was given it; header values as they go out."""

    method: str
    url: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Caught:
    """Answers each call with the same document."""

    reply: dict[str, Any]
    status: int = 200
    sent: list[Sent] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> AsyncGenerator[_Whole, None]:
        """Keep the call, give the reply."""
        merged = {name.lower(): str(value) for name, value in {**call.headers, **headers}.items()}
        self.sent.append(Sent(call.method, url, merged, json.loads(call.body or b"{}")))
        yield _Whole(self.status, json.dumps(self.reply).encode())

    async def aclose(self) -> None:
        """Nothing is open."""


class _Whole:
    headers: Mapping[str, str] = {"content-type": "application/json"}
    ended = Ended.FRAMED

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """All of it at once."""
        yield self._body

    async def read(self, limit: int | None = None) -> bytes:
        """The first `limit` bytes."""
        return self._body[:limit]

    async def settle(self) -> None:
        """Nothing is left."""
