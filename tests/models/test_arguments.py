"""The arguments of calls: what the model wrote is what the handler gets, or the model is told what to mend."""

import copy
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from isthmus.models.arguments import ArgumentsError, arguments_of, validated
from isthmus.models.contract import ToolSpec
from isthmus.models.jsontext import WrittenFloat, dumps
from isthmus.models.normalise import make_call
from isthmus.models.tools import Tool


def numbers(whole: int = 0, real: float = 0.0, exact: Decimal = Decimal(0), free: Any = None) -> None:
    """Take numbers."""


TOOL = Tool.from_function(numbers)


def got(tool: ToolSpec, text: str) -> Any:
    """What a handler gets of arguments as text."""
    return validated(tool, arguments_of(make_call(tool.name, text, call_id="c")))


@given(st.integers(-(10**60), 10**60))
def test_integers_are_exact(number: int) -> None:
    """F30: an integer of any size reaches an int, a Decimal and an untyped parameter digit for digit."""
    values = got(TOOL, f'{{"whole": {number}, "exact": {number}, "free": [{number}]}}')
    assert (values["whole"], values["exact"], values["free"]) == (number, Decimal(number), [number])


@given(st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact(number: Decimal) -> None:
    """F30: a Decimal parameter gets the digits that the model wrote; a float one gets the nearest float."""
    values = got(TOOL, f'{{"exact": {number:f}, "real": {number:f}}}')
    assert values["exact"].as_tuple() == number.as_tuple()
    assert (values["real"], type(values["real"])) == (float(f"{number:f}"), float)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e16", 10**16),
        ("12345678901234567890.0", 12345678901234567890),
        ("9007199254740993.0", 2**53 + 1),
        ("2.0", 2),
        ('"9007199254740993"', 2**53 + 1),
    ],
)
def test_integers_in_other_spellings_are_exact(text: str, number: int) -> None:
    """F30: an integer with a fraction of zeros, with an exponent or in a string does not go through a float."""
    assert got(TOOL, f'{{"whole": {text}}}')["whole"] == number


@pytest.mark.parametrize("text", ["1.5", "9007199254740993.5"])
def test_what_is_no_integer_is_refused(text: str) -> None:
    """F30: a number that is no integer is sent back and never rounded."""
    with pytest.raises(ArgumentsError, match="whole"):
        got(TOOL, f'{{"whole": {text}}}')


@pytest.mark.parametrize("text", ["1e400", "-1e999999999"])
def test_what_nobody_can_hold_is_refused(text: str) -> None:
    """F30: a number beyond every float is sent back, whatever the parameter's type, and is never an infinity."""
    for name in ("whole", "real", "free"):
        with pytest.raises(ArgumentsError, match=f"{text} is too large"):
            got(TOOL, f'{{"{name}": {text}}}')


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_json_has_no_word_for_is_refused(text: str) -> None:
    """F30: it is no JSON, whatever the parameter's type."""
    for name in ("whole", "free"):
        with pytest.raises(ArgumentsError, match="no JSON"):
            got(TOOL, f'{{"{name}": {text}}}')


def test_an_untyped_number_keeps_its_digits() -> None:
    """Where a float loses digits, an untyped parameter gets a float that still knows them, in copies too."""
    value = got(TOOL, '{"free": {"a": [0.10000000000000000000000000001, 0.5]}}')["free"]["a"]
    assert isinstance(value[0], float)
    assert (value[0], str(value[0]), Decimal(str(value[0]))) == (
        0.1,
        "0.10000000000000000000000000001",
        Decimal(str(value[0])),
    )
    assert str(copy.deepcopy(value[0])) == str(value[0])
    assert [type(each) for each in value] == [WrittenFloat, float]
    assert dumps(value) == b"[0.10000000000000000000000000001,0.5]"


@settings(max_examples=50)
@given(
    st.dictionaries(st.text(max_size=3), st.integers() | st.text() | st.booleans() | st.none() | st.floats(-1e9, 1e9))
)
def test_other_values_pass_unchanged(value: dict[str, Any]) -> None:
    """Whatever the model wrote reaches a tool without a model class as it is."""
    tool = Tool(name="t", parameters_schema={"type": "object"}, handler=lambda args: args)
    value.pop("_isthmus", None)
    assert got(tool, dumps(value).decode()) == value


def test_the_callers_objects_are_unchanged() -> None:
    """F22: checking changes neither the call's input nor the schema."""
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    call = make_call("t", {"a": [1.25], "_isthmus": 1}, call_id="c")
    before, told = copy.deepcopy(call.input), copy.deepcopy(schema)
    made = validated(ToolSpec(name="t", parameters_schema=schema), arguments_of(call))
    made["b"] = 1
    assert (call.input, schema) == (before, told)


class Place(BaseModel):
    """Where."""

    town: str
    zip: Annotated[int, Field(ge=1000)]


def book(place: Place, on: date, mode: Literal["fast", "slow"], tags: list[str] | None = None) -> None:
    """Book."""


def test_every_fault_is_named_with_its_value() -> None:
    """F15: what goes back names each argument, inner ones by their path, what is wrong, and what was given."""
    with pytest.raises(ArgumentsError) as caught:
        got(Tool.from_function(book), '{"place": {"zip": 7}, "on": "soon", "mode": "medium", "tags": [1], "to": 1}')
    said = str(caught.value)
    for part in (
        "place.town: it is required",
        "place.zip: ",
        "(given: 7)",
        "on: ",
        '"soon"',
        "mode: ",
        "'fast' or 'slow'",
        "tags",
        "to: ",
    ):
        assert part in said


def test_good_arguments_become_python_values() -> None:
    """Types of Python are made of JSON: models, dates, literals; defaults are filled in."""
    values = got(
        Tool.from_function(book), '{"place": {"town": "Rom", "zip": 1000}, "on": "2026-01-02", "mode": "fast"}'
    )
    assert values == {"place": Place(town="Rom", zip=1000), "on": date(2026, 1, 2), "mode": "fast", "tags": None}
    assert values.place.town == "Rom"
    with pytest.raises(AttributeError, match="no argument 'plce'"):
        values.plce  # noqa: B018


class Exact(BaseModel):
    """A model that converts nothing."""

    model_config = ConfigDict(strict=True)
    on: date
    count: int


async def test_strict_models_take_what_json_can_say() -> None:
    """A strict model gets its dates from text, as in any JSON, and still no number from text."""

    def book(when: Exact) -> None:
        """Book."""

    made = Exact(on=date(2026, 1, 2), count=3)
    whole = Tool(name="t", args_model=Exact, handler=lambda args: args)
    assert got(whole, '{"on": "2026-01-02", "count": 3}') == made
    inside = Tool.from_function(book)
    assert got(inside, '{"when": {"on": "2026-01-02", "count": 3}}') == {"when": made}
    with pytest.raises(ArgumentsError, match=r'^when\.count: .*integer.*"3"'):
        got(inside, '{"when": {"on": "2026-01-02", "count": "3"}}')
