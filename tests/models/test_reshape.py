"""Schemas in the dialects of strict readers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from isthmus.models.reshape import normalise
from isthmus.models.restore import restore
from support.schemas import draw_value, filled, fits, schemas

DIALECTS = ["openai-strict", "anthropic", "bedrock", "gemini"]
RELAXED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
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
