"""Telemetry: records of what happens, where they go, and what an adapter adds to the span of its call.

Off until `start` is called, or until a configuration with `[telemetry] enabled = true` is loaded. Until then everything
here does nothing, and OpenTelemetry (extra `otel`) is neither needed nor imported.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from typing import Any

from isthmus.errors import ConfigError, MissingDependencyError
from isthmus.observability import enrich, hooks, scope
from isthmus.observability.background import Background
from isthmus.observability.config import Telemetry
from isthmus.observability.contents import View
from isthmus.observability.enrich import (
    add_completion,
    add_prompt,
    capture_content,
    capture_context,
    current_span,
    reattach,
    record_exception,
    set_attributes,
)

_EXPORTER = "opentelemetry-exporter-otlp-proto-http"

__all__ = [
    "Telemetry",
    "add_completion",
    "add_prompt",
    "add_sink",
    "available",
    "capture_content",
    "capture_context",
    "current_span",
    "enabled",
    "flush",
    "reattach",
    "record_exception",
    "set_attributes",
    "shutdown",
    "start",
]

_NEEDED = {"opentelemetry.sdk": "opentelemetry-sdk", "opentelemetry.exporter.otlp.proto.http": _EXPORTER}


class _Running:
    """The sinks that were started."""

    def __init__(self, config: Telemetry) -> None:
        self.config = config
        self.view = View(config.capture_content, config.max_content_chars, config.redact)
        self.sinks: list[Any] = []
        self.removes: list[Any] = []


_running: _Running | None = None
_added: list[Background] = []
_lock = RLock()


def available() -> tuple[bool, str]:
    """Whether OpenTelemetry can be used, and why not."""
    missing = _missing()
    return (True, "") if missing is None else (False, str(_refusal(missing)))


def _missing() -> str | None:
    for name, package in _NEEDED.items():
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return package
    return None


def _refusal(package: str) -> MissingDependencyError:
    return MissingDependencyError("telemetry", package, extra="otel")


def enabled() -> bool:
    """Whether telemetry was started."""
    return _running is not None


def start(config: Telemetry | None = None) -> None:
    """Begin; the same configuration once more changes nothing, another one takes the place of the first.

    Args:
        config: what to start; None is what the `OTEL_*` variables say.

    Raises:
        MissingDependencyError: the sink "otel" is wanted, and the extra is not installed.
        ConfigError: OpenTelemetry refuses what a variable says.
    """
    global _running
    config = config or Telemetry()
    with _lock:
        if _running is not None and _running.config == config:
            return
        missing = _missing() if "otel" in config.sinks else None
        if missing is not None:
            raise _refusal(missing)
        shutdown()
        running = _Running(config)
        backends: list[Any] = []
        if "otel" in config.sinks:
            backends.append(_otel(config, running.view))
            scope.carry(backends[0])
        if "jsonl" in config.sinks:
            backends.append(import_module("isthmus.observability.jsonl").JsonLines(config.file, running.view))
        running.removes = [hooks.add_sink(each) for each in backends]
        running.sinks = list(backends)
        if "log" in config.sinks:
            log = import_module("isthmus.observability.log")
            running.sinks.append(log.Logged(config.log_level, contents=config.capture_content))
        scope.want_contents(int(config.capture_content))
        enrich.use(backends, running.view)
        _running = running
        atexit.register(shutdown)


def _otel(config: Telemetry, view: View) -> Any:
    try:
        return import_module("isthmus.observability.otel").OtelSink(config, view)
    except ValueError as error:
        # It reads some of them as it is imported.
        raise ConfigError(f"OpenTelemetry refuses it: {error}", where="environment", key="OTEL_*") from error


def add_sink(sink: hooks.Sink) -> Any:
    """Send every record to a callable of one's own, in a thread of its own; call what is returned to stop.

    A process that ends waits for it as `stop` does: five seconds at most.

    Args:
        sink: gets one of the records of `isthmus.observability.hooks` at a time; it may block and fail.
    """
    later = Background(sink)
    remove = hooks.add_sink(later)

    def stop(timeout: float = 5.0) -> None:
        atexit.unregister(stop)
        remove()
        if later in _added:
            _added.remove(later)
        later.shutdown(timeout)

    _added.append(later)
    atexit.register(stop)
    return stop


def flush(timeout: float = 5.0) -> bool:
    """Send what waits; whether all of it was sent in time.

    Args:
        timeout: seconds.
    """
    running = _running
    sinks = [*_added, *(() if running is None else running.sinks)]
    return min([each.flush(timeout) for each in sinks], default=True)


def shutdown(timeout: float = 5.0) -> None:
    """Send what waits and end; what cannot be sent in time is given up. Harmless twice.

    Args:
        timeout: seconds.
    """
    global _running
    with _lock:
        running, _running = _running, None
        if running is None:
            return
        atexit.unregister(shutdown)
        enrich.use((), View())
        scope.carry(None)
        scope.want_contents(-int(running.config.capture_content))
    for remove in running.removes:
        remove()
    for sink in running.sinks:
        with suppress(Exception):
            sink.shutdown(timeout)
