"""How a request declares its tools: under which names, by which schemas, and which of them are strict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from isthmus.errors import InvalidRequestError
from isthmus.models.contract import ToolSpec
from isthmus.models.dialects import Dialect, legal_name
from isthmus.models.dialects import dialect as _dialect
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import dumps, loads
from isthmus.models.reshape import Normalised, normalise
from isthmus.models.reshape_limits import sizes_of
from isthmus.models.strictness import conforms

_KEPT = 256


class Declaration(msgspec.Struct, frozen=True):
    """A tool as a request declares it.

    Args:
        name: legal in the dialect.
        description: as its author wrote it.
        parameters: the JSON Schema of its arguments; not to be changed.
        strict: whether the provider is to enforce it; None says nothing.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None


class SentNames(dict[str, str]):
    """The tools' own names by what they were sent as, where that differs: the same for every call, so calls share it.

    Args:
        dialect: whose rule decides, a name in `dialects.toml`.
    """

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._dialect = dialect

    def learn(self, tools: Iterable[ToolSpec]) -> None:
        """Remember those of these tools."""
        for spec in tools:
            sent = legal_name(spec.name, dialect=self._dialect)
            if sent != spec.name:
                self[sent] = spec.name


def declared(tools: Iterable[ToolSpec], *, dialect: str, notes: list[Note]) -> list[Declaration]:
    """Tools as a dialect takes them.

    A tool that asks to be strict gets a schema that the dialect can enforce; where there is none, or where all strict
    tools together are too much, that one tool is sent as it is, not strict. An explicit schema is never rewritten.

    Args:
        tools: the tools, in order.
        dialect: a name in `dialects.toml`.
        notes: takes a note of each thing that was changed.

    Raises:
        InvalidRequestError: two tools would be sent under one name; names it.
    """
    rules = _dialect(dialect)
    total: dict[str, int] = {}
    made: dict[str, Declaration] = {}
    for spec in tools:
        name = legal_name(spec.name, dialect=dialect)
        if name in made:
            raise InvalidRequestError(f"tools: two are called {name!r} here; rename one")
        if name != spec.name:
            _note(notes, f"{spec.name!r} is sent as {name!r}")
        parameters, strict = spec.parameters, spec.strict
        if strict and rules.rewrites:
            found, why = _enforced(spec, rules, total)
            parameters, strict = (parameters, False) if found is None else (found, True)
            if why:
                _note(notes, f"{spec.name!r} {'is not strict' if found is None else 'changed'}: {why}")
        made[name] = Declaration(name, spec.description, parameters, strict)
    return [*made.values()]


def _note(notes: list[Note], detail: str) -> None:
    notes.append(Note(NoteCode.PARAMETER_CHANGED, f"tools: {detail}"))


def _enforced(spec: ToolSpec, rules: Dialect, total: dict[str, int]) -> tuple[Mapping[str, Any] | None, str]:
    """The schema that can be enforced, or None; and what there is to say of that."""
    made = _normalised(dumps(spec.parameters), rules.name)
    if not made.usable or made.report.wrapped:
        return None, "; ".join(made.report.problems) or "root: must be an object and no union"
    explicit = spec.parameters_schema is not None
    if explicit and not conforms(made):
        return None, f"its own schema is sent unchanged, which {rules.name} does not take: {made.report.summary()}"
    sizes = Counter(total) + sizes_of(made.schema) + Counter(tools=1)
    over = next((what for what, most in rules.request_limits.items() if sizes[what] > most), None)
    if over is not None:
        return None, f"{sizes[over]} of {over} in all strict tools, {rules.name} takes {rules.request_limits[over]}"
    total.update(sizes)
    if explicit:
        return spec.parameters, ""
    return made.schema, made.report.summary() if made.report.changes else ""


@lru_cache(maxsize=_KEPT)
def _normalised(text: bytes, name: str) -> Normalised:
    return normalise(loads(text), name)
