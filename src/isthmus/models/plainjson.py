"""Values as plain JSON, or an error that says where there is something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeAlias

from isthmus.models.jsontext import Raw, loads

Also: TypeAlias = Callable[[Any], Any]


def plain_json(value: Any, place: str, *, also: Also | None = None) -> Any:
    """The value as dicts with string keys, lists, strings, finite numbers, booleans and None; a copy all the way down.

    Args:
        value: what to look at; JSON text that was not decoded yet is.
        place: where it stands, for errors.
        also: gives the form of a value that has no plain one; the value itself where it knows none.

    Raises:
        TypeError: something in it is of another type: bytes, sets, dates, keys that are no strings.
        ValueError: it holds itself, or a number that is not finite.
    """
    return _plain(value, place, also=also, above=())


def _plain(value: Any, place: str, *, also: Also | None, above: tuple[int, ...]) -> Any:
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
    return _nested(value, place, also=also, above=above)


def _nested(value: Any, place: str, *, also: Also | None, above: tuple[int, ...]) -> Any:
    if id(value) in above:
        raise ValueError(f"{place}: holds itself")
    above = (*above, id(value))
    form = value if also is None else also(value)
    if form is not value:
        return _plain(form, place, also=also, above=above)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{number}]", also=also, above=above) for number, item in enumerate(value)]
    if not isinstance(value, Mapping):
        raise TypeError(f"{place}: a {type(value).__name__} has no plain JSON form")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place}: a key must be a string, not {key!r:.40}")
    return {str(key): _plain(item, f"{place}.{key}", also=also, above=above) for key, item in value.items()}
