"""Tools from functions: what is read at definition, what is made later, and what is refused."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from enum import Enum
from typing import Annotated, Any, Literal, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from isthmus.errors import ToolDefinitionError
from isthmus.models.signature import described, function_name, signature_of
from isthmus.models.tools import Tool, as_tool

_DECLARES = """
import sys
from typing import Annotated, Literal
from isthmus.models import Tools, as_tool

@as_tool
async def look(topic: Annotated[str, "What."], deep: bool = False, mode: Literal["a", "b"] = "a") -> str:
    "Look."
    return topic

tools = Tools([look])
assert look._parameters is None, "the schema was made at definition"
assert tools.as_args()["tools"][0]["function"]["parameters"]["required"] == ["topic"]
assert "pydantic" not in sys.modules, "pydantic was imported"
assert look._parameters is look.parameters
"""


def test_declaring_a_tool_of_common_types_imports_no_pydantic() -> None:
    """F31: a definition reads the signature alone; the schema is made at the first use, once, without pydantic."""
    done = subprocess.run([sys.executable, "-c", _DECLARES], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_annotations_that_were_postponed_are_read() -> None:
    """With `from __future__ import annotations`, as in this file, types and their texts are those that were meant."""

    @as_tool
    def look(topic: Annotated[str, "What."], limit: int | None = None) -> str:
        """Look."""
        return topic

    assert look.parameters["properties"]["topic"] == {"type": "string", "description": "What."}
    assert look.parameters["required"] == ["topic"]


class Searcher:
    """Searches the shelves.

    Much more about it.
    """

    def __call__(self, shelf: int) -> int:
        """Call it."""
        return shelf

    async def later(self, shelf: int) -> int:
        """Later."""
        return shelf

    @staticmethod
    def apart(shelf: int) -> int:
        """Apart."""
        return shelf

    @classmethod
    def of(cls, shelf: int) -> int:
        """Of."""
        return shelf


def _decorated(func: Any) -> Any:
    @functools.wraps(func)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return inner


@_decorated
def wrapped(shelf: int) -> int:
    """Wrapped."""
    return shelf


def moved(shelf: int, by: int) -> int:
    """Moved."""
    return shelf + by


@pytest.mark.parametrize(
    ("func", "name", "description"),
    [
        (Searcher(), "Searcher", "Searches the shelves."),
        (Searcher().later, "later", "Later."),
        (Searcher.apart, "apart", "Apart."),
        (Searcher.of, "of", "Of."),
        (wrapped, "wrapped", "Wrapped."),
        (functools.partial(moved, by=0), "moved", "Moved."),
        (functools.partial(functools.partial(moved), by=0), "moved", "Moved."),
    ],
    ids=["object", "method", "static", "class", "decorated", "partial", "twice"],
)
async def test_whatever_can_be_called_is_a_tool(func: Any, name: str, description: str) -> None:
    """Objects with `__call__`, methods, decorated functions and partials are told and run like functions."""
    from isthmus.models.cancellation import CancellationToken

    tool = Tool.from_function(func)
    assert (tool.name, tool.description) == (name, description)
    assert tool.parameters["properties"] == {"shelf": {"type": "integer"}}
    assert await tool.run({"shelf": 3}, CancellationToken()) == 3


def test_the_description_is_the_first_paragraph() -> None:
    """Lines of it are joined; without a docstring it says that it runs the tool, by the name that the tool has."""

    def look() -> None:
        """Look
        around.

        Not told.
        """

    def bare() -> None: ...

    assert described(look, "look") == "Look around."
    assert described(bare, "other") == "Execute `other`."
    assert function_name(functools.partial(bare)) == "bare"


def test_arguments_are_checked_and_named() -> None:
    """What the signature makes of arguments has their names as keys and as attributes, defaults filled in."""

    def look(topic: str, limit: int = 5) -> None:
        """Look."""

    made = signature_of(look, "look")[0].model_validate({"topic": "x"})
    assert (made, made.limit) == ({"topic": "x", "limit": 5}, 5)
    with pytest.raises(ValidationError):
        signature_of(look, "look")[0].model_validate({"topic": 1})


async def test_a_handler_takes_a_mapping_or_a_model() -> None:
    """`args_type` is a pydantic model of the parameters, made when asked for; its instances run like mappings."""
    from isthmus.models.cancellation import CancellationToken

    def look(topic: Annotated[str, "What."], schema: int = 2) -> Any:
        """Look."""
        return topic, schema

    tool = Tool.from_function(look)
    args_type = tool.args_type()
    assert issubclass(args_type, BaseModel)
    assert args_type is tool.args_type()
    assert args_type.model_fields["topic"].description == "What."
    assert await tool.run(args_type(topic="x"), CancellationToken()) == ("x", 2)
    with pytest.raises(TypeError, match="mapping or a model"):
        await tool.run(7, CancellationToken())
    with pytest.raises(ValueError, match="topic: it is required"):
        await tool.run({}, CancellationToken())


def _no_type(a, b: int): ...  # type: ignore[no-untyped-def]


def _generator() -> Any:
    yield 1


class _Generates:
    def __call__(self) -> Any:
        yield 1


def _event(lock: threading.Event) -> None: ...


def _unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


def _no_expression(a: int, b: "int |") -> None: ...  # noqa: F722


def _no_member(a: threading.Missing) -> None: ...  # type: ignore[name-defined]


class _Strange(Enum):
    ONE = object()


def _strange_choice(a: _Strange) -> None: ...


def _made_field(a: list[int] = field(default_factory=list)) -> None: ...  # noqa: B008


def _made_by_pydantic(a: list[int] = Field(default_factory=list)) -> None: ...  # noqa: B008


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (_no_type, r"tool '_no_type': .*annotate a$"),
        (Searcher.__call__, r"make the tool of the bound method"),
        (lambda *args: None, r"\*args cannot be offered to a model; name each parameter"),
        (lambda **kwargs: None, r"\*\*kwargs cannot be offered"),
        (_generator, "a generator has no result to show: return the whole"),
        (_Generates(), "a generator has no result to show"),
        (_event, r"tool '_event': an annotation has no JSON Schema: .*'lock'"),
        (_unknown, r"tool '_unknown': the annotation of a cannot be read: .*Nowhere.*name types that are there"),
        (_no_expression, r"tool '_no_expression': the annotation of b cannot be read: "),
        (_no_member, r"tool '_no_member': the annotation of a cannot be read: .*Missing"),
        (_strange_choice, r"tool '_strange_choice': an annotation has no JSON Schema: .*'a': .*plain ones"),
        (_made_field, r"tool '_made_field': a: .* give a plain default"),
        (_made_by_pydantic, r"tool '_made_by_pydantic': a: .* give a plain default"),
        (lambda: None, "has no name that a model could call: give name="),
        (7, "7 is no function"),
        (Searcher, "Searcher'> is no function"),
    ],
    ids=[
        "annotation",
        "unbound",
        "args",
        "kwargs",
        "generator",
        "generating object",
        "no schema",
        "unknown name",
        "no expression",
        "no member",
        "strange choice",
        "dataclass field",
        "pydantic factory",
        "no name",
        "no function",
        "class",
    ],
)
def test_what_cannot_be_offered_is_refused_at_definition(func: Any, words: str) -> None:
    """Each error comes at the definition, is a TypeError, and names the tool, the parameter and what to do."""
    with pytest.raises(ToolDefinitionError, match=words) as caught:
        Tool.from_function(func)
    assert isinstance(caught.value, TypeError)


_SCALARS = st.sampled_from([str, int, float, bool, bytes, None, object, Any, Literal["a", 1, True, None]])
_HINTS = st.recursive(
    _SCALARS | st.sampled_from([list, dict, set, frozenset, tuple]),
    lambda inner: st.one_of(
        st.builds(lambda a: list[a], inner),
        st.builds(lambda a: dict[str, a], inner),
        st.builds(lambda a, b: dict[a, b], inner, inner),
        st.builds(lambda a: set[a], inner),
        st.builds(lambda a: tuple[a, ...], inner),
        st.builds(lambda a, b: tuple[a, b], inner, inner),
        st.builds(lambda a, b: Union[a, b], inner, inner),  # noqa: UP007
        st.builds(lambda a: Annotated[a, "Told."], inner),
        st.builds(lambda a: Sequence[a], inner),
        st.builds(lambda a: Mapping[str, a], inner),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(_HINTS)
def test_a_schema_that_is_made_later_can_be_made(hint: Any) -> None:
    """Where the schema was not made at definition, it can be, it is JSON, and arguments can be checked."""

    def look(topic: Any) -> None:
        """Look."""

    look.__annotations__["topic"] = hint
    tool = Tool.from_function(look)
    schema = json.loads(json.dumps(tool.parameters))
    assert schema["required"] == ["topic"]
    with suppress(ValidationError):
        tool.args_model.model_validate({"topic": None})  # type: ignore[union-attr]
