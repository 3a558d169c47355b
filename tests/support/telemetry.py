"""Telemetry into memory for a block, and what it has seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from isthmus import observability
from isthmus.observability import scope


class _Counter(SpanProcessor):
    """Counts beginnings and ends, by the identity of each span."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.begun.append(span.context.span_id)

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        self.ended.append(span.context.span_id)


class Traced:
    """What telemetry sent."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self._count = _Counter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracers.add_span_processor(self._count)
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """All spans that ended."""
        return tuple(self._memory.get_finished_spans())

    def named(self, start: str) -> list[ReadableSpan]:
        """Those whose name begins so, in the order of their ends."""
        return [span for span in self.spans if span.name.startswith(start)]

    def one(self, start: str) -> dict[str, Any]:
        """The attributes of the only one of that name."""
        (span,) = self.named(start)
        return dict(span.attributes or {})

    def parent(self, span: ReadableSpan) -> str | None:
        """The name of a span's parent."""
        above = span.parent
        if above is None:
            return None
        return next(each.name for each in self.spans if each.context and each.context.span_id == above.span_id)

    def text(self) -> str:
        """Everything in all spans and metrics as text."""
        data = self._reader.get_metrics_data()
        return "\n".join(span.to_json() for span in self.spans) + ("" if data is None else data.to_json())

    def points(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self._reader.get_metrics_data()
        found: list[Any] = []
        for resource in () if data is None else data.resource_metrics:
            for inner in resource.scope_metrics:
                found += [point for metric in inner.metrics if metric.name == name for point in metric.data.data_points]
        return found

    def settled(self) -> None:
        """Each span that began has ended, once, and nothing is current."""
        observability.flush()
        assert sorted(self._count.begun) == sorted(self._count.ended)
        assert len(set(self._count.ended)) == len(self._count.ended)
        assert not trace.get_current_span().get_span_context().is_valid
        assert scope.current() is None


@contextmanager
def traced(**config: Any) -> Iterator[Traced]:
    """Telemetry into memory."""
    seen = Traced()
    observability.start(observability.Telemetry(tracer_provider=seen.tracers, meter_provider=seen.meters, **config))
    try:
        yield seen
    finally:
        observability.shutdown()
