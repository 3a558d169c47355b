"""From `[telemetry]` of a configuration to what is started; a part of the composition root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from isthmus import observability
from isthmus.errors import ConfigError
from isthmus.observability.config import Telemetry
from isthmus.settings import Settings, shown
from isthmus.sync import run_sync
from isthmus.transport.credentials import KeyScheme, KeySource

_VENDED = ("api_key_command", "api_key_header", "api_key_ttl_ms")
# Exports come every few seconds: a key is used for five minutes unless it is said how long it lives.
_TTL = 300_000


def observe(settings: Settings) -> None:
    """Start telemetry if the configuration says so; what runs already under the same one goes on.

    Raises:
        ConfigError: a value makes no sense, or the redaction hook is not there.
        MissingDependencyError: the sink "otel" is wanted, and the extra is not installed.
    """
    config = telemetry_of(settings)
    if config is not None:
        observability.start(config)


def said_of(settings: Settings) -> Iterator[str]:
    """What can be said of telemetry before any call, a line each; nothing where nobody configured it."""
    for key, setting in sorted(settings.telemetry.items()):
        yield f"telemetry.{key}: {shown(key, setting.value)} (from {setting.where})"


def telemetry_of(settings: Settings) -> Telemetry | None:
    """What the configuration says; None where telemetry is off.

    Raises:
        ConfigError: a value makes no sense, or the redaction hook is not there.
    """
    table = settings.telemetry
    values = {key: setting.value for key, setting in table.items()}
    if not values.pop("enabled", False):
        return None
    keys = {key: values.pop(key) for key in _VENDED if key in values}
    if "api_key_command" in keys:
        values["keys"] = _vending(keys, values.get("endpoint", ""))
    if "redact" in values:
        values["redact"] = _hook(values["redact"], where=table["redact"].where)
    if "sinks" in values:
        values["sinks"] = tuple(values["sinks"])
    try:
        return Telemetry(**values)
    except ValueError as error:
        key, _, said = str(error).partition(": ")
        where = table[key if key in table else "enabled"].where
        raise ConfigError(said, where=where, key=f"telemetry.{key}") from None


def _hook(path: str, *, where: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        # What a module does while it is imported is its own.
        raise ConfigError(f'must be "module:function" ({error})', where=where, key="telemetry.redact") from None
    if not callable(found):
        raise ConfigError(f"{path!r} cannot be called: name a function", where=where, key="telemetry.redact")
    return found


def _vending(keys: Mapping[str, Any], url: str) -> Callable[[bool], Mapping[str, str]]:
    """What asks a key command for the headers of an export, in a thread of the exporter's own."""
    header = str(keys.get("api_key_header", "authorization"))
    source = KeySource(
        api_key_command=keys["api_key_command"],
        api_key_ttl_ms=int(keys.get("api_key_ttl_ms", _TTL)),
        base_url=url,
        scheme=KeyScheme(header=header, prefix="Bearer " if header.lower() == "authorization" else ""),
    )
    return lambda refresh: run_sync(source.headers(refresh=refresh))
