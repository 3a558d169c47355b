"""The composition root: from settings to adapters and chains. The only module that sees everything below it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from isthmus.adapters import registry
from isthmus.chain import define_chain, of
from isthmus.chain.configured import chain_options, check_production, defined_at, made_of, tier_limiter
from isthmus.chain.tier import name_of
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Event, FinishReason, StepResult
from isthmus.models.limits import RateLimiter
from isthmus.models.output import OutputSchema, resolve_output_schema
from isthmus.models.repair import answered, refused, repairing
from isthmus.observability.configured import observe, said_of
from isthmus.settings import LLM_KEYS, Layer, Setting, Settings, Table, hidden, load_settings, moved, unknown_key
from isthmus.settings.keys import TIER_KEYS
from isthmus.settings.merged import located
from isthmus.sync import iterate_sync, run_sync

__all__ = [
    "adapter_of",
    "ask",
    "connect",
    "connections",
    "findings",
    "load",
    "named",
    "optional_packages",
    "parse",
    "providers",
    "run_sync",
    "stream_sync",
    "unused_keys",
]

T = TypeVar("T")

_log = logging.getLogger("isthmus.build")
_FROM_SETTINGS_ONLY = "base_url_trusted"
# How near to a key the name of a variable must be to count as a misspelling of it, and not as somebody else's: an
# orchestrator sets ISTHMUS_PORT and the like for a service of that name.
_NEAR = 0.75
_TIER_ONLY = frozenset(TIER_KEYS) - frozenset(LLM_KEYS)
# What the runtime above an adapter reads, whatever the adapter declares.
_RUNTIME_KEYS = frozenset({"provider", "model_limits", "max_continuations"})


def connect(target: str, **settings: Any) -> Any:
    """The adapter of one model.

    Args:
        target: "provider:model", split at the first colon; or a dotted path "package.module:Class", known by a dot
            before the colon, with the model as a setting. A provider alone takes the model as a setting too.
        settings: for the adapter's constructor, by parameter name.

    Raises:
        ConfigError: no such provider, or a setting that nothing takes.
        MissingDependencyError: the provider needs a package that is not installed.
    """
    settings = hidden(settings)
    provider, model = named(target)
    if model:
        if settings.get("model", model) != model:
            raise ConfigError(f"two models are named: {model!r} in {target!r}, and {settings['model']!r}", key="model")
        settings["model"] = model
    return registry.load_adapter(provider, **settings)


def named(target: str) -> tuple[str, str]:
    """The provider and the model in "provider:model"; a dotted path "package.module:Class" is all provider."""
    provider, _, model = target.partition(":")
    return (target, "") if "." in provider else (provider, model)


def load(source: str | os.PathLike[str] | Settings | None = None, **overrides: Any) -> Any:
    """The chain that a configuration describes: its tiers in order, or `[llm]` as a chain of one.

    Args:
        source: a TOML file, read on top of the user's and the folder's in place of `ISTHMUS_CONFIG`; or settings that
            were loaded before.
        overrides: keys of `[llm]` that win over all else.

    Raises:
        ConfigError: the configuration is wrong; names the file or variable, the key and the remedy.
        MissingDependencyError: a provider needs a package that is not installed.
    """
    overrides = hidden(overrides)
    settings = _settings(source, overrides)
    tables = connections(settings)
    observe(settings)
    tiers = tuple([_tier(table, partial(settings.place, at)) for at, table in enumerate(tables)])
    check_production(settings, [table["provider"] for table in tables], tiers=tiers)
    options = chain_options({key: item for key, item in settings.chain.items() if key != "production"})
    rows = enumerate(zip(tables, tiers, strict=True))
    limits = {name_of(tier): _limiter(settings, table, at) for at, (table, tier) in rows if "limits" in table}
    try:
        return define_chain(**{"id": "default", **options}, tiers=tiers, limits=limits)
    except ConfigError as error:
        raise defined_at(error, settings, where=tables[0]["provider"].where) from None


def _limiter(settings: Settings, table: Table, at: int) -> RateLimiter:
    key = settings.place(at, "limits")
    tier = tuple([table[name].value if name in table else None for name in ("provider", "model", "base_url")])
    return tier_limiter(table["limits"], key, tier=tier)


def _settings(source: str | os.PathLike[str] | Settings | None, overrides: Mapping[str, Any]) -> Settings:
    if isinstance(source, Settings):
        if overrides:
            raise ConfigError("overrides belong to the loading of settings: give them to load_settings as flags")
        return source
    return load_settings(None if source is None else Path(source), flags=overrides, spelled="argument {!r}".format)


def connections(settings: Settings) -> tuple[Table, ...]:
    """The settings of every tier, complete, provider included, plugins imported and keys checked.

    Raises:
        ConfigError: a key that neither the library nor any provider takes.
    """
    tables = _tables(settings)
    for at in range(len(tables)):
        _check_keys(settings, tables[at], at)
    return tables


def _tables(settings: Settings) -> tuple[Table, ...]:
    registry.import_plugins(settings.plugins)
    return tuple([_with_provider(table) for table in settings.connections()])


def _check_keys(settings: Settings, table: Table, at: int) -> None:
    provider = table["provider"]
    try:
        found = registry.resolve(provider.value)
    except ConfigError as error:
        raise moved(error, provider.where, key=settings.place(at, "provider")) from error.__cause__
    for key, setting in table.items():
        if key not in TIER_KEYS and (key not in found.parameters or key == _FROM_SETTINGS_ONLY):
            _check_elsewhere(key, setting, found, place=settings.place(at, key))


def _with_provider(table: Table) -> Table:
    if "provider" in table:
        return table
    return {**table, "provider": Setting(registry.default_provider(), "default", Layer.SEED)}


def _check_elsewhere(key: str, setting: Setting, chosen: registry.Provider, *, place: str) -> None:
    """A key left over from another provider is harmless; one that no provider takes is a mistake."""
    known = {*TIER_KEYS, *chosen.parameters}
    for name in registry.available_providers():
        try:
            parameters = registry.resolve(name).parameters
        except (ConfigError, ImportError):
            continue
        known.update(parameters)
    known.discard(_FROM_SETTINGS_ONLY)
    stray = setting.layer is Layer.ENVIRONMENT and not get_close_matches(key, known, n=1, cutoff=_NEAR)
    if key not in known and not stray:
        raise unknown_key(key, known, where=setting.where, table=place.rpartition(".")[0])


def unused_keys(table: Table) -> list[str]:
    """What the chosen adapter does not use of a tier's settings, a line each."""
    found = registry.resolve(table["provider"].value)
    return [
        f"{setting.where}: llm.{key}: not used by provider {found.name!r}"
        for key, setting in sorted(table.items())
        if key not in found.parameters and key not in _RUNTIME_KEYS and key not in _TIER_ONLY
    ]


def optional_packages() -> list[str]:
    """The packages beyond the core that built-in providers need."""
    return sorted({row.package for row in registry.built_in().values() if row.package})


def providers(settings: Settings) -> dict[str, str]:
    """Each provider that can be used and where it comes from, plugins included."""
    registry.import_plugins(settings.plugins)
    return registry.provider_sources()


def findings(settings: Settings) -> Iterator[str]:
    """What can be said of a configuration before any call, a line each; never a secret.

    An adapter may add lines of its own with a method `diagnose()`, e.g. whether its weights are there.

    Raises:
        ConfigError: a provider or a key is wrong.
    """
    for at, table in enumerate(_tables(settings)):
        provider = table["provider"]
        model = f", model {table['model'].value}" if "model" in table else ""
        yield f"provider {provider.value} (from {provider.where}){model}"
        for key in ("api_key", "api_key_command"):
            if key in table:
                yield f"{key}: set (from {table[key].where})"
        yield from unused_keys(table)
        _check_keys(settings, table, at)
        adapter = adapter_of(table, partial(settings.place, at))
        variable = getattr(getattr(adapter, "keys", None), "variable", "")
        if variable:
            yield f"{variable}: {'set' if os.environ.get(variable) else 'not set'}"
        yield from getattr(adapter, "diagnose", tuple)()
    yield from said_of(settings)
    load(settings)


def adapter_of(table: Table, place: Callable[[str], str] = "llm.{}".format) -> Any:
    """The adapter that a tier's settings describe.

    Args:
        table: one of `connections`.
        place: the dotted name of one of its keys.

    Raises:
        ConfigError: its factory refuses the settings or makes no adapter.
        MissingDependencyError: the provider needs a package that is not installed.
    """
    found = registry.resolve(table["provider"].value)
    values = {key: setting.value for key, setting in table.items() if key not in _TIER_ONLY}
    if "timeouts" in table:
        values["timeouts"] = made_of(Timeouts, table["timeouts"], place("timeouts"))
    command = table.get("api_key_command")
    if command is not None and "api_key" in table and table["api_key"].layer is not Layer.FLAGS:
        del values["api_key"]
    if "base_url" in table:
        values[_FROM_SETTINGS_ONLY] = table["base_url"].trusted
    try:
        return registry.build_adapter(found, values)
    except ConfigError as error:
        raise located(error, table, place=place) from error.__cause__


class _Placed:
    """An adapter under the name and the limits that its tier's table gives it; all else is the adapter's own."""

    def __init__(self, adapter: Any, own: Mapping[str, Any]) -> None:
        self._adapter = adapter
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def _tier(table: Table, place: Callable[[str], str]) -> Any:
    adapter = adapter_of(table, place)
    own = {key: table[key].value for key in _TIER_ONLY if key in table and key != "limits"}
    if "supports" in own:
        own["supports"] = frozenset(own["supports"])
    return _Placed(adapter, own) if own else adapter


async def ask(
    prompt: str,
    *,
    model: Any = None,
    system: str = "",
    max_tokens: int | None = None,
    effort: str | None = None,
    temperature: float | None = None,
    output: Any = None,
) -> str:
    """One question, one call, the text of the answer.

    Args:
        prompt: what the user says.
        model: "provider:model", an adapter or a chain; what the configuration names where None.
        system: the instructions.
        max_tokens: ceiling of the answer.
        effort: reasoning effort.
        temperature: sampling temperature.
        output: the form that the answer must take: a type, a JSON Schema or an `OutputSchema`.

    Raises:
        TierError: the call failed, also in the middle of the answer; `partial` holds what had arrived.
        RefusedError: the model, or the provider's filter, would not answer.
        ConfigError: the configuration is wrong.
    """
    request = _Request(prompt, system, max_tokens, effort=effort, temperature=temperature, output=output)
    return (await request.answer(model))[0].text


async def parse(
    prompt: str,
    type: type[T] | OutputSchema[T] | Any,
    *,
    model: Any = None,
    system: str = "",
    max_tokens: int | None = None,
    effort: str | None = None,
    temperature: float | None = None,
) -> T:
    """One question, the answer as a value of a type; asked again up to three times where it is not one.

    Args:
        prompt: what the user says.
        type: what the answer must be: a type, a JSON Schema or an `OutputSchema`.
        model: "provider:model", an adapter or a chain; what the configuration names where None.
        system: the instructions.
        max_tokens: ceiling of the answer.
        effort: reasoning effort.
        temperature: sampling temperature.

    Raises:
        OutputError: no answer was of the type; has the last `text`.
        OutputTruncatedError: the answer was cut at the output limit.
        OutputDefinitionError: there is no such type to ask for.
        TierError: the call failed, also in the middle of the answer; `partial` holds what had arrived.
        RefusedError: the model, or the provider's filter, would not answer.
        ConfigError: the configuration is wrong.
    """
    request = _Request(prompt, system, max_tokens, effort=effort, temperature=temperature, output=type)
    return (await request.answer(model))[1]  # type: ignore[no-any-return]


class _Request:
    """One question, as it is asked of whatever model."""

    def __init__(self, prompt: str, system: str, max_tokens: int | None, **settings: Any) -> None:
        form = resolve_output_schema(settings.pop("output"))
        message = {"role": "user", "content": prompt}
        self._ctx = GenerateContext(
            brief=system, messages=(message,), max_output_tokens=max_tokens, output=form, **settings
        )

    async def answer(self, model: Any) -> tuple[StepResult, Any]:
        """The reply, and the value that it holds."""
        target, own = _target(model)
        try:
            chain = of(target)
            repair = repairing(self._ctx.output, chain.supports)

            async def ask(ctx: GenerateContext) -> StepResult:
                return _answer(await chain.generate(ctx))

            return await answered(ask, self._ctx, repair=repair)
        finally:
            if own:
                await _close(target)


def _target(model: Any) -> tuple[Any, bool]:
    """What to call, and whether it was made here and must be closed here."""
    if model is None:
        return load(), True
    if isinstance(model, str):
        return connect(model), True
    return model, False


async def _close(target: Any) -> None:
    aclose = getattr(target, "aclose", None)
    if aclose is not None:
        await aclose()


def _answer(result: StepResult) -> StepResult:
    if result.error is not None:
        if result.error.partial is None:
            result.error.partial = result
        raise result.error
    if result.finish in (FinishReason.REFUSAL, FinishReason.CONTENT_FILTER):
        raise refused(result)
    if result.finish == FinishReason.LENGTH:
        _log.warning("the answer was cut at the output limit")
    return result


def stream_sync(source: Any, prompt: str | GenerateContext | None = None) -> Generator[Event, None, None]:
    """The events of a call for sync code; closing the generator closes the connection.

    Works in scripts and in notebooks, and any number of times: it reads in a loop of its own, in a helper thread, only
    when the next event is asked for.

    Args:
        source: a stream that nobody has begun; or, with a prompt, an adapter, a chain or "provider:model".
        prompt: what the user says, or a whole context.

    Raises:
        TierError: as the stream raises it.
    """
    if prompt is None:
        return iterate_sync(lambda: source)
    ctx = GenerateContext(messages=({"role": "user", "content": prompt},)) if isinstance(prompt, str) else prompt
    target, _ = _target(source)
    return iterate_sync(lambda: of(target).stream(ctx), lambda: _close(target))
