"""From a function's signature to the arguments of a tool: their names, types, schema and validator."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from isthmus.errors import ToolDefinitionError
from isthmus.models.handlers import INJECTED, Arguments, keyword_handler
from isthmus.models.schema import MISSING, Parameter, object_schema, object_validator
from isthmus.models.validators import Validator


def function_name(func: Callable[..., Any]) -> str:
    """The name that a function, a partial of one, or a callable object goes by."""
    while isinstance(func, partial):
        func = func.func
    return str(getattr(func, "__name__", type(func).__name__))


def described(func: Callable[..., Any], name: str) -> str:
    """The first paragraph of the docstring, as one line; without one, that it runs `name`."""
    while isinstance(func, partial):
        func = func.func
    text = inspect.getdoc(func) or ""
    first = " ".join(text.split("\n\n", 1)[0].split())
    return first or f"Execute `{name}`."


class Signature:
    """What a function takes from a model: stands where a pydantic model of the arguments could, and is cheaper.

    Args:
        title: the name of the arguments, in their schema.
        parameters: one for each argument.
    """

    __slots__ = ("_model", "_schema", "_validator", "parameters", "title")

    def __init__(self, title: str, parameters: tuple[Parameter, ...]) -> None:
        self.title = title
        self.parameters = parameters
        self._schema: dict[str, Any] | None = None
        self._validator: Validator | None = None
        self._model: type | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signature):
            return NotImplemented
        return (self.title, self.parameters) == (other.title, other.parameters)

    def __hash__(self) -> int:
        return hash(self.title)

    def __repr__(self) -> str:
        return f"Signature({self.title!r}, {', '.join(each.name for each in self.parameters)})"

    def model_json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, made once.

        Raises:
            ToolDefinitionError: a type that has none.
        """
        if self._schema is None:
            self._schema = object_schema(self.parameters, title=self.title)
        return self._schema

    def model_validate(self, given: Mapping[str, Any]) -> Arguments:
        """The arguments as the function gets them, defaults filled in.

        Raises:
            pydantic.ValidationError: they do not fit.
        """
        return Arguments(self._checks().validate(given))

    def model_validate_json(self, given: bytes) -> Arguments:
        """The same, of arguments as JSON.

        Raises:
            pydantic.ValidationError: they do not fit.
        """
        return Arguments(self._checks().validate_json(given))

    def _checks(self) -> Validator:
        if self._validator is None:
            self._validator = object_validator(self.parameters, title=self.title)
        return self._validator

    def model(self) -> type:
        """A pydantic model of the arguments, made when it is first asked for."""
        if self._model is None:
            self._model = _model(self.title, self.parameters)
        return self._model


def signature_of(func: Callable[..., Any], name: str) -> tuple[Signature, Callable[..., Any]]:
    """What a function takes from a model, and a handler that calls it with that.

    Raises:
        ToolDefinitionError: parameters without annotations, `*args` or `**kwargs`, a type without a JSON Schema.
    """
    body = func if inspect.isroutine(func) or isinstance(func, partial) else getattr(func, "__call__", func)  # noqa: B004
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ToolDefinitionError(f"tool {name!r}: a generator has no result to show: return the whole of it")
    parameters = _parameters(func, name)
    bound = INJECTED if not isinstance(func, partial) else (*INJECTED, *func.keywords)
    shown = {key: parameter for key, parameter in parameters.items() if key not in bound}
    hidden = tuple(key for key in parameters if key in INJECTED)
    hints = _hints(func, name, wanted=shown)
    missing = [key for key in shown if key not in hints]
    if missing:
        unbound = missing[0] in ("self", "cls")
        remedy = "make the tool of the bound method" if unbound else f"annotate {', '.join(missing)}"
        raise ToolDefinitionError(f"tool {name!r}: a model must be told what each parameter is: {remedy}")
    found = tuple(_parameter(key, hints[key], parameter.default, name) for key, parameter in shown.items())
    signature = Signature(f"{name}_arguments", found)
    if not all(_is_plain(each.annotation) for each in found):
        _prove(signature, name)
    return signature, keyword_handler(func, hidden)


def _parameter(key: str, hint: Any, default: Any, name: str) -> Parameter:
    """A parameter; what `Field(…)` says of one in the place of its default belongs to its annotation."""
    made_by = f"{type(default).__module__}.{type(default).__name__}"
    if made_by not in ("dataclasses.Field", "pydantic.fields.FieldInfo"):
        return Parameter(key, hint, default)
    if made_by == "dataclasses.Field" or default.default_factory is not None:
        raise ToolDefinitionError(f"tool {name!r}: {key}: a function has no fields to be made: give a plain default")
    return Parameter(key, Annotated[hint, default], MISSING if default.is_required() else default.default)


def _prove(signature: Signature, name: str) -> None:
    """Make the schema now, where it might fail: a tool that nobody can describe must not be found out in use."""
    try:
        signature.model_json_schema()
    except ToolDefinitionError as error:
        raise ToolDefinitionError(f"tool {name!r}: an annotation has no JSON Schema: {error}") from error.__cause__


_PLAIN = frozenset((str, int, float, bool, bytes, type(None), object, list, dict, set, frozenset, tuple))
_LITERALS = frozenset((str, int, bool, type(None)))
_PLAIN_ORIGINS = frozenset((list, dict, set, frozenset, tuple, Union, UnionType, Sequence, Mapping, Iterable))


def _is_plain(hint: Any) -> bool:
    """Whether a type has a JSON Schema for sure."""
    if type(hint) is type:
        return hint in _PLAIN
    origin = get_origin(hint)
    if origin is None:
        return hint is Any or hint is ...
    if origin is Literal:
        return all(type(value) in _LITERALS for value in get_args(hint))
    if origin is Annotated:
        inner, *extras = get_args(hint)
        return all(isinstance(extra, str) for extra in extras) and _is_plain(inner)
    return origin in _PLAIN_ORIGINS and all(map(_is_plain, get_args(hint)))


def _parameters(func: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(func).parameters
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"tool {name!r}: {func!r} has no readable signature: {error}") from None
    refused = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    for parameter in parameters.values():
        if parameter.kind in refused:
            raise ToolDefinitionError(
                f"tool {name!r}: {parameter} cannot be offered to a model; name each parameter so that it can be "
                "given by keyword"
            )
    return parameters


def _hints(func: Callable[..., Any], name: str, *, wanted: Iterable[str]) -> dict[str, Any]:
    """The annotations of the parameters that a model is told about; no other needs to be readable."""
    while isinstance(func, partial):
        func = func.func
    target: Any = func if inspect.isroutine(func) else type(func).__call__
    target = inspect.unwrap(target)
    written = getattr(target, "__annotations__", {})
    told = {key: written[key] for key in wanted if key in written}
    names = getattr(target, "__globals__", {})
    # Only names that are found nowhere else are looked for in the frames around, which takes its time.
    with suppress(*_UNREADABLE):
        return _evaluated(told, names, {})
    found: dict[str, Any] = {}
    local_names = _local_names(target)
    for key in told:
        try:
            found |= _evaluated({key: told[key]}, names, local_names)
        except _UNREADABLE as error:
            raise ToolDefinitionError(
                f"tool {name!r}: the annotation of {key} cannot be read: {error}; name types that are there where the "
                "function is made"
            ) from None
    return found


# What evaluating a text may end in.
_UNREADABLE = (NameError, TypeError, ValueError, SyntaxError, AttributeError, LookupError)


def _evaluated(told: dict[str, Any], names: dict[str, Any], local_names: dict[str, Any]) -> dict[str, Any]:
    return get_type_hints(SimpleNamespace(__annotations__=told), names, local_names, include_extras=True)


def _local_names(target: Any) -> dict[str, Any]:
    """What a function that was made inside of others may name: what those hold, where they still run."""
    within = getattr(target, "__qualname__", "")
    frame: FrameType | None = sys._getframe()
    names: dict[str, Any] = {}
    while frame is not None:
        if within.startswith(f"{frame.f_code.co_qualname}.<locals>.") and frame.f_globals is target.__globals__:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _model(title: str, parameters: Iterable[Parameter]) -> type:
    """A pydantic model with a field for each; names that its base class has are aliases of others."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    fields: dict[str, Any] = {}
    for number, each in enumerate(parameters):
        taken = each.name.startswith(("_", "model_")) or hasattr(BaseModel, each.name)
        options: dict[str, Any] = {"alias": each.name} if taken else {}
        text = _description(each.annotation)
        if text is not None:
            options["description"] = text
        default = ... if each.default is MISSING else each.default
        fields[f"arg_{number}_{each.name}" if taken else each.name] = (each.annotation, Field(default, **options))
    made: type = create_model(title, __config__=ConfigDict(extra="forbid"), **fields)
    return made


def _description(hint: Any) -> str | None:
    if get_origin(hint) is Annotated:
        return next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), None)
    return None
