"""Where settings come from, lowest first, each read into plain tables."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from isthmus.errors import ConfigError
from isthmus.settings.keys import LLM_KEYS
from isthmus.settings.trust import TrustStore, read_regular

SEED_GROUP = "isthmus.config_seed"
FOLDER_FILE = "isthmus.toml"
PREFIX = "ISTHMUS_"
RESERVED_VARIABLES = frozenset({"ISTHMUS_CONFIG", "ISTHMUS_LOG"})


class Layer(StrEnum):
    """The layers of a configuration, lowest first."""

    SEED = "seed"
    USER = "user"
    FOLDER = "folder"
    EXPLICIT = "explicit"
    ENVIRONMENT = "environment"
    FLAGS = "flags"


@dataclass(frozen=True, slots=True)
class Source:
    """One place that settings came from.

    Args:
        layer: which layer it belongs to.
        where: the file, "environment" or "flags".
        tables: what it holds, by table.
        trusted: whether it may set keys that run code or move secrets.
        content: the bytes of a file.
    """

    layer: Layer
    where: str
    tables: Mapping[str, Any] = field(repr=False)
    trusted: bool = True
    content: bytes = field(default=b"", repr=False)


def user_file() -> Path:
    """The user's own configuration file."""
    from platformdirs import user_config_path

    return user_config_path("isthmus") / "config.toml"


def state_folder() -> Path:
    """Where the user's state is kept: accepted files, prompt history."""
    from platformdirs import user_state_path

    return user_state_path("isthmus")


def trust_store() -> TrustStore:
    """The user's list of accepted files."""
    return TrustStore(state_folder() / "trusted.json")


def folder_file() -> Path | None:
    """The file of the current folder, or None where that folder is gone."""
    try:
        return Path.cwd() / FOLDER_FILE
    except OSError:
        return None


def parse_toml(content: bytes, where: str) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConfigError: not UTF-8, or not TOML; names the line.
    """
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"line {line} is not UTF-8: save the file as UTF-8", where=where) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"is not valid TOML: {error}", where=where) from None


def _named_file(path: Path, layer: Layer, *, required: bool) -> Source | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if required:
            raise ConfigError("there is no such file", where=str(path)) from None
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return Source(layer, str(path), parse_toml(content, str(path)), content=content)


def seed_sources() -> Iterator[Source]:
    """The configuration that installed distributions bring along, by name of the entry point.

    The entry point names a package, and after a colon the folder in it that holds the `*.toml` files
    (`config_seed` where it names none).
    """
    for point in sorted(entry_points(group=SEED_GROUP), key=lambda point: point.name):
        yield from _seed(point)


def _seed(point: EntryPoint) -> Iterator[Source]:
    label = f"config seed {point.name!r} ({point.value})"
    try:
        folder = files(point.module).joinpath(point.attr or "config_seed")
        texts = {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(".toml")}
    except (Exception, SystemExit) as error:
        raise ConfigError(f"cannot be read: {type(error).__name__}: {error}", where=label) from error
    for name, content in sorted(texts.items()):
        where = f"{label}: {name}"
        yield Source(Layer.SEED, where, parse_toml(content, where), content=content)


def folder_source(path: Path, store: TrustStore) -> Source | None:
    """The file of the current folder, marked as accepted or not; None where there is none.

    Raises:
        ConfigError: it is no plain file, or not valid.
    """
    content = read_regular(path)
    if content is None:
        return None
    tables = parse_toml(content, str(path))
    return Source(Layer.FOLDER, str(path), tables, store.accepts(path, content), content)


def file_sources(explicit: Path | None, environ: Mapping[str, str]) -> Iterator[Source]:
    """The user's file, the folder's and the one that was named, as far as they exist.

    Args:
        explicit: a file named by the caller; else the variable `ISTHMUS_CONFIG` may name one.
        environ: the environment.
    """
    variable = environ.get("ISTHMUS_CONFIG")
    named = explicit or (Path(variable) if variable else None)
    user = _named_file(user_file(), Layer.USER, required=False)
    if user is not None:
        yield user
    folder = folder_file()
    if folder is not None and (named is None or not _same(folder, named)):
        source = folder_source(folder, trust_store())
        if source is not None:
            yield source
    if named is not None:
        source = _named_file(named.expanduser(), Layer.EXPLICIT, required=True)
        if source is not None:
            yield source


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def environment_sources(environ: Mapping[str, str]) -> Iterator[Source]:
    """The `ISTHMUS_<KEY>` variables as keys of `[llm]`; tables are written as JSON.

    Raises:
        ConfigError: a variable that should hold a table holds no JSON object.
    """
    found: dict[str, Any] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name in RESERVED_VARIABLES or not value:
            continue
        key = name[len(PREFIX) :].lower()
        found[key] = _json(value, name) if key in ("headers", "model_limits") and key in LLM_KEYS else value
    if found:
        yield Source(Layer.ENVIRONMENT, "environment", {"llm": found})


def _json(value: str, name: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise ConfigError('must be a JSON object, e.g. {"name": "value"}', where=name) from None
