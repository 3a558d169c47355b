"""The contract between applications and models: what a call is given, and what answers it.

Owns the rendered request (`GenerateContext`), the tool declaration (`ToolSpec`) and the protocols at the seams.
Must not know how any provider spells them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, force_setattr

from isthmus.errors import ConfigError, ToolDefinitionError
from isthmus.models.events import StepResult
from isthmus.models.jsontext import dumps

DEFAULT_CEILING = 8192
"""Output tokens that are asked for where neither the request nor its adapter names a ceiling."""
_EMPTY: Mapping[str, Any] = MappingProxyType({})
_UNSUPPORTED = ("note", "error")


class ArgsModel(Protocol):
    """What can describe and check the arguments of a tool: a pydantic model class, or a function's signature."""

    def model_json_schema(self) -> dict[str, Any]:
        """Their JSON Schema."""
        ...

    def model_validate(self, given: Any, /) -> Any:
        """What the handler gets."""
        ...

    def model_validate_json(self, given: bytes, /) -> Any:
        """The same, of JSON."""
        ...


_TOLD = ("name", "description", "args_model", "parameters_schema", "strict")


class ToolSpec:
    """What a model is told about a tool.

    Args:
        name: the name that the model calls it by.
        description: what it does and when to use it.
        args_model: a pydantic model class of its arguments; or
        parameters_schema: their JSON Schema, sent unchanged.
        strict: whether the provider should enforce the schema; None leaves it to the adapter.

    Raises:
        ToolDefinitionError: no name, a description that is no text, an `args_model` that is no model, a
            `parameters_schema` that is no JSON Schema of an object.
    """

    __slots__ = ("_parameters", "args_model", "description", "name", "parameters_schema", "strict")

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        args_model: Any = None,
        parameters_schema: Mapping[str, Any] | None = None,
        strict: bool | None = None,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ToolDefinitionError(f"tool {name!r}: give it a name, as text")
        if args_model is not None and not hasattr(args_model, "model_json_schema"):
            raise ToolDefinitionError(f"tool {name!r}: args_model {args_model!r} is no pydantic model class; give one")
        if not isinstance(description, str):
            raise ToolDefinitionError(f"tool {name!r}: description={description!r:.60}: must be text")
        if not (strict is None or isinstance(strict, bool)):
            raise ToolDefinitionError(f"tool {name!r}: strict={strict!r:.60}: use True, False or None")
        if parameters_schema is not None:
            _check_parameters(name, parameters_schema)
        self.name = name
        self.description = description
        self.args_model: ArgsModel | None = args_model
        self.parameters_schema = parameters_schema
        self.strict = strict
        self._parameters: Mapping[str, Any] | None = parameters_schema

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments, made once; an empty object schema where none was given."""
        if self._parameters is None:
            model = self.args_model
            self._parameters = {"type": "object", "properties": {}} if model is None else model.model_json_schema()
        return self._parameters

    @property
    def schema(self) -> dict[str, Any]:
        """Name, description and parameters as a model is told them; `strict` too, unless it is left to the adapter."""
        shown = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return shown if self.strict is None else {**shown, "strict": self.strict}

    def args_type(self) -> type:
        """The class of the arguments: a pydantic model, made where a function declares them; else `dict`."""
        model = self.args_model
        if model is None:
            return dict
        made: type = model if isinstance(model, type) else model.model()  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolSpec):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _TOLD)

    def __hash__(self) -> int:
        return hash(self.name)


def _check_parameters(name: str, schema: Any) -> None:
    """Refuse what no request could carry, and what no call could fit: arguments are an object."""
    if not isinstance(schema, Mapping):
        kind = type(schema).__name__
        raise ToolDefinitionError(f"tool {name!r}: parameters_schema must be a dict (a JSON Schema), not {kind}")
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list | tuple) else (kinds,)):
        raise ToolDefinitionError(
            f'tool {name!r}: parameters_schema: type {kinds!r:.60}: arguments are an object; make it {{"type": '
            '"object", "properties": {…}}'
        )
    try:
        dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(
            f"tool {name!r}: parameters_schema: it is no JSON: {error}; use strings, numbers, lists and dicts, and "
            "$ref for what contains itself"
        ) from None


@runtime_checkable
class OutputForm(Protocol):
    """The form that a reply must take, as an adapter reads it."""

    def name(self) -> str:
        """A name that providers accept."""
        ...

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the reply."""
        ...

    def response_format(self) -> dict[str, Any] | None:
        """The Chat Completions `response_format`; None asks for plain text."""
        ...


class _AsDataclass:
    """What `dataclasses` looks for in a class, for a struct and for those that are derived from it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, _: object, kind: type[Struct]) -> Any:
        return getattr(_dataclass_of(kind), self._name)


@cache
def _dataclass_of(kind: type[Struct]) -> type:
    """A dataclass with the fields of a struct."""
    told: list[Any] = [(each.name, each.type, _told(each)) for each in fields(kind)]
    return make_dataclass(kind.__name__, told, frozen=True, kw_only=True)


def _told(each: Any) -> Any:
    if each.required:
        return field()
    if each.default_factory is not NODEFAULT:
        return field(default_factory=each.default_factory)
    plain = type(each.default).__hash__ is not None
    return field(default=each.default) if plain else field(default_factory=lambda: each.default)


class GenerateContext(Struct, frozen=True, kw_only=True):
    """One rendered request; never the state store.

    Args:
        brief: the instructions (the system text).
        messages: the transcript: OpenAI-chat dicts, native blocks attached under the reserved key; any sequence, kept
            as a tuple.
        tools: the tools that may be called: `ToolSpec`.
        tool_choice: "auto", "required", "none", or the name of one tool.
        parallel_tool_calls: whether one reply may hold several calls.
        output: the form that the reply must take, or None for text.
        max_output_tokens: ceiling of this reply; None leaves it to the adapter's own.
        effort: reasoning effort: "off", "low", "medium", "high", "xhigh", "max"; None sends nothing.
        temperature: sampling temperature.
        top_p: nucleus sampling mass.
        stop: strings that end the reply.
        seed: sampling seed.
        on_unsupported: what to do with a portable setting that a provider lacks: "note" or "error".
        options: provider-native request options, passed through as they are.

    Raises:
        TypeError: messages, tools or stop are no sequence.
        ValueError: `on_unsupported` is neither of its words: who wants an error must not get a note.
    """

    brief: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool = True
    output: OutputForm | None = None
    max_output_tokens: int | None = None
    effort: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    on_unsupported: str = "note"
    options: Mapping[str, Any] = _EMPTY
    # One is made in each step, so that it is no dataclass; `dataclasses.replace` and `fields` take it for one.
    __dataclass_fields__: ClassVar[Any] = _AsDataclass()
    __dataclass_params__: ClassVar[Any] = _AsDataclass()

    def __post_init__(self) -> None:
        if not (type(self.messages) is tuple and type(self.tools) is tuple and type(self.stop) is tuple):
            if isinstance(self.stop, str):
                force_setattr(self, "stop", (self.stop,))
            for name in ("messages", "tools", "stop"):
                value = getattr(self, name)
                if isinstance(value, str | Mapping):
                    raise TypeError(f"{name}: must be a sequence, not {type(value).__name__}")
                force_setattr(self, name, tuple(value))
        if self.stop and not all(isinstance(each, str) for each in self.stop):
            raise TypeError(f"stop: must be texts, not {self.stop!r:.80}")
        if self.on_unsupported not in _UNSUPPORTED:
            raise ValueError(f"on_unsupported: must be 'note' or 'error', not {self.on_unsupported!r}")
        for place, tool in enumerate(self.tools):
            if not isinstance(tool, ToolSpec):
                raise TypeError(f"tools[{place}]: must be a Tool or a ToolSpec, not {type(tool).__name__}")

    def __reduce__(self) -> tuple[Any, ...]:
        # A read-only mapping can be neither copied nor pickled.
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return _context, ({**values, "options": dict(self.options)}, type(self))


def _context(values: dict[str, Any], kind: type[GenerateContext]) -> GenerateContext:
    return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long to wait, in seconds above 0; None waits for ever.

    Args:
        connect: for a connection.
        first_content: for the first event of a reply.
        idle: between two events, counted only while the model is awaited; comments and pings are no events.
        total: for the whole reply.

    Raises:
        ConfigError: a wait that is no number above 0.
    """

    connect: float | None = 10.0
    first_content: float | None = 120.0
    idle: float | None = 60.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in ("connect", "first_content", "idle", "total"):
            wait = getattr(self, name)
            number = isinstance(wait, int | float) and not isinstance(wait, bool)
            if wait is not None and not (number and wait > 0):
                raise ConfigError(
                    f"must be seconds above 0, or None to wait for ever, not {wait!r}", where="Timeouts", key=name
                )

    @property
    def soonest(self) -> float | None:
        """The shortest wait but for a connection; None where there is none."""
        wait = self.first_content
        for limit in (self.idle, self.total):
            if limit is not None and (wait is None or limit < wait):
                wait = limit
        return wait


@runtime_checkable
class Streams(Protocol):
    """The least that makes a plain object an adapter: `stream(ctx)`."""

    def stream(self, ctx: GenerateContext, /) -> AsyncIterator[Any]:
        """Yield content events in order, then exactly one `Finish`."""
        ...


@runtime_checkable
class Generates(Protocol):
    """The other least: `generate(ctx)`."""

    def generate(self, ctx: GenerateContext, /) -> StepResult | Awaitable[StepResult]:
        """Return the reply whole."""
        ...


TextCallback = Callable[[str], Any]
Messages = Sequence[Mapping[str, Any]]
