"""The rules of a dialect on what binds one value: types, enums, bounds, formats; and what null does to a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.models.schemamerge import same
from isthmus.models.schemawalk import (
    BINDING,
    DEFS,
    Schema,
    copied,
    distinct,
    is_nothing,
    kind_of,
    kinds_of,
    required_in,
)

if TYPE_CHECKING:
    from typing import Protocol

    from isthmus.models.dialects import Dialect

    class Rewriter(Protocol):
        """What these functions need of the one who rewrites."""

        rules: Dialect

        def change(self, at: str, what: str, *, effect: str) -> None:
            """Take down a change."""
            ...

        def cannot(self, at: str, why: str) -> Schema:
            """Take down what cannot be said."""
            ...


_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_CUNNING = re.compile(r"\(\?[=!<P>#:imsx]|\\[bB1-9kpP]")


def typed(schema: Schema, reshaper: Rewriter, *, at: str) -> Schema:
    """The schema with the type that its values or its other keywords imply; the same where they imply none."""
    found = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if found:
        kinds = list(dict.fromkeys(kind_of(value) for value in found))
        reshaper.change(at, "its type was named", effect="exact")
        return {"type": kinds[0] if len(kinds) == 1 else kinds, **schema}
    implied = [kind for kind, keys in _OF_KIND.items() if any(key in schema for key in keys)]
    if len(implied) != 1:
        return schema
    reshaper.change(at, f"its type was named: {implied[0]}", effect="narrower")
    return {"type": implied[0], **schema}


def narrowed(schema: Schema, reshaper: Rewriter, *, at: str) -> Schema:
    """The schema with values that its own type allows, of kinds that the dialect takes; perhaps as a union."""
    if "const" in schema and "enum" in schema:
        if not any(same(schema["const"], value) for value in schema["enum"]):
            return {**schema, "anyOf": []}
        schema = {key: value for key, value in schema.items() if key != "enum"}
        reshaper.change(f"{at}/enum", "left out: there is a const", effect="exact")
    if "const" in schema and "const" not in reshaper.rules.keywords:
        reshaper.change(at, "const became enum", effect="exact")
        schema = {**{key: value for key, value in schema.items() if key != "const"}, "enum": [schema["const"]]}
    if "enum" not in schema:
        if "const" in schema and not _of_types(schema["const"], kinds_of(schema)):
            return {**schema, "anyOf": []}
        return schema
    chosen: list[Any] = []
    for value in schema["enum"]:
        if _of_types(value, kinds_of(schema)) and not any(same(value, other) for other in chosen):
            chosen.append(value)
    if len(chosen) != len(schema["enum"]):
        reshaper.change(f"{at}/enum", "values that can never be given were left out", effect="exact")
    if not chosen:
        return {**schema, "anyOf": []}
    strange = {kind_of(value) for value in chosen} - reshaper.rules.enum_kinds
    return (
        _without_kinds({**schema, "enum": chosen}, strange, at=at, reshaper=reshaper)
        if strange
        else {**schema, "enum": chosen}
    )


def _of_types(value: Any, kinds: Sequence[str]) -> bool:
    kind = kind_of(value)
    return not kinds or kind in kinds or (kind == "integer" and "number" in kinds)


def _without_kinds(schema: Schema, strange: set[str], *, at: str, reshaper: Rewriter) -> Schema:
    """An enum without values of kinds that the dialect does not take: these become types of their own."""
    plain = [value for value in schema["enum"] if kind_of(value) not in strange]
    rest = {key: value for key, value in schema.items() if key not in ("enum", "type")}
    binding = {key: value for key, value in rest.items() if any(key in keys for keys in _OF_KIND.values())}
    whole = strange <= {"null", "boolean"} and not (
        "boolean" in strange and len([value for value in schema["enum"] if isinstance(value, bool)]) == 1
    )
    what = f"values of type {', '.join(sorted(strange))} became types"
    reshaper.change(f"{at}/enum", what, effect="exact" if whole else "wider")
    branches: list[Schema] = [{"type": kind, **copied(binding)} for kind in sorted(strange)]
    if plain:
        kinds = list(dict.fromkeys(kind_of(value) for value in plain))
        branches = [{"type": kinds[0] if len(kinds) == 1 else kinds, "enum": plain, **copied(binding)}, *branches]
    loose = {key: value for key, value in rest.items() if key not in binding}
    return {**loose, "anyOf": branches} if len(branches) > 1 else {**loose, **branches[0]}


def annotated(schema: Schema, reshaper: Rewriter, *, at: str) -> Schema:
    """What of a schema binds nothing and is taken; says what is not."""
    rules = reshaper.rules
    made: Schema = {}
    lost: list[str] = []
    for key, value in schema.items():
        if key in BINDING or key == "$defs":
            continue
        if key in rules.annotations and not (rules.all_required and key == "default" and value is None):
            made[key] = copied(value)
        else:
            lost.append(key)
    if lost:
        reshaper.change(at, f"{', '.join(sorted(lost))}: left out", effect="exact")
    return made


_SHAPES = frozenset(
    ("properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems", "additionalItems")
)


def kept(schema: Schema, reshaper: Rewriter, *, at: str) -> Schema:
    """What of a schema the dialect takes, save what says how objects and arrays are made."""
    made = annotated(schema, reshaper, at=at)
    for key, value in schema.items():
        if key not in BINDING or key in _SHAPES:
            continue
        if key in reshaper.rules.keywords:
            _bound(key, value, made, at=at, reshaper=reshaper)
        else:
            _left_out(key, value, schema, made=made, at=at, reshaper=reshaper)
    return made


def concerns(schema: Schema, kind: str) -> bool:
    """Whether a schema says how its objects, or its arrays, are made."""
    kinds = kinds_of(schema)
    return kind in kinds or (not kinds and any(key in schema for key in _OF_KIND[kind] if key in _SHAPES))


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def _left_out(key: str, value: Any, schema: Schema, *, made: Schema, at: str, reshaper: Rewriter) -> None:
    inclusive = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
    if inclusive in reshaper.rules.keywords and type(value) in (int, float):
        whole = kinds_of(schema) == ["integer"] and isinstance(value, int)
        step = (1 if inclusive == "minimum" else -1) if whole else 0
        tighter = max if inclusive == "minimum" else min
        made[inclusive] = tighter(value + step, schema.get(inclusive, value + step))
        reshaper.change(f"{at}/{key}", f"became {inclusive}", effect="exact" if whole else "wider")
    else:
        reshaper.change(f"{at}/{key}", "left out", effect="wider")


def _bound(key: str, value: Any, made: Schema, *, at: str, reshaper: Rewriter) -> None:
    """Keep what a keyword of the dialect says, where the dialect takes that too."""
    rules = reshaper.rules
    if key == "format" and value not in rules.formats:
        reshaper.change(f"{at}/format", f"{value!r}: left out", effect="wider")
    elif key == "pattern" and rules.pattern == "plain" and _CUNNING.search(str(value)):
        reshaper.change(f"{at}/pattern", "look-around, references and the like: left out", effect="wider")
    elif key == "minItems" and rules.min_items_max is not None and value > rules.min_items_max:
        reshaper.change(f"{at}/minItems", f"{value} became {rules.min_items_max}", effect="wider")
        made[key] = rules.min_items_max
    else:
        made.setdefault(key, copied(value))


def of_any_place(schema: Schema, prefix: list[Any], *, items: Any, at: str, reshaper: Rewriter) -> Any:
    """What every item of an array is, whichever its place."""
    most = schema.get("maxItems")
    ends = (items is not None and is_nothing(items)) or (most is not None and most <= len(prefix))
    kinds = distinct(prefix if ends else [*prefix, True if items is None else items])
    effect = "exact" if len(kinds) == 1 else "wider"
    reshaper.change(f"{at}/prefixItems", "each item may be what any of them is", effect=effect)
    if True in kinds or {} in kinds:
        return True
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def takes_null(schema: Schema, defs: Mapping[str, Any], *, seen: tuple[str, ...] = ()) -> bool:
    """Whether null fits a schema that was rewritten.

    Args:
        schema: it.
        defs: the definitions that it refers to.
        seen: references on the way here.
    """
    ref = schema.get("$ref")
    if ref is not None:
        target = defs.get(str(ref).removeprefix(DEFS))
        # One that is still being written is empty; null beside it does no harm, should it turn out to take null.
        return bool(target) and ref not in seen and takes_null(dict(target or {}), defs, seen=(*seen, ref))
    if "anyOf" in schema:
        return any(takes_null(branch, defs, seen=seen) for branch in schema["anyOf"])
    chosen = schema.get("enum", [schema["const"]] if "const" in schema else [None])
    return None in chosen and (not kinds_of(schema) or "null" in kinds_of(schema))


def with_null(schema: Schema) -> Schema:
    """The schema with null beside what it takes."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "const" in schema or "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    made = {**schema, "type": [*kinds_of(schema), "null"]}
    if "enum" in made:
        made["enum"] = [*made["enum"], None]
    return made


def disjoint(branches: Sequence[Any]) -> bool:
    """Whether no value fits two of the schemas, as far as types and marks tell."""
    return all(_apart(one, two) for number, one in enumerate(branches) for two in branches[:number])


def _apart(one: Any, two: Any) -> bool:
    if not (isinstance(one, Mapping) and isinstance(two, Mapping)):
        return False
    first, second = set(kinds_of(one)), set(kinds_of(two))
    numbers = {"integer", "number"}
    if first and second and not first & second and not (first & numbers and second & numbers):
        return True
    chosen, other = _choices(one), _choices(two)
    if chosen is not None and other is not None:
        return not any(same(value, each) for value in chosen for each in other)
    if first != {"object"} or second != {"object"}:
        return False
    marks, others = mapping(one.get("properties")), mapping(two.get("properties"))
    needed = set(required_in(one)) & set(required_in(two)) & marks.keys() & others.keys()
    return any(_choices(marks[name]) is not None and _apart(marks[name], others[name]) for name in needed)


def _choices(schema: Any) -> list[Any] | None:
    if not isinstance(schema, Mapping):
        return None
    chosen: list[Any] | None = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return chosen
