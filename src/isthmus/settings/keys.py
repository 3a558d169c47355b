"""The keys that a configuration may hold, and how a value of each is read.

Knows no adapter: what else a key may be is the business of whoever knows the adapter's constructor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from isthmus.errors import ConfigError
from isthmus.secret import HIDDEN, Secret, clean_url, names_secret, redact, shown_command

EFFORTS = ("off", "low", "medium", "high", "xhigh", "max")
_YES, _NO = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text in quotes")
    return value


def _count(value: Any) -> int:
    if isinstance(value, str):
        value = int(value) if value.strip().lstrip("+-").isdecimal() else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number, 0 or more")
    return value


def _number(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ValueError("must be a number, 0 or more")
    return number


def _flag(value: Any) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if isinstance(word, bool):
        return word
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError("must be true or false")


def _effort(value: Any) -> str:
    if value == "":
        return "off"
    if value not in EFFORTS:
        raise ValueError(f"must be one of {', '.join(EFFORTS)}")
    return str(value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of texts")
    return list(value)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table")
    return dict(value)


def _tables(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError("must be a list of tables")
    return [dict(item) for item in value]


def _any(value: Any) -> Any:
    return value


def _limits(value: Any) -> dict[str, Any]:
    table = _table(value)
    for name, fields in table.items():
        if not isinstance(fields, Mapping):
            raise ValueError(f"must hold one table a model name, which {name!r} is not")
    return {name: dict(fields) for name, fields in table.items()}


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of one key.

    Args:
        read: turns a value into the key's type, or raises ValueError with what it must be.
        open: whether a file in the current folder may set it before anybody has accepted that file.
        bound: whether its value belongs to the provider that is named beside it, and must not reach another.
        hidden: whether its value is a secret.
    """

    read: Callable[[Any], Any] = _text
    open: bool = False
    bound: bool = False
    hidden: bool = False


LLM_KEYS: Mapping[str, Key] = {
    "provider": Key(),
    "model": Key(open=True, bound=True),
    "base_url": Key(bound=True),
    "api_key": Key(bound=True, hidden=True),
    "api_key_command": Key(bound=True),
    "api_key_ttl_ms": Key(_count, bound=True),
    "headers": Key(_table, bound=True, hidden=True),
    "system": Key(open=True),
    "max_tokens": Key(_count, open=True),
    "effort": Key(_effort, open=True),
    "temperature": Key(_number, open=True),
    "model_limits": Key(_limits),
    "max_continuations": Key(_count),
    "timeouts": Key(_table),
}
TIER_KEYS: Mapping[str, Key] = {
    **LLM_KEYS,
    "id": Key(),
    "window_tokens": Key(_count),
    "max_output_tokens": Key(_count),
    "supports": Key(_texts),
    "limits": Key(_table),
}
CHAIN_KEYS: Mapping[str, Key] = {
    "id": Key(),
    "retry": Key(_table),
    "timeouts": Key(_table),
    "step_timeout": Key(_number),
    "fallback_on_refused": Key(_flag),
    "sticky": Key(),
    "cooldown": Key(_table),
    "budget": Key(_table),
    "prices": Key(_any),
    "context": Key(_table),
    "markers": Key(_tables),
    "production": Key(_flag),
}
PLUGIN_KEYS: Mapping[str, Key] = {"modules": Key(_texts)}
TELEMETRY_KEYS: Mapping[str, Key] = {
    "enabled": Key(_flag),
    "sinks": Key(_texts),
    "endpoint": Key(),
    "headers": Key(_table, hidden=True),
    "api_key_command": Key(),
    "api_key_header": Key(),
    "api_key_ttl_ms": Key(_count),
    "sample_ratio": Key(_number),
    "service_name": Key(),
    "ca_bundle": Key(),
    "client_cert": Key(),
    "client_key": Key(),
    "capture_content": Key(_flag),
    "max_content_chars": Key(_count),
    "redact": Key(),
    "file": Key(),
    "log_level": Key(),
}
"""The keys of `[telemetry]`; none is open to a file in the current folder that nobody has accepted."""


def read_value(key: str, value: Any, *, where: str, known: Mapping[str, Key] = LLM_KEYS, table: str = "") -> Any:
    """The value of a key in its right type; secrets become `Secret`. Keys that are not known pass as they are.

    An error names the key under its table, if one is given.

    Raises:
        ConfigError: the value is of another type; says what it must be, and shows no secret.
    """
    row = known.get(key)
    if row is not None:
        try:
            value = row.read(value)
        except ValueError as error:
            seen = "" if row.hidden or row.bound else f", not {value!r:.60}"
            raise ConfigError(f"{error}{seen}", where=where, key=f"{table}.{key}" if table else key) from None
    return guarded(key, value)


def like_parameter(key: str, value: Any, *, default: Any, where: str) -> Any:
    """A text, as variables are, in the type of the key, where the library knows it, or of the parameter's default.

    Raises:
        ConfigError: it cannot be read as that type.
    """
    if not isinstance(value, str):
        return value
    row = LLM_KEYS.get(key)
    if row is not None and row.read in (_count, _number):
        return read_value(key, value, where=where)
    for kind, read in ((bool, _flag), (int, _count), (float, _number)):
        if isinstance(default, kind):
            try:
                return read(value)
            except ValueError as error:
                raise ConfigError(str(error), where=where, key=key) from None
    return value


def is_secret(key: str) -> bool:
    """Whether values under this name are hidden: by the table of keys, else by the name's last word."""
    row = LLM_KEYS.get(key)
    if row is not None:
        return row.hidden
    return names_secret(key)


def guarded(key: str, value: Any, *, hidden: bool = False) -> Any:
    """The value with every secret in it as `Secret`, within tables and lists too."""
    hidden = hidden or is_secret(key) or key.endswith("_command")
    if isinstance(value, Mapping):
        return {name: guarded(str(name), item, hidden=hidden) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [guarded("", item, hidden=hidden) for item in value]
    return Secret(value) if hidden and isinstance(value, str) else value


def hidden(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with every secret in them as `Secret`, so that no traceback shows one."""
    return {key: guarded(key, value) if isinstance(value, str | Mapping) else value for key, value in settings.items()}


def shown(key: str, value: Any) -> Any:
    """The value as a person may see it: no secret, no password in an address, of a command only its first word."""
    if key.endswith("command") and isinstance(value, str):
        return shown_command(value)
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: shown(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(key, item) for item in value]
    if not isinstance(value, str):
        return value
    return clean_url(value) if "://" in value else redact(value)


def unknown_key(key: str, known: Iterable[str], *, where: str, table: str = "llm") -> ConfigError:
    """The error for a key that nothing takes, with the nearest name that something does."""
    names = sorted(set(known))
    near = get_close_matches(key, names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
    return ConfigError(f"nothing takes this key; {remedy}", where=where, key=f"{table}.{key}" if table else key)


def moved(error: ConfigError, where: str, *, key: str) -> ConfigError:
    """The same mistake, named by the place that it was made at."""
    said = str(error).removeprefix(": ".join(part for part in (error.where, error.key) if part) + ": ")
    return type(error)(said, where=where, key=key)
