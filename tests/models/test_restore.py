"""Values that a dialect made a model write, as the author's schema means them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isthmus.models.restore import without_nulls

TEXT = {"type": "string"}
PERSON = {"type": "object", "properties": {"name": TEXT, "nick": TEXT}, "required": ["name"]}

# schema, value, what is left of it
CASES: list[tuple[str, Any, Any, Any]] = [
    ("an added null goes", PERSON, {"name": "a", "nick": None}, {"name": "a"}),
    ("a required null stays", PERSON, {"name": None}, {"name": None}),
    ("an unknown null stays", PERSON, {"name": "a", "other": None}, {"name": "a", "other": None}),
    (
        "a null that is taken stays",
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {}, "c": {"enum": [1, None]}}},
        {"a": None, "b": None, "c": None},
        {"a": None, "b": None, "c": None},
    ),
    ("inside of arrays", {"type": "array", "items": PERSON}, [{"name": "a", "nick": None}], [{"name": "a"}]),
    (
        "inside of tuples",
        {"type": "array", "prefixItems": [TEXT, PERSON]},
        ["x", {"name": "a", "nick": None}],
        ["x", {"name": "a"}],
    ),
    (
        "behind references",
        {"$ref": "#/$defs/P", "$defs": {"P": PERSON}},
        {"name": "a", "nick": None},
        {"name": "a"},
    ),
    (
        "in the branch that fits",
        {
            "anyOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}, "x": {}}, "required": ["kind"]},
                {"type": "object", "properties": {"kind": {"const": "b"}, "x": TEXT}, "required": ["kind"]},
            ]
        },
        {"kind": "b", "x": None},
        {"kind": "b"},
    ),
    (
        "in all parts of allOf",
        {"allOf": [PERSON, {"properties": {"age": {"type": "integer"}}}]},
        {"name": "a", "nick": None, "age": None},
        {"name": "a"},
    ),
    (
        "in the values of open objects",
        {"type": "object", "additionalProperties": PERSON},
        {"k": {"name": "a", "nick": None}},
        {"k": {"name": "a"}},
    ),
    ("any value of no schema", True, {"a": None}, {"a": None}),
    ("malformed keywords are passed over", {"properties": 1, "anyOf": 2, "required": {}}, {"a": None}, {"a": None}),
    ("in circles", {"$ref": "#"}, {"a": None}, {"a": None}),
]


@pytest.mark.parametrize(("schema", "value", "left"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_added_nulls_are_taken_out(schema: Any, value: Any, left: Any) -> None:
    """F08: only nulls that the schema does not take, of what may be left out, are taken out, on a copy."""
    before = copy.deepcopy(value)
    assert without_nulls(value, schema) == left
    assert value == before
