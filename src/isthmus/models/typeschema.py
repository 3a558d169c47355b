"""The JSON Schema of the common Python types, without pydantic.

Says what pydantic says of them, less the titles that it makes of field names.
"""

from __future__ import annotations

import collections
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from inspect import cleandoc, isclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from isthmus.models.schemawalk import distinct
from isthmus.models.typebounds import NotPlain, apply, is_json

Schema = dict[str, Any]


def described(annotation: Any, defs: Definitions) -> Schema:
    """The schema of a type; classes become `$ref`s into `defs`.

    Args:
        annotation: the type, its forward references resolved.
        defs: takes the definitions; shared by the types of one document.

    Raises:
        NotPlain: it takes pydantic to say.
    """
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:
        raise NotPlain from None
    if plain is not None:
        return plain.copy()
    bare = _BARE.get(annotation)
    if bare is not None:
        return bare()
    origin = get_origin(annotation)
    if origin is not None:
        make, args = _GENERIC.get(origin), get_args(annotation)
        if make is None or not (args or origin is tuple):
            raise NotPlain
        return make(args, defs)
    if isinstance(annotation, typing.NewType):
        return described(annotation.__supertype__, defs)
    if isclass(annotation):
        return defs.of_class(annotation)
    raise NotPlain


class Definitions:
    """The `$defs` of one document: a class is described once, under its own name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._owners: dict[str, type] = {}
        self._inside: list[type] = []

    def of_class(self, cls: type) -> Schema:
        """A reference to the definition of a class, made where there is none yet; a named tuple stands in place."""
        if any(hasattr(cls, hook) for hook in _HOOKS):
            raise NotPlain
        if issubclass(cls, tuple):
            return self._named_tuple(cls)
        name = cls.__name__
        if self._owners.setdefault(name, cls) is not cls:
            raise NotPlain
        if name not in self.schemas:
            self.schemas[name] = {}
            self.schemas[name] = self._class(cls)
        return {"$ref": f"#/$defs/{name}"}

    def completed(self, schema: Schema) -> Schema:
        """A whole document: the definitions under the schema, a class at the root in place unless it recurs."""
        name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        if name and not any(_refers(each, schema["$ref"]) for each in self.schemas.values()):
            schema = {**self.schemas.pop(name), **{key: schema[key] for key in schema if key != "$ref"}}
        return {**schema, "$defs": self.schemas} if self.schemas else schema

    def _class(self, cls: type) -> Schema:
        if issubclass(cls, Enum):
            return _enum(cls)
        if dataclasses.is_dataclass(cls):
            return self._dataclass(cls)
        if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
            return self._typed_dict(cls)
        raise NotPlain

    def _named_tuple(self, cls: type) -> Schema:
        names = getattr(cls, "_fields", None)
        if names is None or cls in self._inside:
            raise NotPlain
        hints, defaults = _hints(cls), getattr(cls, "_field_defaults", {})
        self._inside.append(cls)
        items = [with_default(described(hints.get(name, Any), self), defaults.get(name, _NONE)) for name in names]
        self._inside.pop()
        least = len(names) - len(defaults)
        return {"type": "array", "prefixItems": items, "minItems": least, "maxItems": len(names)}

    def _typed_dict(self, cls: type) -> Schema:
        properties, required = {}, []
        keys: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
        for name, hint in _hints(cls).items():
            marks, inner = _qualified(hint)
            properties[name] = described(inner, self)
            if "Required" in marks or (name in keys and "NotRequired" not in marks):
                required.append(name)
        return _object(properties, required, cls=cls)

    def _dataclass(self, cls: type) -> Schema:
        hints, properties, required = _hints(cls), {}, []
        every = getattr(cls, "__dataclass_fields__", {})
        fields = dataclasses.fields(cls)
        if any(type(hints.get(name)) is dataclasses.InitVar for name in every):
            raise NotPlain
        for field in fields:
            if not field.init or type(field.default).__module__.startswith("pydantic"):
                raise NotPlain
            default = _NONE if field.default is dataclasses.MISSING else field.default
            if default is _NONE and field.default_factory is dataclasses.MISSING:
                required.append(field.name)
            properties[field.name] = with_default(described(hints[field.name], self), default)
        return _object(properties, required, cls=cls)


def _refers(schema: Any, ref: str) -> bool:
    if isinstance(schema, list):
        return any(_refers(item, ref) for item in schema)
    return isinstance(schema, dict) and (
        schema.get("$ref") == ref or any(_refers(item, ref) for item in schema.values())
    )


_HOOKS = (
    "__get_pydantic_core_schema__",
    "__get_pydantic_json_schema__",
    "__pydantic_core_schema__",
    "__pydantic_config__",
    "__pydantic_serializer__",
)
_NONE: Any = object()


def with_default(schema: Schema, default: Any) -> Schema:
    """The schema with a default, where that is plain JSON."""
    if default is _NONE:
        return schema
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, float) and not isfinite(default):
        return schema
    if not is_json(default):
        raise NotPlain
    schema["default"] = _copied(default)
    return schema


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError):
        raise NotPlain from None


def _qualified(hint: Any) -> tuple[set[str], Any]:
    """The marks around the type of a key (`Required`, `NotRequired`, `ReadOnly`), and the type."""
    marks: set[str] = set()
    extras: tuple[Any, ...] = ()
    while True:
        origin = get_origin(hint)
        name = getattr(origin, "_name", None)
        if name in ("Required", "NotRequired", "ReadOnly"):
            marks.add(name)
            (hint,) = get_args(hint)
        elif origin is Annotated and getattr(get_origin(get_args(hint)[0]), "_name", None) in _QUALIFIERS:
            hint, *more = get_args(hint)
            extras = (*more, *extras)
        else:
            return marks, Annotated[(hint, *extras)] if extras else hint


_QUALIFIERS = ("Required", "NotRequired", "ReadOnly")


def _object(properties: Schema, required: list[str], *, cls: type) -> Schema:
    made: Schema = {"type": "object", "title": cls.__name__, "properties": properties}
    if required:
        made["required"] = required
    text = cls.__dict__.get("__doc__")
    if text and not (dataclasses.is_dataclass(cls) and text.startswith(f"{cls.__name__}(")):
        made["description"] = cleandoc(text)
    return made


def _enum(cls: type[Enum]) -> Schema:
    values = [member.value for member in cls]
    if issubclass(cls, Flag) or not values:
        raise NotPlain
    made: Schema = {"title": cls.__name__, **one_of(values, single="enum")}
    text = cls.__dict__.get("__doc__")
    if text and text != "An enumeration.":
        made["description"] = cleandoc(text)
    return made


_NAMES: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}


def one_of(values: list[Any], *, single: str = "const") -> Schema:
    """The schema of a choice among plain values.

    Args:
        values: what may be chosen.
        single: "const" or "enum", for one value.

    Raises:
        NotPlain: a value that is no plain one.
    """
    kinds = {type(value) for value in values}
    if not kinds <= _NAMES.keys():
        raise NotPlain
    made: Schema = {"const": values[0]} if single == "const" and len(values) == 1 else {"enum": values}
    return {"type": _NAMES[kinds.pop()], **made} if len(kinds) == 1 else made


def _literal(args: tuple[Any, ...], defs: Definitions) -> Schema:
    return one_of([arg.value if isinstance(arg, Enum) else arg for arg in args])


def _union(args: tuple[Any, ...], defs: Definitions) -> Schema:
    ordered = [arg for arg in args if arg is not types.NoneType]
    branches: list[Schema] = []
    for arg in [*ordered, types.NoneType] if len(ordered) < len(args) else ordered:
        made = described(arg, defs)
        branches += made["anyOf"] if made.keys() == {"anyOf"} else (made,)
    branches = distinct(branches)
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _array(args: tuple[Any, ...], defs: Definitions) -> Schema:
    return {"type": "array", "items": described(args[0], defs)}


def _set(args: tuple[Any, ...], defs: Definitions) -> Schema:
    return {**_array(args, defs), "uniqueItems": True}


def _tuple(args: tuple[Any, ...], defs: Definitions) -> Schema:
    if len(args) == 2 and args[1] is Ellipsis:
        return _array(args, defs)
    made: Schema = {"type": "array", "minItems": len(args), "maxItems": len(args)}
    return {**made, "prefixItems": [described(arg, defs) for arg in args]} if args else made


def _mapping(args: tuple[Any, ...], defs: Definitions) -> Schema:
    if args[0] not in (str, int, float, bool, Any):
        raise NotPlain
    return {"type": "object", "additionalProperties": described(args[1], defs) or True}


def _annotated(args: tuple[Any, ...], defs: Definitions) -> Schema:
    made = described(args[0], defs)
    for extra in args[1:]:
        if isinstance(extra, str):
            made.setdefault("description", extra)
        else:
            apply(extra, made)
    return made


_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    types.NoneType: {"type": "null"},
    Any: {},
    object: {},
    bytes: {"type": "string", "format": "binary"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": "string", "format": "duration"},
    UUID: {"type": "string", "format": "uuid"},
    Path: {"type": "string", "format": "path"},
}

_BARE: Mapping[Any, Callable[[], Schema]] = {
    **dict.fromkeys((list, tuple, typing.List, typing.Tuple), lambda: {"type": "array", "items": {}}),  # noqa: UP006
    **dict.fromkeys((set, frozenset), lambda: {"type": "array", "items": {}, "uniqueItems": True}),
    **dict.fromkeys((dict, typing.Dict), lambda: {"type": "object", "additionalProperties": True}),  # noqa: UP006
    # No pattern for the text: readers differ in what look-ahead they take, and validation tells anyway.
    Decimal: lambda: {"anyOf": [{"type": "number"}, {"type": "string"}]},
}

_GENERIC: Mapping[Any, Callable[[tuple[Any, ...], Definitions], Schema]] = {
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
    Annotated: _annotated,
    tuple: _tuple,
    **dict.fromkeys((set, frozenset, collections.abc.Set, collections.abc.MutableSet), _set),
    **dict.fromkeys((list, collections.deque, collections.abc.Sequence, collections.abc.Iterable), _array),
    **dict.fromkeys((dict, collections.abc.Mapping, collections.abc.MutableMapping, collections.OrderedDict), _mapping),
}
