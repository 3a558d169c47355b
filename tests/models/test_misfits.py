"""Values against JSON Schemas: the judgement of a library that is made for it, and words that say what to fix."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from isthmus.models.misfits import misfits

_SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.0, 1.0, 2.5, -1.5]) | st.text("ab1", max_size=4)
)
_KEYS = st.sampled_from(["a", "b", "ab"])
VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=8
)
_SMALL = st.integers(0, 3)


def _object(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", ["object", "null"]]),
            "properties": st.dictionaries(_KEYS, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
            "required": st.lists(_KEYS, max_size=2, unique=True),
            "additionalProperties": inner,
            "propertyNames": st.just({"maxLength": 1}),
            "minProperties": _SMALL,
            "maxProperties": _SMALL,
            "dependentRequired": st.dictionaries(_KEYS, st.lists(_KEYS, max_size=2, unique=True), max_size=1),
        },
    )


def _array(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("array"),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minContains": _SMALL,
            "maxContains": _SMALL,
            "minItems": _SMALL,
            "maxItems": _SMALL,
            "uniqueItems": st.booleans(),
        },
    )


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    )


_LEAVES = (
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "number", "integer", "boolean", "null", ["string", "integer"]]),
            "enum": st.lists(_SCALARS, min_size=1, max_size=3),
            "minimum": st.integers(-3, 3),
            "maximum": st.integers(-3, 3),
            "exclusiveMinimum": st.integers(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3),
            "multipleOf": st.integers(1, 3),
            "minLength": _SMALL,
            "maxLength": _SMALL,
            "pattern": st.sampled_from(["^a", "b$", "1"]),
        },
    )
    | st.builds(lambda value: {"const": value}, _SCALARS)
    | st.just({"$ref": "#/$defs/tree"})
)
SCHEMAS = st.recursive(_LEAVES, lambda inner: _object(inner) | _array(inner) | _combined(inner), max_leaves=6)
_TREE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/tree"}, "b": {"type": "integer"}}, "required": ["b"]}


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, VALUES)
def test_the_judgement_is_that_of_the_standard(schema: Any, value: Any) -> None:
    """Over generated schemas and values, a value has misfits exactly where the reference library calls it invalid."""
    whole = {"allOf": [schema], "$defs": {"tree": _TREE}}
    fits = next(misfits(value, whole), None) is None
    assert fits == Draft202012Validator(whole).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "value", "place", "words"),
    [
        ({"type": "string"}, 1, "", "must be string (given: 1)"),
        ({"type": ["string", "null"]}, [1], "", "must be string or null (given: [1])"),
        ({"enum": ["a", "b"]}, "c", "", 'must be one of ["a","b"] (given: "c")'),
        ({"enum": [1]}, True, "", "must be one of [1] (given: true)"),
        ({"const": 3}, 4, "", "must be 3 (given: 4)"),
        ({"minimum": 1}, 0, "", "must be at least 1 (given: 0)"),
        ({"maximum": 1}, 2, "", "must be at most 1 (given: 2)"),
        ({"exclusiveMinimum": 1}, 1, "", "must be more than 1 (given: 1)"),
        ({"exclusiveMaximum": 1}, 1, "", "must be less than 1 (given: 1)"),
        ({"multipleOf": 0.1}, 0.35, "", "must be a multiple of 0.1 (given: 0.35)"),
        ({"minLength": 2}, "a", "", 'must have at least 2 characters, not 1 (given: "a")'),
        ({"maxItems": 1}, [1, 2], "", "must have at most 1 items, not 2 (given: [1,2])"),
        ({"pattern": "^\\d+$"}, "x", "", 'must match the pattern ^\\d+$ (given: "x")'),
        (
            {"properties": {"a": {"items": {"type": "integer"}}}},
            {"a": [1, "2"]},
            "a[1]",
            'must be integer (given: "2")',
        ),
        ({"required": ["q"]}, {}, "q", "it is required"),
        (
            {"properties": {"q": {}}, "additionalProperties": False},
            {"p": 1},
            "p",
            "there is no such argument; known are q",
        ),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "b", "it is required beside a"),
        ({"uniqueItems": True}, [1, 1.0], "[1]", "must not be there twice (given: 1.0)"),
        ({"contains": {"type": "null"}}, [1], "", 'must hold at least 1 that fit {"type":"null"}, not 0'),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, None, "", "must be string or integer (given: null)"),
        (
            {"anyOf": [{"type": "object", "required": ["x"]}, {"type": "null"}]},
            {},
            "x",
            "it is required",
        ),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1, "", "must fit one form only, but fits 2 (given: 1)"),
        ({"not": {"type": "null"}}, None, "", 'must not fit {"type":"null"} (given: null)'),
        (
            {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number"}}},
            {"a": "1"},
            "a",
            'must be number (given: "1")',
        ),
        ({"properties": {"a": False}}, {"a": 1}, "a", "must not be there (given: 1)"),
    ],
)
def test_each_keyword_says_what_to_fix(schema: Any, value: Any, place: str, words: str) -> None:
    """F15: a misfit names the place, what must be there, and the value that was given."""
    assert list(misfits(value, schema)) == [(place, words)]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "http://x/y"},
        {"$ref": "#/nowhere"},
        {"pattern": "("},
        {"type": "other"},
        {"format": "date"},
        {"enum": 5},
        {"minLength": "x"},
        {"anyOf": 5},
        {"oneOf": {}},
        {"allOf": 3},
        {"type": 5},
        {"minLength": [], "format": 1},
        7,
    ],
)
def test_what_cannot_be_read_is_not_judged(schema: Any) -> None:
    """A circle, a foreign reference, a foreign pattern, an unknown word and a malformed one let a value pass."""
    assert not list(misfits("x", schema))


@pytest.mark.parametrize(
    "schema",
    [{"dependentRequired": 5}, {"properties": []}, {"propertyNames": 3}, {"required": 7}, {"patternProperties": [1]}],
)
def test_a_malformed_keyword_hides_no_other(schema: Any) -> None:
    """What is no keyword as JSON Schema has it binds nothing; the others of its schema do."""
    assert not list(misfits({"a": 1}, schema))
    assert [place for place, _ in misfits({"a": 1}, {**schema, "minProperties": 2})] == [""]


def test_large_numbers_are_judged_exactly() -> None:
    """F30: bounds and multiples hold beyond 2^53."""
    assert list(misfits(2**60 + 1, {"maximum": 2**60}))
    assert list(misfits(10**40 + 1, {"multipleOf": 10}))
    assert not list(misfits(10**40, {"multipleOf": 10, "type": "integer"}))
