"""The strictness dialects of JSON Schema, read from `dialects.toml`, and the names that each takes for a tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from hashlib import sha256

import msgspec

_HASH = 10
_KEPT_CHARACTERS = 64
_KEPT_NAMES = 4096


class NameRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool may be called: its first and its other characters, and how many; length 0 takes any name."""

    first: str = ""
    other: str = ""
    length: int = 0


class Dialect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one strict reader of JSON Schema takes; `dialects.toml` explains each field."""

    source: str
    name: str = ""
    default: bool = False
    keywords: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    pattern: str = "any"
    typed: bool = False
    closed: bool = False
    all_required: bool = False
    nullable: bool = True
    items_required: bool = False
    root_object: bool = False
    ref_alone: bool = False
    recursion: str = "yes"
    min_items_max: int | None = None
    enum_kinds: frozenset[str] = frozenset()
    widen: bool = False
    limits: dict[str, int] = {}
    request_limits: dict[str, int] = {}
    names: NameRule = NameRule()

    @property
    def rewrites(self) -> bool:
        """Whether it has any rules."""
        return bool(self.keywords)


@cache
def dialects() -> Mapping[str, Dialect]:
    """All dialects by name."""
    import tomllib
    from importlib.resources import files

    table = tomllib.loads(files("isthmus.models").joinpath("dialects.toml").read_text("utf-8"))
    return {name: msgspec.convert({**row, "name": name}, Dialect) for name, row in table.items()}


def dialect(name: str) -> Dialect:
    """One dialect.

    Args:
        name: its name in `dialects.toml`; empty for the one that strict schemas are held to by default.

    Raises:
        ValueError: there is none of that name; lists those that are.
    """
    found = dialects()
    if not name:
        return next(each for each in found.values() if each.default)
    if name not in found:
        raise ValueError(f"dialect {name!r}: there is none of that name; use one of {', '.join(found)}")
    return found[name]


class LegalNames(msgspec.Struct, frozen=True):
    """Names and what they are sent as.

    Args:
        sent: the legal name of each.
        told: the name of each legal one.
    """

    sent: dict[str, str]
    told: dict[str, str]


def legal_names(names: Iterable[str], *, dialect: str) -> LegalNames:
    """What names are sent as: themselves where they are legal, else legal characters and a hash of the name.

    A name is sent the same whatever stands beside it and in whichever order.

    Args:
        names: any names; one that stands twice is one.
        dialect: whose rule.

    Raises:
        ValueError: there is no such dialect, or two names cannot be told apart.
    """
    sent = {name: legal_name(name, dialect=dialect) for name in names}
    told = {legal: name for name, legal in sent.items()}
    if len(told) != len(sent):
        twice = sorted(name for name, legal in sent.items() if told[legal] != name)
        raise ValueError(f"name {twice[0]!r}: is sent as {sent[twice[0]]!r}, which is another's name; rename one")
    return LegalNames(sent, told)


_dialect = dialect


@lru_cache(maxsize=_KEPT_NAMES)
def legal_name(name: str, *, dialect: str) -> str:
    """What one name is sent as.

    Args:
        name: any name.
        dialect: whose rule.

    Raises:
        ValueError: there is no such dialect.
    """
    rule = _dialect(dialect).names
    if not rule.length or re.fullmatch(f"[{rule.first}][{rule.other}]{{0,{rule.length - 1}}}", name):
        # Not the very text: one of a class of somebody's own would stand for everybody's of the same letters.
        return str.__str__(name)
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    kept = min(rule.length - _HASH - 1, _KEPT_CHARACTERS)
    clean = re.sub(f"[^{rule.other}]", "_", name)
    clean = clean if re.match(f"[{rule.first}]", clean) else f"_{clean}"
    return f"{clean[:kept]}_{digest}"
