"""The seam inside a built-in adapter: a pure codec over a transport.

A codec and its decoders do no I/O, read no clock and no environment, and retry nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from isthmus.errors import TierError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Note
from isthmus.wire.call import Ended, WireCall, WireReply
from isthmus.wire.frame import Frame


class Request(NamedTuple):
    """An encoded request, and what encoding it changed or left out."""

    call: WireCall
    notes: tuple[Note, ...] = ()


class Decoder(Protocol):
    """Turns the frames of one reply into events; a whole reply is one frame."""

    done: bool
    """Whether the protocol's own end mark was seen: nothing more need be read."""

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            TierError: the frame is an error, or malformed ("protocol"); carries the usage seen so far.
        """
        ...

    def close(self, ended: Ended) -> Iterable[Event]:
        """The events still due, the `Finish` last.

        Args:
            ended: how the bytes ended; "framed" where `done` made the reader stop.

        Raises:
            TierError: the reply is not complete: "transient" when the bytes just ended.
        """
        ...


class Codec(Protocol):
    """What a provider's file supplies."""

    dialect: str
    """The name under which its native blocks are kept, e.g. "anthropic-messages"."""

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; the context is never changed.

        Args:
            ctx: what to ask.
            stream: whether to ask for a stream.
            capabilities: what the model can do, as far as that decides how it is asked; None where nothing is known.

        Raises:
            InvalidRequestError: something in it cannot be said to this provider; names it.
        """
        ...

    def decoder(self, *, whole: bool) -> Decoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        ...

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        ...


class Reply(Protocol):
    """An open reply."""

    status: int
    headers: Mapping[str, str]
    ended: Ended
    """How the body ended; meaningful once `chunks` is exhausted."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, content-decoded. Ends without an error however the body ended: see `ended`."""
        ...

    async def read(self, limit: int | None = None) -> bytes:
        """The rest of the body, or its first `limit` bytes."""
        ...

    async def settle(self) -> None:
        """Read what little is left, within bounds, so that the connection can serve again."""
        ...


class Transport(Protocol):
    """Carries calls; knows nothing of what they say."""

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Reply]:
        """Send the call and wait for the head of the reply; leaving the block closes or releases the connection.

        Args:
            url: where to.
            call: the method, body and plain headers.
            headers: further headers, secrets included.

        Raises:
            TransientError: connection lost or timed out.
            UnavailableError: connection refused, host not found.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
