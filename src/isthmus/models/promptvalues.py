"""The values of a prompt: read by name from whatever holds them, and held against what is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any

import msgspec

from isthmus.errors import PromptError


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "str": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": _number,
    "bool": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list | tuple),
    "dict": lambda value: isinstance(value, Mapping),
}


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a prompt takes.

    Args:
        type: what it must be: "str", "int", "float", "bool", "list", "dict" or "any".
        description: what it is for.
        required: whether it must be given; otherwise it has a default.
        default: what stands for it when it is not given.
        line: where it is declared.
    """

    type: str = "any"
    description: str = ""
    required: bool = True
    default: Any = None
    line: int = 0


def values_by_name(values: Any) -> Mapping[str, Any]:
    """Values by their names: of a mapping, a dataclass, a pydantic model, a msgspec struct, or None."""
    if values is None:
        return {}
    if isinstance(values, Mapping):
        strange = [name for name in values if not isinstance(name, str)]
        if strange:
            raise PromptError(f"values: a name must be text, not {strange[0]!r}")
        return values
    kind = type(values)
    if is_dataclass(kind):
        names: Iterable[str] = [each.name for each in dataclass_fields(kind)]
    elif hasattr(kind, "__struct_fields__"):
        names = kind.__struct_fields__
    elif hasattr(kind, "model_fields"):
        names = [*kind.model_fields, *kind.model_computed_fields, *(values.model_extra or ())]
    else:
        raise PromptError(
            f"values: must be a mapping, dataclass, pydantic model or msgspec struct, not {kind.__name__}: "
            "pass them by name"
        )
    return {name: getattr(values, name) for name in names}


def fits(value: Any, kind: str) -> bool:
    """Whether a value is of a declared type."""
    return TYPES[kind](value)


def declared_values(variables: Mapping[str, Variable], given: Mapping[str, Any], *, place: str) -> dict[str, Any]:
    """A value for each variable that is declared: what is given, else its default.

    Raises:
        PromptError: a value is missing, unknown, or of another type than is declared.
    """
    for name in given:
        if name not in variables:
            raise PromptError(f"{place}: it takes no {name!r}{instead(name, variables)}")
    return {name: _value(name, variable, given, place) for name, variable in variables.items()}


def _value(name: str, variable: Variable, given: Mapping[str, Any], place: str) -> Any:
    if name not in given:
        if not variable.required:
            return variable.default
        raise PromptError(
            f"{place}, line {variable.line}: {name!r} is missing: pass it in `values` "
            f"(given: {', '.join(given) or 'none'}), or declare a default"
        )
    value = given[name]
    if not fits(value, variable.type):
        raise PromptError(
            f"{place}, line {variable.line}: {name!r} must be {variable.type}, not {type(value).__name__}: "
            "pass another value or change the declared type"
        )
    return value


def instead(name: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown name, to end a message with."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known) or 'none'}"
