"""From a function's signature to the arguments of a tool, and to the way its handler is called."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from isthmus.errors import ToolDefinitionError

_HIDDEN = ("cancellation_token", "context")


class Injected(NamedTuple):
    """What a handler may ask for besides its arguments."""

    cancellation_token: Any
    context: Any


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


def is_async(func: Any) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(func, partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def injected_call(handler: Callable[..., Any]) -> Callable[[Any, Injected], Any]:
    """How to call a handler: the arguments first, then what its further parameters are for.

    Parameters named `cancellation_token` and `context` get these; further positional ones get them in that order.
    """
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return lambda args, injected: handler(args)
    further = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return lambda args, injected: handler(args, *injected)
    by_order = iter(_HIDDEN)
    wanted = [p.name if p.name in _HIDDEN else next(by_order, None) for p in further if _is_ours(p)]
    places = [name for name in wanted if name is not None]
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in _HIDDEN]

    def call(args: Any, injected: Injected) -> Any:
        given = injected._asdict()
        return handler(args, *(given[name] for name in places), **{name: given[name] for name in names})

    return call


def _is_ours(parameter: inspect.Parameter) -> bool:
    return parameter.name in _HIDDEN or parameter.default is parameter.empty


def arguments_of(func: Callable[..., Any], name: str) -> tuple[type, Callable[..., Any]]:
    """The pydantic model of a function's arguments, and a handler that calls it with an instance of that.

    Raises:
        ToolDefinitionError: parameters without annotations, `*args` or `**kwargs`, a type without a JSON Schema.
    """
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ToolDefinitionError(f"tool {name!r}: a generator has no result to show: return the whole of it")
    parameters = _parameters(func, name)
    bound = _HIDDEN if not isinstance(func, partial) else (*_HIDDEN, *func.keywords)
    shown = {key: parameter for key, parameter in parameters.items() if key not in bound}
    hidden = [key for key in parameters if key in _HIDDEN]
    hints = _hints(func, name, wanted=shown)
    missing = [key for key in shown if key not in hints]
    if missing:
        raise ToolDefinitionError(f"tool {name!r}: parameters without an annotation: {', '.join(missing)}")
    attributes, model = _model(name, shown, hints)

    def arguments(args: Any, injected: Injected) -> dict[str, Any]:
        values = {key: getattr(args, attribute) for key, attribute in attributes.items()}
        return {**values, **{key: getattr(injected, key) for key in hidden}}

    if is_async(func):

        async def _handle(args: Any, cancellation_token: Any = None, context: Any = None) -> Any:
            return await func(**arguments(args, Injected(cancellation_token, context)))

        return model, _handle

    def _handle_plainly(args: Any, cancellation_token: Any = None, context: Any = None) -> Any:
        return func(**arguments(args, Injected(cancellation_token, context)))

    return model, _handle_plainly


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
    told = SimpleNamespace(__annotations__={key: written[key] for key in wanted if key in written})
    names = getattr(target, "__globals__", {})
    for local in ({}, _local_names(target)):
        try:
            return get_type_hints(told, names, local, include_extras=True)
        except (NameError, TypeError) as error:
            wrong = error
    raise ToolDefinitionError(f"tool {name!r}: an annotation cannot be read: {wrong}")


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


def _model(
    name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> tuple[dict[str, str], type]:
    """The model, and which of its attributes holds which parameter: some names are taken by the base class."""
    from pydantic import BaseModel, ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError

    attributes: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for key, parameter in parameters.items():
        taken = key.startswith(("_", "model_")) or hasattr(BaseModel, key)
        attribute = attributes[key] = f"arg_{len(attributes)}_{key}" if taken else key
        options: dict[str, Any] = {"alias": key} if taken else {}
        text = _description(hints[key])
        if text is not None:
            options["description"] = text
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[attribute] = (hints[key], Field(default, **options))
    try:
        model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except PydanticUserError as error:
        raise ToolDefinitionError(f"tool {name!r}: an annotation has no JSON Schema: {error.message}") from None
    return attributes, model


def _description(hint: Any) -> str | None:
    if get_origin(hint) is Annotated:
        return next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), None)
    return None
