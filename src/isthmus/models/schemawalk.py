"""How JSON Schemas nest: their subschemas, their references, and what a value's type is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]

ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
MANY = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
DEFS = "#/$defs/"
# Keywords that bind no value.
ANNOTATIONS = frozenset(
    (
        *("$comment", "default", "deprecated", "description", "discriminator", "examples", "propertyOrdering"),
        *("readOnly", "title", "writeOnly"),
    )
)
# Keywords that bind a value.
BINDING = frozenset(
    (
        *("additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains", "dependencies", "else"),
        *("dependentRequired", "dependentSchemas", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if"),
        *("items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems"),
        *("minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties"),
        *("prefixItems", "properties", "propertyNames", "required", "then", "type", "unevaluatedItems"),
        *("unevaluatedProperties", "uniqueItems", "$ref", "$dynamicRef", "$recursiveRef"),
    )
)


def children(schema: Any) -> Iterator[tuple[str, Any]]:
    """Each subschema with its place below the schema, as a JSON pointer."""
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            yield from ((f"/{key}/{escaped(name)}", each) for name, each in value.items() if _is_schema(each))
        elif key in MANY and isinstance(value, list | tuple):
            yield from ((f"/{key}/{number}", each) for number, each in enumerate(value))
        elif key in ONE and _is_schema(value):
            yield f"/{key}", value


def mapped(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A copy with each direct subschema changed, and everything else copied."""
    if not isinstance(schema, Mapping):
        return schema
    made: Schema = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            made[key] = {name: change(each) if _is_schema(each) else copied(each) for name, each in value.items()}
        elif key in MANY and isinstance(value, list | tuple):
            made[key] = [change(each) for each in value]
        elif key in ONE and _is_schema(value):
            made[key] = change(value)
        else:
            made[key] = copied(value)
    return made


def _is_schema(value: Any) -> bool:
    return isinstance(value, Mapping | bool)


def copied(value: Any) -> Any:
    """A copy of a JSON value that shares nothing with it."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list | tuple) else value


def escaped(name: Any) -> str:
    """A name as one step of a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def kind_of(value: Any) -> str:
    """The JSON Schema type of a value; whole floats are integers."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if value is None:
        return "null"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema names; none where it names none."""
    said = schema.get("type", [])
    return [said] if isinstance(said, str) else list(said)


def is_nothing(schema: Any) -> bool:
    """Whether a schema says outright that no value fits."""
    if isinstance(schema, dict):
        return schema.get("not") in ({}, True)
    return schema is False


def required_in(schema: Mapping[str, Any]) -> list[str]:
    """The names that a schema requires, each once."""
    said = schema.get("required")
    return list(dict.fromkeys(said)) if isinstance(said, list | tuple) else []


def distinct(values: Iterable[Any]) -> list[Any]:
    """JSON values, each once; 0 is not false, though Python says so."""
    return list({repr(value): value for value in values}.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_kind(value: Any) -> bool:
    return value in ("array", "boolean", "integer", "null", "number", "object", "string")


def _are_names(value: Any) -> bool:
    return _is_list(value) and all(isinstance(item, str) for item in value)


# What the values of keywords must be for anything to be read of them.
_FORMS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(ONE, _is_schema),
    "items": lambda value: _is_schema(value) or _is_list(value),
    **dict.fromkeys(("allOf", "anyOf", "enum", "oneOf", "prefixItems"), _is_list),
    **dict.fromkeys(NAMED, lambda value: isinstance(value, Mapping)),
    **dict.fromkeys(("$ref", "format", "pattern"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"), _is_number),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"), _is_number),
    "required": _are_names,
    "type": lambda value: _is_kind(value) or (_is_list(value) and bool(value) and all(map(_is_kind, value))),
}


class Document:
    """A schema with every reference in it led to `$defs`, wherever it led before, and without malformed keywords.

    Args:
        root: the schema; never changed.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._names: dict[str, str] = {}
        self.malformed: list[str] = []
        self.defs: dict[str, Any] = {}
        self.body: Schema = self._led({key: item for key, item in root.items() if key not in ("$defs", "definitions")})
        self.malformed += [f"'$ref' of {name!r} leads back to itself; say what it means" for name in self._empty()]

    def _empty(self) -> Iterator[str]:
        """The definitions that are a circle of references and nothing else."""
        for name in self.defs:
            passed, at = set[str](), name
            while at not in passed and "$ref" in (self.defs.get(at) or ()):
                passed.add(at)
                at = str(self.defs[at]["$ref"]).removeprefix(DEFS)
            if at in passed:
                yield name

    def _led(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        wrong = [key for key, value in schema.items() if key in _FORMS and not _FORMS[key](value)]
        self.malformed += [f"{key!r} cannot be {schema[key]!r:.40}; see JSON Schema" for key in wrong]
        made = mapped({key: value for key, value in schema.items() if key not in wrong}, self._led)
        if "$ref" in made:
            made["$ref"] = self._place(made["$ref"])
        return made

    def _place(self, ref: str) -> str:
        """Where the reference leads in the document; the definition is made when first met."""
        if ref not in self._names:
            found, target = self._find(ref)
            if not found:
                return ref
            name = self._names[ref] = self._named(ref)
            self.defs[name] = {}
            if ref == "#" and isinstance(target, Mapping):
                target = {key: item for key, item in target.items() if key not in ("$defs", "definitions")}
            self.defs[name] = self._led(target)
        return DEFS + self._names[ref]

    def _named(self, ref: str) -> str:
        steps = ref.removeprefix("#").strip("/").split("/")
        direct = len(steps) == 2 and steps[0] in ("$defs", "definitions")
        name = "".join(char if char.isalnum() or char in "_.-" else "_" for char in steps[-1]) or "root"
        taken = set(self.defs)
        if not direct:
            taken |= {name for key in ("$defs", "definitions") for name in _names_in(self._root.get(key))}
        base, number = name, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        return name

    def _find(self, ref: str) -> tuple[bool, Any]:
        if ref != "#" and not ref.startswith("#/"):
            return False, None
        at: Any = self._root
        for step in ref.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(at, Mapping) and key in at:
                at = at[key]
            elif isinstance(at, list) and key.isdigit() and int(key) < len(at):
                at = at[int(key)]
            else:
                return False, None
        return isinstance(at, Mapping | bool), at

    def target(self, ref: str) -> Any:
        """What a reference leads to; None where it leads nowhere."""
        return self.defs.get(ref.removeprefix(DEFS)) if ref.startswith(DEFS) else None

    def recursive(self, *, through_optional: bool = True) -> set[str]:
        """The names of the definitions that lead back to themselves.

        Args:
            through_optional: whether ways through properties that may be left out count.
        """
        leads = {name: set(_leads(each, through_optional)) for name, each in self.defs.items()}
        for _ in leads:
            for name, reached in leads.items():
                leads[name] = reached.union(*(leads.get(other, set()) for other in reached))
        return {name for name, reached in leads.items() if name in reached}


def needed_definitions(schema: Schema, defs: Mapping[str, Any]) -> Schema:
    """Those definitions that a schema leads to, directly or through others."""
    found: Schema = {}
    ahead = list(_leads(schema, True))
    while ahead:
        name = ahead.pop()
        if name in defs and name not in found:
            found[name] = defs[name]
            ahead += _leads(defs[name], True)
    return {name: found[name] for name in defs if name in found}


def _names_in(value: Any) -> Iterable[str]:
    return value if isinstance(value, Mapping) else ()


def _leads(schema: Any, through_optional: bool) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith(DEFS):
        yield ref.removeprefix(DEFS)
    needed = {escaped(name) for name in required_in(schema)}
    for place, child in children(schema):
        step = place.split("/")[2] if place.startswith("/properties/") else None
        if through_optional or step is None or step in needed:
            yield from _leads(child, through_optional)
