"""JSON objects as models write them: fenced, loosely quoted, with a comma too many. Never a guess at what is missing.

Strict JSON is read as it is. What is no JSON is read once more by a tolerant reader; a text that just stops, or holds
no object, gives None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from isthmus.models.jsontext import exactly

_FENCE = re.compile(r"```[ \t]*[\w-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.S)
# Reasoning that a server has not taken out of the text: drafts of the answer are no answer.
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.S)
# White space between tokens, also where it was escaped once too often.
_SPACE = re.compile(r"(?:\s|\\[nrt])*")
_NAME = re.compile(r"[A-Za-z_$][\w$-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r'[^\s,;:"\\\[\]{}]+')
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
_STOP = re.compile(r'["\\]')
_NEXT_KEY = re.compile(r'(?:\s|\\[nrt])*(?:"[^"\n]{0,200}"|[A-Za-z_$][\w$-]*)(?:\s|\\[nrt])*:|(?:\s|\\[nrt])*[}\]]')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(.?))', re.S)
_DECODER = json.JSONDecoder()
_DEPTH = 100
_TRIES = 32


class _Unreadable(ValueError):
    """Not even loosely JSON."""


class _Ended(ValueError):
    """The text stops inside the value."""


def parse_json_dict(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, or None where there is none.

    Tolerates a fence or prose around it, keys without quotes, quotes and raw line ends inside strings, line ends that
    were escaped once too often, a comma or semicolon too many, an object or members of it written as strings.

    Args:
        text: what a model wrote.
    """
    found = read_object(text)
    return None if found is None else unwrap_members(found)


def read_object(text: str) -> dict[str, Any] | None:
    """The same, with members that are strings left as they are."""
    text = _THOUGHT.sub("", text, 1)
    for candidate in _candidates(text.strip().rstrip("; \t\r\n")):
        found = _strict(candidate)
        if found is not None:
            return found if isinstance(found, dict) else None
    return _loose(text)


def read_list(text: str) -> list[Any] | None:
    """The JSON list that a fence in a text holds, or that stands at its end; None where there is none."""
    text = _THOUGHT.sub("", text, 1).strip()
    for candidate in (*(match[1] for match in _FENCE.finditer(text)), text[text.find("[") :]):
        found = _strict(candidate.strip().rstrip("; \t\r\n"))
        if isinstance(found, list):
            return found
    return None


def unwrap_members(value: dict[str, Any]) -> dict[str, Any]:
    """The object, with each member that is an object or a list written as a string read: "[10-20]" is a text."""
    return {key: _unwrapped(item) for key, item in value.items()}


def _unwrapped(item: Any) -> Any:
    if isinstance(item, str) and item.strip()[:1] in ("{", "["):
        found = _strict(item)
        if isinstance(found, dict | list):
            return found
    return item


def _candidates(text: str) -> Iterator[str]:
    yield text
    for match in _FENCE.finditer(text):
        yield match[1].strip().rstrip("; \t\r\n")
    if text.startswith("{") and "\\" in text:
        try:
            whole = json.loads(f'"{text}"', strict=False)
        except ValueError:
            return
        yield whole


def _strict(text: str) -> Any:
    """The value of a JSON text, of one that was written as a string too; None where it is none."""
    for _ in range(2):
        try:
            found = exactly(text)[0]
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, str):
            return found
        text = found
    return None


def _loose(text: str) -> dict[str, Any] | None:
    """The first object that a tolerant reading finds; none of the inner ones of an object that just stops."""
    place = -1
    for _ in range(_TRIES):
        place = text.find("{", place + 1)
        if place < 0:
            return None
        try:
            return _exact(text, place) or _Reader(text).object(place, 0)[0]
        except _Unreadable:
            continue
        except _Ended:
            return None
    return None


def _exact(text: str, place: int) -> dict[str, Any] | None:
    """The object that begins here, where it is strict JSON."""
    try:
        end = _DECODER.raw_decode(text, place)[1]
        found: dict[str, Any] = exactly(text[place:end])[0]
    except (ValueError, RecursionError):
        return None
    return found


class _Reader:
    """Reads values of a text, each from a place to the place after it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _at(self, place: int) -> tuple[str, int]:
        """The next character that is no white space, and its place."""
        place = _SPACE.match(self._text, place).end()  # type: ignore[union-attr]
        if place >= len(self._text):
            raise _Ended
        return self._text[place], place

    def value(self, place: int, depth: int) -> tuple[Any, int]:
        """Any value."""
        char, place = self._at(place)
        if depth > _DEPTH:
            raise _Unreadable
        if char == "{":
            return self.object(place, depth)
        if char == "[":
            return self._list(place, depth)
        return self._leaf(char, place)

    def object(self, place: int, depth: int) -> tuple[dict[str, Any], int]:
        """An object."""
        found: dict[str, Any] = {}
        char, place = self._at(place + 1)
        while char != "}":
            key, place = self._key(char, place)
            char, place = self._at(place)
            if char != ":":
                raise _Unreadable
            found[key], place = self.value(place + 1, depth + 1)
            char, place = self._after(place)
        return found, place + 1

    def _list(self, place: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        char, place = self._at(place + 1)
        while char != "]":
            value, place = self.value(place, depth + 1)
            found.append(value)
            char, place = self._after(place)
        return found, place + 1

    def _after(self, place: int) -> tuple[str, int]:
        """What follows a member: the end, or the next member after a comma."""
        char, place = self._at(place)
        if char in (",", ";"):
            return self._at(place + 1)
        if char not in ("}", "]"):
            raise _Unreadable
        return char, place

    def _key(self, char: str, place: int) -> tuple[str, int]:
        if char == '"':
            quoted = _QUOTED.match(self._text, place)
            if quoted is None:
                raise _Ended
            return _decoded(quoted[1]), quoted.end()
        name = _NAME.match(self._text, place)
        if name is None:
            raise _Unreadable
        return name[0], name.end()

    def _leaf(self, char: str, place: int) -> tuple[Any, int]:
        if char == '"':
            return self._string(place)
        word = _WORD.match(self._text, place)
        if word is None:
            raise _Unreadable
        if word.end() == len(self._text):
            raise _Ended
        if _NUMBER.fullmatch(word[0]):
            return _number(word[0]), word.end()
        if word[0] not in _LITERALS:
            raise _Unreadable
        return _LITERALS[word[0]], word.end()

    def _string(self, place: int) -> tuple[str, int]:
        """A string, up to the first quote that can end it: behind it comes what may follow a value."""
        start = end = place + 1
        pieces: list[str] = []
        while True:
            stop = _STOP.search(self._text, end)
            if stop is None:
                raise _Ended
            if stop[0] == "\\":
                end = stop.end() + 1
            elif self._ends(stop.end()):
                pieces.append(self._text[start : stop.start()])
                return _decoded('\\"'.join(pieces)), stop.end()
            else:
                pieces.append(self._text[start : stop.start()])
                start = end = stop.end()

    def _ends(self, place: int) -> bool:
        """Whether a quote that stands before this place ends its string."""
        char, place = self._at(place)
        if char in ("}", "]"):
            return True
        if char != ",":
            return False
        rest, after = self._at(place + 1)
        return rest in ('"', "{", "[") or _NEXT_KEY.match(self._text, after) is not None or _scalar(self._text, after)


def _number(word: str) -> Any:
    try:
        return exactly(word)[0]
    except ValueError:
        # More digits than Python reads.
        raise _Unreadable from None


def _scalar(text: str, place: int) -> bool:
    """Whether a number or a literal stands here, and what may follow one after it."""
    found = _WORD.match(text, place)
    if found is None or not (found[0] in _LITERALS or _NUMBER.fullmatch(found[0])):
        return False
    return text[(after := _SPACE.match(text, found.end()).end()) : after + 1] in (",", "]", "}")  # type: ignore[union-attr]


def _decoded(raw: str) -> str:
    """The text of a string's inside; an escape that JSON does not know stands for itself."""
    known = _ESCAPE.sub(lambda match: match[0] if not match[1] else "\\" + match[0], raw)
    decoded: str = json.loads(f'"{known}"', strict=False)
    return decoded
