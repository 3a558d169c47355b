"""From Python types to JSON Schema and to validators, beside pydantic, and back."""

from __future__ import annotations

import collections
import enum
import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, Required, Union
from uuid import UUID

import pytest
from annotated_types import Ge, Gt, Len, MaxLen
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import ReadOnly, TypedDict

from isthmus.errors import ToolDefinitionError
from isthmus.models.schema import MISSING, Parameter, object_schema, object_validator, type_schema, type_validator
from isthmus.models.typebounds import NotPlain
from isthmus.models.typeschema import Definitions, described
from support.schemas import draw_value, fits


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclass
class Address:
    """Where somebody lives."""

    street: str
    number: int = 1
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    value: int
    left: Tree | None = None
    children: list[Tree] = field(default_factory=list)


class Film(TypedDict, total=False):
    """A film."""

    title: Required[str]
    year: int
    cast: NotRequired[list[str]]
    id: ReadOnly[int]


class Old(typing.TypedDict):
    name: typing.Annotated[str, "who"]
    next: typing.NotRequired[Optional[Old]]  # noqa: UP045


class Model(BaseModel):
    a: int
    b: list[str] = []


Metres = NewType("Metres", float)

# Types that are described without pydantic.
PLAIN: list[Any] = [
    *(str, int, float, bool, None, Any, object, bytes, datetime, date, time, timedelta, UUID, Decimal, Path),
    *(Literal["a"], Literal["a", "b"], Literal["a", 1, None], Literal[True, 1], Literal[None], Literal[Colour.RED]),
    *(Colour, Level, Mixed, Point, Address, Tree, Film),
    *(list, tuple, dict, set, frozenset, typing.List, typing.Dict),  # noqa: UP006
    *(list[int], tuple[int, ...], tuple[int, str], tuple[()], set[str], frozenset[int], Sequence[int], Iterable[str]),
    *(collections.deque[int], dict[str, int], dict[str, Any], Mapping[str, list[int]], dict[int, str]),
    *(Optional[int], int | str, Union[None, int, str], Optional[Literal["a"]], int | None, list[int | None]),  # noqa: UP007, UP045
    *(list[Colour], dict[str, Address], Optional[Tree], Address | Film, list[Point], Metres),  # noqa: UP045
    *(Annotated[int, "how many"], Annotated[int, Gt(0), "how many"], Annotated[list[int], Len(1, 3)]),
    *(Annotated[str, MaxLen(3)], Annotated[int, Field(ge=1, lt=9, description="d", title="t", examples=[2])]),
    *(Annotated[str, Field(pattern="^a")], Annotated[float, Field(multiple_of=2)], Annotated[dict[str, int], Len(1)]),
    Annotated[Address, Field(description="home")],
]
# Types that only pydantic can say.
OTHERS: list[Any] = [
    *(Model, list[Model], Model | None, dict[Colour, int], complex, Annotated[int | None, Ge(1)]),
    *(Annotated[bytes, MaxLen(3)], Annotated[int, Field(strict=True)], collections.defaultdict[str, int]),
]


def _shown(value: Any) -> str:
    return str(value)[:70]


def _binding(schema: Any) -> Any:
    """The schema without names and texts."""
    if isinstance(schema, list):
        return [_binding(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            made[key] = {name: _binding(each) for name, each in value.items()}
        elif key not in ("title", "description"):
            made[key] = _binding(value)
    return made


@pytest.mark.parametrize("annotation", PLAIN, ids=_shown)
def test_plain_types_need_no_pydantic(annotation: Any) -> None:
    """The common types are described by the generator itself."""
    described(annotation, Definitions())


@pytest.mark.parametrize("annotation", OTHERS, ids=_shown)
def test_other_types_are_left_to_pydantic(annotation: Any) -> None:
    """Where the generator has no words, pydantic's are taken."""
    with pytest.raises(NotPlain):
        described(annotation, Definitions())
    assert _binding(type_schema(annotation)) == _binding(TypeAdapter(annotation).json_schema())


@pytest.mark.parametrize("annotation", PLAIN, ids=_shown)
@pytest.mark.filterwarnings("ignore:.*ReadOnly.*")
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_same_instances_fit_as_for_pydantic(annotation: Any, data: st.DataObject) -> None:
    """A value fits our schema of a type exactly where it fits pydantic's."""
    ours, theirs = type_schema(annotation), TypeAdapter(annotation).json_schema()
    for schema in (ours, theirs):
        value = draw_value(data.draw, schema, schema)
        assert fits(value, ours) == fits(value, theirs), (value, ours, theirs)


@pytest.mark.parametrize("annotation", [Tree, Old, list[Old], dict[str, Old] | None], ids=_shown)
def test_what_refers_to_itself_is_described_and_checked(annotation: Any) -> None:
    """Recursive classes become definitions, those of the standard library's TypedDict too."""
    schema = type_schema(annotation)
    assert json.dumps(schema).count('"$ref": "#/$defs/') >= 1
    value = {"value": 1, "left": {"value": 2}} if annotation is Tree else {"name": "a", "next": {"name": "b"}}
    wrapped = {Tree: value, Old: value}.get(annotation) or ([value] if annotation == list[Old] else {"k": value})
    assert fits(wrapped, schema)
    assert type_validator(annotation).validate(wrapped)
    with pytest.raises(ValidationError):
        type_validator(annotation).validate({"nonsense": 1} if isinstance(wrapped, dict) else [1])


def test_texts_describe_parameters_and_fields() -> None:
    """The text in an `Annotated` describes a parameter and a key; an explicit description goes first."""
    schema = object_schema([Parameter("a", Annotated[int, "one"]), Parameter("b", Annotated[int, "two"], 1, "mine")])
    assert [each["description"] for each in schema["properties"].values()] == ["one", "mine"]
    assert type_schema(Old)["$defs"]["Old"]["properties"]["name"]["description"] == "who"


def test_an_object_closes_requires_and_shares_definitions() -> None:
    """The schema of parameters takes no other key, requires those without a default, and has each definition once."""
    schema = object_schema(
        [Parameter("a", Address), Parameter("b", Address | None, None), Parameter("model_x", int, 3)], title="f"
    )
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["a"]
    assert list(schema["$defs"]) == ["Address"]
    assert schema["properties"]["model_x"] == {"type": "integer", "default": 3}
    assert schema["title"] == "f"


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (None, None),
        (Colour.RED, "red"),
        ([1, {"a": None}], [1, {"a": None}]),
        (date(2026, 1, 2), "2026-01-02"),
        ({1, 2}, [1, 2]),
        (len, MISSING),
    ],
    ids=["null", "enum", "nested", "date", "set", "function"],
)
def test_defaults_are_told_as_json_or_not_at_all(default: Any, shown: Any) -> None:
    """A default stands in the schema in its JSON form; one that has none is left out, and still stands in."""
    schema = object_schema([Parameter("a", Any, default)])
    assert schema["properties"]["a"].get("default", MISSING) == shown
    assert "required" not in schema
    assert object_validator([Parameter("a", Any, default)])({}) == {"a": default}


def test_arguments_become_python_values_with_defaults_filled_in() -> None:
    """A mapping becomes a dict of Python values, whatever its keys are called; F30: integers of any size stay exact."""
    parameters = [
        Parameter("self", Address),
        Parameter("day", date),
        Parameter("colour", Colour, Colour.BLUE),
        Parameter("copy", list[int], [1]),
        Parameter("n", int, 0),
    ]
    check = object_validator(parameters, title="f")
    values = check({"self": {"street": "s"}, "day": "2026-01-02", "n": 2**80 + 1})
    assert values == {
        "self": Address("s"),
        "day": date(2026, 1, 2),
        "colour": Colour.BLUE,
        "copy": [1],
        "n": 2**80 + 1,
    }
    values["copy"].append(2)
    assert check({"self": {"street": "s"}, "day": "2026-01-02"})["copy"] == [1]
    assert check.validate_json(b'{"self":{"street":"s"},"day":"2026-01-02","n":12345678901234567890123}')["n"] % 10 == 3


def test_faults_of_arguments_name_their_places() -> None:
    """What does not fit is said with the place of each fault, unknown keys too."""
    check = object_validator([Parameter("a", Address), Parameter("b", int), Parameter("c", Address)], title="f")
    with pytest.raises(ValidationError, match="f") as caught:
        check({"a": {"street": 1}, "zz": 1, "c": {"street": "x"}})
    assert {error["loc"] for error in caught.value.errors()} == {("a", "street"), ("b",), ("zz",)}


def test_a_null_for_what_may_be_left_out_counts_as_left_out() -> None:
    """F08: a null that a strict schema asks for counts as left out, inside of fields too; a required one does not."""
    parameters = [Parameter("a", Address), Parameter("b", str, "x"), Parameter("c", int | None, 3)]
    check = object_validator(parameters)
    given = {"a": {"street": "s", "number": None, "tags": None}, "b": None, "c": None}
    expected = {"a": Address("s"), "b": "x", "c": None}
    assert check(given) == expected
    assert check.validate_json(json.dumps(given)) == expected
    assert given["b"] is None
    for wrong in ({"a": None}, {"a": {"street": None}}, {"a": {"street": "s"}, "b": 1, "c": "x"}):
        with pytest.raises(ValidationError):
            check(wrong)
        with pytest.raises(ValidationError):
            check.validate_json(json.dumps(wrong))
    with pytest.raises(ValidationError):
        check.validate_json("{")


def test_the_same_recursive_type_may_stand_twice() -> None:
    """Two parameters may share a type that refers to itself."""
    check = object_validator([Parameter("a", Tree), Parameter("b", list[Tree], [])])
    assert check({"a": {"value": 1}, "b": [{"value": 2, "left": {"value": 3}}]})["b"][0].left == Tree(3)


class Plain:
    """No type that JSON knows."""


# Wrong uses: what is written, what the error must say.
WRONG: list[tuple[Any, str]] = [
    (Plain, "Plain has no JSON Schema"),
    (list[Plain], "has no JSON Schema"),
    (Collection[int], "Collection"),
    (Callable[[int], int], "CallableSchema"),
    (list["Nowhere"], "Nowhere"),  # type: ignore[name-defined] # noqa: F821
    (Annotated[Plain, "text"], "Plain"),
]


@pytest.mark.parametrize(("annotation", "says"), WRONG, ids=_shown)
def test_a_type_without_a_schema_is_named_with_its_parameter(annotation: Any, says: str) -> None:
    """A type that JSON Schema has no words for is refused by name, as is its parameter, with the remedy."""
    with pytest.raises(TypeError, match=says) as alone:
        type_schema(annotation)
    assert "use a type made of plain ones" in str(alone.value)
    with pytest.raises(ToolDefinitionError, match="tool 'f': parameter 'b'") as caught:
        object_schema([Parameter("a", int), Parameter("b", annotation)], title="tool 'f'")
    assert says in str(caught.value)


def test_pydantic_is_imported_only_when_something_is_checked() -> None:
    """Describing plain types imports no pydantic; the first check does."""
    program = (
        "import sys\n"
        "from dataclasses import dataclass\n"
        "from isthmus.models.schema import Parameter, object_schema, object_validator\n"
        "@dataclass\n"
        "class A:\n    x: int\n"
        "p = [Parameter('a', A), Parameter('b', list[str] | None, None)]\n"
        "object_schema(p); check = object_validator(p)\n"
        "assert not [name for name in sys.modules if name.startswith('pydantic')]\n"
        "assert check({'a': {'x': 1}})['a'].x == 1\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
