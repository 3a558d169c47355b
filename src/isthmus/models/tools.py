"""Tools as an application declares them, and the policy under which a model may ask for them.

Owns definitions only: `isthmus.models.executor` runs them, an agent's loop counts them.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from typing import Any, TypeAlias, overload

from isthmus.errors import ToolDefinitionError
from isthmus.models.contract import ToolSpec
from isthmus.models.jsontext import dumps
from isthmus.models.signature import Injected, arguments_of, described, function_name, injected_call

ToolHandler: TypeAlias = Callable[..., Any]


class CancellationToken:
    """Tells work that nobody waits for it any more; safe to use from any thread."""

    __slots__ = ("_event", "_lock", "_waiters")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[tuple[AbstractEventLoop, Future[None]]] = []

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` has been called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Cancel; harmless twice."""
        with self._lock:
            self._event.set()
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_release, future)

    def raise_if_cancelled(self) -> None:
        """Stop here if cancelled.

        Raises:
            InterruptedError: it has been cancelled.
        """
        if self.cancelled:
            raise InterruptedError("cancelled")

    async def wait(self) -> None:
        """Return once cancelled."""
        loop = get_running_loop()
        future: Future[None] = loop.create_future()
        with self._lock:
            if self._event.is_set():
                return
            self._waiters.append((loop, future))
        try:
            await future
        finally:
            with self._lock:
                self._waiters = [waiter for waiter in self._waiters if waiter[1] is not future]


def _release(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


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
    run_state: Any = None


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
        ToolDefinitionError: no name, or no handler that can be called.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        args_model: type | None = None,
        parameters_schema: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        handler: ToolHandler,
        formatter: Callable[[Any], str] | None = None,
        retry_on_timeout: bool = True,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ToolDefinitionError(f"tool {name!r}: give it a name")
        if not callable(handler):
            raise ToolDefinitionError(f"tool {name!r}: handler {handler!r} cannot be called; give a function")
        super().__init__(
            name=name,
            description=description,
            args_model=args_model,
            parameters_schema=parameters_schema,
            strict=strict,
        )
        self._handler = handler
        self._formatter = formatter
        self._call = injected_call(handler)
        self._parameters: Mapping[str, Any] | None = None
        self.retry_on_timeout = retry_on_timeout

    @property
    def handler(self) -> ToolHandler:
        """The handler, for wrapping."""
        return self._handler

    @property
    def formatter(self) -> Callable[[Any], str] | None:
        """The formatter, for wrapping."""
        return self._formatter

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments, made once."""
        if self._parameters is None:
            self._parameters = super().parameters
        return self._parameters

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
                no JSON Schema.
        """
        called = name or function_name(func)
        args_model, handler = arguments_of(func, called)
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
        spec = {each: getattr(self, each) for each in ToolSpec.__slots__}
        mine = {"handler": self._handler, "formatter": self._formatter, "retry_on_timeout": self.retry_on_timeout}
        return {**spec, **mine}

    def replace(self, **overrides: Any) -> Tool:
        """A copy with some fields changed and every other kept.

        Raises:
            TypeError: a field that a tool does not have; names it.
        """
        fields = self._fields()
        unknown = sorted(set(overrides) - set(fields))
        if unknown:
            raise TypeError(f"tool {self.name!r} has no field {unknown[0]!r}; it has {', '.join(fields)}")
        return type(self)(**{**fields, **overrides})

    def with_handler(self, wrapper: Callable[[ToolHandler], ToolHandler]) -> Tool:
        """A copy whose handler is `wrapper(handler)`."""
        return self.replace(handler=wrapper(self._handler))

    def call(self, args: Any, cancellation_token: CancellationToken, *, context: ToolExecutionContext) -> Any:
        """Call the handler as its signature asks; what it returns may have to be awaited."""
        return self._call(args, Injected(cancellation_token, context))

    def return_value_as_string(self, value: Any) -> str:
        """What the model reads of a return value.

        The formatter's text if there is one; else a string as it is, models, dataclasses and JSON values as JSON, and
        `str()` of anything else.
        """
        if self._formatter is not None:
            return self._formatter(value)
        if isinstance(value, str):
            return str.__str__(value)
        dump = getattr(value, "model_dump_json", None)
        if callable(dump) and not isinstance(value, type):
            return str(dump())
        plain = value is None or isinstance(value, dict | list | tuple | int | float)
        if not plain and (not is_dataclass(value) or isinstance(value, type)):
            return str(value)
        with suppress(TypeError, ValueError, RecursionError):
            return (dumps(value) if plain else _structured(value)).decode()
        with suppress(ValueError):
            return _structured(value).decode()
        return str(value)


def _structured(value: Any) -> bytes:
    """JSON of dataclasses, and of models inside of other values."""
    from pydantic import TypeAdapter

    return TypeAdapter(Any).dump_json(value)


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
        given = self.tools
        made = tuple(tool if isinstance(tool, ToolSpec) else Tool.from_function(tool) for tool in given)
        object.__setattr__(self, "tools", made)
        names = [tool.name for tool in made]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ToolDefinitionError(f"two tools are called {twice[0]!r}: names must be unique")
        if self.tool_choice not in ("auto", "required", "none", *names):
            choices = ", ".join(("auto", "required", "none", *names))
            raise ToolDefinitionError(f"tool_choice={self.tool_choice!r}: use one of {choices}")
        self._check_numbers(names)

    def _check_numbers(self, names: list[str]) -> None:
        limits = dict(self.tool_call_limits or {})
        stray = sorted(set(limits) - set(names))
        if stray:
            raise ToolDefinitionError(f"tool_call_limits: there is no tool {stray[0]!r}")
        counts = {f"tool_call_limits[{name!r}]": limit for name, limit in limits.items()}
        counts["tool_call_max_retries"] = self.tool_call_max_retries
        counts["max_tool_round_trips"] = self.max_tool_round_trips
        for what, count in counts.items():
            if type(count) is not int or count < 0:
                raise ToolDefinitionError(f"{what}={count!r}: must be a whole number from 0")
        if self.tool_call_timeout is not None and not self.tool_call_timeout > 0:
            raise ToolDefinitionError(f"tool_call_timeout={self.tool_call_timeout!r}: must be more than 0 seconds")

    @property
    def normalized_tools(self) -> tuple[ToolSpec, ...]:
        """All tools, functions made into `Tool`."""
        return self.tools  # type: ignore[return-value]

    @property
    def executable_tools(self) -> tuple[Tool, ...]:
        """Those that have a handler."""
        return tuple(tool for tool in self.normalized_tools if isinstance(tool, Tool))
