"""A sink that makes OpenTelemetry spans and metrics of records.

The current context is OpenTelemetry's, so that spans
of an application and of its libraries nest with these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from os import getpid
from threading import get_ident
from time import monotonic_ns, time_ns
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, SpanKind, StatusCode

from isthmus.observability.background import Background
from isthmus.observability.config import Telemetry
from isthmus.observability.contents import View
from isthmus.observability.export import Exports
from isthmus.observability.facts import Begun, Over, begun, happened, over, tool_unrun
from isthmus.observability.hooks import ChainEvent, ChainEventType, ModelEnded, Record, ToolEnded, TurnEnded, error_type
from isthmus.observability.scope import Operation
from isthmus.version import __version__

_log = logging.getLogger("isthmus.observability")
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
_MEASURED = frozenset(
    {
        *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.agent.name"),
        *("gen_ai.tool.name", "server.address", "server.port", "gen_ai.response.model"),
    }
)
_TRIED = frozenset({"isthmus.chain", "isthmus.tier", "error.type"})
_CUT = frozenset({"gen_ai.agent.name", "isthmus.reason"})
_COUNTED = (("input", "gen_ai.usage.input_tokens"), ("output", "gen_ai.usage.output_tokens"))
_KINDS = {"model": SpanKind.CLIENT}


@dataclass(slots=True, eq=False)
class _Held:
    """A span with the context that makes it current; ends with its operation at the latest.

    It began at a time of the monotonic clock. `clock`, the same for a whole tree, makes that a time of day.
    """

    span: Span
    context: contexts.Context
    attributes: Mapping[str, Any]
    began: int
    clock: int
    later: Callable[[Any], bool]
    process: int = field(default_factory=getpid)
    over: bool = False

    def end(self, at: int | None = None) -> None:
        if not self.over:
            self.over = True
            self.span.end(at)

    def __del__(self) -> None:
        # A stream dropped with its event loop gone tells nobody that it is over; it is found in the middle of anything.
        if not self.over and self.process == getpid():
            with suppress(Exception):
                abandon = partial(_abandon, self.span)
                if not self.later(abandon):
                    abandon()


def _abandon(span: Span) -> None:
    span.set_attribute("isthmus.outcome", "abandoned")
    span.end()


class OtelSink:
    """Makes spans and metrics of records, and carries the current one; give it to `add_sink` and to `scope.carry`.

    Args:
        config: where they go.
        view: what may leave.
    """

    def __init__(self, config: Telemetry, view: View) -> None:
        self._view = view
        self._exports = Exports(config)
        try:
            tracers: Any = config.tracer_provider or self._exports.tracers()
            meters: Any = config.meter_provider or self._exports.meters()
        except BaseException:
            self._exports.undo()
            raise
        # It is there from the beginning: a process that ends can begin no thread.
        self._waiting = Background(lambda work: work())
        self._inside: set[int] = set()
        self._all = [tracers, meters]
        self._own = [each for each in self._all if each not in (config.tracer_provider, config.meter_provider)]
        self._tracer = tracers.get_tracer("isthmus", __version__)
        meter = meters.get_meter("isthmus", __version__)
        timed = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS)
        duration, first = "gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"
        self._duration = timed(duration, description="GenAI operation duration.")
        self._first = timed(first, description="Time until the first content of a streamed reply.")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._attempts = meter.create_counter("isthmus.chain.attempts", "{attempt}", "Tries of a chain's tiers.")
        self._fallbacks = meter.create_counter("isthmus.chain.fallbacks", "{fallback}", "Tiers that were given up.")
        self._cuts = meter.create_counter("isthmus.run.cuts", "{run}", "Runs that were cut, by reason.")

    def __call__(self, record: Record) -> None:
        """Take one record."""
        op: Operation | None = getattr(record, "op", None)
        if op is None:
            return
        thread = get_ident()
        if thread in self._inside:
            # The garbage collector has found a dropped stream in the middle of this, maybe under a lock of the SDK's.
            self._waiting(partial(self, record))
            return
        self._inside.add(thread)
        try:
            self._take(op, record)
        finally:
            self._inside.discard(thread)

    def _take(self, op: Operation, record: Record) -> None:
        now = monotonic_ns()
        if type(record) is ToolEnded and self not in op.held:
            self._begin(op, tool_unrun(record, self._view), now)
        opened = begun(record, self._view)
        if opened is not None:
            self._begin(op, opened, now)
            return
        closed = over(record, self._view)
        if closed is not None:
            if type(record) is TurnEnded and self not in op.held:
                # It was stopped before it began.
                self._begin(op, Begun("agent", f"invoke_agent {record.agent}".strip(), {}), now)
            self._end(op, record, closed, now)
            return
        told = happened(record)
        held = op.held.get(self)
        if told is not None and held is not None:
            held.span.add_event(told[0], self._view.sent(told[1]))
            if isinstance(record, ChainEvent) and record.type == ChainEventType.TIER_FALLBACK:
                self._fallbacks.add(1, self._view.sent({"isthmus.chain": record.chain, "isthmus.tier": record.origin}))

    def _begin(self, op: Operation, opened: Begun, now: int) -> None:
        attributes = self._view.sent(opened.attributes)
        held = self._above(op)
        above = op.origin if op.origin is not None else None if held is None else held.context
        clock = time_ns() - monotonic_ns() if held is None else held.clock
        kind = _KINDS.get(opened.kind, SpanKind.INTERNAL)
        title = self._view.title(opened.name)
        span = self._tracer.start_span(title, above, kind, attributes, start_time=now + clock)
        op.held[self] = _Held(span, trace.set_span_in_context(span, above), attributes, now, clock, self._waiting)

    def _above(self, op: Operation) -> _Held | None:
        """The nearest span around it."""
        held: _Held | None = None
        parent = op.parent
        while parent is not None and held is None:
            held, parent = parent.held.get(self), parent.parent
        return held

    def _end(self, op: Operation, record: Record, closed: Over, now: int) -> None:
        held = op.held.get(self)
        if held is None or held.over or held.process != getpid():
            return
        attributes = closed.attributes
        if closed.error is not None:
            attributes = {**attributes, "error.type": closed.error}
        attributes = self._view.sent(attributes)
        seconds = getattr(record, "seconds", None)
        ended = now if seconds is None else min(now, held.began + int(seconds * 1e9))
        self._measure(record, held.attributes, attributes, seconds=(ended - held.began) / 1e9)
        span = held.span
        if span.is_recording():
            said = span.attributes if isinstance(span, ReadableSpan) else None
            if said and len(said) > len(held.attributes):
                # What the adapter has said itself stands.
                attributes = {name: value for name, value in attributes.items() if name not in said}
            span.set_attributes(attributes)
            if closed.error is not None:
                message = self._view.sent({"exception.message": closed.message or None})
                span.set_status(StatusCode.ERROR, message.get("exception.message") or attributes.get("error.type"))
        held.end(ended + held.clock)

    def _measure(
        self, record: Record, begun_with: Mapping[str, Any], ended_with: Mapping[str, Any], *, seconds: float
    ) -> None:
        if type(record) is ChainEvent:
            if record.type in _ATTEMPTED:
                self._attempts.add(1, _of(_TRIED, begun_with, ended_with))
            return
        common = _of(_MEASURED, begun_with, ended_with)
        error = ended_with.get("error.type")
        self._duration.record(seconds, common if error is None else {**common, "error.type": error})
        if type(record) is TurnEnded and record.outcome == "cut":
            self._cuts.add(1, _of(_CUT, begun_with, ended_with))
        if type(record) is not ModelEnded:
            return
        if record.first is not None:
            self._first.record(record.first, common)
        for kind, name in _COUNTED:
            count = ended_with.get(name)
            if count is not None:
                self._tokens.record(count, {**common, "gen_ai.token.type": kind})

    def capture(self) -> Any:
        """The current context."""
        return contexts.get_current()

    def attach(self, op: Operation) -> Any:
        """Make the span of an operation current."""
        held = op.held.get(self)
        return None if held is None else contexts.attach(held.context)

    def detach(self, token: Any) -> None:
        """Make current again what was before."""
        if token is not None:
            contexts.detach(token)

    def reattach(self, context: Any) -> Any:
        """Make a captured context current; gives what `detach` takes."""
        return contexts.attach(context)

    def ids(self, op: Operation | None) -> tuple[str, str] | None:
        """The ids of the trace and the span of an operation, or of the current span."""
        held = None if op is None else op.held.get(self)
        context = (trace.get_current_span() if held is None else held.span).get_span_context()
        if not context.is_valid:
            return None
        return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)

    def span(self) -> Span:
        """The current span."""
        return trace.get_current_span()

    def enrich(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the current span."""
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attributes(attributes)

    def failed(self, span: Any, error: BaseException) -> None:
        """Mark a span as failed: by the class of the failure, and by its words if contents may leave."""
        kind = error_type(error)
        words = self._view.sent({"exception.message": str(error)})
        span.set_attribute("error.type", kind)
        span.add_event("exception", {"exception.type": type(error).__qualname__, **words})
        span.set_status(StatusCode.ERROR, words.get("exception.message") or kind)

    def flush(self, timeout: float) -> bool:
        """Send what waits; whether all of it was sent in time."""

        def flushed(provider: Any) -> bool:
            return bool(provider.force_flush(int(timeout * 1000)))

        providers = [each for each in self._all if hasattr(each, "force_flush")]
        in_time = self._aside(timeout, lambda: min(map(flushed, providers), default=True))
        # The SDK says only that it has tried.
        return not self._exports.lost() and in_time

    def shutdown(self, timeout: float) -> None:
        """Send what waits and end; what cannot be sent in time is given up."""
        own, self._own = self._own, []

        def end() -> None:
            for each in own:
                each.shutdown()

        self._aside(timeout, end)
        self._exports.give_up()
        self._waiting.shutdown(0.0)

    def _aside(self, timeout: float, work: Callable[[], Any]) -> bool:
        """Whether some work that may block was done well, and in time."""
        done: list[bool] = []
        self._waiting(lambda: done.append(bool(work())))
        return self._waiting.flush(timeout) and done == [True]


_ATTEMPTED = frozenset(
    {ChainEventType.ATTEMPT_FINISHED, ChainEventType.ATTEMPT_FAILED, ChainEventType.ATTEMPT_CANCELLED}
)


def _of(names: Set[str], *known: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the attributes that have one of these names."""
    return {name: each[name] for each in known for name in names & each.keys()}
