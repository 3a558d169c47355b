"""Values as plain JSON, or an error that says where there is something else."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from math import isfinite
from typing import Any

from isthmus.models.jsontext import Raw, loads
from isthmus.models.messages import LiveForm


def plain_json(value: Any, place: str) -> Any:
    """The value as dicts with string keys, lists, strings, finite numbers, booleans and None; a copy all the way down.

    Args:
        value: what to look at; JSON text that was not decoded yet is.
        place: where it stands, for errors.

    Raises:
        TypeError: something in it is of another type: bytes, sets, dates, keys that are no strings.
        ValueError: it holds itself, or a number that is not finite.
    """
    return _plain(value, place, ())


def _plain(value: Any, place: str, above: tuple[int, ...]) -> Any:
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{place}: {value} is no number in JSON")
        return value
    if isinstance(value, Raw):
        return loads(value)
    return _nested(value, place, above)


def _nested(value: Any, place: str, above: tuple[int, ...]) -> Any:
    if id(value) in above:
        raise ValueError(f"{place}: holds itself")
    above = (*above, id(value))
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{number}]", above) for number, item in enumerate(value)]
    if not isinstance(value, Mapping):
        raise TypeError(f"{place}: a {type(value).__name__} has no plain JSON form")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place}: a key must be a string, not {key!r:.40}")
    return {str(key): _plain(item, f"{place}.{key}", above) for key, item in value.items()}


def own_copy(value: Any) -> Any:
    """A copy of mappings and lists all the way down; anything else, a live object beside its form too, is shared."""
    if isinstance(value, LiveForm):
        return copy(value)
    if isinstance(value, Mapping):
        return {key: own_copy(item) for key, item in value.items()}
    return [own_copy(item) for item in value] if isinstance(value, list | tuple) else value
