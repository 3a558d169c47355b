"""Where and why a JSON value does not fit a JSON Schema, in words that a model can act on.

For the arguments of tools that come with a schema and nothing else. Reads the keywords of drafts 7 to 2020-12 that
judge values, and references inside of the schema; what it does not read it does not judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from urllib.parse import unquote

from isthmus.models.jsontext import dumps

Misfit: TypeAlias = tuple[str, str]
_SHOWN = 80


def misfits(value: Any, schema: Any) -> Iterator[Misfit]:
    """Each place in a value that does not fit, and why; the place of the whole is the empty string."""
    yield from _Check(schema).value(value, schema, "")


def shown(value: Any) -> str:
    """A value as short JSON."""
    try:
        text = dumps(value).decode()
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _number,
    "integer": lambda value: _number(value) and (isinstance(value, int) or value.is_integer()),
}


class _Check:
    """One check against one schema, which its references point into."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._open: set[tuple[int, int]] = set()

    def value(self, value: Any, schema: Any, where: str) -> Iterator[Misfit]:
        """What does not fit."""
        if schema is False:
            yield where, f"must not be there (given: {shown(value)})"
        if not isinstance(schema, Mapping):
            return
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(kinds, list) and not any(_TYPES.get(str(kind), lambda _: True)(value) for kind in kinds):
            yield where, f"must be {' or '.join(map(str, kinds))} (given: {shown(value)})"
            return
        for judge in (*(judge for keyword, judge in _KEYWORDS.items() if keyword in schema), *_ALWAYS):
            # A keyword that is not what JSON Schema says it is binds nothing: no value could be mended to fit it.
            with suppress(TypeError, AttributeError):
                yield from judge(self, value, schema, where)

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether it fits."""
        return next(self.value(value, schema, ""), None) is None

    def ref(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`$ref` to a place inside the schema; others are not judged, nor is a circle."""
        target = _pointed(self._root, schema["$ref"])
        here = (id(target), id(value))
        if target is None or here in self._open:
            return
        self._open.add(here)
        try:
            yield from self.value(value, target, where)
        finally:
            self._open.discard(here)

    def enum(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`enum`."""
        allowed = schema["enum"]
        if isinstance(allowed, list | tuple) and not any(same(value, each) for each in allowed):
            yield where, f"must be one of {shown(list(allowed))} (given: {shown(value)})"

    def const(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`const`."""
        if not same(value, schema["const"]):
            yield where, f"must be {shown(schema['const'])} (given: {shown(value)})"

    def all_of(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`allOf`."""
        for each in schema["allOf"]:
            yield from self.value(value, each, where)

    def any_of(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`anyOf`: where none fits, what the nearest one says."""
        yield from self._nearest(value, schema["anyOf"], where)

    def one_of(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`oneOf`: the same, and no two at once."""
        fitting = sum(self.fits(value, each) for each in schema["oneOf"])
        if fitting > 1:
            yield where, f"must fit one form only, but fits {fitting} (given: {shown(value)})"
        yield from self._nearest(value, schema["oneOf"], where)

    def _nearest(self, value: Any, forms: Sequence[Any], where: str) -> Iterator[Misfit]:
        wrong = []
        for each in forms:
            wrong.append(list(self.value(value, each, where)))
            if not wrong[-1]:
                return
        # A form that only asks for another type says nothing about this value: it is the farthest.
        told = [faults for faults in wrong if faults[0][0] != where or "must be" not in faults[0][1]]
        if told:
            yield from min(told, key=len)
        elif wrong:
            words = dict.fromkeys(faults[0][1].partition(" (given: ")[0].removeprefix("must be ") for faults in wrong)
            yield where, f"must be {' or '.join(words)} (given: {shown(value)})"

    def negated(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`not`."""
        if self.fits(value, schema["not"]):
            yield where, f"must not fit {shown(schema['not'])} (given: {shown(value)})"

    def conditional(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`if`, `then`, `else`."""
        yield from self.value(value, schema.get("then" if self.fits(value, schema["if"]) else "else"), where)

    def bounds(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """Bounds of a number, and what it must be a multiple of."""
        if not _number(value):
            return
        for keyword, (words, holds) in _BOUNDS.items():
            bound = schema.get(keyword)
            if _number(bound) and not holds(value, bound):
                yield where, f"must be {words} {shown(bound)} (given: {shown(value)})"

    def sizes(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """Sizes of strings, arrays and objects."""
        sized = next((words for kind, words in _SIZED.items() if isinstance(value, kind)), None)
        if sized is None:
            return
        noun, plural = sized
        least, most = schema.get(f"min{noun}", 0), schema.get(f"max{noun}", len(value))
        if not least <= len(value) <= most:
            bound = f"at least {least}" if len(value) < least else f"at most {most}"
            yield where, f"must have {bound} {plural}, not {len(value)} (given: {shown(value)})"

    def pattern(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """`pattern`."""
        if isinstance(value, str) and _matches(schema["pattern"], value) is False:
            yield where, f"must match the pattern {schema['pattern']} (given: {shown(value)})"

    def members(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """What an object must hold, and what it holds."""
        if not isinstance(value, dict):
            return
        inside = f"{where}." if where else ""
        known = schema.get("properties") or {}
        patterns = schema.get("patternProperties") or {}
        for key in schema.get("required") or ():
            if key not in value:
                yield inside + str(key), "it is required"
        for key, needed in (schema.get("dependentRequired") or {}).items():
            missing = [each for each in needed if key in value and each not in value]
            yield from ((inside + str(each), f"it is required beside {key}") for each in missing)
        for key, item in value.items():
            if "propertyNames" in schema:
                yield from self.value(key, schema["propertyNames"], inside + key)
            fitting = [each for pattern, each in patterns.items() if _matches(pattern, key)]
            for each in ([known[key]] if key in known else []) + fitting:
                yield from self.value(item, each, inside + key)
            if key in known or fitting or "additionalProperties" not in schema:
                continue
            if schema["additionalProperties"] is False:
                yield inside + key, f"there is no such argument; known are {', '.join(map(str, known)) or 'none'}"
            else:
                yield from self.value(item, schema["additionalProperties"], inside + key)

    def items(self, value: Any, schema: Mapping[str, Any], where: str) -> Iterator[Misfit]:
        """What an array holds."""
        if not isinstance(value, list):
            return
        every = schema.get("items")
        first = schema.get("prefixItems", every if isinstance(every, list) else None) or []
        rest = schema.get("additionalItems") if isinstance(every, list) else every
        for index, item in enumerate(value):
            yield from self.value(item, first[index] if index < len(first) else rest, f"{where}[{index}]")
        if schema.get("uniqueItems") is True:
            for index, item in enumerate(value):
                if any(same(item, other) for other in value[:index]):
                    yield f"{where}[{index}]", f"must not be there twice (given: {shown(item)})"
        if "contains" in schema:
            count = sum(self.fits(item, schema["contains"]) for item in value)
            least, most = schema.get("minContains", 1), schema.get("maxContains", count)
            if not least <= count <= most:
                bound = f"at least {least}" if count < least else f"at most {most}"
                yield where, f"must hold {bound} that fit {shown(schema['contains'])}, not {count}"


def _pointed(root: Any, ref: Any) -> Any:
    """What a reference names, or None where that is not in this schema."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found = root
    for part in ref.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _matches(pattern: Any, text: str) -> bool | None:
    """Whether a pattern is found in a text; None where it cannot be read here."""
    try:
        return re.search(pattern, text) is not None
    except (re.error, TypeError):
        return None


def _is_multiple(value: Any, step: Any) -> bool:
    try:
        return step == 0 or Decimal(str(value)) % Decimal(str(step)) == 0
    except InvalidOperation:
        return isinstance(value, int) and isinstance(step, int) and value % step == 0


_BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
    "multipleOf": ("a multiple of", _is_multiple),
}
_SIZED: Mapping[type, tuple[str, str]] = {
    str: ("Length", "characters"),
    list: ("Items", "items"),
    dict: ("Properties", "members"),
}

_Judge: TypeAlias = Callable[[_Check, Any, Mapping[str, Any], str], Iterator[Misfit]]
_KEYWORDS: Mapping[str, _Judge] = {
    "$ref": _Check.ref,
    "enum": _Check.enum,
    "const": _Check.const,
    "allOf": _Check.all_of,
    "anyOf": _Check.any_of,
    "oneOf": _Check.one_of,
    "not": _Check.negated,
    "if": _Check.conditional,
    "pattern": _Check.pattern,
}
_ALWAYS: tuple[_Judge, ...] = (_Check.bounds, _Check.sizes, _Check.members, _Check.items)
