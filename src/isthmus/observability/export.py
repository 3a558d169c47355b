"""Where spans and metrics are sent: the library's own providers, never the process's global ones, and their exporters.

Exports happen in threads of the SDK's own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from isthmus.observability.config import Telemetry

_log = logging.getLogger("isthmus.observability")


class Exports:
    """What sends over OTLP/HTTP, as a configuration says.

    Args:
        config: where to, with what, and how much.
    """

    def __init__(self, config: Telemetry) -> None:
        self._config = config
        self._exporters: list[_Keyed] = []
        self._working: list[Any] = []

    def tracers(self) -> TracerProvider:
        """A provider of tracers that sends."""
        ratio = self._config.sample_ratio
        sampler = None if ratio is None else ParentBased(TraceIdRatioBased(ratio))
        provider = TracerProvider(sampler=sampler, resource=self._resource(), shutdown_on_exit=False)
        if _wanted("traces"):
            self._working.append(BatchSpanProcessor(_Spans(self._exporter(OTLPSpanExporter, "traces"))))
            provider.add_span_processor(self._working[-1])
        return provider

    def meters(self) -> MeterProvider:
        """A provider of meters that sends."""
        readers = []
        if _wanted("metrics"):
            readers.append(PeriodicExportingMetricReader(_Metrics(self._exporter(OTLPMetricExporter, "metrics"))))
            self._working += readers
        return MeterProvider(readers, resource=self._resource(), shutdown_on_exit=False)

    def undo(self) -> None:
        """End what works already, where the rest of it could not begin."""
        for each in self._working:
            each.shutdown()

    def lost(self) -> bool:
        """Whether anything could not be sent since this was asked last; the SDK says only that it has tried."""
        lost = [each for each in self._exporters if each.lost]
        for each in lost:
            each.lost = False
        return bool(lost)

    def give_up(self) -> None:
        """Send nothing more: an exporter whose collector is gone would go on trying, long after it was of use."""
        for each in self._exporters:
            each.shutdown()

    def _exporter(self, kind: Any, signal: str) -> _Keyed:
        self._exporters.append(_Keyed(kind, self._config, signal))
        return self._exporters[-1]

    def _resource(self) -> Resource:
        name = self._config.service_name
        resource = Resource.create({SERVICE_NAME: name} if name else {})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            return resource.merge(Resource({SERVICE_NAME: "isthmus"}))
        return resource


def _wanted(signal: str) -> bool:
    """Whether a signal is to be sent: many a collector takes spans and no metrics."""
    return os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() != "none"


def _exporter(kind: Any, config: Telemetry, signal: str, headers: Mapping[str, str]) -> Any:
    endpoint = config.endpoint
    if endpoint is not None:
        base = endpoint.rstrip("/").removesuffix("/v1/traces").removesuffix("/v1/metrics")
        endpoint = f"{base}/v1/{signal}"
    files = (config.ca_bundle, config.client_key, config.client_cert)
    authority, key, certificate = (None if name is None else str(name) for name in files)
    return kind(
        endpoint=endpoint,
        certificate_file=authority,
        client_key_file=key,
        client_certificate_file=certificate,
        headers={**config.headers, **headers} or None,
    )


class _Keyed:
    """An exporter that is made anew when its key changes, without `keys` one and no more; it notes what it lost."""

    def __init__(self, kind: Any, config: Telemetry, signal: str) -> None:
        self._made = (kind, config, signal)
        self.lost = self._over = self._told = False
        self._headers: Mapping[str, str] = {}
        self._keys = config.keys
        self.exporter = _exporter(kind, config, signal, {}) if config.keys is None else None

    def export(self, batch: Any, failed: Any, **options: Any) -> Any:
        """Send a batch; once more with a new key where it failed."""
        result = failed
        for refresh in (False, True):
            exporter = self._ready(refresh)
            if exporter is None:
                break
            result = exporter.export(batch, **options)
            if result is not failed or self._keys is None:
                break
        self.lost |= result is failed
        return result

    def _ready(self, refresh: bool) -> Any:
        """What sends with the key of the moment; None where there is no key, or where the end came before it."""
        if not self._over:
            self._renew(refresh)
        return None if self._over else self.exporter

    def _renew(self, refresh: bool) -> None:
        if self._keys is None:
            return
        try:
            headers = dict(self._keys(refresh))
        except Exception as error:
            if not self._told:
                _log.warning("telemetry: no key: %s", type(error).__name__)
            self._told = True
            return
        self._told = False
        if self.exporter is None or headers != self._headers:
            self._headers = headers
            self.exporter = _exporter(*self._made, headers)

    def shutdown(self) -> None:
        over, self._over = self._over, True
        if self.exporter is not None and not over:
            self.exporter.shutdown()


class _Spans(SpanExporter):
    def __init__(self, keyed: _Keyed) -> None:
        self._keyed = keyed

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._keyed.export(spans, SpanExportResult.FAILURE)  # type: ignore[no-any-return]

    def shutdown(self) -> None:
        self._keyed.shutdown()


class _Metrics(MetricExporter):
    def __init__(self, keyed: _Keyed) -> None:
        super().__init__()
        self._keyed = keyed

    def export(self, metrics_data: Any, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        return self._keyed.export(metrics_data, MetricExportResult.FAILURE)  # type: ignore[no-any-return]

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._keyed.shutdown()
