"""How large a JSON Schema is, and what of that is more than a dialect takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from isthmus.models.dialects import Dialect
from isthmus.models.schemawalk import DEFS, children, kinds_of


def over_limits(schema: dict[str, Any], rules: Dialect) -> tuple[str, ...]:
    """Each limit that a schema breaks, with the remedy.

    Args:
        schema: as it would be sent.
        rules: the dialect.
    """
    if not rules.limits:
        return ()
    sizes = sizes_of(schema)
    return tuple(
        f"root: {sizes[what]} {_SAID[what]}, {rules.name} takes {most}; split the schema"
        for what, most in rules.limits.items()
        if sizes[what] > most
    )


_SAID = {
    "properties": "properties",
    "depth": "objects inside of one another",
    "enum_values": "enum values",
    "name_chars": "characters of names and values",
    "optional": "properties that may be left out",
    "unions": "unions",
}


def sizes_of(schema: dict[str, Any]) -> Counter[str]:
    """How large a schema is, by what limits count."""
    sizes: Counter[str] = Counter()
    for node in _nodes(schema):
        properties = node.get("properties") or {}
        values = [*(node.get("enum") or ()), *([node["const"]] if "const" in node else ())]
        sizes["properties"] += len(properties)
        sizes["optional"] += len(properties.keys() - set(node.get("required") or ()))
        sizes["enum_values"] += len(node.get("enum") or ())
        sizes["unions"] += "anyOf" in node or len(kinds_of(node)) > 1
        names = [*properties, *(node.get("$defs") or {}), *values]
        sizes["name_chars"] += sum(len(name) for name in names if isinstance(name, str))
    sizes["depth"] = _depth(schema, schema, ())
    return sizes


def _nodes(schema: Any) -> Any:
    if isinstance(schema, dict):
        yield schema
        for _, child in children(schema):
            yield from _nodes(child)


def _depth(schema: Any, root: dict[str, Any], inside: tuple[str, ...]) -> int:
    """How many objects stand inside of one another; a definition inside of itself counts once."""
    if not isinstance(schema, dict):
        return 0
    ref = schema.get("$ref")
    if isinstance(ref, str):
        name = ref.removeprefix(DEFS)
        return 0 if ref in inside else _depth(root.get("$defs", {}).get(name), root, (*inside, ref))
    below = [_depth(child, root, inside) for place, child in children(schema) if not place.startswith("/$defs/")]
    return ("properties" in schema) + max(below, default=0)
