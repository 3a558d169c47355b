"""Tools as they are declared: schemas from signatures, descriptions, refusals, copies, policy."""

import asyncio
import copy
import pickle
import threading
from dataclasses import FrozenInstanceError, dataclass
from datetime import date
from enum import Enum
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from isthmus.errors import ToolDefinitionError
from isthmus.models.cancellation import CancellationToken
from isthmus.models.contract import ToolSpec
from isthmus.models.executor import ToolExecutor
from isthmus.models.tools import RunStateView, Tool, ToolExecutionContext, Tools, as_tool, constructor_fields


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
    assert Tool.from_function(lambda context: context, name="f").parameters["properties"] == {}


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
    with pytest.raises(TypeError, match="its formatter must return text, not int"):
        Tool(name="t", handler=len, formatter=len).return_value_as_string("x")  # type: ignore[arg-type]


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


async def test_run_gives_what_the_handler_returns() -> None:
    """`run` checks a mapping, awaits async handlers, runs plain ones in a thread, and lets their errors out."""
    here = threading.get_ident()

    def plain(n: int) -> bool:
        """Plain."""
        return threading.get_ident() != here

    async def waits(n: int) -> int:
        """Wait."""
        await asyncio.sleep(0)
        return n

    def burns(n: int) -> None:
        """Burn."""
        raise LookupError(n)

    assert await _run(Tool.from_function(plain), {"n": 1}) is True
    assert await _run(Tool.from_function(waits), {"n": "7"}) == 7
    with pytest.raises(LookupError):
        await _run(Tool.from_function(burns), {"n": 1})


async def test_outside_of_a_run_there_is_no_run_state() -> None:
    """A direct `tool.run` gives the handler an empty context: all of it None, no metadata."""
    seen: list[ToolExecutionContext] = []
    await Tool(name="t", handler=lambda args, context: seen.append(context)).run({}, CancellationToken())
    assert seen == [ToolExecutionContext()]
    assert (seen[0].run_id, seen[0].agent_name, seen[0].tool_call_id, seen[0].metadata, seen[0].run_state) == (
        None,
        None,
        None,
        {},
        None,
    )
    with pytest.raises(FrozenInstanceError):
        seen[0].run_id = "r"  # type: ignore[misc]


def test_a_run_state_is_whatever_has_its_three_members() -> None:
    """`RunStateView` is a structural protocol that can be asked about at run time."""

    class Mine:
        task_id = "t"
        shim_state = MappingProxyType(dict[str, Any]())
        active_skill_names = ()

    assert isinstance(Mine(), RunStateView)
    assert not isinstance(object(), RunStateView)


@pytest.mark.parametrize(
    ("strict", "shown"), [(None, {}), (True, {"strict": True}), (False, {"strict": False})], ids=str
)
def test_the_schema_says_strict_only_where_it_is_set(strict: bool | None, shown: dict[str, Any]) -> None:
    """`strict` is None by default, which leaves it to the adapter and is not said; True and False are."""
    parameters = {"type": "object", "properties": {"x": {"type": "string"}}}
    spec = ToolSpec(name="t", description="d", parameters_schema=parameters, strict=strict)
    assert spec.schema == {"name": "t", "description": "d", "parameters": parameters, **shown}
    assert ToolSpec(name="t").strict is None


def test_without_strict_optional_fields_and_open_objects_stay() -> None:
    """An inferred schema keeps optional fields optional and open objects open."""

    def look(topic: str, options: dict[str, Any], limit: int = 5) -> None:
        """Look."""

    for strict in (None, False):
        told = Tool.from_function(look, strict=strict).parameters
        assert told["required"] == ["topic", "options"]
        assert told["properties"]["options"] in ({"type": "object", "additionalProperties": True}, {"type": "object"})


def test_the_schema_is_made_once() -> None:
    """Every look at the parameters of a tool gives the same object."""
    tool = Tool(name="t", args_model=Point, handler=len)
    assert tool.parameters is tool.parameters
    assert (tool.args_type(), ToolSpec(name="t").args_type()) == (Point, dict)


def test_as_args_is_the_payload_of_a_chat_completions_request() -> None:
    """Tools, choice and parallelism as that API takes them; nothing at all without tools."""
    function = {"type": "function", "function": search.schema}
    assert Tools([search]).as_args() == {"tools": [function], "tool_choice": "auto", "parallel_tool_calls": False}
    named = Tools([search], tool_choice="search", parallel_tool_calls=True).as_args()
    assert (named["tool_choice"], named["parallel_tool_calls"]) == (
        {"type": "function", "function": {"name": "search"}},
        True,
    )
    assert Tools().as_args() == {}


class Timed(Tool):
    """A tool with a field more."""

    def __init__(self, *, seconds: float = 1.0, **fields: Any) -> None:
        super().__init__(**fields)
        self.seconds = seconds


class Forgetful(Tool):
    """A tool that does not keep a field of its constructor."""

    def __init__(self, *, seconds: float = 1.0, **fields: Any) -> None:
        super().__init__(**fields)


def test_replace_carries_every_field_of_the_constructor() -> None:
    """The fields of a copy are those of the constructor, by name: a field that is added to it cannot be lost."""
    fields: dict[str, Any] = {
        "name": "t",
        "description": "d",
        "args_model": Point,
        "parameters_schema": {"type": "object"},
        "strict": True,
        "handler": len,
        "formatter": str,
        "retry_on_timeout": False,
    }
    assert set(constructor_fields(Tool)) == set(fields) == set(signature(Tool.__init__).parameters) - {"self"}
    for made, own in ((Tool(**fields), {}), (Timed(**fields, seconds=9.0), {"seconds": 9.0})):
        copy = made.replace()
        assert type(copy) is type(made)
        assert {name: getattr(copy, name) for name in constructor_fields(type(made))} == {**fields, **own}
        assert made.with_handler(lambda old: repr).replace(handler=len) == made
    assert Timed(**fields).replace(seconds=3.0, name="u").seconds == 3.0


def test_a_subclass_that_keeps_no_field_cannot_be_copied() -> None:
    """A field that a copy would lose is an error that names class and field."""
    with pytest.raises(TypeError, match=r"'t' cannot be copied: Forgetful takes a field .*seconds"):
        Forgetful(name="t", handler=len).replace(name="u")


def test_handler_and_formatter_are_read_only() -> None:
    """They are there for wrapping, not for setting."""
    tool = Tool(name="t", handler=len, formatter=str)
    assert (tool.handler, tool.formatter) == (len, str)
    for name in ("handler", "formatter"):
        with pytest.raises(AttributeError):
            setattr(tool, name, repr)


async def test_a_wrapper_intercepts_arguments_and_results() -> None:
    """A handler that is wrapped gets checked arguments, may change them in a copy, and may change the result."""

    def wrap(old: Any) -> Any:
        async def handler(args: Any, cancellation_token: Any, context: Any) -> str:
            said = old({**args, "limit": args.limit + 1}, cancellation_token, context)
            return f"<{said}>"

        return handler

    wrapped = search.with_handler(wrap)
    assert await _run(wrapped, {"query": "x"}) == "<x 6 None>"
    assert (wrapped.schema, wrapped.args_type()) == (search.schema, search.args_type())


def _give(context: ToolExecutionContext, times: int = 1) -> str:
    """Give."""
    return f"{times}"


def _with(schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name="t", parameters_schema=schema)


def _endless() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"again": schema}
    return schema


def test_tools_of_one_function_are_equal_and_can_be_copied() -> None:
    """Two tools of one function are equal; a deep copy and a pickle of one are equal to it."""
    one = Tools([_give], tool_call_limits={"_give": 2})
    assert one == Tools([_give], tool_call_limits={"_give": 2}) != Tools([_give])
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))


async def test_pydantic_fields_as_defaults_are_read() -> None:
    """`Field(…)` in the place of a default gives bounds, description and default, and reaches no handler."""

    @as_tool
    def look(topic: str = Field(description="What."), limit: int = Field(default=3, ge=1)) -> str:
        """Look."""
        return f"{topic} {limit!r}"

    assert look.parameters["required"] == ["topic"]
    assert look.parameters["properties"]["topic"]["description"] == "What."
    assert look.parameters["properties"]["limit"] == {"type": "integer", "minimum": 1, "default": 3}
    assert await _run(look, {"topic": "x"}) == "x 3"
    with pytest.raises(ValueError, match="limit"):
        await _run(look, {"topic": "x", "limit": 0})


def test_a_default_that_json_has_no_words_for_is_not_told() -> None:
    """A default that is no number, or endless, is left out of the schema: a request has to be JSON."""

    @as_tool
    def scale(by: float = float("inf"), to: float = float("nan"), of: int = 10**30) -> None:
        """Scale."""

    shown = scale.parameters["properties"]
    assert shown == {"by": {"type": "number"}, "to": {"type": "number"}, "of": {"type": "integer", "default": 10**30}}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tool(name="", handler=len), "tool '': give it a name"),
        (lambda: ToolSpec(name=None), "tool None: give it a name"),  # type: ignore[arg-type]
        (lambda: Tool(name="t", handler=7), "tool 't': handler 7 cannot be called; give a function"),  # type: ignore[arg-type]
        (lambda: Tool(name="t", handler=len, formatter="x"), "tool 't': formatter 'x' cannot be called"),  # type: ignore[arg-type]
        (lambda: ToolSpec(name="t", args_model=7), "tool 't': args_model 7 is no pydantic model class; give one"),
        (lambda: ToolSpec(name="t", parameters_schema=[]), "tool 't': parameters_schema must be a dict"),  # type: ignore[arg-type]
        (lambda: Tools(search), r"must be a list of tools, \[tool\] for one"),  # type: ignore[arg-type]
        (lambda: Tools([7]), "7 is no function: a tool is made of one"),  # type: ignore[list-item]
        (lambda: Tools([search, search.replace(strict=True)]), "two tools are called 'search': rename one"),
        (lambda: Tools([search], tool_call_limits={"serch": 1}), "there is no tool 'serch'; there is search"),
        (lambda: Tools([search], tool_call_timeout="5"), "tool_call_timeout='5': must be more than 0 seconds"),  # type: ignore[arg-type]
        (lambda: Tools([search], tool_call_limits=["search"]), r"tool_call_limits=\['search'\]: must be a dict"),  # type: ignore[arg-type]
        (lambda: Tools([search], parallel_tool_calls="yes"), "parallel_tool_calls='yes': use True or False"),  # type: ignore[arg-type]
        (lambda: ToolSpec(name="t", description=7), "tool 't': description=7: must be text"),  # type: ignore[arg-type]
        (lambda: ToolSpec(name="t", strict="yes"), "tool 't': strict='yes': use True, False or None"),  # type: ignore[arg-type]
        (lambda: search.replace(retry_on_timeout="no"), "tool 'search': retry_on_timeout='no': use True or False"),
        (lambda: as_tool(name="")(_give), "tool '': give it a name"),
        (
            lambda: _with({"type": "string"}),
            "tool 't': parameters_schema: type 'string': arguments are an object; make",
        ),
        (lambda: _with({"default": object()}), "tool 't': parameters_schema: it is no JSON"),
        (lambda: _with(_endless()), r"tool 't': parameters_schema: it is no JSON: .*\$ref for what contains itself"),
        (
            lambda: asyncio.run(ToolExecutor().execute(tool_calls=[], tools=[])),
            r"tools=\[\]: must be Tools, as in Tools",
        ),  # type: ignore[arg-type]
        (lambda: search.replace(handlers=len), "tool 'search' has no field 'handlers'; it has name, description"),
    ],
)
def test_wrong_uses_say_where_and_what_to_do(make: Any, words: str) -> None:
    """Each wrong use fails at once with a TypeError that names the place, the value and the remedy."""
    with pytest.raises(TypeError, match=words):
        make()


def test_the_policy_is_frozen_and_keeps_the_callers_list() -> None:
    """F22: what the caller does to his list afterwards changes no policy, and the policy changes no list."""
    given: list[Any] = [search]
    limits = {"search": 2}
    tools = Tools(given, tool_call_limits=limits)
    given.clear()
    limits["search"] = 9
    assert (tools.normalized_tools, tools.tool_call_limits) == ((search,), {"search": 2})
    assert Tools(tools.normalized_tools).tools == tools.tools
