"""All layers in one: each setting with the place that it came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from isthmus.errors import ConfigError
from isthmus.settings.keys import (
    CHAIN_KEYS,
    LLM_KEYS,
    PLUGIN_KEYS,
    TELEMETRY_KEYS,
    TIER_KEYS,
    Key,
    hidden,
    moved,
    read_value,
    shown,
    unknown_key,
)
from isthmus.settings.sources import PREFIX, Layer, Source, environment_sources, file_sources, seed_sources

_TABLES: Mapping[str, Mapping[str, Key]] = {
    "llm": LLM_KEYS,
    "chain": CHAIN_KEYS,
    "plugins": PLUGIN_KEYS,
    "telemetry": TELEMETRY_KEYS,
}
_OPEN = ", ".join(sorted(key for key, row in LLM_KEYS.items() if row.open))
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and where it came from.

    Args:
        value: the value, in its right type; never shown in a repr.
        where: the file, the variable or the flag.
        layer: the layer that it came from.
        trusted: whether that place may set anything.
    """

    value: Any = field(repr=False)
    where: str
    layer: Layer
    trusted: bool = True


Table = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration.

    Args:
        llm: the settings of `[llm]`.
        chain: those of `[chain]`, without its tiers.
        tiers: those of each `[[chain.tiers]]`, in order, as written.
        plugins: the modules to import before a provider is looked up.
        telemetry: the settings of `[telemetry]`.
        sources: the places that were read, lowest first.
        notes: what was left out on purpose, for a person.
        problems: what is wrong, where the caller asked not to raise.
    """

    llm: Table = field(default_factory=lambda: _NONE)
    chain: Table = field(default_factory=lambda: _NONE)
    tiers: tuple[Table, ...] = ()
    plugins: tuple[str, ...] = ()
    telemetry: Table = field(default_factory=lambda: _NONE)
    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[ConfigError, ...] = ()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key of `[llm]`."""
        found = self.llm.get(key)
        return default if found is None else found.value

    def connections(self) -> tuple[Table, ...]:
        """The settings of each tier, complete; `[llm]` alone where the chain names none.

        A tier takes from `[llm]` what it does not say itself. One that names another provider takes only what any
        provider may know (model limits and the open keys other than the model), so no key or address of one provider
        reaches another.
        """
        if not self.tiers:
            return (self.llm,)
        return tuple([self._completed(tier) for tier in self.tiers])

    def place(self, at: int, key: str) -> str:
        """The dotted name of a key of the tier at this place: `[llm]` has what the tier's own table does not."""
        own = bool(self.tiers) and key in self.tiers[at]
        return f"chain.tiers[{at}].{key}" if own else f"llm.{key}"

    def _completed(self, tier: Table) -> Table:
        own, default = tier.get("provider"), self.llm.get("provider")
        if own is None or (default is not None and own.value == default.value):
            return {**self.llm, **tier}
        common = {
            key: item
            for key, item in self.llm.items()
            if key == "model_limits" or (key != "model" and key in LLM_KEYS and LLM_KEYS[key].open)
        }
        return {**common, **tier}

    def to_dict(self) -> dict[str, Any]:
        """Everything as a person may see it, each value beside its origin; secrets are hidden."""
        return {
            "llm": _shown(self.llm),
            "chain": _shown(self.chain),
            "tiers": [_shown(tier) for tier in self.tiers],
            "plugins": list(self.plugins),
            "telemetry": _shown(self.telemetry),
            "sources": [f"{source.layer}: {source.where}" for source in self.sources],
        }


def located(error: ConfigError, table: Table, *, place: Callable[[str], str]) -> ConfigError:
    """The mistake that an adapter found in one of these settings, named by the file or variable that made it.

    Args:
        error: what the adapter's constructor raised; it knows the key, and not where its value came from.
        table: the settings.
        place: the dotted name of one of their keys.
    """
    key = (error.key or "").removeprefix("llm.")
    if key in table:
        return moved(error, table[key].where, key=place(key))
    if error.where is None and "provider" in table:
        # What a provider needs and nobody set, or makes that is none, belongs where that provider is named.
        own = place("provider").removesuffix("provider")
        return moved(error, table["provider"].where, key=f"{own}{key or 'provider'}")
    return error


def _shown(table: Table) -> dict[str, Any]:
    return {key: {"value": shown(key, item.value), "from": item.where} for key, item in sorted(table.items())}


def _flag_name(key: str) -> str:
    return "--" + key.replace("_", "-")


def load_settings(
    path: str | os.PathLike[str] | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    spelled: Callable[[str], str] = _flag_name,
    environ: Mapping[str, str] | None = None,
    strict: bool = True,
) -> Settings:
    """Read and merge every layer: seeds, user file, folder file, named file, environment, flags.

    Args:
        path: a file to read in place of the one that `ISTHMUS_CONFIG` names.
        flags: keys of `[llm]` that win over all else; those that are None are not set.
        spelled: how a flag of that key is written, for messages.
        environ: the environment; the process's own where None.
        strict: whether to raise at the first problem, or to leave it out and list it in `problems`.

    Raises:
        ConfigError: a file cannot be read, a value is of the wrong type, a table is not known, or a file of the
            current folder that nobody has accepted sets more than it may.
    """
    flags = hidden({key: value for key, value in (flags or {}).items() if value is not None})
    merge = _Merge(strict, spelled)
    try:
        merge.read(seed_sources())
        merge.read(file_sources(None if path is None else Path(path), os.environ if environ is None else environ))
        merge.read(environment_sources(os.environ if environ is None else environ))
        merge.read([Source(Layer.FLAGS, "flags", {"llm": flags})] if flags else [])
    except ConfigError as error:
        # The frames below hold files and environment as they are, keys included.
        error.__context__ = None
        raise error.with_traceback(None) from None
    return merge.settings()


class _Merge:
    """Takes sources, lowest first, and knows what they amount to."""

    def __init__(self, strict: bool, spelled: Callable[[str], str]) -> None:
        self.strict, self.spelled = strict, spelled
        self.sources: list[Source] = []
        self.llm: list[dict[str, Setting]] = []
        self.chain: dict[str, Setting] = {}
        self.tiers: tuple[Table, ...] = ()
        self.plugins: tuple[str, ...] = ()
        self.telemetry: dict[str, Setting] = {}
        self.problems: list[ConfigError] = []
        self.notes: list[str] = []

    def _problem(self, error: ConfigError) -> None:
        if self.strict:
            raise error
        self.problems.append(error)

    def read(self, sources: Iterable[Source]) -> None:
        """Take each source in turn."""
        try:
            for source in sources:
                self.sources.append(source)
                self._take(source)
        except ConfigError as error:
            self._problem(error)

    def _take(self, source: Source) -> None:
        for name, value in source.tables.items():
            if name not in _TABLES:
                self._problem(_unknown_table(name, value, source.where))
            elif not isinstance(value, Mapping):
                self._problem(ConfigError(f"must be a table: write [{name}] on a line of its own", where=source.where))
            else:
                self._table(name, value, source)

    def _table(self, name: str, value: Mapping[str, Any], source: Source) -> None:
        entries = {key: item for key, item in value.items() if (name, key) != ("chain", "tiers")}
        read = self._entries(name, entries, source, _TABLES[name])
        if name == "llm":
            self.llm.append(read)
        elif name == "plugins":
            if "modules" in read:
                self.plugins = tuple(read["modules"].value)
        else:
            below = self.chain if name == "chain" else self.telemetry
            below.update({key: _over(below.get(key), item) for key, item in read.items()})
            if name == "chain" and "tiers" in value:
                self._tiers(value["tiers"], source)

    def _tiers(self, value: Any, source: Source) -> None:
        whole = isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
        if not whole:
            self._problem(ConfigError("write each tier as [[chain.tiers]]", where=source.where, key="chain.tiers"))
        elif self._allowed("chain", "tiers", source):
            named = [(f"chain.tiers[{at}]", tier) for at, tier in enumerate(value)]
            self.tiers = tuple([self._entries(name, tier, source, TIER_KEYS) for name, tier in named])

    def _entries(
        self, table: str, entries: Mapping[str, Any], source: Source, known: Mapping[str, Key]
    ) -> dict[str, Setting]:
        read: dict[str, Setting] = {}
        for key, value in entries.items():
            where = self._where(key, source)
            try:
                if table in ("chain", "plugins", "telemetry") and key not in known:
                    raise unknown_key(key, known, where=where, table=table)
                if self._allowed(table, key, source, value):
                    under = "" if table == "llm" else table
                    typed = read_value(key, value, where=where, known=known, table=under)
                    read[key] = Setting(typed, where, source.layer, source.trusted)
            except ConfigError as error:
                self._problem(error)
        return read

    def _where(self, key: str, source: Source) -> str:
        if source.layer is Layer.ENVIRONMENT:
            return PREFIX + key.upper()
        return self.spelled(key) if source.layer is Layer.FLAGS else source.where

    def _allowed(self, table: str, key: str, source: Source, value: Any = None) -> bool:
        is_open = table == "llm" and key in LLM_KEYS and LLM_KEYS[key].open
        # Weights are read by native code, and a stranger's may be made to break it.
        is_file = key == "model" and isinstance(value, str) and _names_file(value)
        if source.trusted or (is_open and not is_file):
            return True
        may = "name no file as the model" if is_file else f"set only {_OPEN}"
        self._problem(
            ConfigError(
                f"a file in the current folder may {may} until you have accepted it: "
                "read it, then run `isthmus config trust`",
                where=source.where,
                key=f"{table}.{key}",
            )
        )
        return False

    def settings(self) -> Settings:
        """What all sources amount to."""
        return Settings(
            llm=self._merged(),
            chain=self.chain,
            tiers=self.tiers,
            plugins=self.plugins,
            telemetry=self.telemetry,
            sources=tuple(self.sources),
            notes=tuple(self.notes),
            problems=tuple(self.problems),
        )

    def _merged(self) -> dict[str, Setting]:
        provider = next((table["provider"].value for table in reversed(self.llm) if "provider" in table), None)
        merged: dict[str, Setting] = {}
        for table in self.llm:
            beside = table.get("provider")
            for key, item in table.items():
                row = LLM_KEYS.get(key)
                if row is not None and row.bound and beside is not None and beside.value != provider:
                    self.notes.append(
                        f"{item.where}: llm.{key} belongs to {beside.value!r}; not used with {provider!r}"
                    )
                    continue
                merged[key] = _over(merged.get(key), item)
        return merged


def _names_file(model: str) -> bool:
    if model.lower().endswith(".gguf") or model.startswith(("/", "./", "../", "~", "\\", ".\\", "..\\")):
        return True
    try:
        return os.path.lexists(model)
    except ValueError:
        return True


def _over(lower: Setting | None, higher: Setting) -> Setting:
    """The higher setting; tables are merged entry by entry, two levels deep."""
    if lower is None or not (isinstance(lower.value, Mapping) and isinstance(higher.value, Mapping)):
        return higher
    value = dict(lower.value)
    for name, item in higher.value.items():
        below = value.get(name)
        both = isinstance(below, Mapping) and isinstance(item, Mapping)
        value[name] = {**below, **item} if both else item  # type: ignore[dict-item]
    return Setting(value, higher.where, higher.layer, lower.trusted and higher.trusted)


def _unknown_table(name: str, value: Any, where: str) -> ConfigError:
    if not isinstance(value, Mapping):
        known = name in LLM_KEYS or get_close_matches(name, LLM_KEYS, n=1)
        remedy = "put it under [llm]" if known else f"known tables: {', '.join(_TABLES)}"
        return ConfigError(f"stands outside any table; {remedy}", where=where, key=name)
    return unknown_key(name, _TABLES, where=where, table="")
