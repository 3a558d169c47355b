"""What the body of a reply is, by its first bytes: a stream of frames, one document, or neither."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache

from isthmus.errors import ProtocolError
from isthmus.secret import redact
from isthmus.wire.frame import Frame

_EXCERPT = 300
_BINARY_TYPE = "application/vnd.amazon.eventstream"
_STREAM_TYPES = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"})
_LIKE_A_STREAM = re.compile(rb"(?:data|event|id|retry|error)?:")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_TELLING = len(b"event:")


def too_large(limit: int) -> ProtocolError:
    """The error of a reply that has more bytes than it may."""
    return ProtocolError(f"the reply has more than {limit} bytes: is max_reply_bytes right?")


class Document:
    """Keeps the bytes of one document: a parser whose one frame is all of them."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        """Nothing is complete yet."""
        self._pieces.append(data)
        return []

    def close(self) -> list[Frame]:
        """All of it, which is not kept any longer."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return [Frame(data)]


@lru_cache(maxsize=64)
def media_type(content_type: str) -> str:
    """What a header says that a body is, in lower case."""
    return content_type.partition(";")[0].strip().lower()


async def first_bytes(kind: str, chunks: AsyncIterator[bytes], *, limit: int) -> bytes:
    """As many of a body's first bytes as tell what it is; the iterator goes on after them.

    Raises:
        ProtocolError: they are more than `limit`.
    """
    pieces: list[bytes] = []
    start, size = b"", 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        start = (start + chunk).lstrip(_BLANK)
        # Blanks alone tell nothing, in a stream either: how they are cut off from the rest must not matter.
        telling = len(start) >= (1 if kind in _STREAM_TYPES else _TELLING)
        if telling and not pieces:
            return chunk
        pieces.append(chunk)
        if telling:
            break
    return b"".join(pieces)


def is_document(
    kind: str,
    first: bytes,
    *,
    streamed: bool,
    framing: str = "sse",
    secrets: Iterable[str] = (),
    status: int | None = None,
) -> bool:
    """Whether a body is one JSON document rather than a stream: what it is decides, not what was asked for.

    Args:
        kind: its media type.
        first: what `first_bytes` gave.
        streamed: whether a stream was asked for.
        framing: "sse", "ndjson" or "eventstream".
        secrets: what an error must not show.
        status: the reply's status, for the error.

    Raises:
        ProtocolError: it is neither.
    """
    start = first.lstrip(_BLANK)
    if start[:1] in (b"{", b"["):
        lines = kind in _STREAM_TYPES or (framing == "ndjson" and kind != "application/json")
        return not (streamed and lines)
    if framing == "eventstream":
        # A message begins with its length, which is far below 2**24: with a zero byte.
        known = kind == _BINARY_TYPE or first[:1] in (b"", b"\0")
    else:
        known = kind in _STREAM_TYPES or not start or _LIKE_A_STREAM.match(start) is not None
    if known:
        return False
    excerpt = redact(start[:_EXCERPT].decode("utf-8", "replace"), secrets)
    raise ProtocolError(
        f"the reply is {kind or 'of no stated type'}, neither events nor JSON: is the base URL right? {excerpt}",
        status=status,
        body=excerpt,
    )
