"""Schemas in the dialects of strict readers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from isthmus.models.reshape import normalise, report_on
from isthmus.models.restore import restore
from support.corpus import corpus_root
from support.schemas import corpus_schemas, draw_value, filled, fits, schemas

DIALECTS = ["openai-strict", "anthropic", "bedrock", "gemini"]
RELAXED = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def agree(schema: dict[str, Any], dialect: str, values: list[Any]) -> None:
    """Values that fit one of the two schemas fit the other wherever the report says so."""
    made = normalise(schema, dialect)
    Draft202012Validator.check_schema(made.schema)
    effect = made.report.effect
    for value in values:
        given_back = restore(value, made)
        if effect in ("exact", "narrower") and fits(value, made.schema):
            assert fits(given_back, schema), (effect, schema, made.schema, value, given_back, made.report.summary())
        wrapped = {"response": value} if made.report.wrapped else value
        full = filled(wrapped, made.schema, made.schema) if made.usable else wrapped
        if effect in ("exact", "wider") and fits(value, schema):
            assert fits(full, made.schema), (effect, schema, made.schema, value, full, made.report.summary())


@pytest.mark.parametrize("dialect", DIALECTS)
@RELAXED
@given(data=st.data(), schema=schemas())
def test_the_report_is_true_of_generated_schemas(data: st.DataObject, schema: dict[str, Any], dialect: str) -> None:
    """What the report calls exact, narrower or wider is so, for values drawn from either schema."""
    made = normalise(schema, dialect).schema
    values = [draw_value(data.draw, each, each) for each in (schema, made, schema, made)]
    agree(schema, dialect, values)


@pytest.mark.parametrize("dialect", [*DIALECTS, "none"])
@RELAXED
@given(schema=schemas())
def test_normalising_twice_changes_nothing(schema: dict[str, Any], dialect: str) -> None:
    """A normalised schema is its own normal form, and the schema that was given is not touched."""
    before = copy.deepcopy(schema)
    once = normalise(schema, dialect)
    assert schema == before
    twice = normalise(once.schema, dialect)
    assert twice.schema == once.schema
    assert twice.report.changes == ()
    assert twice.usable == once.usable


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    """The largest schemas of the recorded requests; there are fewer than 200 distinct ones."""
    if corpus_root() is None:
        pytest.skip("no recordings beside the checkout")
    found = corpus_schemas(200)
    assert len(found) > 100
    return found


@pytest.mark.corpus
@pytest.mark.parametrize("dialect", [*DIALECTS, "none"])
def test_recorded_schemas_are_normalised_once(recorded: list[dict[str, Any]], dialect: str) -> None:
    """F08: the schemas of the recorded requests stay as they are when normalised twice, and nearly all can be said."""
    unusable = []
    for schema in recorded:
        before = copy.deepcopy(schema)
        once = normalise(schema, dialect)
        assert schema == before
        assert normalise(once.schema, dialect).schema == once.schema
        unusable += [] if once.usable else [once]
    assert all(each.schema == each.original for each in unusable)
    assert len(unusable) < len(recorded) / 20


@pytest.mark.corpus
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_report_is_true_of_recorded_schemas(
    recorded: list[dict[str, Any]], dialect: str, data: st.DataObject
) -> None:
    """F08: what the report says of the recorded schemas is so, for values drawn from either side of each."""
    for schema in recorded:
        made = normalise(schema, dialect).schema
        agree(schema, dialect, [draw_value(data.draw, each, each) for each in (schema, made)])


def _closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}},
    "required": ["value"],
    "additionalProperties": False,
}

# dialect, a schema of the property p, what it becomes (None: not sayable), and the effect of all that.
RULES: list[tuple[str, Any, Any, str]] = [
    ("openai-strict", {"type": "string", "format": "uri"}, {"type": "string"}, "wider"),
    ("openai-strict", {"type": "string", "format": "date"}, {"type": "string", "format": "date"}, "exact"),
    ("anthropic", {"type": "integer", "minimum": 1}, {"type": "integer"}, "wider"),
    ("openai-strict", {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}, "exact"),
    ("gemini", {"type": "integer", "exclusiveMinimum": 1}, {"type": "integer", "minimum": 2}, "exact"),
    ("gemini", {"type": "number", "exclusiveMaximum": 1}, {"type": "number", "maximum": 1}, "wider"),
    ("openai-strict", {"type": "string", "pattern": "^(?!a)"}, {"type": "string"}, "wider"),
    ("openai-strict", {"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^a"}, "exact"),
    ("bedrock", {"type": "string", "pattern": "^a"}, {"type": "string"}, "wider"),
    ("gemini", {"const": "a"}, {"enum": ["a"]}, "exact"),
    ("anthropic", {"const": "a"}, {"type": "string", "const": "a"}, "exact"),
    ("anthropic", {"enum": ["a", 1]}, {"type": ["string", "integer"], "enum": ["a", 1]}, "exact"),
    ("anthropic", {"type": "string", "enum": ["a", 1]}, {"type": "string", "enum": ["a"]}, "exact"),
    (
        "gemini",
        {"enum": ["a", None]},
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        "exact",
    ),
    ("anthropic", {"enum": [{"a": 1}]}, None, "exact"),
    (
        "openai-strict",
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "exact",
    ),
    (
        "openai-strict",
        {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        {"anyOf": [{"type": "number"}, {"type": "integer"}]},
        "wider",
    ),
    ("openai-strict", {"allOf": [{"type": "string"}]}, {"type": "string"}, "exact"),
    (
        "openai-strict",
        {"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 3, "maximum": 5}]},
        {"type": "integer", "minimum": 3, "maximum": 5},
        "exact",
    ),
    (
        "anthropic",
        {"allOf": [_closed(a={"type": "null"}), {"properties": {"a": {}}}]},
        _closed(a={"type": "null"}),
        "exact",
    ),
    ("openai-strict", {"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]}, "wider", "wider"),
    (
        "openai-strict",
        {"type": "string", "anyOf": [{"minLength": 2}, {"enum": ["a"]}]},
        {"anyOf": [{"type": "string"}, {"type": "string", "enum": ["a"]}]},
        "wider",
    ),
    (
        "openai-strict",
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "minItems": 2, "maxItems": 2},
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "minItems": 2, "maxItems": 2},
        "wider",
    ),
    (
        "gemini",
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1},
        "exact",
    ),
    ("anthropic", {"type": "array", "items": {"type": "null"}, "minItems": 4}, "wider", "wider"),
    ("anthropic", {"type": "array", "items": {"type": "null"}, "minItems": 1}, "exact", "exact"),
    ("openai-strict", {"type": "array"}, None, "exact"),
    ("openai-strict", {"type": "object", "additionalProperties": True}, None, "exact"),
    ("anthropic", {"type": "object", "additionalProperties": {"type": "string"}}, None, "exact"),
    ("gemini", {"type": "object", "additionalProperties": {"type": "string"}}, "exact", "exact"),
    ("openai-strict", {"type": "object"}, None, "exact"),
    ("openai-strict", {}, None, "exact"),
    ("openai-strict", True, None, "exact"),
    ("openai-strict", False, None, "exact"),
    ("gemini", True, {}, "exact"),
    ("openai-strict", {"$ref": "#/$defs/Missing"}, None, "exact"),
    ("gemini", {"$ref": "https://example.com/x"}, {}, "wider"),
    ("openai-strict", {"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/Node"}, "exact"),
    ("anthropic", {"$ref": "#/$defs/Node"}, None, "exact"),
    ("gemini", {"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/Node"}, "exact"),
    ("openai-strict", {"$ref": "#/$defs/Node", "description": "d"}, {"$ref": "#/$defs/Node"}, "exact"),
    ("openai-strict", {"$ref": "#/$defs/Word", "description": "d"}, {"type": "string", "description": "d"}, "exact"),
    ("anthropic", {"$ref": "#/properties/q"}, {"$ref": "#/$defs/q"}, "exact"),
    ("openai-strict", {"type": "string", "examples": ["a"], "x-mine": 1}, {"type": "string"}, "exact"),
    ("openai-strict", {"properties": {"a": {"type": "null"}}, "required": ["a"]}, "narrower", "narrower"),
    ("openai-strict", {**_closed(a={"type": "null"}), "patternProperties": {"^b": {"type": "null"}}}, "mixed", "mixed"),
]


@pytest.mark.parametrize(("dialect", "given", "expected", "effect"), RULES, ids=lambda value: str(value)[:50])
def test_each_rule_of_the_dialects(dialect: str, given: Any, expected: Any, effect: str) -> None:
    """F08: each keyword becomes what the table says, or makes the schema unusable, and the report says which way."""
    schema = {**_closed(p=given, q={"type": "string"}), "$defs": {"Node": NODE, "Word": {"type": "string"}}}
    made = normalise(schema, dialect)
    assert made.usable == (expected is not None), made.report.summary()
    assert made.report.effect == effect, made.report.summary()
    if expected is None:
        assert made.schema == schema
        assert made.report.problems[0].startswith(("/properties/p", "root: 'p' "))
    elif not isinstance(expected, str):
        assert made.schema["properties"]["p"] == expected


def test_what_may_be_left_out_becomes_nullable_and_comes_back() -> None:
    """F08: under all-required an optional property takes null, and a null that only stands for absence is taken out."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "enum": ["x"], "default": "x"},
            "c": {"const": 1},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "e": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"Node": NODE},
    }
    made = normalise(schema, "openai-strict")
    assert made.schema["required"] == ["a", "b", "c", "d", "e"]
    assert made.schema["properties"]["b"] == {"type": ["string", "null"], "enum": ["x", None], "default": "x"}
    value = {"a": 1, "b": None, "c": None, "d": None, "e": [{"value": 1, "next": {"value": 2, "next": None}}]}
    assert fits(value, made.schema)
    back = restore(value, made)
    assert back == {"a": 1, "d": None, "e": [{"value": 1, "next": {"value": 2}}]}
    assert fits(back, schema)
    assert value["b"] is None


@pytest.mark.parametrize("root", [{"type": "array", "items": {"type": "integer"}}, {"type": ["integer", "null"]}])
def test_a_root_that_is_no_object_is_wrapped_and_unwrapped(root: dict[str, Any]) -> None:
    """A root that is no object stands under "response", and a reply is taken out of it."""
    made = normalise(root, "openai-strict")
    assert made.report.wrapped
    assert made.schema["required"] == ["response"]
    assert restore({"response": [1]}, made) == [1]
    assert not normalise(made.schema, "openai-strict").report.wrapped
    assert not normalise(root, "gemini").report.wrapped


def test_sizes_beyond_the_limits_make_a_schema_unusable() -> None:
    """F08: a schema that is too deep, too wide or has too many choices is not usable, and the report says what is."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        deep = _closed(a=deep)
    many = _closed(a={"type": "string", "enum": [f"v{number}" for number in range(1001)]})
    loose = {**_closed(), "properties": {f"p{n}": {"type": "string"} for n in range(25)}, "required": []}
    for schema, dialect, says in (
        (deep, "openai-strict", "root: 11 objects inside of one another, openai-strict takes 10; split the schema"),
        (many, "openai-strict", "root: 1001 enum values, openai-strict takes 1000"),
        (loose, "anthropic", "root: 25 properties that may be left out, anthropic takes 24"),
    ):
        report = report_on(schema, dialect)
        assert not report.usable
        assert report.problems[0].startswith(says)


def test_a_report_changes_nothing() -> None:
    """An explicit schema is only reported on: the same report, and no new schema."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    report = report_on(schema, "openai-strict")
    assert report == normalise(schema, "openai-strict").report
    assert [(each.path, each.effect) for each in report.changes] == [
        ("", "narrower"),
        ("/properties/a/minLength", "wider"),
        ("/properties/a", "exact"),
    ]
    assert "mixed in openai-strict: root: the object was closed (narrower)" in report.summary()


@pytest.mark.parametrize("wrong", [None, "string", [], 1])
def test_what_is_no_schema_is_refused(wrong: Any) -> None:
    """What is no mapping and no boolean is refused, naming its type."""
    with pytest.raises(TypeError, match=f"must be a JSON Schema .a mapping or a boolean., not {type(wrong).__name__}"):
        normalise(wrong, "none")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        {"allOf": [{"$ref": "#"}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}, {"required": ["a"]}]},
        {"properties": {"n": {"allOf": [{"$ref": "#"}, {"minProperties": 1}]}}},
        {"properties": []},
        {"required": True, "properties": {"a": {"type": "string"}}},
        {"anyOf": ["string"]},
        {"type": 1, "enum": 2, "items": "a", "minItems": "b", "$ref": [], "allOf": {}, "pattern": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_odd_schemas_come_to_an_end(schema: dict[str, Any], dialect: str) -> None:
    """References in circles and malformed keywords end in a report, not in a crash."""
    made = normalise(schema, dialect)
    assert normalise(made.schema, dialect).schema == made.schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "strin"}, "'type' cannot be 'strin'"),
        ({"type": []}, "'type' cannot be"),
        ({"$ref": "#/$defs/x"}, "'$ref' of 'x' leads back to itself; say what it means"),
        ({"$ref": "#/$defs/y"}, "leads back to itself"),
    ],
)
def test_what_says_nothing_cannot_be_enforced(schema: dict[str, Any], why: str) -> None:
    """F08: a type that there is none of, and a reference that leads to itself alone, are never sent as strict."""
    shared = {"x": {"$ref": "#/$defs/x"}, "y": {"$ref": "#/$defs/z"}, "z": {"$ref": "#/$defs/y"}}
    made = normalise({"type": "object", "properties": {"a": schema}, "$defs": shared}, "openai-strict")
    assert not made.usable
    assert why in made.report.summary()


def test_a_reference_is_read_as_the_fragment_of_an_address() -> None:
    """A reference may spell the characters of a name as an address does: `%20` is a blank, `~1` a slash."""
    shared = {"a/b c": {"type": "integer"}}
    given = {"type": "object", "properties": {"n": {"$ref": "#/$defs/a~1b%20c"}}, "required": ["n"], "$defs": shared}
    assert normalise(given, "openai-strict").usable


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schema_that_contains_itself_is_reported(dialect: str) -> None:
    """F08: a schema without end, which no JSON can say, ends in a report that names the remedy."""
    endless: dict[str, Any] = {"type": "object"}
    endless["properties"] = {"again": endless}
    assert "use $ref" in normalise(endless, dialect).report.summary()
