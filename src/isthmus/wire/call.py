"""What passes between a codec and a transport: a call, the head of its reply, and how the body ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import msgspec


class Ended(StrEnum):
    """How the bytes of a reply ended.

    FRAMED: the last chunk or the full length arrived. UNFRAMED: the connection closed and nothing said
    how long the body is, so a reset looks the same. BROKEN: the body stopped short of its framing.
    """

    FRAMED = "framed"
    UNFRAMED = "unframed"
    BROKEN = "broken"


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class WireCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, complete but for the host and the credentials.

    Args:
        path: appended to the base URL, e.g. "/chat/completions"; an absolute URL stands as it is.
        body: the encoded body.
        stream: whether the reply is asked for as a stream.
        framing: how a streamed body is framed: "sse", "ndjson" or "eventstream".
        headers: headers that hold no secret.
        method: the HTTP method.
    """

    path: str
    body: bytes = b""
    stream: bool = True
    framing: str = "sse"
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: _NO_HEADERS)
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class WireReply:
    """A reply that arrived whole, as a codec classifies or decodes it.

    Args:
        status: the HTTP status.
        headers: names in lower case.
        body: the bytes as sent, content-decoded; secrets already removed where it is an error.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
