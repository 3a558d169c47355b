"""JSON Schemas to test with: generated ones, those of the recorded requests, and values for either."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from support.corpus import corpus_root

NAMES = ("a", "b", "c")
SCALARS = (None, True, False, 0, 1, 2, 7, -3, 1.5, "", "a", "ab", "zz")


def corpus_schemas(most: int = 200) -> list[dict[str, Any]]:
    """The largest distinct schemas of the recorded requests: of tools and of reply forms."""
    folder = corpus_root()
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/*/request.json")) if folder else ():
        body = json.loads(path.read_text("utf-8")).get("body")
        for schema in _of_request(body) if isinstance(body, dict) else ():
            if isinstance(schema, dict):
                found[json.dumps(schema, sort_keys=True)] = schema
    return [found[text] for text in sorted(found, key=lambda text: (-len(text), text))[:most]]


def _of_request(body: dict[str, Any]) -> Iterator[Any]:
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        told = tool.get("function", tool) if isinstance(tool, dict) else {}
        yield from (told[key] for key in ("parameters", "input_schema") if key in told)
    config = body.get("toolConfig")
    for tool in config.get("tools", ()) if isinstance(config, dict) else ():
        yield tool.get("toolSpec", {}).get("inputSchema", {}).get("json")
    for key, inside in (("response_format", "json_schema"), ("text", "format"), ("output_config", "format")):
        form = body.get(key)
        if isinstance(form, dict) and isinstance(form.get(inside), dict):
            yield form[inside].get("schema")


def _scalars() -> st.SearchStrategy[Any]:
    small = st.integers(-3, 8)
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("string")},
            optional={
                "minLength": st.integers(0, 2),
                "pattern": st.sampled_from(["^a", "b$", "^(?!z)"]),
                "format": st.sampled_from(["date", "uri", "uuid"]),
                "description": st.just("text"),
                "default": st.sampled_from(["a", None]),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["integer", "number"])},
            optional={"minimum": small, "exclusiveMaximum": small, "multipleOf": st.just(2), "title": st.just("T")},
        ),
        st.builds(lambda values: {"enum": values}, st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3)),
        st.builds(lambda value: {"const": value}, st.sampled_from(SCALARS)),
        st.sampled_from(
            [
                {"type": "boolean"},
                {"type": "null"},
                {"type": ["string", "null"]},
                {"type": ["integer", "string"], "enum": [1, "a", None]},
                {"$ref": "#/$defs/D"},
                {"$ref": "#/$defs/E", "description": "beside"},
                {"$ref": "#/$defs/R"},
                {},
                True,
                False,
            ]
        ),
    )


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        objects(inner),
        st.builds(lambda items, more: {"type": "array", "items": items, **more}, inner, _array_bounds()),
        st.builds(
            lambda prefix, more: {"type": "array", "prefixItems": prefix, **more},
            st.lists(inner, min_size=1, max_size=2),
            st.sampled_from([{}, {"minItems": 2, "maxItems": 2}, {"items": False}, {"items": {"type": "null"}}]),
        ),
        st.builds(
            lambda key, branches, beside: {**beside, key: branches},
            st.sampled_from(["anyOf", "anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=2),
            st.sampled_from([{}, {}, {"description": "text"}, {"type": "object"}, {"minimum": 1}]),
        ),
    )


def _array_bounds() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {}, optional={"minItems": st.integers(0, 2), "maxItems": st.integers(1, 3), "uniqueItems": st.just(True)}
    )


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of objects, closed ones most often."""
    return st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        },
        optional={
            "required": st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
            "additionalProperties": st.one_of(st.just(False), st.just(False), st.just(False), inner),
            "minProperties": st.integers(0, 1),
        },
    )


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Whole documents, with definitions that recur and some that do not."""
    inner = st.recursive(_scalars(), _compound, max_leaves=6)
    closed = {"additionalProperties": False}
    recursive = st.builds(
        lambda other: {"type": "object", "properties": {"a": other, "b": {"$ref": "#/$defs/R"}}, **closed},
        _scalars().filter(lambda schema: schema != {"$ref": "#/$defs/R"}),
    )
    plain = st.sampled_from([{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "null"}}, **closed}])
    return st.builds(
        lambda root, d, e, r: {**root, "$defs": {"D": d, "E": e, "R": r}},
        st.one_of(objects(inner), objects(inner), inner.filter(lambda schema: isinstance(schema, dict))),
        plain,
        plain,
        recursive,
    )


def draw_value(draw: Callable[[Any], Any], schema: Any, root: dict[str, Any], depth: int = 4) -> Any:
    """A value that is likely to fit a schema; a validator has the last word."""
    if not isinstance(schema, dict) or depth < 0:
        return draw(st.sampled_from(SCALARS))
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key) and draw(st.integers(0, 3)):
            branch = draw(st.sampled_from(schema[key]))
            if isinstance(branch, dict):
                rest = {name: each for name, each in schema.items() if name != key}
                branch = {**rest, **branch}
            return draw_value(draw, branch, root, depth - 1)
    if "$ref" in schema:
        at: Any = root
        for step in schema["$ref"].split("/")[1:]:
            at = at[step]
        return draw_value(draw, at, root, depth - 1)
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum", [schema.get("const")])))
    kinds = schema.get("type", ["object"] if "properties" in schema else ["string", "null", "integer"])
    kind = draw(st.sampled_from([kinds] if isinstance(kinds, str) else kinds))
    if kind == "object":
        return _draw_object(draw, schema, root, depth)
    if kind == "array":
        return _draw_array(draw, schema, root, depth)
    least = schema.get("minimum", -3)
    return draw(
        {
            "string": st.sampled_from(["", "a", "ab", "abb", "zz"]),
            "integer": st.integers(int(least), int(least) + 9),
            "number": st.sampled_from([least, least + 0.5, least + 2, 0, 1.5]),
            "boolean": st.booleans(),
            "null": st.none(),
        }.get(kind, st.none())
    )


def _draw_object(draw: Callable[[Any], Any], schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    made = {}
    for name, each in (schema.get("properties") or {}).items():
        if name in schema.get("required", ()) or draw(st.booleans()):
            made[name] = draw_value(draw, each, root, depth - 1)
    for name in schema.get("required", ()):
        made.setdefault(name, draw(st.sampled_from(SCALARS)))
    if schema.get("additionalProperties") is not False and draw(st.booleans()):
        made["other"] = draw_value(draw, schema.get("additionalProperties", True), root, depth - 1)
    return made


def _draw_array(draw: Callable[[Any], Any], schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    prefix = schema.get("prefixItems", [])
    count = draw(st.integers(schema.get("minItems", 0), max(schema.get("maxItems", 2), schema.get("minItems", 0))))
    places = [*prefix, *[schema.get("items", True)] * count][:count]
    return [draw_value(draw, each, root, depth - 1) for each in places]


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits a schema, as the library of the standard sees it."""
    return bool(Draft202012Validator(schema).is_valid(value))


def filled(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """A value with null for each key that a schema requires and it lacks; in a union, of a branch that then fits."""
    if not isinstance(schema, dict):
        return value
    if "$ref" in schema:
        at: Any = root
        for step in schema["$ref"].split("/")[1:]:
            at = at[step]
        return filled(value, at, root)
    if "anyOf" in schema:
        ways = [filled(value, branch, root) for branch in schema["anyOf"]]
        whole = [{**branch, "$defs": root.get("$defs", {})} for branch in schema["anyOf"]]
        return next((way for way, each in zip(ways, whole, strict=True) if fits(way, each)), value)
    if isinstance(value, dict):
        told = schema.get("properties", {})
        lacking = {name: None for name in schema.get("required", ()) if name not in value}
        return {name: filled(item, told.get(name), root) for name, item in {**value, **lacking}.items()}
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        places = [*prefix, *[schema.get("items")] * len(value)]
        return [filled(item, each, root) for item, each in zip(value, places, strict=False)]
    return value
