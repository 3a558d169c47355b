"""Tools as they are declared: schemas from signatures, descriptions, refusals, copies, policy."""

import threading
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from isthmus.errors import ToolDefinitionError
from isthmus.models.cancellation import CancellationToken
from isthmus.models.contract import ToolSpec
from isthmus.models.tools import Tool, ToolExecutionContext, Tools, as_tool


@as_tool
def search(query: Annotated[str, "What to look for."], limit: int = 5, kind: Literal["a", "b"] | None = None) -> str:
    """Search the library,
    all of it.

    Not shown to the model.
    """
    return f"{query} {limit} {kind}"


async def _run(tool: Tool, args: Any) -> Any:
    return await tool.run(args, CancellationToken(), ToolExecutionContext(tool_call_id="c1"))


def test_a_function_names_describes_and_types_the_tool() -> None:
    """Name, first docstring paragraph, parameter descriptions, types and required arguments come from the function."""
    schema = search.parameters
    assert (search.name, search.description) == ("search", "Search the library, all of it.")
    assert schema["required"] == ["query"]
    assert schema["properties"]["query"]["description"] == "What to look for."
    assert schema["properties"]["limit"] == {"default": 5, "type": "integer"}
    assert schema["additionalProperties"] is False


def test_as_tool_takes_arguments() -> None:
    """`as_tool` with arguments sets what the function does not say."""

    @as_tool(name="other", description="Else.", strict=False, retry_on_timeout=False)
    def thing() -> None: ...

    assert (thing.name, thing.description, thing.strict, thing.retry_on_timeout) == ("other", "Else.", False, False)


def test_a_function_without_a_docstring_is_said_to_be_executed() -> None:
    """The description is never empty."""

    def bare() -> None: ...

    assert Tool.from_function(bare).description == "Execute `bare`."


async def test_context_and_token_are_hidden_and_given() -> None:
    """Parameters named `context` and `cancellation_token` are no arguments of the model's, and are filled in."""

    def peek(context: ToolExecutionContext, n: int, cancellation_token: CancellationToken) -> Any:
        return context.tool_call_id, n, cancellation_token.cancelled

    tool = Tool.from_function(peek)
    assert list(tool.parameters["properties"]) == ["n"]
    assert await _run(tool, {"n": 3}) == ("c1", 3, False)


def test_hidden_parameters_need_no_annotation() -> None:
    """What is injected may stand without a type."""
    assert Tool.from_function(lambda context: context).parameters["properties"] == {}


def test_missing_annotations_are_listed() -> None:
    """A function with untyped parameters is refused, all of them named; the error is a ValueError and a TypeError."""

    def untyped(a, b: int, c): ...  # type: ignore[no-untyped-def]

    with pytest.raises(ToolDefinitionError, match=r"tool 'untyped'.*annotate a, c$") as caught:
        Tool.from_function(untyped)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "func", [lambda *args: None, lambda **kwargs: None, eval("lambda a, /: None")], ids=["args", "kwargs", "positional"]
)
def test_parameters_that_have_no_name_are_refused(func: Any) -> None:
    """`*args`, `**kwargs` and positional-only parameters cannot be offered."""
    with pytest.raises(TypeError, match="cannot be offered"):
        Tool.from_function(func, name="f")


def test_an_annotation_without_a_schema_is_refused() -> None:
    """A type that no JSON Schema describes fails at definition and names the tool."""

    def odd(lock: threading.Event) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'odd'"):
        Tool.from_function(odd)


async def test_parameter_names_that_the_model_class_has_are_kept() -> None:
    """Arguments called `json`, `schema` or `_x` reach the model and the function under these names."""

    def clash(json: int, schema: str, _x: bool, model_config: int) -> Any:
        return json, schema, _x, model_config

    tool = Tool.from_function(clash)
    given = {"json": 1, "schema": "s", "_x": True, "model_config": 2}
    assert list(tool.parameters["properties"]) == list(given)
    assert await _run(tool, given) == (1, "s", True, 2)
    assert await _run(tool, tool.args_type()(**given)) == (1, "s", True, 2)


async def test_partials_and_methods_are_functions_too() -> None:
    """A partial keeps its function's name and hides what is bound; a bound method hides `self`."""

    def join(a: str, b: str, sep: str) -> str:
        return sep.join((a, b))

    tool = Tool.from_function(partial(join, "x", sep="-"))
    assert (tool.name, list(tool.parameters["properties"])) == ("join", ["b"])
    assert await _run(tool, {"b": "y"}) == "x-y"

    class Owner:
        def method(self, n: int) -> int:
            return n

    assert list(Tool.from_function(Owner().method).parameters["properties"]) == ["n"]


async def test_handlers_get_what_their_signature_takes() -> None:
    """A handler is called with the arguments, then the token and the context, by name or in this order."""
    token, context = CancellationToken(), ToolExecutionContext(run_id="r")

    async def run(handler: Any) -> Any:
        return await Tool(name="t", handler=handler).run({"a": 1}, token, context)

    assert await run(lambda args: args) == {"a": 1}
    assert await run(lambda args, t: t) is token
    assert await run(lambda args, t, c: c) is context
    assert await run(lambda args, context: context) is context
    assert await run(lambda args, *, cancellation_token: cancellation_token) is token
    assert await run(lambda args, extra=7: extra) == 7
    assert await run(lambda *all_of_them: len(all_of_them)) == 3


def test_an_explicit_schema_is_sent_unchanged() -> None:
    """The very object that was given is what the model is told."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "odd": 1}}}
    assert Tool(name="t", parameters_schema=schema, handler=lambda args: args).parameters is schema
    assert Tool.from_function(lambda context: 1, name="t", parameters_schema=schema).parameters is schema


def test_replace_keeps_every_other_field() -> None:
    """A copy differs in what was named alone; an unknown field is a TypeError that names it."""
    tool = Tool(
        name="t",
        description="d",
        parameters_schema={"type": "object"},
        strict=False,
        handler=len,
        formatter=str,
        retry_on_timeout=False,
    )
    copy = tool.replace(description="other")
    assert copy.description == "other"
    assert copy.replace(description="d") == tool
    assert (copy.handler, copy.formatter, copy.retry_on_timeout, copy.strict) == (len, str, False, False)
    with pytest.raises(TypeError, match="'handle'"):
        tool.replace(handle=len)


async def test_with_handler_wraps_the_handler_alone() -> None:
    """The wrapper gets the old handler and gives the new one."""
    tool = Tool(name="t", handler=lambda args: 1)
    wrapped = tool.with_handler(lambda old: lambda args: old(args) + 1)
    assert await _run(wrapped, {}) == 2
    assert wrapped.name == "t"


class Colour(str, Enum):  # noqa: UP042 - the kind whose `str` is not its value
    """A string enum of the old kind."""

    RED = "red"


class Point(BaseModel):
    """A model."""

    x: int


@dataclass
class Pair:
    """A dataclass with a model and a date in it."""

    p: Point
    on: date


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as is", "as is"),
        (Colour.RED, "red"),
        (None, "null"),
        (True, "true"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (2512292042121000001, "2512292042121000001"),
        (10**40, str(10**40)),
        ({"id": 10**40}, f'{{"id":{10**40}}}'),
        (Point(x=1), '{"x":1}'),
        ([Point(x=1)], '[{"x":1}]'),
        (Pair(Point(x=1), date(2026, 1, 2)), '{"p":{"x":1},"on":"2026-01-02"}'),
        (date(2026, 1, 2), "2026-01-02"),
        (ValueError("v"), "v"),
    ],
    ids=str,
)
def test_return_values_become_text(value: Any, text: str) -> None:
    """F30: strings pass, models, dataclasses and JSON values are JSON with numbers exact, anything else is `str`."""
    assert search.return_value_as_string(value) == text


def test_a_formatter_has_the_last_word() -> None:
    """With a formatter, it alone makes the text."""
    assert Tool(name="t", handler=len, formatter=lambda v: f"<{v}>").return_value_as_string("x") == "<x>"


def test_tools_takes_functions_specs_and_tools() -> None:
    """Functions become tools; a spec stays one that nobody can run."""

    def look(topic: str) -> str:
        """Look."""
        return topic

    spec = ToolSpec(name="remote")
    tools = Tools([look, spec, search])
    assert [tool.name for tool in tools.normalized_tools] == ["look", "remote", "search"]
    assert [tool.name for tool in tools.executable_tools] == ["look", "search"]
    assert (tools.tool_choice, tools.parallel_tool_calls, tools.tool_call_timeout) == ("auto", False, None)
    assert (tools.tool_call_max_retries, tools.tool_call_limits, tools.max_tool_round_trips) == (3, None, 10)
    with pytest.raises(AttributeError):
        tools.tool_choice = "none"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tools": [search, search]}, "two tools are called 'search'"),
        ({"tools": [search], "tool_choice": "serach"}, "use one of auto, required, none, search"),
        ({"tools": [search], "tool_call_limits": {"x": 1}}, "no tool 'x'"),
        ({"tools": [search], "tool_call_limits": {"search": -1}}, "search"),
        ({"tool_call_max_retries": -1}, "tool_call_max_retries=-1"),
        ({"max_tool_round_trips": 1.5}, "max_tool_round_trips=1.5"),
        ({"tool_call_timeout": 0}, "tool_call_timeout=0"),
    ],
    ids=str,
)
def test_tools_refuses_what_cannot_be(options: dict[str, Any], match: str) -> None:
    """A policy that cannot be kept fails when it is made, naming the field and the value."""
    with pytest.raises(ToolDefinitionError, match=match):
        Tools(**options)


async def test_annotations_may_name_what_the_functions_around_hold() -> None:
    """Annotations as text, as `from __future__ import annotations` makes them, resolve inside of functions too."""

    class Place(BaseModel):
        town: str

    def go(where: "Place", unit: "Annotated[str, 'Of what.']" = "km") -> "Nobody":  # type: ignore[name-defined] # noqa: F821
        return where.town

    tool = Tool.from_function(go)
    assert set(tool.parameters["properties"]) == {"where", "unit"}
    assert await _run(tool, {"where": {"town": "Rom"}}) == "Rom"


def test_hidden_parameters_and_returns_need_no_readable_annotation() -> None:
    """What a model is not told about may be annotated with names that exist for type checkers only."""

    def go(n: int, context: "OnlyForCheckers") -> "OnlyForCheckers":  # type: ignore[name-defined] # noqa: F821
        return n

    assert set(Tool.from_function(go).parameters["properties"]) == {"n"}


def test_a_generator_is_no_tool() -> None:
    """A generator function has no result that a model could read, so it is refused when offered."""

    def counts() -> Any:
        yield 1

    async def waits() -> Any:
        yield 1

    for func in (counts, waits):
        with pytest.raises(ToolDefinitionError, match="generator"):
            Tool.from_function(func)
