"""What `Annotated` adds to a type, as JSON Schema says it."""

from __future__ import annotations

from math import isfinite
from typing import Any


class NotPlain(Exception):
    """A type that is not described here: pydantic may know it."""


def is_json(value: Any) -> bool:
    """Whether a value is JSON as it stands."""
    if isinstance(value, list):
        return all(map(is_json, value))
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and all(map(is_json, value.values()))
    return value is None or type(value) in (str, int, bool) or (type(value) is float and isfinite(value))


def apply(extra: Any, made: dict[str, Any]) -> None:
    """Say one piece of metadata in a schema: a bound of `annotated_types`, or what pydantic's `Field` holds.

    Args:
        extra: the piece.
        made: the schema of the bare type; changed.

    Raises:
        NotPlain: it says something else.
    """
    kind = type(extra)
    if kind.__module__ == "annotated_types" and kind.__name__ in _BOUNDS:
        for key, value in vars(extra).items() if hasattr(extra, "__dict__") else _slots(extra):
            _bound(key, value, made)
        return
    if not kind.__module__.startswith("pydantic."):
        raise NotPlain
    if kind.__name__ == "_PydanticGeneralMetadata":
        for key, value in vars(extra).items():
            _bound(key, value, made)
    elif kind.__name__ == "FieldInfo":
        _field_info(extra, made)
    else:
        raise NotPlain


def _slots(extra: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(extra, name)) for name in type(extra).__slots__]


_BOUNDS = frozenset(("Gt", "Ge", "Lt", "Le", "Interval", "MultipleOf", "MinLen", "MaxLen", "Len"))
_SAID = ("title", "description", "examples")
_UNSAID = (
    "alias",
    "default_factory",
    "deprecated",
    "discriminator",
    "field_title_generator",
    "json_schema_extra",
    "validation_alias",
)


def _field_info(info: Any, made: dict[str, Any]) -> None:
    told = any(getattr(info, name, None) is not None for name in _UNSAID)
    if told or type(info.default).__name__ != "PydanticUndefinedType":
        raise NotPlain
    for extra in info.metadata:
        apply(extra, made)
    for name in _SAID:
        value = getattr(info, name)
        if value is not None:
            if not is_json(value):
                raise NotPlain
            made[name] = value


_NUMBERS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
    "integer": _NUMBERS,
    "number": _NUMBERS,
}


def _bound(key: str, value: Any, made: dict[str, Any]) -> None:
    if value is None or (key == "min_length" and value == 0):
        return
    said = _LENGTHS.get(made.get("type", ""), {}).get(key)
    if said is None or said in made or "format" in made or type(value) not in (int, float, str):
        raise NotPlain
    made[said] = value
