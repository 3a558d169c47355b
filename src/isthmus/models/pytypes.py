"""From JSON Schema to Python types that check values against it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired, Required

from isthmus.models.reshape_values import mapping
from isthmus.models.schemamerge import Unmergeable, merged, same
from isthmus.models.schemawalk import DEFS, Document, copied, is_nothing, kinds_of, required_in


def python_type(schema: Mapping[str, Any] | bool, *, name: str = "Value") -> Any:
    """A Python type that takes what a JSON Schema takes: for type checks of values, and for those who read them.

    Objects become `TypedDict`s, closed or open as the schema says, or dicts; choices `Literal`s; bounds and patterns
    `Annotated`. `not`, `if`, `contains`, the like, and the schema of further keys beside named ones are not read: the
    type then takes more than the schema. Definitions that recur and are no objects take any value.

    Args:
        schema: the schema; never changed.
        name: what its object is called.

    Raises:
        TypeError: it is no mapping and no boolean, or a reference in it leads nowhere.
    """
    if not isinstance(schema, Mapping | bool):
        raise TypeError(f"schema: must be a JSON Schema (a mapping or a boolean), not {type(schema).__name__}")
    if isinstance(schema, bool):
        return _Maker(Document({})).of(schema, name)
    try:
        document = Document(schema)
        return _Maker(document).of(document.body, name)
    except RecursionError:
        raise TypeError("schema: it is nested too deeply, or contains itself; use $ref") from None


class _Maker:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._made: dict[str, Any] = {}
        self._inside: dict[str, Any] = {}

    def of(self, schema: Any, name: str) -> Any:
        """The type of a schema."""
        if schema is True or schema == {}:
            return Any
        if is_nothing(schema) or not isinstance(schema, Mapping):
            return _checked(Any, lambda value: False, "no value fits here")
        for key in ("allOf", "$ref"):
            if key in schema and schema.keys() != {"$ref"}:
                return self.of(self._merged(schema), name)
        if "$ref" in schema:
            return self._referred(schema["$ref"])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._union(schema, key, name)
        chosen = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if chosen is not None:
            return _choice(chosen)
        kinds = kinds_of(schema) or _implied(schema)
        return reduce(or_, [self._of_kind(kind, schema, name) for kind in kinds]) if kinds else Any

    def _merged(self, schema: Mapping[str, Any]) -> Any:
        """The schema without `allOf` and company beside a reference; a part that cannot be merged is left out."""
        parts = [{key: value for key, value in schema.items() if key not in ("allOf", "$ref")}]
        parts += [{"$ref": schema["$ref"]}] if "$ref" in schema else []
        made: Any = True
        for part in (*parts, *(schema.get("allOf") or ())):
            if isinstance(part, Mapping) and "$ref" in part:
                part = merged({key: value for key, value in part.items() if key != "$ref"}, self._target(part["$ref"]))
            try:
                made = merged(made, part)
            except Unmergeable:
                continue
        return made

    def _target(self, ref: str) -> Any:
        target = self._document.target(ref)
        if target is None:
            raise TypeError(f"schema: the reference {ref!r} leads nowhere in it; put what it means in place")
        return target

    def _referred(self, ref: str) -> Any:
        target = self._target(ref)
        if ref in self._inside:
            made = self._inside[ref]
            if made is None:
                return Any
            return made
        if ref not in self._made:
            name = ref.removeprefix(DEFS)
            recurs = name in self._document.recursive()
            shaped = isinstance(target, Mapping) and kinds_of(target) == ["object"] and target.get("properties")
            self._inside[ref] = _typed_dict(name) if recurs and shaped else None
            made = self._inside[ref]
            self._made[ref] = self._keys(made, target, name) if made is not None else self.of(target, name)
            del self._inside[ref]
        return self._made[ref]

    def _union(self, schema: Mapping[str, Any], key: str, name: str) -> Any:
        beside = {each: value for each, value in schema.items() if each != key}
        branches = []
        for number, branch in enumerate(schema[key]):
            try:
                whole = merged(beside, branch) if beside else copied(branch)
            except Unmergeable:
                whole = branch
            if not is_nothing(whole):
                branches.append(self.of(whole, f"{name}{number + 1}"))
        if Any in branches:
            return Any
        return reduce(or_, branches) if branches else self.of(False, name)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], name: str) -> Any:
        made = {"array": self._array, "object": self._object}.get(kind)
        if made is not None:
            return made(schema, name)
        plain = {"string": str, "integer": int, "number": float, "boolean": bool}.get(kind)
        return None if plain is None else _bounded(int | float if plain is float else plain, schema, kind)

    def _array(self, schema: Mapping[str, Any], name: str) -> Any:
        prefix, items = schema.get("prefixItems") or (), schema.get("items", True)
        if isinstance(items, list):
            prefix, items = items, schema.get("additionalItems", True)
        count = len(prefix)
        if prefix and schema.get("minItems") == count and (schema.get("maxItems") == count or is_nothing(items)):
            return tuple[tuple(self.of(each, name) for each in prefix)]  # type: ignore[misc]
        if prefix:
            return _bounded(list[Any], schema, "array")
        return _bounded(list[self.of(items, f"{name}Item")], schema, "array")  # type: ignore[misc]

    def _object(self, schema: Mapping[str, Any], name: str) -> Any:
        if not mapping(schema.get("properties")) and not required_in(schema):
            others = schema.get("additionalProperties", True)
            if is_nothing(others):
                return self._keys(_typed_dict(name), schema, name)
            return _bounded(dict[str, self.of(others, f"{name}Value")], schema, "object")  # type: ignore[misc]
        return self._keys(_typed_dict(name), schema, name)

    def _keys(self, made: Any, schema: Mapping[str, Any], name: str) -> Any:
        """A `TypedDict` filled with the keys of a schema."""
        told, needed = dict(mapping(schema.get("properties"))), required_in(schema)
        told = {**told, **{key: True for key in needed if key not in told}}
        for key, each in told.items():
            inner = self.of(each, f"{name}{str(key).title()}")
            text = each.get("description") if isinstance(each, Mapping) else None
            inner = Annotated[inner, text] if isinstance(text, str) else inner
            made.__annotations__[key] = _MARKS[key in needed][inner]
        made.__required_keys__ = frozenset(key for key in told if key in needed)
        made.__optional_keys__ = frozenset(told) - made.__required_keys__
        closed = is_nothing(schema.get("additionalProperties", True))
        made.__pydantic_config__ = {"extra": "forbid" if closed else "allow"}
        return made


_MARKS: Mapping[bool, Any] = {True: Required, False: NotRequired}


def _typed_dict(name: str) -> Any:
    if sys.version_info >= (3, 12):
        from typing import TypedDict
    else:
        # Pydantic reads no other one there.
        from typing_extensions import TypedDict
    make: Any = TypedDict
    return make("".join(char for char in name if char.isalnum() or char == "_") or "Value", {})


def _implied(schema: Mapping[str, Any]) -> list[str]:
    """An object, where a schema says no type and speaks of properties; pydantic could not tell otherwise."""
    return ["object"] if "properties" in schema else []


def _choice(chosen: list[Any]) -> Any:
    plain = all(value is None or type(value) in (str, bool, int) for value in chosen)
    literal: Any = Literal[tuple(chosen)] if plain and chosen else Any
    return _checked(literal, lambda value: any(same(value, each) for each in chosen), f"must be one of {chosen}")


def _bounded(plain: Any, schema: Mapping[str, Any], kind: str) -> Any:
    tests = [(word, schema[word], _TESTS[kind][word]) for word in _TESTS[kind] if word in schema]
    for word, limit, test in tests:
        plain = _checked(plain, _against(test, limit), f"{word} is {limit}")
    return plain


def _against(test: Callable[[Any, Any], bool], limit: Any) -> Callable[[Any], bool]:
    return lambda value: test(value, limit)


def _is_found(pattern: str, text: str) -> bool:
    """Whether a text has the pattern; one that only other languages read binds nothing."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True


_SIZES: Mapping[str, Callable[[Any, Any], bool]] = {
    "min": lambda value, limit: len(value) >= limit,
    "max": lambda value, limit: len(value) <= limit,
}
_TESTS: Mapping[str, Mapping[str, Callable[[Any, Any], bool]]] = {
    "string": {
        "minLength": _SIZES["min"],
        "maxLength": _SIZES["max"],
        "pattern": lambda value, limit: _is_found(limit, value),
    },
    "array": {
        "minItems": _SIZES["min"],
        "maxItems": _SIZES["max"],
        "uniqueItems": lambda value, limit: not limit or len({repr(item) for item in value}) == len(value),
    },
    "object": {"minProperties": _SIZES["min"], "maxProperties": _SIZES["max"]},
    "boolean": {},
    "integer": (
        numbers := {
            "minimum": lambda value, limit: value >= limit,
            "maximum": lambda value, limit: value <= limit,
            "exclusiveMinimum": lambda value, limit: value > limit,
            "exclusiveMaximum": lambda value, limit: value < limit,
            "multipleOf": lambda value, limit: value % limit == 0,
        }
    ),
    "number": numbers,
}


def _checked(plain: Any, test: Callable[[Any], bool], rule: str) -> Any:
    """The type with one more test of its values."""
    from pydantic import AfterValidator

    def check(value: Any) -> Any:
        if not test(value):
            raise ValueError(rule)
        return value

    return Annotated[plain, AfterValidator(check)]
