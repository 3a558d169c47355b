"""Frozen records of what happens, and the list of sinks that see them.

A sink is any callable that takes one record. What a sink does, raises or returns changes nothing: nobody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias

from isthmus.errors import TierError
from isthmus.observability.scope import Operation


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
class ModelStarted:
    """A model is asked, by whatever path.

    Args:
        op: the operation that begins.
        provider: its name here; "" where none is known.
        model: the model's name; "" where none is known.
        streamed: whether the reply was asked for piece by piece.
        address: the base URL of requests, without secrets; "" where there is none.
        max_tokens: the ceiling of the reply; None where nobody set one.
        temperature: the adapter's own, where the request has none.
        effort: the same of reasoning effort.
    """

    op: Operation = field(repr=False, compare=False)
    provider: str
    model: str
    streamed: bool
    address: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    effort: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEnded:
    """A model has answered, failed, or is listened to no more.

    Args:
        op: the operation that is over.
        outcome: "ok", "error", "cancelled", or "closed" where the reader left.
        seconds: since it began.
        first: seconds until the first content; None where none came, or where the reply came whole.
        finish: how the reply ended.
        raw_reason: the provider's own word for it.
        usage: the tokens, as far as they are known.
        error_class: the class of its failure.
        status: its HTTP status.
        reply_id: the provider's id of the reply.
        reply_model: the model that answered, as the provider says.
    """

    op: Operation = field(repr=False, compare=False)
    outcome: str
    seconds: float
    first: float | None = None
    finish: str | None = None
    raw_reason: str | None = None
    usage: Any = None
    error_class: str | None = None
    status: int | None = None
    reply_id: str | None = None
    reply_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSteered:
    """The provider has said what becomes of input that was sent into a reply under way; see `SteeringReceipt`."""

    op: Operation = field(repr=False, compare=False)
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The handler of a tool is about to run."""

    op: Operation = field(repr=False, compare=False)
    tool: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool call is over: its outcome is one of `ToolResult.outcome`, or "cancelled" where the run was stopped.

    `op` is the operation that began with the handler; a call that never came to its handler has none that began.
    """

    tool: str
    call_id: str
    seconds: float
    outcome: str
    op: Operation | None = field(default=None, repr=False, compare=False)


class ChainEventType(StrEnum):
    """What happened in a chain."""

    CHAIN_STARTED = "chain.started"
    CHAIN_FINISHED = "chain.finished"
    CHAIN_EXHAUSTED = "chain.exhausted"
    CHAIN_FAILED = "chain.failed"
    CHAIN_ABORTED = "chain.aborted"
    CHAIN_DEADLINE = "chain.deadline"
    TIER_SELECTED = "tier.selected"
    TIER_SKIPPED = "tier.skipped"
    TIER_FORCED = "tier.forced"
    TIER_FALLBACK = "tier.fallback"
    TIER_COOLED = "tier.cooled"
    TIER_RECOVERED = "tier.recovered"
    ATTEMPT_STARTED = "attempt.started"
    ATTEMPT_COMMITTED = "attempt.committed"
    ATTEMPT_FAILED = "attempt.failed"
    ATTEMPT_FINISHED = "attempt.finished"
    ATTEMPT_CANCELLED = "attempt.cancelled"
    RETRY_SCHEDULED = "retry.scheduled"
    RETRY_STARTED = "retry.started"
    CONTEXT_RENDERED = "context.rendered"
    BUDGET_RESERVED = "budget.reserved"
    BUDGET_SETTLED = "budget.settled"
    BUDGET_EXCEEDED = "budget.exceeded"
    MARKER_PROMOTED = "marker.promoted"
    MARKER_INVALID = "marker.invalid"
    MARKER_OVERFLOW = "marker.overflow"
    MARKER_UNCLOSED = "marker.unclosed"
    MARKER_DISCARDED = "marker.discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvent:
    """One step of one call of a chain; what does not belong to its type is None.

    Within a call `seq` has no gap, each "attempt.started" has one "attempt.finished", "attempt.failed" or
    "attempt.cancelled", and the last record is the only one of "chain.finished", "chain.exhausted", "chain.failed",
    "chain.aborted" and "chain.deadline".

    Args:
        type: a `ChainEventType`.
        chain: the chain's id.
        time: seconds since the epoch.
        run: the number of the run, unique in the process.
        call: the number of the call, unique in the process.
        step: which call of its run it is, from 1.
        seq: which record of its call it is, from 1.
        tier: the tier's id; of "tier.fallback" the one to come.
        origin: of "tier.fallback", the tier that was given up.
        attempt: the number of the try on this tier, from 1.
        attempts: how many tries the call has made.
        seconds: since the try began; of "retry.scheduled" the wait, of "tier.cooled" how long it is left alone.
        source: of a wait, "hint" or "backoff".
        error_class: the `ErrorClass` of a failure.
        status: its HTTP status.
        message: its text, without secrets.
        content: whether it came "pre" or "post" content.
        next: what follows from it: "retry", "fallback", "rerender", "stop" or "passthrough".
        finish: how a reply ended.
        reason: why a tier was skipped, or a `CutReason`.
        usage: the tokens of a try.
        cost: its price; None where it is unknown.
        detail: whatever else there is to say.
        op: the operation that it tells of: of "attempt.*" the try, of all else the call.
    """

    type: str
    chain: str
    time: float = 0.0
    run: int = 0
    call: int = 0
    step: int = 0
    seq: int = 0
    tier: str | None = None
    origin: str | None = None
    attempt: int | None = None
    attempts: int | None = None
    seconds: float | None = None
    source: str | None = None
    error_class: str | None = None
    status: int | None = None
    message: str | None = None
    content: str | None = None
    next: str | None = None
    finish: str | None = None
    reason: str | None = None
    usage: Any = None
    cost: Decimal | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    op: Operation | None = field(default=None, repr=False, compare=False)

    @property
    def fields(self) -> dict[str, Any]:
        """What this record says beside its type and its chain, `detail` included."""
        names = (each.name for each in fields(self) if each.name not in ("type", "chain", "detail", "op"))
        said = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {**said, **self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """An agent's run begins, or goes on after it was stopped."""

    op: Operation = field(repr=False, compare=False)
    agent: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """An agent's run is over; the fields are those of its outcome, of tokens and cost its own share.

    An agent that works for another one has a run of its own, so that the tokens of all runs add up to what was spent. A
    run that was handed over has the name of the agent that began it.
    """

    agent: str
    run_id: str
    outcome: str
    reason: str | None = None
    steps: int = 0
    tier: str | None = None
    usage: Any = None
    cost: Decimal | None = None
    op: Operation | None = field(default=None, repr=False, compare=False)
    error_class: str | None = None


Record: TypeAlias = (
    WireSent
    | WireReceived
    | WireChunk
    | ModelStarted
    | ModelSteered
    | ModelEnded
    | ToolStarted
    | ToolEnded
    | ChainEvent
    | TurnStarted
    | TurnEnded
)
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


def error_type(error: BaseException) -> str:
    """The class of a failure: that of the library's own tree, else the exception's; "timeout" for a wait too long."""
    if isinstance(error, TierError):
        return str(error.error_class)
    return "timeout" if isinstance(error, TimeoutError) else type(error).__qualname__


def emit(record: Record) -> None:
    """Hand a record to every sink; a failing sink is passed over, whatever it raises but an interrupt."""
    for each in _sinks:
        try:
            each(record)
        except BaseException as error:
            # A cancellation or an exit that a sink makes up is not the run's.
            if isinstance(error, KeyboardInterrupt):
                raise
