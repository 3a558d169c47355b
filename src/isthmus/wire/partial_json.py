"""Reads JSON text as it arrives: after any piece of it, the value so far.

Pure, standard library only. Each character is read once, whatever the pieces. Nothing here raises: where the text is no
JSON the reader stops, and what it had stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r'[^ \t\r\n,:\[\]{}"]*')
_PLAIN = re.compile(r'[^"\\]*')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NOTHING: Any = object()


class PartialJson:
    """The value of a JSON text of which only the beginning is known.

    It holds complete values, and strings as far as they have come: a number, a literal or a key is shown once it is
    complete. So what is shown of a prefix is contained in what is shown of any longer one (unless a key is repeated).

    Args:
        depth: how many objects and lists may stand in each other; what is deeper is no value that others could read.
    """

    __slots__ = (
        "_depth",
        "_escape",
        "_first",
        "_high",
        "_is_key",
        "_open",
        "_pieces",
        "_read",
        "_root",
        "changes",
        "ok",
    )

    def __init__(self, depth: int = 256) -> None:
        self._depth = depth
        self._open: list[tuple[Any, list[str]]] = []
        self._root: Any = _NOTHING
        self._pieces: list[str] = []
        self._escape, self._high = "", ""
        self._is_key, self._first = False, False
        self._read: Callable[[str, int], int] = self._value
        self.ok = True
        """Whether all that came is the beginning of a JSON text."""
        self.changes = 0
        """How often there was something new to show."""

    @property
    def complete(self) -> bool:
        """Whether the value has come to its end; what follows it is passed over."""
        return self._root is not _NOTHING

    @property
    def value(self) -> Any:
        """The value so far; None where there is nothing yet.

        Open objects and lists are copies, so that an earlier value never changes; what is complete in them is shared.
        """
        if self._root is not _NOTHING:
            return self._root
        shown = _NOTHING
        if self._read in (self._string, self._escaped) and not self._is_key:
            self._pieces = ["".join(self._pieces)]
            shown = self._pieces[0]
        for container, key in reversed(self._open):
            made = container.copy()
            if shown is not _NOTHING:
                _put(made, key, shown)
            shown = made
        return None if shown is _NOTHING else shown

    def feed(self, text: str) -> None:
        """Take the next piece."""
        place, end = 0, len(text)
        while place < end and self.ok:
            place = self._read(text, place)

    def close(self) -> None:
        """Nothing more comes: a number that stands alone is complete."""
        if self._read == self._scalar and not self._open:
            self._scalar(" ", 0)

    def _value(self, text: str, place: int) -> int:
        place = _after_space(text, place)
        if place == len(text):
            return place
        char = text[place]
        if char in "{[":
            self.ok = len(self._open) < self._depth
            self._open.append(({} if char == "{" else [], []))
            self._read, self._first = (self._key if char == "{" else self._value), True
            self.changes += 1
            return place + 1
        if char == '"':
            return self._begin_string(place, is_key=False)
        if char == "]" and self._first:
            return self._after(text, place)
        self._read, self._pieces = self._scalar, []
        self.ok = char not in ",:]}"
        return place

    def _key(self, text: str, place: int) -> int:
        place = _after_space(text, place)
        if place == len(text):
            return place
        if text[place] == '"':
            return self._begin_string(place, is_key=True)
        if text[place] == "}" and self._first:
            return self._after(text, place)
        self.ok = False
        return place

    def _begin_string(self, place: int, *, is_key: bool) -> int:
        self._read, self._pieces, self._is_key = self._string, [], is_key
        self.changes += not is_key
        return place + 1

    def _string(self, text: str, place: int) -> int:
        end = _PLAIN.match(text, place).end()  # type: ignore[union-attr]
        if end > place:
            self._say(text[place:end])
        if end == len(text):
            return end
        if text[end] == "\\":
            self._read, self._escape = self._escaped, ""
            return end + 1
        self._say("")
        whole = "".join(self._pieces)
        if self._is_key:
            self._open[-1][1][:] = [whole]
            self._read = self._colon
        else:
            self._put(whole)
        return end + 1

    def _escaped(self, text: str, place: int) -> int:
        self._escape += text[place]
        if self._escape[0] != "u":
            self.ok = self._escape in _ESCAPES
            self._say(_ESCAPES.get(self._escape, ""))
            self._read = self._string
        elif len(self._escape) == 5:
            self._read = self._string
            try:
                self._say_unit(int(self._escape[1:], 16))
            except ValueError:
                self.ok = False
        return place + 1

    def _say_unit(self, unit: int) -> None:
        """A UTF-16 unit: the first half of a pair waits for the second."""
        high, self._high = self._high, ""
        if high and 0xDC00 <= unit < 0xE000:
            self._say(chr(0x10000 + ((ord(high) - 0xD800) << 10) + unit - 0xDC00))
            return
        if high:
            self._say(high)
        if 0xD800 <= unit < 0xDC00:
            self._high = chr(unit)
        else:
            self._say(chr(unit))

    def _say(self, text: str) -> None:
        if self._high:
            text, self._high = self._high + text, ""
        if text:
            self._pieces.append(text)
            self.changes += not self._is_key

    def _colon(self, text: str, place: int) -> int:
        place = _after_space(text, place)
        if place == len(text):
            return place
        self.ok = text[place] == ":"
        self._read, self._first = self._value, False
        return place + 1

    def _scalar(self, text: str, place: int) -> int:
        end = _SCALAR.match(text, place).end()  # type: ignore[union-attr]
        self._pieces.append(text[place:end])
        if end < len(text):
            try:
                self._put(json.loads("".join(self._pieces)))
            except ValueError:
                self.ok = False
        return end

    def _put(self, value: Any) -> None:
        self.changes += 1
        self._read = self._after
        if self._open:
            _put(*self._open[-1], value)
        else:
            self._root, self._read = value, self._rest

    def _after(self, text: str, place: int) -> int:
        place = _after_space(text, place)
        if place == len(text):
            return place
        container, char = self._open[-1][0], text[place]
        is_object = isinstance(container, dict)
        if char == ",":
            self._read, self._first = (self._key if is_object else self._value), False
        elif char == ("}" if is_object else "]"):
            self._open.pop()
            self._put(container)
        else:
            self.ok = False
        return place + 1

    def _rest(self, text: str, place: int) -> int:
        return len(text)


def _put(container: Any, key: list[str], value: Any) -> None:
    if isinstance(container, dict):
        container[key[0]] = value
    else:
        container.append(value)


def _after_space(text: str, place: int) -> int:
    return _SPACE.match(text, place).end()  # type: ignore[union-attr]
