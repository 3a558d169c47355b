"""What telemetry costs: a chunk and a call, off and on; as differences measured in one run.

"Off" is a hand-written generator against the same one read through an adapter's stream: all that the library does to a
chunk, of which telemetry must be nothing. "On" is the sink "otel" with an exporter that drops what it gets, so that the
spans are made, queued and handed over, and no network is measured. Prints medians and spreads; exits 1 when a wanted
figure is missed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Any

CHUNKS = 20_000
CALLS = 300
ROUNDS = 9
# What a chunk may cost with telemetry off and on, and a call with it on, in µs.
OFF, ON, CALL = 1.0, 3.0, 150.0


def dropping() -> Any:
    """Providers that do all that those of an application do, up to the network."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Dropping(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Dropping()))
    return tracers, MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)


def by_itself() -> float:
    """CPU of a span and its three figures made by hand, in µs."""
    tracers, meters = dropping()
    tracer, meter = tracers.get_tracer("bench"), meters.get_meter("bench")
    histograms = [meter.create_histogram(name) for name in ("a", "b", "c")]
    begun_with, ended_with = {f"gen_ai.{n}": "v" for n in range(6)}, {f"gen_ai.{n}": n for n in range(6, 12)}
    figures = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(CALLS):
            span = tracer.start_span("chat m", attributes=begun_with)
            span.set_attributes(ended_with)
            span.end()
            for each in histograms:
                each.record(1.0, begun_with)
        figures.append((time.process_time() - begun) / CALLS * 1e6)
    return median(figures)


async def measure() -> int:
    from stream import Report

    from isthmus import define_chain, observability
    from isthmus.adapters.base import ModelAdapter
    from isthmus.models.contract import GenerateContext
    from isthmus.models.events import Finish, Text
    from isthmus.models.stream import EventStream

    class Many(ModelAdapter):
        model = "m"
        chunks = CHUNKS

        async def stream(self, ctx: Any) -> Any:
            piece = Text("a")
            for _ in range(self.chunks):
                yield piece
            yield Finish("stop")

    class One(Many):
        chunks = 1

    ctx = GenerateContext(messages=({"role": "user", "content": "hi"},))
    many, one = Many(), One()
    pair = define_chain(id="pair", tiers=[one])
    bare = vars(Many)["_isthmus_source"].written["stream"]

    async def chunk(make: Any) -> float:
        """CPU a chunk of one stream, in µs."""
        begun = time.process_time()
        async for _ in make():
            pass
        return (time.process_time() - begun) / CHUNKS * 1e6

    async def call(make: Any) -> float:
        """CPU a call, in µs."""
        begun = time.process_time()
        for _ in range(CALLS):
            async for _ in make():
                pass
        return (time.process_time() - begun) / CALLS * 1e6

    def started() -> None:
        tracers, meters = dropping()
        observability.start(observability.Telemetry(tracer_provider=tracers, meter_provider=meters))

    measured = {
        "chunk by hand": (chunk, lambda: EventStream(bare(many, ctx)), False),
        "chunk off": (chunk, lambda: many.stream(ctx), False),
        "chunk on": (chunk, lambda: many.stream(ctx), True),
        "call off": (call, lambda: one.stream(ctx), False),
        "call on": (call, lambda: one.stream(ctx), True),
        "chain call off": (call, lambda: pair.stream(ctx), False),
        "chain call on": (call, lambda: pair.stream(ctx), True),
    }
    figures: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(ROUNDS + 1):
        for name, (how, make, on) in measured.items():
            if on:
                started()
            took = await how(make)
            observability.shutdown()
            if turn:
                figures[name].append(took)

    def more(name: str, than: str) -> float:
        return median(a - b for a, b in zip(figures[name], figures[than], strict=True))

    report = Report()
    report.table("CPU a chunk, and a call of one chunk", "µs", figures)
    report.want("off: above a stream without the library's faces, µs a chunk", more("chunk off", "chunk by hand"), OFF)
    report.want("on: above off, µs a chunk", more("chunk on", "chunk off"), ON)
    report.want("on: above off, µs a call of an adapter", more("call on", "call off"), CALL)
    three = more("chain call on", "chain call off")
    print(f"       on: above off, µs a call of a chain, which is three spans: {three:.2f}")
    print(f"       of these OpenTelemetry's own, for a span and three figures by hand: {by_itself():.2f}")
    print("\n" + ("missed: " + "; ".join(report.missed) if report.missed else "all wanted figures hold"))
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(measure()))
