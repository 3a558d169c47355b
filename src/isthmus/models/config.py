"""The settings of one connection to a model, whatever the provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from math import isfinite
from typing import Any

from isthmus.errors import ConfigError
from isthmus.models.enums import ModelTracing
from isthmus.models.limits import RateLimiter
from isthmus.secret import Address, Secret, clean_url, names_secret, redact

# What a trace must not show: a key, whose account it is, what headers may carry.
_UNTRACED = frozenset({"api_key", "organization", "default_headers", "rate_limiter"})


@dataclass(frozen=True)
class Config:
    """One connection: networking and control, no model options; these go with each call.

    The key, and values of headers that are or look like keys, are `Secret`: repr and tracebacks hide them, `vars` and
    `dataclasses.asdict` hand them out as they are, and pickling is refused. For what leaves the process there is
    `to_trace_settings`.

    Args:
        api_key: the key.
        model: the model's id.
        max_retries: how many times a call is tried in all; 0 and 1 both mean once.
        timeout: seconds that one call may take.
        organization: whose account is charged, where the provider asks.
        base_url: where the provider is, instead of its own address.
        default_headers: further headers of every request.
        vertex_project_id: the cloud project, where the provider asks.
        vertex_location: its region.
        enforce_structured_output: for clients that send a schema only when told to; this library's own always send one
            that is given, and hold the reply to it.
        tracing: how much of the calls is traced.
        schema_validation_retries: how often a reply that misses its schema is asked for again.
        rate_limiter: held for the length of each call, a streamed one's whole life.

    Raises:
        ConfigError: a value cannot be; names the field and the remedy, and shows no secret.
    """

    api_key: str
    model: str
    _: KW_ONLY
    max_retries: int = 3
    timeout: float = 600.0
    organization: str | None = None
    base_url: str | None = None
    default_headers: Mapping[str, str] | None = field(default=None, hash=False)
    vertex_project_id: str | None = None
    vertex_location: str | None = None
    enforce_structured_output: bool = False
    tracing: ModelTracing = ModelTracing.DISABLED
    schema_validation_retries: int = 3
    rate_limiter: RateLimiter | None = None

    def __post_init__(self) -> None:
        _check_key(self.api_key)
        # First of all: from here on errors, and frames that a debugger shows, have a Config whose repr hides it.
        key = Secret(self.api_key.strip())
        self._set("api_key", key)
        for name, problem in self._problems():
            if problem is not None:
                raise _wrong(name, redact(problem, [key]))
        self._set("base_url", None if self.base_url is None else Address(self.base_url))
        self._set("default_headers", _headers(self.default_headers, key))

    def _problems(self) -> Iterator[tuple[str, str | None]]:
        """Each field that must be checked, and what is wrong with it."""
        yield "model", _no_text(self.model, "give the model's id")
        for name in ("max_retries", "schema_validation_retries"):
            yield name, _no_count(getattr(self, name))
        yield "timeout", _no_seconds(self.timeout)
        for name in ("organization", "base_url", "vertex_project_id", "vertex_location"):
            value = getattr(self, name)
            yield name, None if value is None else _no_text(value, "leave it out, or give text")
        if self.base_url is not None and "://" not in self.base_url:
            shown = self.base_url.rpartition("@")[2].partition("?")[0]
            yield "base_url", f"must be a URL with its scheme, not {shown!r}: write https://{shown}"
        if not isinstance(self.enforce_structured_output, bool):
            yield "enforce_structured_output", f"must be True or False, not {self.enforce_structured_output!r}"
        if not isinstance(self.tracing, ModelTracing):
            names = ", ".join(f"ModelTracing.{item.name}" for item in ModelTracing)
            yield "tracing", f"must be one of {names}, not {self.tracing!r}"
        needed = ("__aenter__", "__aexit__", "record_usage")
        missing = [name for name in needed if not callable(getattr(type(self.rate_limiter), name, None))]
        if self.rate_limiter is not None and missing:
            kind = type(self.rate_limiter).__name__
            yield "rate_limiter", f"{kind} has no {missing[0]}: give a RateLimiter of isthmus.models"

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def to_trace_settings(self) -> dict[str, Any]:
        """What a trace may show of it, as plain JSON values: no key, organization, headers or limiter."""
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _UNTRACED}
        url = None if self.base_url is None else clean_url(self.base_url)
        return {**shown, "base_url": url, "tracing": self.tracing.name}

    def __copy__(self) -> Config:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Config:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Config holds a key, and a key is never pickled: make it anew where it is used")


def _wrong(name: str, message: str) -> ConfigError:
    return ConfigError(message, where="Config", key=name)


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise _wrong("api_key", f"must be text, not {type(key).__name__}: give the key itself")
    if not key.strip():
        raise _wrong("api_key", "is empty: give the key; any word will do for a server that asks for none")
    if not key.strip().isascii() or not key.strip().isprintable() or " " in key.strip():
        raise _wrong("api_key", "holds characters that no header can carry: check where it was copied from")


def _no_text(value: Any, remedy: str) -> str | None:
    right = isinstance(value, str) and value.strip()
    return None if right else f"must be text that is not empty, not {value!r}: {remedy}"


def _no_count(value: Any) -> str | None:
    right = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if right else f"must be a whole number from 0, not {value!r}"


def _no_seconds(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and isfinite(value) and value > 0 else f"must be a number of seconds above 0, not {value!r}"


def _headers(headers: Any, key: str) -> Mapping[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise _wrong("default_headers", f"must be names and values, not {type(headers).__name__}: give a dict of text")
    guarded: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise _wrong("default_headers", f"{name!r}: name and value must be text, not {type(value).__name__}")
        if any(mark in name + value for mark in "\r\n\0"):
            raise _wrong("default_headers", f"{name!r}: a header must be one line: take the line break out")
        guarded[name] = Secret(value) if names_secret(name) or redact(value, [key]) != value else value
    return _Headers(guarded)


class _Headers(dict[str, str]):
    """A dict that cannot be changed, and that `dataclasses.asdict` takes for one."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("the headers of a Config cannot be changed: use dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse
