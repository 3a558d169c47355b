"""Two JSON Schemas as the one that takes what both take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from isthmus.models.schemawalk import ANNOTATIONS, Schema, copied, kind_of, kinds_of, required_in


class Unmergeable(Exception):
    """Two schemas whose meeting has no plain form."""


def merged(one: Any, two: Any) -> Any:
    """The schema of what both take; annotations of the first win.

    Args:
        one: a schema.
        two: another; neither is changed.

    Raises:
        Unmergeable: it cannot be said without `allOf`.
    """
    if one is True or two is True:
        return copied(two if one is True else one)
    if one is False or two is False:
        return False
    if not (isinstance(one, Mapping) and isinstance(two, Mapping)):
        raise Unmergeable
    both = one.keys() | two.keys()
    if not _UNMERGED.isdisjoint(both) or ("prefixItems" in both and _ITEMS & one.keys() and _ITEMS & two.keys()):
        raise Unmergeable
    made: Schema = {**copied(two), **copied(one)}
    for key in one.keys() & two.keys():
        if repr(one[key]) != repr(two[key]) and key not in _OBJECT and key not in ANNOTATIONS:
            made[key] = _meet(key, one[key], two[key])
    if _OBJECT & one.keys() and _OBJECT & two.keys():
        _merge_objects(one, two, made)
    if "const" in one and "const" in two and not same(one["const"], two["const"]):
        return False
    if made.get("type") == [] or made.get("enum") == []:
        return False
    return made


# What these are of depends on what stands beside them in their own schema.
_UNMERGED = frozenset(("if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "additionalItems"))
_ITEMS = frozenset(("items", "prefixItems"))
_OBJECT = frozenset(("properties", "required", "additionalProperties", "patternProperties"))
_HIGHER = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_LOWER = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))


def _meet(key: str, one: Any, two: Any) -> Any:
    if key in _HIGHER:
        return max(one, two)
    if key in _LOWER:
        return min(one, two)
    meet = _MEETS.get(key)
    if meet is None:
        raise Unmergeable
    return meet(one, two)


def _types(one: Any, two: Any) -> Any:
    first, second = kinds_of({"type": one}), kinds_of({"type": two})
    both = [kind for kind in first if kind in second]
    if "integer" not in both and ("integer" in first + second) and ("number" in first + second):
        both.append("integer")
    return both[0] if len(both) == 1 else both


def _enums(one: list[Any], two: list[Any]) -> list[Any]:
    return [value for value in one if any(same(value, other) for other in two)]


def same(one: Any, two: Any) -> bool:
    """Whether two JSON values are equal; true is not 1."""
    return kind_of(one) == kind_of(two) and bool(one == two)


_MEETS: Mapping[str, Callable[[Any, Any], Any]] = {
    "const": lambda one, two: one,
    "type": _types,
    "enum": _enums,
    "items": merged,
    "propertyNames": merged,
    "uniqueItems": lambda one, two: one or two,
}


def _merge_objects(one: Mapping[str, Any], two: Mapping[str, Any], made: Schema) -> None:
    if "patternProperties" in one or "patternProperties" in two:
        raise Unmergeable
    first, second = one.get("properties") or {}, two.get("properties") or {}
    other_first, other_second = one.get("additionalProperties", True), two.get("additionalProperties", True)
    names = [*first, *(name for name in second if name not in first)]
    properties = {name: merged(first.get(name, other_first), second.get(name, other_second)) for name in names}
    others = merged(other_first, other_second)
    if others is False:
        properties = {name: each for name, each in properties.items() if each is not False}
    if properties or "properties" in made:
        made["properties"] = properties
    if "additionalProperties" in one or "additionalProperties" in two:
        made["additionalProperties"] = others
    needed = [*required_in(one), *required_in(two)]
    if needed:
        made["required"] = list(dict.fromkeys(needed))
