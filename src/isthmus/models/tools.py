"""Tools as an application declares them, and the policy under which a model may ask for them.

Owns definitions only: `isthmus.models.executor` runs them, an agent's loop counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable, signature
from types import CoroutineType
from typing import Any, Protocol, Self, TypeAlias, overload, runtime_checkable

from isthmus.errors import ToolDefinitionError
from isthmus.models.arguments import validated
from isthmus.models.cancellation import CancellationToken
from isthmus.models.contract import ToolSpec
from isthmus.models.handlers import Arguments, handler_call, in_thread, is_async
from isthmus.models.results import result_text
from isthmus.models.signature import described, function_name, signature_of

ToolHandler: TypeAlias = Callable[..., Any]


@runtime_checkable
class RunStateView(Protocol):
    """What a tool may see of the run that it serves; it follows the run as that goes on."""

    @property
    def task_id(self) -> Any:
        """The run's identity; as text it is the context's `run_id`."""
        ...

    @property
    def shim_state(self) -> Mapping[str, Any]:
        """The state that shims keep; setting or deleting a key of it is a `TypeError`."""
        ...

    @property
    def active_skill_names(self) -> Sequence[str]:
        """The names of the skills that are active."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionContext:
    """What a handler may know about the call that it serves.

    Args:
        run_id: the run, the same for all its calls.
        agent_name: the agent that runs.
        tool_call_id: the call.
        metadata: whatever the application gave along.
        run_state: a read-only view of the live run; None outside of one.
    """

    run_id: str | None = None
    agent_name: str | None = None
    tool_call_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    run_state: RunStateView | None = None


class Tool(ToolSpec):
    """A tool with the handler that runs it.

    Args:
        name: the name that the model calls it by.
        description: what it does and when to use it.
        args_model: a pydantic model of its arguments; the handler gets an instance.
        parameters_schema: their JSON Schema, sent unchanged; without an `args_model` the handler gets a dict.
        strict: whether the provider should enforce the schema; None leaves it to the adapter.
        handler: called with the arguments, then a `CancellationToken` and a `ToolExecutionContext` as far as it takes
            them; parameters named `cancellation_token` and `context` are found by name. A plain function runs in a
            thread.
        formatter: makes the text that the model reads of what the handler returned.
        retry_on_timeout: whether a call that timed out may be tried again.

    Raises:
        ToolDefinitionError: no name, a handler or a formatter that cannot be called, an `args_model` that is none.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        args_model: Any = None,
        parameters_schema: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        handler: ToolHandler,
        formatter: Callable[[Any], str] | None = None,
        retry_on_timeout: bool = True,
    ) -> None:
        if not callable(handler):
            raise ToolDefinitionError(f"tool {name!r}: handler {handler!r} cannot be called; give a function")
        if formatter is not None and not callable(formatter):
            raise ToolDefinitionError(f"tool {name!r}: formatter {formatter!r} cannot be called; give a function")
        if not isinstance(retry_on_timeout, bool):
            raise ToolDefinitionError(f"tool {name!r}: retry_on_timeout={retry_on_timeout!r:.60}: use True or False")
        super().__init__(
            name=name,
            description=description,
            args_model=args_model,
            parameters_schema=parameters_schema,
            strict=strict,
        )
        self._handler = handler
        self._formatter = formatter
        self._call: Callable[[Any, Any, Any], Any] | None = None
        self._waits = False
        self.retry_on_timeout = retry_on_timeout

    @property
    def handler(self) -> ToolHandler:
        """The handler, for wrapping."""
        return self._handler

    @property
    def formatter(self) -> Callable[[Any], str] | None:
        """The formatter, for wrapping."""
        return self._formatter

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tool):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = ToolSpec.__hash__

    @classmethod
    def from_function(
        cls,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        formatter: Callable[[Any], str] | None = None,
        parameters_schema: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        retry_on_timeout: bool = True,
    ) -> Tool:
        """A tool from a function: its name, the first paragraph of its docstring, and its annotations.

        Args:
            func: sync or async; `Annotated[T, "text"]` describes a parameter; parameters named `context` and
                `cancellation_token` are filled in and hidden from the model.
            name: instead of the function's name.
            description: instead of the docstring's first paragraph.
            formatter: makes the text that the model reads of the return value.
            parameters_schema: sent unchanged instead of the schema of the annotations.
            strict: whether the provider should enforce the schema.
            retry_on_timeout: whether a call that timed out may be tried again.

        Raises:
            ToolDefinitionError: parameters without annotations (all are listed), `*args` or `**kwargs`, a type that has
                no JSON Schema, a class, a lambda without `name`.
        """
        if isinstance(func, type) or not callable(func):
            raise ToolDefinitionError(
                f"{func!r} is no function: a tool is made of one, or given as a Tool or a ToolSpec"
            )
        called = function_name(func) if name is None else name
        args_model, handler = signature_of(func, called)
        if called == "<lambda>":
            raise ToolDefinitionError(f"{func!r} has no name that a model could call: give name=…, or use def")
        return cls(
            name=called,
            description=described(func, called) if description is None else description,
            args_model=args_model,
            parameters_schema=parameters_schema,
            strict=strict,
            handler=handler,
            formatter=formatter,
            retry_on_timeout=retry_on_timeout,
        )

    def _fields(self) -> dict[str, Any]:
        """The constructor's fields and what this tool has for them."""
        try:
            return {name: getattr(self, name) for name in constructor_fields(type(self))}
        except AttributeError as error:
            raise TypeError(
                f"tool {self.name!r} cannot be copied: {type(self).__name__} takes a field that it keeps under no "
                f"attribute of that name ({error})"
            ) from None

    def replace(self, **overrides: Any) -> Self:
        """A copy with some fields changed and every other kept.

        Raises:
            TypeError: a field that a tool does not have; names it.
        """
        fields = self._fields()
        unknown = sorted(set(overrides) - set(fields))
        if unknown:
            raise TypeError(f"tool {self.name!r} has no field {unknown[0]!r}; it has {', '.join(fields)}")
        return type(self)(**{**fields, **overrides})

    def with_handler(self, wrapper: Callable[[ToolHandler], ToolHandler]) -> Self:
        """A copy whose handler is `wrapper(handler)`."""
        return self.replace(handler=wrapper(self._handler))

    async def run(
        self, args: Any, cancellation_token: CancellationToken, context: ToolExecutionContext | None = None
    ) -> Any:
        """What the handler returns, sync or async; a sync one runs in a thread.

        Args:
            args: a mapping, which is checked first, or what came of a check: an instance of `args_type()`.
            cancellation_token: handed to the handler.
            context: handed to the handler; without one, an empty one.

        Raises:
            ValueError: the mapping does not fit; says which arguments and why.
            Exception: whatever the handler raises.
        """
        if isinstance(args, Mapping) and not isinstance(args, Arguments):
            args = validated(self, args)
        return await self.call(args, cancellation_token, context=context or ToolExecutionContext())

    async def call(self, args: Any, cancellation_token: CancellationToken, *, context: ToolExecutionContext) -> Any:
        """`run` for arguments that have been checked."""
        if self._call is None:
            self._call, self._waits = handler_call(self._handler), is_async(self._handler)
        if self._waits:
            value = self._call(args, cancellation_token, context)
        else:
            value = await in_thread(partial(self._call, args, cancellation_token, context), self.name)
        return await value if type(value) is CoroutineType or isawaitable(value) else value

    def return_value_as_string(self, value: Any) -> str:
        """What the model reads of a return value.

        The formatter's text if there is one; else a string as it is, models, dataclasses and JSON values as JSON, and
        `str()` of anything else.

        Raises:
            TypeError: the formatter gave something else than text.
        """
        if self._formatter is None:
            return result_text(value)
        text = self._formatter(value)
        if not isinstance(text, str):
            raise TypeError(f"tool {self.name!r}: its formatter must return text, not {type(text).__name__}")
        return text


def constructor_fields(cls: type) -> tuple[str, ...]:
    """The fields of a tool class: the keywords of its constructor, and of its bases' where it passes others on."""
    names: dict[str, None] = {}
    for each in cls.__mro__:
        if "__init__" not in vars(each):
            continue
        parameters = list(signature(vars(each)["__init__"]).parameters.values())[1:]
        names |= dict.fromkeys(
            each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        )
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    return tuple(names)


@overload
def as_tool(func: Callable[..., Any], /) -> Tool: ...
@overload
def as_tool(
    *,
    name: str | None = None,
    description: str | None = None,
    formatter: Callable[[Any], str] | None = None,
    parameters_schema: Mapping[str, Any] | None = None,
    strict: bool | None = None,
    retry_on_timeout: bool = True,
) -> Callable[[Callable[..., Any]], Tool]: ...
def as_tool(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a `Tool`, bare (`@as_tool`) or with the arguments of `Tool.from_function`.

    Raises:
        ToolDefinitionError: the function cannot be offered as a tool.
    """
    if func is not None:
        return Tool.from_function(func, **options)
    return lambda function: Tool.from_function(function, **options)


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that a model may call, and on what terms; counts are per run.

    Args:
        tools: `Tool`, `ToolSpec`, or annotated functions.
        tool_choice: "auto", "required", "none", or the name of one of them.
        parallel_tool_calls: whether one reply may hold several calls, and whether these run side by side.
        tool_call_timeout: seconds that one call may take; None waits for ever.
        tool_call_max_retries: how often a call that timed out is tried again.
        tool_call_limits: how often a tool may run, by name.
        max_tool_round_trips: after so many rounds of calls the tools are withdrawn and the model must answer.

    Raises:
        ToolDefinitionError: two tools of one name, a choice or a limit for a tool that is not there, a number that
            cannot be.
    """

    tools: Sequence[ToolSpec | Callable[..., Any]] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = False
    tool_call_timeout: float | None = None
    tool_call_max_retries: int = 3
    tool_call_limits: Mapping[str, int] | None = None
    max_tool_round_trips: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.tools, str | Mapping | ToolSpec) or not hasattr(self.tools, "__iter__"):
            raise ToolDefinitionError(f"tools={self.tools!r:.60}: must be a list of tools, [tool] for one")
        made = tuple(tool if isinstance(tool, ToolSpec) else Tool.from_function(tool) for tool in self.tools)
        object.__setattr__(self, "tools", made)
        names = [tool.name for tool in made]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ToolDefinitionError(f"two tools are called {twice[0]!r}: rename one, as in tool.replace(name=…)")
        if self.tool_choice not in ("auto", "required", "none", *names):
            choices = ", ".join(("auto", "required", "none", *names))
            raise ToolDefinitionError(f"tool_choice={self.tool_choice!r}: use one of {choices}")
        self._check_numbers(names)

    def _check_numbers(self, names: list[str]) -> None:
        if not isinstance(self.tool_call_limits, Mapping | None):
            raise ToolDefinitionError(
                f"tool_call_limits={self.tool_call_limits!r:.60}: must be a dict of numbers by tool name"
            )
        if not isinstance(self.parallel_tool_calls, bool):
            raise ToolDefinitionError(f"parallel_tool_calls={self.parallel_tool_calls!r:.60}: use True or False")
        limits = dict(self.tool_call_limits or {})
        if self.tool_call_limits is not None:
            object.__setattr__(self, "tool_call_limits", limits)
        stray = [name for name in limits if name not in names]
        if stray:
            known = ", ".join(names) or "no tool"
            raise ToolDefinitionError(f"tool_call_limits: there is no tool {stray[0]!r}; there is {known}")
        counts = {f"tool_call_limits[{name!r}]": limit for name, limit in limits.items()}
        counts["tool_call_max_retries"] = self.tool_call_max_retries
        counts["max_tool_round_trips"] = self.max_tool_round_trips
        for what, count in counts.items():
            if type(count) is not int or count < 0:
                raise ToolDefinitionError(f"{what}={count!r}: must be a whole number from 0")
        wait = self.tool_call_timeout
        number = isinstance(wait, int | float) and not isinstance(wait, bool)
        if wait is not None and not (number and wait > 0):
            raise ToolDefinitionError(
                f"tool_call_timeout={wait!r}: must be more than 0 seconds, or None to wait for ever"
            )

    @property
    def normalized_tools(self) -> tuple[ToolSpec, ...]:
        """All tools, functions made into `Tool`."""
        return self.tools  # type: ignore[return-value]

    @property
    def executable_tools(self) -> tuple[Tool, ...]:
        """Those that have a handler."""
        return tuple(tool for tool in self.normalized_tools if isinstance(tool, Tool))

    def as_args(self) -> dict[str, Any]:
        """Tools, choice and parallelism as arguments of a Chat Completions request; nothing without tools."""
        if not self.tools:
            return {}
        named = self.tool_choice not in ("auto", "required", "none")
        return {
            "tools": [{"type": "function", "function": tool.schema} for tool in self.normalized_tools],
            "tool_choice": {"type": "function", "function": {"name": self.tool_choice}} if named else self.tool_choice,
            "parallel_tool_calls": self.parallel_tool_calls,
        }
