"""A JSON Schema as a dialect takes it, and a report of what that changed.

Owns the public function and its report; `isthmus.models.reshape_node` does the rewriting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus.models.dialects import Dialect, dialect
from isthmus.models.reshape_limits import over_limits
from isthmus.models.reshape_node import Change, Reshaper
from isthmus.models.schemawalk import Document, copied, kinds_of, needed_definitions

WRAPPED = "response"
"""The one key of the object in which a value that is no object travels."""


class Report(msgspec.Struct, frozen=True):
    """What a schema becomes in a dialect.

    Args:
        dialect: its name.
        changes: each thing that was changed, in order.
        problems: what the dialect cannot say, with the place of each; none where the schema is usable.
        wrapped: whether it was put into an object, under the key "response".
    """

    dialect: str
    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    wrapped: bool = False

    @property
    def usable(self) -> bool:
        """Whether the dialect can say the schema; if not, it is to be sent as it is, without being enforced."""
        return not self.problems

    @property
    def effect(self) -> str:
        """All changes together: "exact" (the same values), "narrower" (fewer), "wider" (more) or "mixed".

        A value of the new schema is compared as `restore` gives it back, one of the old with null for what is left out.
        """
        found = {change.effect for change in self.changes} - {"exact"}
        return "mixed" if len(found) > 1 else next(iter(found), "exact")

    def summary(self) -> str:
        """The report in one line."""
        if self.problems:
            return f"not sayable in {self.dialect}: {'; '.join(self.problems)}"
        said = "; ".join(f"{each.path or 'root'}: {each.what} ({each.effect})" for each in self.changes)
        return f"{self.effect} in {self.dialect}: {said}" if said else f"unchanged in {self.dialect}"


class Normalised(msgspec.Struct, frozen=True):
    """A schema in a dialect.

    Args:
        schema: the new schema, which shares nothing with the old one; an equal copy of it where it is not usable.
        report: what was changed.
        original: the schema that was given.
    """

    schema: dict[str, Any]
    report: Report
    original: Any

    @property
    def usable(self) -> bool:
        """Whether the dialect can say the schema."""
        return self.report.usable


_TOO_DEEP = "root: it is nested too deeply, or contains itself; use $ref"


def normalise(schema: Mapping[str, Any] | bool, dialect: str) -> Normalised:
    """A schema as a dialect takes it; never changes what it is given, and changes nothing the second time.

    Args:
        schema: a JSON Schema, draft 2020-12 or 7.
        dialect: a name in `dialects.toml`: "none", or the dialect of a provider.

    Raises:
        ValueError: there is no such dialect.
        TypeError: the schema is no mapping and no boolean.
    """
    rules = _dialect(dialect)
    if not isinstance(schema, Mapping | bool):
        raise TypeError(f"schema: must be a JSON Schema (a mapping or a boolean), not {type(schema).__name__}")
    return by_rules(schema, rules)


def by_rules(schema: Mapping[str, Any] | bool, rules: Dialect) -> Normalised:
    """What `normalise` does, for rules that no dialect has by name."""
    whole: Mapping[str, Any] = {} if schema is True else {"not": {}} if schema is False else schema
    try:
        if not rules.rewrites:
            return Normalised(copied(whole), Report(rules.name), schema)
        made, report = _reshaped(whole, rules)
        return Normalised(made if report.usable else copied(whole), report, schema)
    except RecursionError:
        return Normalised(dict(whole), Report(rules.name, problems=(_TOO_DEEP,)), schema)


_dialect = dialect


def report_on(schema: Mapping[str, Any] | bool, dialect: str) -> Report:
    """What `normalise` would change, for a schema that is sent as its author wrote it.

    Raises:
        ValueError: there is no such dialect.
        TypeError: the schema is no mapping and no boolean.
    """
    return normalise(schema, dialect).report


def _reshaped(whole: Mapping[str, Any], rules: Dialect) -> tuple[dict[str, Any], Report]:
    document = Document(whole)
    reshaper = Reshaper(document, rules)
    body, wrapped = document.body, False
    for why in document.malformed:
        reshaper.cannot("", why)
    if rules.root_object:
        body = reshaper.whole(body)
        wrapped = "anyOf" in body or kinds_of(body) != ["object"]
        if wrapped:
            body = {
                "type": "object",
                "properties": {WRAPPED: body},
                "required": [WRAPPED],
                "additionalProperties": False,
            }
    made = reshaper.node(body, "")
    defs = needed_definitions(made, reshaper.defs)
    if defs:
        made["$defs"] = defs
    problems = tuple(dict.fromkeys(reshaper.problems)) or over_limits(made, rules)
    if problems:
        return made, Report(rules.name, problems=problems)
    return made, Report(rules.name, tuple(reshaper.changes), wrapped=wrapped)
