"""What telemetry does: which sinks there are, where they send, and what may leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from isthmus.secret import Address, clean_url

SINKS = ("otel", "jsonl", "log")
LEVELS = ("info", "debug", "wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What `start` starts; what is None is left to the `OTEL_*` variables, or to OpenTelemetry's own defaults.

    Args:
        sinks: of "otel" (spans and metrics over OTLP/HTTP), "jsonl" (a file of one JSON object a span) and "log" (the
            standard logging, on stderr).
        endpoint: the collector's base URL; `/v1/traces` and `/v1/metrics` are appended.
        headers: of each export; values are secrets.
        keys: gives the headers that authorise an export, asked before each, and with True after one that failed.
        sample_ratio: the share of traces that are kept, from 0 to 1, where nobody outside has decided.
        service_name: who we are.
        ca_bundle: a file of the certificate authorities to trust.
        client_cert: a file with our certificate.
        client_key: a file with the key of that certificate.
        capture_content: whether prompts, replies, arguments and results may leave.
        max_content_chars: the most characters of an attribute that holds these.
        redact: given the name and the text of each attribute before it leaves; returns the text to send, or None.
        file: where "jsonl" writes; it is appended to.
        log_level: what "log" writes: "info", "debug" or "wire".
        tracer_provider: an application's own provider of tracers, used as it is.
        meter_provider: the same for metrics.

    Raises:
        ValueError: a sink or a level that is not known, a ratio beyond 0 to 1, a limit below 0, "jsonl" without a file
            or into a folder that is not there, "wire" without `capture_content`, an endpoint that is no URL, or a
            certificate that is not there, an endpoint with a query.
    """

    sinks: tuple[str, ...] = ("otel",)
    endpoint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: Callable[[bool], Mapping[str, str]] | None = field(default=None, repr=False, compare=False)
    sample_ratio: float | None = None
    service_name: str | None = None
    ca_bundle: str | Path | None = None
    client_cert: str | Path | None = None
    client_key: str | Path | None = None
    capture_content: bool = False
    max_content_chars: int = 16_384
    redact: Callable[[str, str], str | None] | None = None
    file: str | Path | None = None
    log_level: str = "info"
    tracer_provider: Any = None
    meter_provider: Any = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.sinks if name not in SINKS]
        if unknown:
            raise ValueError(f"sinks: must be of {', '.join(SINKS)}, not {unknown[0]!r}")
        if self.sample_ratio is not None and not 0 <= self.sample_ratio <= 1:
            raise ValueError(f"sample_ratio: must be from 0 to 1, not {self.sample_ratio!r}")
        if self.max_content_chars < 0:
            raise ValueError(f"max_content_chars: must be 0 or more, not {self.max_content_chars!r}")
        if "jsonl" in self.sinks and self.file is None:
            raise ValueError("file: say where the sink 'jsonl' writes")
        if self.log_level not in LEVELS:
            raise ValueError(f"log_level: must be one of {', '.join(LEVELS)}, not {self.log_level!r}")
        if "log" in self.sinks and self.log_level == "wire" and not self.capture_content:
            raise ValueError("log_level: 'wire' writes what was said: set capture_content too, or use 'debug'")
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise ValueError(f"endpoint: must begin with http:// or https://, not {clean_url(self.endpoint)!r}")
        if self.endpoint is not None:
            if set(self.endpoint) & {"?", "#"}:
                raise ValueError(
                    f"endpoint: is a base URL, without what a query says: {clean_url(self.endpoint)!r}; put a key into "
                    "headers or api_key_command"
                )
            object.__setattr__(self, "endpoint", Address(self.endpoint))
        for name in ("ca_bundle", "client_cert", "client_key"):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                raise ValueError(f"{name}: there is no file {str(path)!r}")
        if (self.client_cert is None) != (self.client_key is None) and self.client_key is not None:
            raise ValueError("client_key: set client_cert too, whose key it is")
        if "jsonl" in self.sinks and not Path(self.file or "").absolute().parent.is_dir():
            raise ValueError(f"file: there is no folder {str(Path(self.file or '').absolute().parent)!r}: make it")
