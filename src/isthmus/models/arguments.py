"""The arguments of a call against what the tool declares; what is wrong is said so that a model can mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from isthmus.models.events import Call
from isthmus.models.jsontext import dumps
from isthmus.models.messages import RESERVED
from isthmus.models.tools import Tool

_SHOWN = 80


class ArgumentsError(ValueError):
    """Arguments that do not fit; the message says which and why."""


def validated(tool: Tool, call: Call) -> Any:
    """An instance of the tool's `args_model`; without one, the arguments as a dict, checked against its schema.

    Raises:
        ArgumentsError: they are no JSON object, or do not fit.
    """
    if call.input is None:
        raise ArgumentsError(call.problem or "they are not a JSON object")
    given = {key: value for key, value in call.input.items() if key != RESERVED}
    if tool.args_model is None:
        faults = [f"{where or 'arguments'}: {why}" for where, why in misfits(given, tool.parameters)]
        if faults:
            raise ArgumentsError("; ".join(faults))
        return given
    from pydantic import ValidationError

    try:
        return tool.args_model.model_validate(given)  # type: ignore[attr-defined]
    except ValidationError as error:
        raise ArgumentsError("; ".join(_said(each) for each in error.errors())) from None


def _said(fault: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "arguments"
    if fault["type"] == "missing":
        return f"{where}: it is required"
    return f"{where}: {fault['msg']} (given: {_shown(fault['input'])})"


def _shown(value: Any) -> str:
    try:
        text = dumps(value).decode()
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


def misfits(value: Any, schema: Any, *, where: str = "") -> Iterator[tuple[str, str]]:
    """Where and why a value does not fit a JSON Schema.

    Reads `type`, `enum`, `const`, `properties`, `required`, `additionalProperties: false` and `items`; what it does not
    read it does not judge: the handler has the last word.
    """
    if not isinstance(schema, Mapping):
        return
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and not any(_TYPES.get(kind, lambda _: True)(value) for kind in kinds):
        yield where, f"must be {' or '.join(map(str, kinds))} (given: {_shown(value)})"
        return
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, list) and value not in allowed:
        yield where, f"must be one of {_shown(allowed)} (given: {_shown(value)})"
    if isinstance(value, dict):
        yield from _object_misfits(value, schema, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(item, schema.get("items"), where=f"{where}[{index}]")


def _object_misfits(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    inside = f"{where}." if where else ""
    known = schema.get("properties") or {}
    for key in schema.get("required") or ():
        if key not in value:
            yield inside + str(key), "it is required"
    for key, item in value.items():
        if key in known:
            yield from misfits(item, known[key], where=inside + key)
        elif schema.get("additionalProperties") is False:
            yield inside + key, f"there is no such argument; known are {', '.join(known) or 'none'}"
