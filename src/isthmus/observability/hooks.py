"""Frozen records of what happens, and the list of sinks that see them.

A sink is any callable that takes one record. What a sink does, raises or returns changes nothing: nobody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A model is about to be called."""

    adapter: str
    provider: str
    model: str
    streamed: bool
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A model call is over: `finish` on success, `error_class` on failure, neither when it was abandoned."""

    adapter: str
    seconds: float
    first_content_seconds: float | None = None
    finish: str | None = None
    error_class: str | None = None
    message: str | None = None
    usage: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSent:
    """A request went out; headers and body hold no secret."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReceived:
    """The head of a reply arrived."""

    url: str
    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireChunk:
    """A piece of a body arrived."""

    url: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool call is over: its outcome is "ok", "error", "timeout", "unknown-tool" or "invalid-arguments"."""

    tool: str
    call_id: str
    seconds: float
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvent:
    """A step of a chain, e.g. "attempt.failed" or "tier.fallback"; `fields` hold the rest."""

    type: str
    chain: str
    fields: Mapping[str, Any]


Record: TypeAlias = CallStarted | CallEnded | WireSent | WireReceived | WireChunk | ToolEnded | ChainEvent
Sink: TypeAlias = Callable[[Record], Any]

_sinks: tuple[Sink, ...] = ()


def add_sink(sink: Sink) -> Callable[[], None]:
    """Send every record to `sink` from now on; call what is returned to stop."""
    global _sinks
    _sinks = (*_sinks, sink)

    def remove() -> None:
        global _sinks
        _sinks = tuple(item for item in _sinks if item is not sink)

    return remove


@contextmanager
def sink(sink: Sink) -> Iterator[None]:
    """Send every record to `sink` within a block."""
    remove = add_sink(sink)
    try:
        yield
    finally:
        remove()


def listening() -> bool:
    """Whether anybody listens, for callers that would rather not build a record."""
    return bool(_sinks)


def emit(record: Record) -> None:
    """Hand a record to every sink; a failing sink is passed over."""
    for each in _sinks:
        with suppress(Exception):
            each(record)
