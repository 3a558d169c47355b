"""The form of a reply: types in, schemas out, and replies read into values."""

import copy
import json
import pickle
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from isthmus.errors import OutputDefinitionError
from isthmus.models import OutputSchema, SchemaValidationResult, resolve_output_schema
from isthmus.models.contract import OutputForm
from isthmus.models.events import StepResult, Text
from isthmus.models.responses import Choice, Message, ModelResponse


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


class Loose(BaseModel):
    """With something that may be left out."""

    name: str
    note: str | None = None


class Node(BaseModel):
    """A tree."""

    value: int
    children: list["Node"] = []


@dataclass
class Point:
    """A place."""

    x: float
    y: float
    tags: list[str] = field(default_factory=list)


class Movie(TypedDict):
    """A film."""

    title: str
    year: int


class Color(Enum):
    """Some colours."""

    RED = "red"
    GREEN = "green"


JSON_SCHEMA = {
    "title": "City",
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["name"],
}

# type, a strategy for its plain JSON, and whether it travels in an object
FORMS: list[tuple[Any, Any, bool]] = [
    (Person, st.fixed_dictionaries({"name": st.text(), "age": st.integers(-(2**70), 2**70)}), False),
    (
        Point,
        st.builds(lambda x, y, t: {"x": x, "y": y, "tags": t}, *[st.floats(-1e9, 1e9)] * 2, st.lists(st.text())),
        False,
    ),
    (Movie, st.fixed_dictionaries({"title": st.text(), "year": st.integers(0, 3000)}), False),
    (Node, st.just({"value": 1, "children": [{"value": 2, "children": []}]}), False),
    (list[int], st.lists(st.integers()), True),
    (list[Person], st.lists(st.fixed_dictionaries({"name": st.text(), "age": st.integers()}), max_size=3), True),
    (Person | Movie, st.fixed_dictionaries({"title": st.text(), "year": st.integers()}), True),
    (int, st.integers(-(2**62), 2**62), True),
    (int | None, st.none() | st.integers(-9, 9), True),
    (bool, st.booleans(), True),
    (Color, st.sampled_from(["red", "green"]), True),
    (Literal["a", "b"], st.sampled_from(["a", "b"]), True),
    (tuple[int, str], st.tuples(st.integers(), st.text()).map(list), True),
]
IDS = [re.sub(r"\W+", "_", str(form)) for form, _, _ in FORMS]


@pytest.mark.parametrize(("form", "values", "wrapped"), FORMS, ids=IDS)
def test_any_value_of_a_type_survives(form: Any, values: Any, wrapped: bool) -> None:
    """What a type's JSON says comes back as the type's own value, strict or not, in its wrapper or without it."""
    schema = OutputSchema(form)
    # Before Python 3.12 pydantic takes no `TypedDict` of the standard library: its value is the dict itself.
    own = TypeAdapter(dict if form in (Movie, Person | Movie) else form)

    @settings(max_examples=40, deadline=None)
    @given(values)
    def holds(value: Any) -> None:
        expected = own.validate_python(value) if form is not Color else Color(value)
        sent = json.dumps({"response": value} if wrapped else value)
        assert schema.validate_json(sent) == expected
        assert schema.validate_json(sent, strict=True) == expected
        assert schema.validate_json(json.dumps(value)) == expected
        jsonschema.validate(json.loads(sent), schema.json_schema())

    holds()


@pytest.mark.parametrize(("form", "wrapped"), [(form, wrapped) for form, _, wrapped in FORMS], ids=IDS)
def test_every_schema_is_of_an_object_with_a_legal_name(form: Any, wrapped: bool) -> None:
    """Only what is no object is wrapped as `response`; names hold what every provider accepts; the form is strict."""
    schema = OutputSchema(form)
    sent = schema.json_schema()
    assert schema.wrapped is wrapped
    assert sent["type"] == "object"
    assert (list(sent["properties"]) == ["response"]) is wrapped
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}", schema.name())
    assert schema.response_format() == {
        "type": "json_schema",
        "json_schema": {"name": schema.name(), "schema": sent, "strict": True},
    }
    assert isinstance(schema, OutputForm)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (Person, "Person"),
        (list[int], "list_int"),
        (dict[str, int], "dict_str_int"),
        (JSON_SCHEMA, "City"),
        (int, "int"),
        (int | str, "Union_int_str"),
        (Annotated[int | str, Field(description="How many.")], "Union_int_str"),
    ],
    ids=str,
)
def test_names(form: Any, name: str) -> None:
    """A class is called by its name, a type by its words, a schema by its title; a name that is given wins."""
    assert OutputSchema(form, False).name() == name
    assert OutputSchema(form, False, name="own-name").name() == "own-name"


def test_text_is_plain() -> None:
    """`str` asks for no form: no response format, no schema, and the text is the value."""
    schema = OutputSchema(str)
    assert schema.is_text
    assert schema.response_format() is None
    assert schema.validate_json("Hello") == "Hello"
    with pytest.raises(ValueError, match=r"OutputSchema\(str\) is plain text .*read the text itself"):
        schema.json_schema()


def test_plain_text_needs_no_pydantic() -> None:
    """The door and a form of plain text load no pydantic; a JSON Schema loads none either."""
    code = (
        "import sys, isthmus.models as m\n"
        "m.OutputSchema(str); m.parse_json_dict\n"
        "assert 'pydantic' not in sys.modules, 'pydantic'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_json_schema_is_sent_as_it_is() -> None:
    """A schema that somebody wrote is never changed; it is strict only where it is so by itself."""
    before = copy.deepcopy(JSON_SCHEMA)
    schema = OutputSchema(JSON_SCHEMA)
    sent = schema.response_format()
    assert sent is not None
    assert (schema.json_schema(), sent["json_schema"]["strict"]) == (before, False)
    schema.json_schema()["properties"].clear()
    assert (schema.json_schema(), before) == (JSON_SCHEMA, JSON_SCHEMA)
    closed = {**JSON_SCHEMA, "required": ["name", "size"], "additionalProperties": False}
    assert OutputSchema(closed).response_format()["json_schema"]["strict"] is True  # type: ignore[index]


def test_a_json_schema_is_validated() -> None:
    """The value of a JSON Schema is the JSON itself, integers of any size exact; what does not fit is told by place."""
    schema = OutputSchema(JSON_SCHEMA)
    big = 12345678901234567890123
    assert schema.validate_json(json.dumps({"name": "x", "size": big})) == {"name": "x", "size": big}
    with pytest.raises(ValueError, match=r"City: size: must be integer .*; |City: size: must be integer"):
        schema.validate_json('{"name": "x", "size": "large"}')
    with pytest.raises(ValueError, match="City: name: it is required"):
        schema.validate_json("{}", strict=True)


def test_a_list_schema_is_wrapped_with_its_definitions_at_the_root() -> None:
    """A JSON Schema that is no object is wrapped; `$defs` move to where its references look for them."""
    item = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = OutputSchema({"type": "array", "items": {"$ref": "#/$defs/item"}, "$defs": {"item": item}})
    sent = schema.json_schema()
    assert sent["properties"] == {"response": {"type": "array", "items": {"$ref": "#/$defs/item"}}}
    assert sent["$defs"] == {"item": item}
    assert schema.validate_json('{"response": [{"n": 1}]}') == [{"n": 1}]


def test_a_recursive_root_is_an_object() -> None:
    """A type that refers to itself is sent as an object, not as a bare reference."""
    sent = OutputSchema(Node).json_schema()
    assert (sent["type"], "$ref" in sent) == ("object", False)
    jsonschema.validate({"value": 1, "children": []}, sent)


def test_not_strict_leaves_the_schema_open() -> None:
    """With `strict_json_schema=False` open objects and optional members stay, and the provider is told so."""
    schema = OutputSchema(dict[str, int], strict_json_schema=False)
    assert schema.json_schema()["additionalProperties"] == {"type": "integer"}
    assert schema.response_format()["json_schema"]["strict"] is False  # type: ignore[index]
    assert schema.validate_json('{"a": 1}') == {"a": 1}
    assert OutputSchema(Loose, False).json_schema()["required"] == ["name"]
    assert OutputSchema(Loose).json_schema()["required"] == ["name", "note"]


def test_null_for_what_may_be_left_out_leaves_it_out() -> None:
    """F08: a member that only strictness made obligatory may be null, and then is its default; an own null stays."""

    class Team(BaseModel):
        lead: str
        people: list[Point] = []
        note: str | None = "none given"

    text = '{"lead": "Ann", "people": [{"x": 1, "y": 2, "tags": null}], "note": null}'
    team = OutputSchema(Team).validate_json(text)
    assert team == Team(lead="Ann", people=[Point(1, 2)], note=None)
    team = OutputSchema(Team).validate_json('{"lead": "Ann", "people": null, "note": null}')
    assert team == Team(lead="Ann", note=None)
    with pytest.raises(ValueError, match="Team: lead: "):
        OutputSchema(Team).validate_json('{"lead": null, "people": null, "note": null}')


def test_a_json_schema_is_read_in_depth() -> None:
    """References and unions of a given schema are checked too."""
    item = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = OutputSchema(
        {
            "type": "object",
            "properties": {
                "item": {"$ref": "#/$defs/item"},
                "either": {"anyOf": [{"type": "null"}, {"type": "array"}]},
            },
            "$defs": {"item": item},
        }
    )
    assert schema.validate_json('{"item": {"n": 1}, "either": []}') == {"item": {"n": 1}, "either": []}
    for wrong in ('{"item": {}}', '{"either": {}}'):
        with pytest.raises(ValueError, match="response: "):
            schema.validate_json(wrong)


# Reading a reply


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ann", "age": 3}',
        '```json\n{"name": "Ann", "age": 3}\n```',
        'Here you are: {name: "Ann", "age": 3,}. Anything else?',
        '{"person": {"name": "Ann", "age": 3}}',
        '{"people": [{"note": 1}, {"inner": {"name": "Ann", "age": 3}}]}',
        '"{\\"name\\": \\"Ann\\", \\"age\\": 3}"',
        '{"name": "Ann", "age": "3"}',
    ],
)
def test_a_loose_reply_is_read(text: str) -> None:
    """Loose JSON, prose around it, and an inner object with all the required keys will do."""
    assert OutputSchema(Person).validate_json(text) == Person(name="Ann", age=3)


@pytest.mark.parametrize("text", ["", "  \n", "There is nobody.", '{"name": "Ann", "age": 3'])
def test_no_json_is_none(text: str) -> None:
    """An empty reply, prose and JSON that just stops hold no value."""
    assert OutputSchema(Person).validate_json(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "Ann"}', "Person: age: it is required"),
        ('{"name": "Ann", "age": "old"}', r"Person: age: .*\(given: 'old'\)"),
        ('{"who": {"name": "Ann"}}', "Person: name: it is required"),
        ("[1]", "Person: "),
    ],
)
def test_json_that_does_not_fit_is_an_error_with_the_place(text: str, said: str) -> None:
    """JSON of another form is a ValueError that names type, place and value."""
    with pytest.raises(ValueError, match=said):
        OutputSchema(Person).validate_json(text)


@pytest.mark.parametrize("text", ['```json\n{"name": "Ann", "age": 3}\n```', "prose", '{"name": "Ann", "age": 3} x'])
def test_strict_reading_takes_json_alone(text: str) -> None:
    """With `strict` the whole text must be JSON of the form; an empty one still is None."""
    schema = OutputSchema(Person)
    with pytest.raises(ValueError, match="Person: the reply is not JSON"):
        schema.validate_json(text, strict=True)
    assert schema.validate_json("", strict=True) is None


def test_strict_reading_wants_the_wrapper() -> None:
    """With `strict` a value that travels in an object must come in it."""
    with pytest.raises(ValueError, match="int: response: it is required"):
        OutputSchema(int).validate_json("3", strict=True)


def test_a_text_member_that_holds_json_stays_text() -> None:
    """A string member is read as JSON only where it does not fit as the text that it is."""

    class Code(BaseModel):
        source: str

    assert OutputSchema(Code).validate_json('{"source": "[1, 2]"}') == Code(source="[1, 2]")

    class Numbers(BaseModel):
        source: list[int]

    assert OutputSchema(Numbers).validate_json('{"source": "[1, 2]"}') == Numbers(source=[1, 2])


def response(text: str | None) -> ModelResponse:
    """A reply of the model face."""
    return ModelResponse(id="1", choices=[Choice(message=Message(content=text))])


def test_parse_response_reads_either_face() -> None:
    """The text of a `ModelResponse`'s first choice, or of a `StepResult`, is read; a reply without text is None."""
    schema, text = OutputSchema(Person), '{"name": "Ann", "age": 3}'
    assert schema.parse_response(response(text)) == Person(name="Ann", age=3)
    assert schema.parse_response(StepResult(events=(Text(text),))) == Person(name="Ann", age=3)
    assert schema.parse_response(response(None)) is None


@pytest.mark.parametrize(
    ("text", "count", "options", "result"),
    [
        ('{"name": "Ann", "age": 3}', 0, {}, (True, False)),
        ('{"name": "Ann"}', 0, {}, (False, True)),
        ('{"name": "Ann"}', 2, {}, (False, True)),
        ('{"name": "Ann"}', 3, {}, (False, False)),
        ("prose", 0, {}, (False, True)),
        ("prose", 0, {"enforce_structured_output": False}, (True, False)),
        ('x {"name": "Ann", "age": 3}', 0, {"strict": True}, (False, True)),
    ],
)
def test_whether_to_ask_again(text: str, count: int, options: Any, result: Any) -> None:
    """Asking again is worth it while `retry_count + 1 <= max_retries`; what is not enforced is valid."""
    got = OutputSchema(Person).validate_response_with_retry(response(text), count, 3, **options)
    assert isinstance(got, SchemaValidationResult)
    assert (got.is_valid, got.should_retry) == result
    assert (got.error_message is None) is got.is_valid


def test_plain_text_is_always_valid() -> None:
    """A text schema has nothing to validate."""
    assert OutputSchema(str).validate_response_with_retry(response(""), 0, 3) == SchemaValidationResult(True)


# Resolving, copying, comparing


def test_resolving() -> None:
    """None stays None, a schema or a stranger's form stays itself, a type or JSON Schema becomes a schema."""
    schema = OutputSchema(Person)

    class Own:
        def name(self) -> str:
            return "own"

        def json_schema(self) -> dict[str, Any]:
            return {}

        def response_format(self) -> None:
            return None

    own = Own()
    assert resolve_output_schema(None) is None
    assert resolve_output_schema(schema) is schema
    assert resolve_output_schema(own) is own
    assert resolve_output_schema(Person) == schema
    assert resolve_output_schema(list[int]).name() == "list_int"
    assert resolve_output_schema(JSON_SCHEMA).json_schema() == JSON_SCHEMA


def test_a_schema_survives_copies() -> None:
    """Copies and pickles equal the original and read the same."""
    schema = OutputSchema(Person, strategy="tool")
    for twin in (copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert twin == schema
        assert hash(twin) == hash(schema)
        assert twin.validate_json('{"name": "Ann", "age": 3}') == Person(name="Ann", age=3)
    assert OutputSchema(Person) != schema
    assert repr(schema) == "OutputSchema(Person, strategy='tool')"


def test_a_value_can_be_sent_again() -> None:
    """What was read from a dataclass form is a dataclass."""
    point = OutputSchema(Point).validate_json('{"x": 1, "y": 2, "tags": []}')
    assert isinstance(point, Point)
    assert asdict(point) == {"x": 1.0, "y": 2.0, "tags": []}


# Wrong uses


class Odd:
    """A class without a JSON Schema."""

    def __init__(self, inner: object) -> None:
        self.inner = inner


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OutputSchema(5), r"OutputSchema\(5\): this is no type: give a class"),
        (lambda: OutputSchema("Person"), r"OutputSchema\('Person'\): this is no type: give a class"),
        (lambda: OutputSchema(Odd), r"(?s)OutputSchema\(Odd\): .*use fields of types that JSON can express"),
        (lambda: OutputSchema(dict[str, int]), r"OutputSchema\(dict\[str, int\]\): .*strict_json_schema=False"),
        (lambda: OutputSchema({"type": "objekt"}), r"type 'objekt': this is no JSON Schema; one of an object is"),
        (lambda: OutputSchema({"name": "str"}), r"keys 'name': this is no JSON Schema; one of an object is"),
        (lambda: OutputSchema({"$ref": "#/$defs/x"}), r"OutputSchema: .*#/\$defs/x"),
        (lambda: OutputSchema({"type": "object", "x": object()}), r"the schema is no JSON: .*object"),
        (
            lambda: OutputSchema(Person, strategy="magic"),
            r"strategy='magic': use one of 'auto', 'native', 'tool', 'prompted'",
        ),
        (lambda: OutputSchema(Person, name="my name"), r"name='my name': providers take 1 to 64 of a-z"),
        (lambda: resolve_output_schema(3.5), r"OutputSchema\(3.5\): this is no type"),
    ],
)
def test_wrong_uses_name_the_place_and_the_remedy(make: Any, said: str) -> None:
    """Each wrong form is refused when it is made, with what to write instead; a ValueError and a TypeError."""
    with pytest.raises(OutputDefinitionError, match=said) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "```json\n[1, 2]\n```",
        "Here they are: [1, 2]",
        'See [a]: {"response": [1, 2]}',
        '{"response": [1, 2]}',
    ],
)
def test_a_list_may_come_without_its_wrapper(text: str) -> None:
    """A list that is fenced, or that ends the text, is read as well as one in its object."""
    assert OutputSchema(list[int]).validate_json(text) == [1, 2]


@pytest.mark.parametrize("text", ["See [1] for more.", "[1, 2", "```\n[1, 2\n```", "Here: [1, 2] and [3]"])
def test_a_list_is_not_guessed(text: str) -> None:
    """A list inside of prose, or one that just stops, is no answer."""
    assert OutputSchema(list[int]).validate_json(text) is None


class Numbers(BaseModel):
    """Numbers as JSON may write them."""

    whole: int
    exact: Decimal
    real: float = 0.0


@pytest.mark.parametrize("around", ["{}", "Sure: {} Yes.", "```json\n{}\n```"])
@pytest.mark.parametrize("whole", ["2512292042121000001", "2512292042121000001.0", "2.512292042121000001e18"])
def test_numbers_are_those_that_were_written(whole: str, around: str) -> None:
    """F30: integers in any spelling, and decimals with more digits than a float holds, are exact in typed output."""
    text = f'{{"whole": {whole}, "exact": 0.1000000000000000055511151231257827, "real": 1e23}}'
    expected = Numbers(whole=2512292042121000001, exact=Decimal("0.1000000000000000055511151231257827"), real=1e23)
    assert OutputSchema(Numbers).validate_json(around.replace("{}", text)) == expected
    wrapped = f'{{"response": {whole}}}'
    assert OutputSchema(int).validate_json(wrapped) == OutputSchema({"type": "integer"}).validate_json(wrapped)
    assert OutputSchema(int).validate_json(wrapped) == expected.whole


@given(st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-(10**12), max_value=10**12))
@settings(max_examples=50)
def test_any_decimal_is_exact(number: Decimal) -> None:
    """F30: a decimal of any length comes back digit by digit, bare or wrapped."""
    assert OutputSchema(Decimal).validate_json(f"{number:f}") == number
    assert OutputSchema(Decimal).validate_json(f'{{"response": {number:f}}}', strict=True) == number


def test_strict_models_keep_numbers_and_dates() -> None:
    """F30: where a strict model takes dates from JSON alone, whole numbers beside them are exact too."""

    class Due(BaseModel):
        model_config = ConfigDict(strict=True)
        on: date
        number: int

    text = '{"on": "2026-11-30", "number": 9007199254740993.0}'
    assert OutputSchema(Due).validate_json(text) == Due(on=date(2026, 11, 30), number=9007199254740993)


@pytest.mark.parametrize("depth", [200, 400, 900])
@pytest.mark.parametrize("form", [Node, int, {"type": "object", "additionalProperties": {"$ref": "#"}}], ids=str)
def test_a_reply_without_bottom_does_not_fit(form: Any, depth: int) -> None:
    """However deeply a reply is nested, it is read or is a ValueError; nothing else comes of it."""
    for text in ('{"a":' * depth + "5" + "}" * depth, '{"a":' + "[" * depth + "]" * depth + "}", '{"a":' * depth):
        with suppress(ValueError):
            OutputSchema(form).validate_json(text)


class Measured(BaseModel):
    """With a number that may be left out."""

    weight: float | None = None


@pytest.mark.parametrize("said", ["NaN", "Infinity", "-Infinity", "1e400", "-1E+999"])
@pytest.mark.parametrize("around", ["{}", "Here it is: {}", "```json\n{}\n```"])
def test_a_number_that_json_or_a_float_has_not_is_no_value(said: str, around: str) -> None:
    """Neither an infinity nor nothing in its place."""
    with pytest.raises(ValueError, match=r"Measured: reply\.weight: must be a number"):
        OutputSchema(Measured).read(around.format(f'{{"weight": {said}}}'))
