"""Python types for JSON Schemas."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from isthmus.models.schema import python_type, type_schema, type_validator
from support.schemas import draw_value, fits, schemas

FILM = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "description": "its name"},
        "year": {"type": "integer", "minimum": 1900},
        "kind": {"enum": ["short", "long", None]},
        "cast": {"type": "array", "items": {"$ref": "#/$defs/Person"}, "maxItems": 2},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {
        "Person": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "friends": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
            },
            "required": ["name"],
        }
    },
}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), schema=schemas())
def test_the_type_takes_what_the_schema_takes(data: st.DataObject, schema: dict[str, Any]) -> None:
    """A value that fits a schema fits its Python type, and comes out as it went in."""
    value = draw_value(data.draw, schema, schema)
    if fits(value, schema):
        assert json.loads(json.dumps(type_validator(python_type(schema)).validate(value))) == value


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"title": ""},
        {"title": "a", "year": 1899},
        {"title": "a", "kind": "other"},
        {"title": "a", "more": 1},
        {"title": "a", "cast": [{"friends": []}]},
        {"title": "a", "cast": [{"name": "x", "friends": [{"name": 1}]}]},
        {"title": "a", "cast": [{"name": "x"}] * 3},
    ],
    ids=str,
)
def test_what_does_not_fit_the_schema_does_not_fit_the_type(value: Any) -> None:
    """Bounds, choices, required and unknown keys, and recursive parts are checked."""
    assert not fits(value, FILM)
    with pytest.raises(ValidationError):
        type_validator(python_type(FILM)).validate(value)


def test_integers_of_any_size_come_through() -> None:
    """F30: a number beyond 2^53 is the same number after the check, from JSON text too."""
    check = type_validator(python_type({"type": "object", "properties": {"id": {"type": "integer"}}}))
    assert check.validate_json(b'{"id": 2512292042121000001, "n": 90071992547409931}') == {
        "id": 2512292042121000001,
        "n": 90071992547409931,
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, Any),
        (True, Any),
        ({"type": "string"}, str),
        ({"type": ["integer", "null"]}, int | None),
        ({"type": "array", "items": {"type": "string"}}, list[str]),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, dict[str, bool]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, str | int),
    ],
    ids=str,
)
def test_plain_schemas_are_plain_types(schema: Any, expected: Any) -> None:
    """A schema that binds nothing more is the plain type."""
    assert python_type(schema) == expected


def test_a_pattern_of_another_language_binds_nothing() -> None:
    """A pattern that Python cannot read is passed over, as the value was right for whoever wrote it."""
    assert type_validator(python_type({"type": "string", "pattern": r"^\p{Lu}"})).validate("Ada") == "Ada"


def test_a_type_comes_back_from_its_schema() -> None:
    """The schema of a type gives a type with the same schema, titles left aside."""
    schema = type_schema(dict[str, list[Literal["a", "b"]]])
    assert type_schema(python_type(schema)) == schema


@pytest.mark.parametrize("wrong", [None, "x", []])
def test_what_is_no_schema_has_no_type(wrong: Any) -> None:
    """What is no schema is refused, naming its type."""
    with pytest.raises(TypeError, match=f"must be a JSON Schema .a mapping or a boolean., not {type(wrong).__name__}"):
        python_type(wrong)


def test_a_reference_to_nowhere_is_named() -> None:
    """A reference that leads nowhere is refused by name, with the remedy."""
    with pytest.raises(TypeError, match="the reference '#/nowhere' leads nowhere in it; put what it means in place"):
        python_type({"type": "array", "items": {"$ref": "#/nowhere"}})
