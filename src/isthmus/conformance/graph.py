"""Looks into the objects that an adapter holds: its state as plain numbers, and the requests that it kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

_DEPTH = 4
_NODES = 3000
_OPAQUE = (str, bytes, bytearray, int, float, bool, type(None), type, ModuleType, FunctionType, MethodType)
_OPAQUE_CODE = (type, ModuleType, FunctionType, MethodType)
_NUMBERS = (int, float, str, bytes, type(None))
_WORD = 40
_TEXT = 1_000_000
CLOSING = ("clos", "releas", "clean", "dispos", "exit", "abort", "disconnect", "finali", "teardown", "stopped")
"""What the names of flags and the words of logs hold that tell of an end."""
_REQUEST_KEYS = frozenset({"messages", "input", "contents", "prompt", "history"})


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{place}]", item) for place, item in enumerate(list(value)))
    elif not isinstance(value, (*_OPAQUE, BuiltinFunctionType)):
        yield from ((f".{name}", item) for name, item in list(getattr(value, "__dict__", {}).items()))
        for name in _slots(value):
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)


def _slots(value: Any) -> Iterator[str]:
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        yield from (names,) if isinstance(names, str) else names


def walk(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every object within a value, by its place; bounded in depth and in number."""
    seen: set[int] = set()
    stack: list[tuple[str, Any, int]] = [(place, value, 0)]
    while stack and len(seen) < _NODES:
        where, item, depth = stack.pop()
        yield where, item
        if depth >= _DEPTH or isinstance(item, _OPAQUE) or id(item) in seen:
            continue
        seen.add(id(item))
        stack += [(where + name, inner, depth + 1) for name, inner in _members(item)]


def _kinds(adapter: Any) -> list[type]:
    """The adapter's own classes."""
    foreign = ("isthmus", "builtins", "abc", "typing")
    return [kind for kind in type(adapter).__mro__ if kind.__module__.partition(".")[0] not in foreign]


def _roots(adapter: Any) -> Iterator[tuple[str, Any]]:
    """The adapter, and what its class and its module keep beside it."""
    yield "self", adapter
    for kind in _kinds(adapter):
        for name, value in list(vars(kind).items()):
            if isinstance(value, FunctionType):
                yield from _enclosed(name, value)
            elif not name.startswith("__") and not isinstance(value, (classmethod, staticmethod, property)):
                yield f"{kind.__name__}.{name}", value
    module = sys.modules.get(type(adapter).__module__)
    if module is not None and _kinds(adapter):
        for name, value in list(vars(module).items()):
            own = type(value).__module__ == module.__name__
            if not name.startswith("__") and (own or type(value) in (int, list, dict, set)):
                yield f"module.{name}", value


def _enclosed(name: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a method of a class that was made within a function sees of that function."""
    inner = getattr(function, "__wrapped__", function)
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    for free, cell in zip(names, getattr(inner, "__closure__", None) or (), strict=False):
        with suppress(ValueError):
            if not isinstance(cell.cell_contents, (*_OPAQUE_CODE, *_NUMBERS)):
                yield f"{name}.{free}", cell.cell_contents


def state(adapter: Any) -> dict[str, Any]:
    """The adapter's state as far as it shows: flags, counts, sizes, locks and words of closing, by place."""
    # A class attribute is where a count begins that the instance keeps later.
    found: dict[str, Any] = {
        f"self.{name}": value
        for kind in reversed(_kinds(adapter))
        for name, value in list(vars(kind).items())
        if not name.startswith("__") and (isinstance(value, int) or value is None)
    }
    for root, value in _roots(adapter):
        for place, item in walk(value, root):
            if isinstance(item, bool | int) or item is None:
                found[place] = item
            elif isinstance(item, list | dict | set):
                found[place] = len(item)
            elif isinstance(item, str) and any(word in item.lower() for word in CLOSING) and len(item) < _WORD:
                # A log of what was opened and closed: its last part is the word itself.
                word = f"{place.rpartition('[')[0]}.{item}"
                found[word] = found.get(word, 0) + 1
            elif hasattr(item, "locked") and callable(item.locked) and not isinstance(item, type):
                found[place] = bool(item.locked())
    return found


def requests(adapter: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The requests that an adapter, or the client that it holds, has kept: mappings with a transcript in them."""
    for root, value in _roots(adapter):
        for place, item in walk(value, root):
            said = _decoded(item)
            if said is not None and any(isinstance(said.get(key), list | tuple) for key in _REQUEST_KEYS):
                yield place, said


def _decoded(item: Any) -> Mapping[str, Any] | None:
    """A mapping, or the one that a text of JSON stands for."""
    if isinstance(item, str | bytes) and len(item) < _TEXT and item[:1] in ("{", b"{"):
        try:
            item = json.loads(item)
        except ValueError:
            return None
    return item if isinstance(item, Mapping) else None


def holds(value: Any, wanted: Any) -> bool:
    """Whether a value stands anywhere within another: a number as itself or as its digits."""
    for _, item in walk(value):
        if type(item) is type(wanted) and item == wanted:
            return True
        if isinstance(item, str) and str(wanted) in item:
            return True
    return False
