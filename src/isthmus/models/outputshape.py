"""What a type, or a JSON Schema, becomes on its way to a provider: a schema of an object, and what checks a reply."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from isthmus.errors import OutputDefinitionError
from isthmus.models.dialects import dialect
from isthmus.models.jsontext import dumps, exactly, loads
from isthmus.models.misfits import misfits
from isthmus.models.pytypes import python_type
from isthmus.models.reshape import WRAPPED, normalise
from isthmus.models.restore import without_nulls
from isthmus.models.schema import type_schema, type_validator
from isthmus.models.strictness import conforms, ensure_strict_json_schema

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]+")
_KINDS = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_PARTS = frozenset({"type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "items", "$defs", "not"})


@dataclass(frozen=True, slots=True)
class Shape:
    """How a form is sent and checked.

    Args:
        schema: the JSON Schema of an object.
        wrapped: whether the value is the one member of that object.
        strict: whether a provider can enforce the schema.
        inner: the schema of the value without its wrapper, as its author wrote it.
        validator: has `validate_json(text)` and `validate(value)`, for that value.
    """

    schema: dict[str, Any]
    wrapped: bool
    strict: bool
    inner: Mapping[str, Any]
    validator: Any

    def value(self, text: str | bytes) -> Any:
        """The value of a JSON text; a null that only a provider's dialect asked for leaves its member out.

        Raises:
            ValueError: it does not fit.
        """
        sent, long = exactly(text)
        if long:
            # The reader of JSON text knows floats only.
            with suppress(ValueError):
                return self.validator.validate(sent)
            text = dumps(sent)
        try:
            return self.validator.validate_json(text)
        except ValueError:
            meant = without_nulls(sent, self.inner)
            if meant == sent:
                raise
        return self.validator.validate_json(dumps(meant))


def shape_of(type: Any, strict: bool) -> Shape:
    """The shape of a type, or of a JSON Schema, which is not rewritten beyond what wraps it.

    Args:
        type: a type or a schema.
        strict: whether the schema is to be enforced.

    Raises:
        OutputDefinitionError: it is neither, or an object in it is open and `strict` is asked for.
    """
    given = isinstance(type, Mapping)
    inner = _given(type) if given else _derived(type)
    schema = inner if given else _root(inner)
    wrapped = not _is_object(_root(schema))
    if wrapped:
        schema = _wrapped(inner)
    if given:
        return Shape(schema, wrapped, strict and conforms(normalise(schema, dialect("").name)), inner, _Judge(inner))
    return Shape(_made_strict(schema, type) if strict else schema, wrapped, strict, inner, type_validator(type))


def _made_strict(schema: dict[str, Any], type: Any) -> dict[str, Any]:
    try:
        return ensure_strict_json_schema(schema)
    except ValueError as error:
        raise OutputDefinitionError(f"OutputSchema({shown(type)}): {error}") from None


class _Judge:
    """Checks values against a JSON Schema that somebody gave; the value is the JSON itself."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        try:
            self._deep = type_validator(python_type(schema))
        except TypeError as error:
            raise OutputDefinitionError(f"OutputSchema: {error}: mend the schema") from None

    def validate_json(self, text: str | bytes) -> Any:
        return self.validate(loads(text))

    def validate(self, value: Any) -> Any:
        faults = [f"{where or 'reply'}: {why}" for where, why in misfits(value, self._schema)]
        if faults:
            raise ValueError("; ".join(faults))
        self._deep.validate(value)
        return value


def _derived(annotation: Any) -> dict[str, Any]:
    if isinstance(annotation, str) or not _is_type(annotation):
        raise OutputDefinitionError(
            f"OutputSchema({annotation!r:.60}): this is no type: give a class, such as a pydantic model or a "
            "dataclass, a type like list[int], or a JSON Schema as a dict"
        )
    try:
        return type_schema(annotation)
    except (TypeError, ValueError) as error:
        raise OutputDefinitionError(
            f"OutputSchema({shown(annotation)}): {error}: use fields of types that JSON can express"
        ) from None


def _is_type(annotation: Any) -> bool:
    special = type(annotation).__module__ in ("typing", "types", "typing_extensions")
    return annotation is None or isinstance(annotation, type) or get_origin(annotation) is not None or special


def _given(schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        made = loads(dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputDefinitionError(f"OutputSchema: the schema is no JSON: {error}") from None
    kinds = made.get("type")
    strange = [
        kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind is not None and kind not in _KINDS
    ]
    if strange or (made and not made.keys() & _PARTS):
        wrong = f"type {strange[0]!r}" if strange else f"keys {', '.join(map(repr, made))}"
        raise OutputDefinitionError(
            f"OutputSchema: {wrong}: this is no JSON Schema; one of an object is "
            '{"type": "object", "properties": {…}, "required": […]}'
        )
    return copy.deepcopy(dict(schema))


def _root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with a reference at its very root followed: providers want an object there."""
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/"):
        found = schema.get("$defs", {}).get(target.removeprefix("#/$defs/"))
        if isinstance(found, Mapping):
            return {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    return dict(schema)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    made = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return {**made, **shared}


def legal_name(annotation: Any) -> str:
    """A type as a word that providers accept: `list[int]` as list_int, `Box[int]` as Box_int."""
    given = isinstance(annotation, Mapping)
    said = str(annotation.get("title") or WRAPPED) if given else "_".join(_words(annotation))
    word = _ILLEGAL.sub("_", said).strip("_")[:64]
    return word if word[:1].isalpha() else f"{WRAPPED}_{word}"[:64].rstrip("_")


def _words(annotation: Any) -> Iterator[str]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _words(inner[0])
        return
    if origin is None or isinstance(annotation, type):
        yield _word(annotation)
    else:
        yield "Union" if origin is UnionType else _word(origin)
    for each in inner:
        yield from _words(each)


def _word(annotation: Any) -> str:
    if isinstance(annotation, Enum):
        return str(annotation.value)
    return str(getattr(annotation, "__name__", None) or annotation)


def shown(annotation: Any) -> str:
    """A type as a person wrote it."""
    if isinstance(annotation, Mapping):
        return f"{dict(annotation)!r:.60}"
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
