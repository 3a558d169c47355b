"""The arguments of a call against what the tool declares; what is wrong is said so that a model can mend it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from math import isfinite, isinf
from typing import Any

from isthmus.models.contract import ToolSpec
from isthmus.models.events import Call
from isthmus.models.jsontext import WrittenFloat, dumps, loads
from isthmus.models.messages import RESERVED
from isthmus.models.misfits import misfits, shown

_ALL_INTEGERS = 2**53
_SIMPLE = frozenset({str, int, bool, type(None)})


class ArgumentsError(ValueError):
    """Arguments that do not fit; the message says which and why."""


def arguments_of(call: Call) -> dict[str, Any]:
    """The arguments of a call, with its numbers as the model wrote them.

    Integers of any size are exact, also those spelled with a fraction of zeros or an exponent. Any other number is a
    float; where it was written with digits that a float loses, a `WrittenFloat`, and a `Decimal` beyond 2^53.

    Raises:
        ArgumentsError: they are no JSON object.
    """
    given = call.input
    if given is None:
        raise ArgumentsError(call.problem or "they are not a JSON object")
    if isinstance(call.arguments, str) and not _SIMPLE.issuperset(map(type, given.values())):
        # Deeper than Python recurses, or of more digits than it reads: it stays as it was decoded.
        with suppress(ValueError, RecursionError):
            if _has_float(given) and loads(call.arguments) == given:
                given = json.loads(call.arguments, parse_float=_as_written)
    return {key: value for key, value in given.items() if key != RESERVED}


def validated(tool: ToolSpec, given: Mapping[str, Any]) -> Any:
    """What the handler gets: what the tool's `args_model` makes of the arguments; without one, a dict of them.

    Raises:
        ArgumentsError: they do not fit; each fault names the argument, what is wrong, and the value that was given.
    """
    if tool.args_model is None:
        given = dict(given)
        faults = [f"{where or 'arguments'}: {why}" for where, why in misfits(given, tool.parameters)]
        if faults:
            raise ArgumentsError("; ".join(faults))
        return given
    try:
        return tool.args_model.model_validate(given)
    except ValueError as error:
        wrong = error
    from pydantic import ValidationError

    if not isinstance(wrong, ValidationError):
        raise wrong
    try:
        # A strict model takes dates and the like from JSON alone; and whatever is wrong, it was wrong as JSON. Numbers
        # that JSON has no words for would become nulls.
        if _is_finite(given):
            return tool.args_model.model_validate_json(dumps(given))
    except ValidationError as error:
        wrong = error
    raise ArgumentsError("; ".join(_said(each) for each in wrong.errors()))


def _said(fault: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "arguments"
    if fault["type"] == "missing":
        return f"{where}: it is required"
    return f"{where}: {fault['msg']} (given: {shown(fault['input'])})"


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else not isinstance(value, float) or isfinite(value)


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_float, value.values()))
    return any(map(_has_float, value)) if isinstance(value, list) else isinstance(value, float)


def _as_written(text: str) -> float | int | Decimal:
    number = float(text)
    if repr(number) == text:
        return number
    if isinf(number) or abs(number) < _ALL_INTEGERS:
        return WrittenFloat(text)
    # From here on every float is an integer, though not the one that was written.
    exact = Decimal(text)
    return int(exact) if exact == exact.to_integral_value() else exact
