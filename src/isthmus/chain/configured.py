"""From the tables of a configuration to what `define_chain` takes; each mistake named by file, key and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, signature
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from isthmus.chain.budget import Budget
from isthmus.chain.context import ContextPolicy
from isthmus.chain.health import Cooldown
from isthmus.chain.markers import MarkerForm, define_marker
from isthmus.chain.prices import Price, published_prices
from isthmus.errors import ConfigError
from isthmus.models.adaptive import AdaptiveConcurrencyLimiter
from isthmus.models.contract import Timeouts
from isthmus.models.limits import CompositeRateLimiter, RateLimiter, SlidingWindowRateLimiter, TokenBucketRateLimiter
from isthmus.models.retry import RetryPolicy
from isthmus.settings import Setting, Settings, Table, moved, unknown_key

T = TypeVar("T")

PUBLISHED = "published"
"""In place of a table of prices: the list prices of the package that the extra `pricing` installs."""

_PARSERS: Mapping[str, Callable[[str], Any] | None] = {"text": None, "json": json.loads}
_MARKER_KEYS = ("name", "open", "close", "parse", "max_chars")
# What only code can give.
_NOT_IN_FILES = frozenset({"estimate", "summary"})
_MINUTE = 60.0
_LIMITS: Mapping[str, Callable[[int], RateLimiter]] = {
    "max_concurrent": AdaptiveConcurrencyLimiter,
    "requests_per_minute": lambda most: SlidingWindowRateLimiter(most, _MINUTE),
    "tokens_per_minute": lambda most: TokenBucketRateLimiter(most, _MINUTE),
}
# Shared by all chains of the process that name the same tier: its provider counts them together.
_limiters: WeakValueDictionary[tuple[Any, ...], RateLimiter] = WeakValueDictionary()


def chain_options(table: Table) -> dict[str, Any]:
    """The arguments of `define_chain` that a `[chain]` table sets.

    Args:
        table: its settings, each value of the right type.

    Raises:
        ConfigError: a key or a value that cannot be; names file, key and remedy.
        MissingDependencyError: published prices without the package that has them.
    """
    return {
        key: _MADE[key](setting, f"chain.{key}") if key in _MADE else setting.value for key, setting in table.items()
    }


def defined_at(error: ConfigError, settings: Settings, *, where: str) -> ConfigError:
    """A mistake that only the definition of the chain found, named by the file that made it.

    Args:
        error: what `define_chain` raised.
        settings: the configuration.
        where: where its first tier is named.
    """
    setting = settings.chain.get((error.key or "").partition(".")[0])
    if setting is not None and "tier " not in (error.where or ""):
        return moved(error, setting.where, key=f"chain.{error.key}")
    return ConfigError(str(error), where=where, key="chain.tiers" if settings.tiers else "llm")


def check_production(settings: Settings, providers: Sequence[Setting], *, tiers: Sequence[Any]) -> None:
    """Refuse what is meant for development and tests where the configuration says that this is neither.

    Args:
        settings: the configuration.
        providers: where each tier's provider is named.
        tiers: the tiers; one that is for development has a true `for_development`.

    Raises:
        ConfigError: `chain.production` is true and a tier is for development; names both places.
    """
    asked = settings.chain.get("production")
    if asked is None or not asked.value:
        return
    for at, (provider, tier) in enumerate(zip(providers, tiers, strict=True)):
        if getattr(tier, "for_development", False):
            raise ConfigError(
                f"provider {provider.value!r} is for development and tests, and chain.production is true "
                f"(from {asked.where}): name another provider, or set production = false",
                where=provider.where,
                key=f"chain.tiers[{at}].provider" if settings.tiers else "llm.provider",
            )


def made_of(cls: type[T], setting: Setting, key: str) -> T:
    """What a table of fields describes.

    Args:
        cls: a dataclass.
        setting: the table.
        key: its dotted name.

    Raises:
        ConfigError: a field that there is not, or a value that it cannot have.
    """
    names = [each.name for each in fields(cls) if each.init and each.name not in _NOT_IN_FILES]  # type: ignore[arg-type]
    return _called(cls, setting.value, setting.where, key=key, known=names)


def tier_limiter(setting: Setting, key: str, *, tier: Sequence[Any]) -> RateLimiter:
    """The limiter that a tier's `limits` describe, the same one for all chains of the process that name that tier.

    Args:
        setting: the table: `max_concurrent`, `requests_per_minute`, `tokens_per_minute`.
        key: its dotted name.
        tier: what the tier is to its provider: provider, model, address.

    Raises:
        ConfigError: a key or a number that cannot be.
    """
    limits: Mapping[str, Any] = setting.value
    _check(limits, tuple(_LIMITS), setting.where, key=key)
    name = (*tier, *sorted(limits.items()))
    limiter = _limiters.get(name)
    if limiter is None:
        kinds = [(kind, limits[kind]) for kind in _LIMITS if kind in limits]
        # The slots go last: who waits for the minute to pass need not hold one.
        parts = [_limiter(kind, most, setting.where, key=f"{key}.{kind}") for kind, most in reversed(kinds)]
        limiter = _limiters[name] = parts[0] if len(parts) == 1 else CompositeRateLimiter(parts)
    return limiter


def _limiter(kind: str, most: Any, where: str, *, key: str) -> RateLimiter:
    if type(most) is not int or most < 1:
        raise ConfigError(f"must be a whole number from 1, not {most!r}", where=where, key=key)
    return _LIMITS[kind](most)


def _prices(setting: Setting, key: str) -> Any:
    if setting.value == PUBLISHED:
        return published_prices()
    if not isinstance(setting.value, Mapping):
        raise ConfigError(f'must be "{PUBLISHED}" or a table for each model', where=setting.where, key=key)
    names = [each.name for each in fields(Price)]
    return {
        model: _called(Price, row, setting.where, key=f"{key}.{model}", known=names)
        for model, row in setting.value.items()
    }


def _markers(setting: Setting, key: str) -> tuple[MarkerForm, ...]:
    return tuple([_marker(row, setting.where, f"{key}[{at}]") for at, row in enumerate(setting.value)])


def _marker(row: Mapping[str, Any], where: str, key: str) -> MarkerForm:
    parse = row.get("parse", "text")
    if parse not in _PARSERS:
        known = " or ".join(f'"{name}"' for name in _PARSERS)
        raise ConfigError(f"must be {known}, not {parse!r}", where=where, key=f"{key}.parse")
    given = {**row, "parse": _PARSERS[parse]}
    return _called(define_marker, given, where, key=key, known=_MARKER_KEYS)


def _called(make: Callable[..., T], given: Any, where: str, *, key: str, known: Sequence[str]) -> T:
    _check(given, known, where, key=key)
    needed = [each.name for each in signature(make).parameters.values() if each.default is Parameter.empty]
    missing = [name for name in needed if name not in given]
    if missing:
        raise ConfigError(f"needs a value for {', '.join(missing)}", where=where, key=key)
    try:
        return make(**given)
    except ConfigError as error:
        raise moved(error, where, key=f"{key}.{error.key}" if error.key else key) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error), where=where, key=key) from None


def _check(given: Any, known: Sequence[str], where: str, *, key: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"must be a table of {', '.join(known)}", where=where, key=key)
    for name in given:
        if name not in known:
            raise unknown_key(name, known, where=where, table=key)


def _of(cls: type[Any]) -> Callable[[Setting, str], Any]:
    return lambda setting, key: made_of(cls, setting, key)


_MADE: Mapping[str, Callable[[Setting, str], Any]] = {
    "retry": _of(RetryPolicy),
    "timeouts": _of(Timeouts),
    "cooldown": _of(Cooldown),
    "budget": _of(Budget),
    "context": _of(ContextPolicy),
    "prices": _prices,
    "markers": _markers,
}
