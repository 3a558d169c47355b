"""The strict form of a schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isthmus.models.reshape import normalise
from isthmus.models.strictness import SCHEMA_NORMALIZATION_ERROR, conforms, ensure_strict_json_schema

CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# What is given, and the properties (or the whole) that come out.
FORMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("an empty schema is an empty strict object", {}, CLOSED),
    (
        "objects are closed and all is required",
        _object(a={"type": "integer", "default": 5}, b=_object(c={"type": "string"})),
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "default": 5},
                "b": {
                    "type": "object",
                    "properties": {"c": {"type": "string"}},
                    "required": ["c"],
                    "additionalProperties": False,
                },
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    ),
    (
        "a null default is dropped",
        {**_object(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}), "required": ["a"]},
        {**CLOSED, "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["a"]},
    ),
    (
        "a single allOf is put in place",
        _object(a={"allOf": [{"type": "string"}], "description": "d"}),
        {**CLOSED, "properties": {"a": {"type": "string", "description": "d"}}, "required": ["a"]},
    ),
    (
        "a reference with company is put in place",
        {**_object(a={"$ref": "#/$defs/D", "description": "d"}), "$defs": {"D": {"type": "string"}}},
        {**CLOSED, "properties": {"a": {"type": "string", "description": "d"}}, "required": ["a"]},
    ),
]


@pytest.mark.parametrize(("given", "made"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
def test_the_strict_form(given: dict[str, Any], made: dict[str, Any]) -> None:
    """The strict form of a schema is as the table says, and the schema that was given is not touched (F22)."""
    before = copy.deepcopy(given)
    assert ensure_strict_json_schema(given) == made
    assert given == before
    assert ensure_strict_json_schema(made) == made


# Wrong uses: what is given, what the error must say.
WRONG: list[tuple[dict[str, Any], str]] = [
    (_object(d={"type": "object", "additionalProperties": True}), "/properties/d: an object with keys of any name"),
    (_object(d={"type": "object", "additionalProperties": {"type": "integer"}}), "/properties/d: an object with keys"),
    ({"type": "object", "additionalProperties": True}, "root: an object with keys of any name; list its properties"),
    (_object(d={}), "/properties/d: a value of any type; name the type"),
    (_object(d={"$ref": "#/$defs/No"}), "/properties/d: the reference '#/\\$defs/No' leads nowhere"),
    (_object(d={"$ref": "http://x/y"}), "/properties/d: the reference 'http://x/y' leads nowhere"),
    ({"type": "array", "items": {"type": "string"}}, "root: must be an object and no union"),
    (_object(d={"type": "string", "enum": [1]}), "/properties/d: a union without a branch"),
    (_object(d="string"), "/properties/d: 'string' is no schema; write an object or a boolean"),
    ({"type": "object", "properties": []}, r"root: 'properties' cannot be \[\]; see JSON Schema"),
    ({**_object(d={"type": "string"}), "required": True}, "root: 'required' cannot be True; see JSON Schema"),
    ({**_object(d=False), "required": ["d"]}, "'d' is required and must be left out"),
]


@pytest.mark.parametrize(("given", "says"), WRONG, ids=[str(wrong[0])[:60] for wrong in WRONG])
def test_what_has_no_strict_form_is_named_with_the_remedy(given: dict[str, Any], says: str) -> None:
    """F08: a schema without a strict form is refused, naming the place and advising strict_json_schema=False."""
    with pytest.raises(ValueError, match=says) as caught:
        ensure_strict_json_schema(given)
    assert str(caught.value).startswith(SCHEMA_NORMALIZATION_ERROR)
    assert "strict_json_schema=False" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (CLOSED, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({**CLOSED, "$schema": "http://json-schema.org/draft-07/schema#", "title": "T"}, True),
        (_object(a={"type": "string"}), False),
        ({"type": "array", "items": {"type": "string"}}, False),
        ({**CLOSED, "properties": {"a": {"type": "string"}}}, False),
    ],
)
def test_what_can_be_enforced_as_it_stands(given: dict[str, Any], expected: bool) -> None:
    """A schema conforms where only what binds nothing would be changed in it."""
    assert conforms(normalise(given, "openai-strict")) is expected


@pytest.mark.parametrize("wrong", [5, "x", [1], object()])
def test_what_is_no_mapping_has_no_strict_form(wrong: Any) -> None:
    """Something else than a mapping is a TypeError that says what it must be."""
    with pytest.raises(TypeError, match="must be a JSON Schema"):
        ensure_strict_json_schema(wrong)
