"""From a provider's name to its adapter: dotted path, entry point, registered here, built in; in that order.

Knows no provider: the built-in ones are rows of `providers.toml`.
"""

from __future__ import annotations

import inspect
import logging
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from inspect import Parameter
from types import MappingProxyType
from typing import Any

from isthmus.errors import ConfigError, IsthmusError, MissingDependencyError
from isthmus.models.capabilities import capabilities_from_limits
from isthmus.secret import redact
from isthmus.settings import LLM_KEYS, hidden, like_parameter, unknown_key

GROUP = "isthmus.adapters"
Factory = Callable[..., Any]

_log = logging.getLogger("isthmus.adapters")
_registered: dict[str, Factory] = {}
_failed_plugins: dict[str, BaseException | None] = {}
_NEVER = frozenset({"provider", "base_url_trusted"})
_FACES = ("stream", "generate", "get_response")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One row of the table of built-in providers; a preset is a `server` that speaks the dialect of another row."""

    factory: str
    like: str = ""
    server: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""
    extra: str = ""
    paths: tuple[str, ...] = ()
    shared_paths: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    default: bool = False


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's factory, as it was found.

    Args:
        name: the provider's name or dotted path.
        source: "dotted path", "entry point", "registered" or "built in".
        factory: what makes the adapter.
        parameters: the named parameters of the factory and their defaults (`inspect.Parameter.empty` where none).
    """

    name: str
    source: str
    factory: Factory
    parameters: Mapping[str, Any] = field(default_factory=dict)


@cache
def built_in() -> Mapping[str, BuiltIn]:
    """The built-in providers by name."""
    table = tomllib.loads(files("isthmus.adapters").joinpath("providers.toml").read_text("utf-8"))
    return MappingProxyType({name: BuiltIn(**_whole_row(row, table)) for name, row in table.items()})


_KEPT = frozenset({"factory", "package", "extra"})


def _whole_row(row: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the fields of a `BuiltIn`; what it has no field for describes a server."""
    if "like" not in row:
        return {**row, "paths": tuple(row.get("paths", ()))}
    parent = _whole_row(table[row["like"]], table)
    own = {key: value for key, value in row.items() if key != "like"}
    kept = {key: value for key, value in parent.items() if key in _KEPT}
    return {**kept, "like": row["like"], "server": {**parent.get("server", {}), **own}}


def default_provider() -> str:
    """The provider that is used where none is named."""
    return next(name for name, row in built_in().items() if row.default)


def register_adapter(name: str, factory: Factory) -> None:
    """Offer an adapter under a name, in this process.

    Args:
        name: the provider's name, as `provider = "name"` has it; one that is taken is taken over.
        factory: the adapter class, or a callable whose signature lists the settings it takes by name.

    Raises:
        ConfigError: the name is empty or holds a colon; the factory cannot be called.
    """
    if not name or ":" in name:
        raise ConfigError(f"a provider's name is text without a colon, not {name!r}")
    if not callable(factory):
        raise ConfigError(f"the factory of provider {name!r} must be callable, not {type(factory).__name__}")
    _registered[name] = factory


def import_plugins(modules: Iterable[str]) -> None:
    """Import the modules that register adapters, each once in a process; one that fails is reported and left out."""
    for module in modules:
        if module in _failed_plugins:
            continue
        _failed_plugins[module] = None
        try:
            import_module(module)
        except (Exception, SystemExit) as error:
            # A script that is imported by mistake may end the process.
            _failed_plugins[module] = error
            _log.warning("plugin module %r could not be imported: %s", module, _told(error))


def available_providers() -> list[str]:
    """The names of all providers that can be loaded, sorted."""
    return sorted({*_registered, *built_in(), *(point.name for point in entry_points(group=GROUP))})


def provider_sources() -> dict[str, str]:
    """Each available provider's name and where it comes from, without importing any."""
    found = {name: _shown(row) for name, row in built_in().items()}
    found |= {name: f"registered: {_spell(factory)}" for name, factory in _registered.items()}
    found |= {point.name: f"entry point: {point.value}" for point in entry_points(group=GROUP)}
    return dict(sorted(found.items()))


def _shown(row: BuiltIn) -> str:
    place = row.server.get("base_url") or row.server.get("address")
    return f"preset of {row.like}: {place}" if row.server else f"built in: {row.factory}"


def _spell(factory: Factory) -> str:
    factory = factory.func if isinstance(factory, partial) else factory
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return f"{getattr(factory, '__module__', '?')}:{name}"


def resolve(provider: str) -> Provider:
    """Find a provider's factory and what it takes.

    Raises:
        ConfigError: no provider has that name, or its factory cannot be imported.
        MissingDependencyError: an optional package that it needs is not installed.
    """
    source, factory = _find(provider)
    return Provider(provider, source, factory, _parameters(factory, provider))


def _find(provider: str) -> tuple[str, Factory]:
    if ":" in provider:
        return "dotted path", _dotted(provider)
    point = next(iter(entry_points(group=GROUP, name=provider)), None)
    if point is not None:
        return "entry point", _entry(point)
    if provider in _registered:
        return "registered", _registered[provider]
    row = built_in().get(provider)
    if row is None:
        raise _unknown(provider)
    factory = _dotted(row.factory, row, provider)
    return "built in", factory.preset(provider, row.server) if row.server else factory  # type: ignore[attr-defined]


def _entry(point: EntryPoint) -> Factory:
    return _dotted(point.value.split("[")[0].strip(), label=f"{point.value} (entry point {point.name!r})")


def _dotted(path: str, row: BuiltIn | None = None, label: str = "") -> Factory:
    module, _, attribute = path.partition(":")
    label = label or path
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except IsthmusError:
        raise
    except (Exception, SystemExit) as error:
        if row is not None and row.package and getattr(error, "name", None) == row.package:
            raise MissingDependencyError(f"provider {label!r}", row.package, extra=row.extra) from error
        hint = "; a dotted path reads package.module:Class" if row is None else ""
        when = " while it was imported" if isinstance(error, SystemExit) else ""
        raise ConfigError(f"provider {label!r}: {_told(error, when)}{hint}") from error
    if not callable(found):
        raise ConfigError(f"provider {label!r} is a {type(found).__name__}, not a class or a function")
    return found  # type: ignore[no-any-return]


def _told(error: BaseException, when: str = "") -> str:
    """What went wrong, and what led to it as far as its author says."""
    led = [error]
    while (cause := led[-1].__cause__) is not None and cause not in led:
        led.append(cause)
    said = [f"{type(each).__name__}: {redact(str(each))}" for each in led[1:]]
    return ", because of ".join((f"{type(error).__name__}{when}: {redact(str(error))}", *said))


def _unknown(provider: str) -> ConfigError:
    names = available_providers()
    near = get_close_matches(provider, names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    broken = "".join(
        f" Plugin module {name!r} could not be imported: {_told(error)}."
        for name, error in _failed_plugins.items()
        if error is not None
    )
    return ConfigError(
        f"no provider is called {provider!r}: {guess}There are {', '.join(names)}. To add one, write its dotted path "
        f"(package.module:Class), install a package with an entry point in the group {GROUP!r}, or call "
        f"register_adapter in a module listed under [plugins] modules.{broken}"
    )


def _parameters(factory: Factory, provider: str) -> Mapping[str, Any]:
    """The named parameters of a factory; none where they cannot be seen, which is said."""
    made: Any = factory.func if isinstance(factory, partial) and not factory.args else factory
    initialised = isinstance(made, type) and made.__init__ is not object.__init__  # type: ignore[misc]
    try:
        # Which of a class's two makers the inspection itself prefers differs from one Python to the next.
        signature = inspect.signature(made.__init__ if initialised else factory)
    except (TypeError, ValueError):
        _log.warning("provider %r: the signature of its factory cannot be read, so no setting reaches it", provider)
        return {}
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    items = list(signature.parameters.items())[1 if initialised else 0 :]
    named = {name: item.default for name, item in items if item.kind in kinds}
    bare = isinstance(made, type) and not initialised
    if not named and not bare and any(item.kind is Parameter.VAR_KEYWORD for item in signature.parameters.values()):
        _log.warning(
            "provider %r: its factory takes only **kwargs, which shows no names, so no setting reaches it: "
            "declare each setting as a named parameter, or register the class itself",
            provider,
        )
    return named


def load_adapter(provider: str, **settings: Any) -> Any:
    """Make the adapter of a provider from settings, each forwarded to the parameter of that name.

    A setting that the library knows and this adapter does not take is left out. `max_tokens` is left to the adapter
    where it is falsy, and clamped down to what `model_limits` allows the model.

    Args:
        provider: a dotted path (`package.module:Class`), or the name of an entry point, of a registered adapter or of a
            built-in one.
        settings: by parameter name.

    Raises:
        ConfigError: no such provider; a setting that nothing takes; a factory that makes no adapter.
        MissingDependencyError: an optional package is not installed.
    """
    settings = hidden(settings)
    found = resolve(provider)
    for key in settings:
        if key not in found.parameters and key not in LLM_KEYS and key not in _NEVER:
            raise unknown_key(key, {*found.parameters, *LLM_KEYS}, where=f"provider {provider!r}", table="")
    return build_adapter(found, settings)


def build_adapter(found: Provider, settings: Mapping[str, Any]) -> Any:
    """The adapter of a provider that was found already, from those settings that it takes.

    Raises:
        ConfigError: its factory refuses the settings or makes no adapter.
    """
    taken = {
        key: like_parameter(key, value, default=found.parameters[key], where=f"provider {found.name!r}")
        for key, value in settings.items()
        if key in found.parameters and key != "provider"
    }
    if "max_tokens" in found.parameters:
        _clamp(taken, settings, found.parameters["max_tokens"])
    missing = [key for key, default in found.parameters.items() if default is Parameter.empty and key not in taken]
    if missing:
        raise ConfigError(f"provider {found.name!r} needs a value for {', '.join(missing)}", key=f"llm.{missing[0]}")
    adapter = found.factory(**taken)
    if not any(callable(getattr(adapter, face, None)) for face in _FACES):
        raise ConfigError(
            f"the factory of provider {found.name!r} made a {type(adapter).__name__}, which is no adapter: "
            "it has neither stream nor generate"
        )
    lower = _lower(adapter, taken, found)
    return adapter if lower is None else found.factory(**{**taken, "max_tokens": lower})


def _lower(adapter: Any, taken: Mapping[str, Any], found: Provider) -> int | None:
    """The ceiling that the adapter itself says its model has, where that is lower than the one it was made with.

    It is made again then, so that it sees the lower number whatever it does with it.
    """
    read = getattr(adapter, "capabilities", None)
    if "max_tokens" not in found.parameters or not callable(read):
        return None
    cap = getattr(read(), "max_output_tokens", None)
    wanted = taken.get("max_tokens", found.parameters["max_tokens"])
    return cap if cap and isinstance(wanted, int) and wanted > cap else None


def _clamp(taken: dict[str, Any], settings: Mapping[str, Any], default: Any) -> None:
    """Leave a falsy ceiling to the adapter; lower one that the model's limits do not allow."""
    if not taken.get("max_tokens"):
        taken.pop("max_tokens", None)
    limits = settings.get("model_limits")
    if not limits:
        return
    cap = capabilities_from_limits(settings.get("model") or "", limits).max_output_tokens
    wanted = taken.get("max_tokens", default)
    if cap and isinstance(wanted, int) and wanted > cap:
        taken["max_tokens"] = cap


def provider_of(path: str, body: Mapping[str, Any]) -> str | None:
    """The built-in provider whose requests look like this one; None where none does.

    Args:
        path: the request's path, with or without a query.
        body: the members of its body, as far as known.
    """
    bare = path.split("?")[0].rstrip("/")
    for name, row in built_in().items():
        if any(fnmatchcase(bare, f"*{end}") for end in row.paths):
            return name
        for end, members in row.shared_paths.items():
            telling = {members} if isinstance(members, str) else set(members)
            if bare.endswith(end) and (not body or telling & body.keys()):
                return name
    return None
