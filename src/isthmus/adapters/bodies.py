"""What the body of a reply is, by its first bytes: a stream of frames, one document, or neither."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable

from isthmus.errors import ProtocolError
from isthmus.secret import redact

_EXCERPT = 300
_BINARY_TYPE = "application/vnd.amazon.eventstream"
_STREAM_TYPES = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"})
_LIKE_A_STREAM = re.compile(rb"(?:data|event|id|retry|error)?:")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_TELLING = len(b"event:")


def too_large(limit: int) -> ProtocolError:
    """The error of a reply that has more bytes than it may."""
    return ProtocolError(f"the reply has more than {limit} bytes: is max_reply_bytes right?")


async def first_bytes(content_type: str, chunks: AsyncIterator[bytes], *, limit: int) -> bytes:
    """As many of a body's first bytes as tell what it is; the iterator goes on after them.

    Raises:
        ProtocolError: they are more than `limit`.
    """
    pieces, start, size = [], b"", 0
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        start = (start + chunk).lstrip(_BLANK)
        if len(start) >= _TELLING or _kind(content_type) in _STREAM_TYPES:
            break
    return b"".join(pieces)


def is_document(
    content_type: str,
    first: bytes,
    *,
    streamed: bool,
    framing: str = "sse",
    secrets: Iterable[str] = (),
    status: int | None = None,
) -> bool:
    """Whether a body is one JSON document rather than a stream: what it is decides, not what was asked for.

    Args:
        content_type: the header.
        first: what `first_bytes` gave.
        streamed: whether a stream was asked for.
        framing: "sse", "ndjson" or "eventstream".
        secrets: what an error must not show.
        status: the reply's status, for the error.

    Raises:
        ProtocolError: it is neither.
    """
    kind, start = _kind(content_type), first.lstrip(_BLANK)
    declared, braced = kind in _STREAM_TYPES, start[:1] in (b"{", b"[")
    if framing == "eventstream" and not braced:
        # A message begins with its length, which is far below 2**24: with a zero byte.
        known = kind == _BINARY_TYPE or first[:1] in (b"", b"\0")
    elif braced:
        lines = declared or (framing == "ndjson" and kind != "application/json")
        return not (streamed and lines)
    else:
        known = declared or not start or _LIKE_A_STREAM.match(start) is not None
    if known:
        return False
    excerpt = redact(start[:_EXCERPT].decode("utf-8", "replace"), secrets)
    raise ProtocolError(
        f"the reply is {kind or 'of no stated type'}, neither events nor JSON: is the base URL right? {excerpt}",
        status=status,
        body=excerpt,
    )


def _kind(content_type: str) -> str:
    return content_type.split(";")[0].strip().lower()
