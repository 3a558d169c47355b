"""Calls without an id, and the results that answer them: an old or foreign history in the one form of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.models.enums import MessageRole
from isthmus.models.events import Note, NoteCode

_LEGACY_ROLE = "function"
_ASSISTANT, _TOOL = MessageRole.ASSISTANT.value, MessageRole.TOOL.value


class Pairing:
    """Gives each call of a history an id, and each result the id of the call that it answers, message by message.

    The legacy `function_call` becomes one of the calls, the role "function" that of a tool. Of two calls of one message
    that have the same id the second gets another, and so does the second result. A message that has all this is handed
    back as it is.

    Args:
        notes: takes a note of each id that was made.
    """

    def __init__(self, notes: list[Note]) -> None:
        self._notes = notes
        self._used: set[str] = set()
        self._open: list[tuple[str, Any, Any]] = []
        # Most histories have all ids: what they say of calls is gone through only once something is missing.
        self._complete: list[Mapping[str, Any]] | None = []

    def turn(self, message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """The message as it goes on; the one given is never changed.

        Args:
            message: a message, of the history's next place.
            place: where it stands, for notes.
        """
        complete = self._complete
        if complete is not None:
            if _is_complete(message):
                complete.append(message)
                return message
            self._complete = None
            for each in complete:
                self._turn(each, "")
        return self._turn(message, place)

    def _turn(self, message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        role = message.get("role")
        if role == _ASSISTANT:
            return self._said(message, place)
        return self._answer(message) if role in (_TOOL, _LEGACY_ROLE) else message

    def _said(self, message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        calls = message.get("tool_calls") or ()
        legacy = message.get("function_call")
        old = not calls and isinstance(legacy, Mapping) and bool(legacy.get("name"))
        if old:
            calls = ({"type": "function", "function": legacy},)
        if not calls:
            return message
        given = [call.get("id") for call in calls]
        self._used.update(str(each) for each in given if each)
        made = [
            call if given[n] and given[n] not in given[:n] else self._named(call, place, number=n)
            for n, call in enumerate(calls)
        ]
        self._open = [
            (str(call["id"]), _name(call), None if each is None else str(each))
            for call, each in zip(made, given, strict=True)
        ]
        if not old and all(new is given for new, given in zip(made, calls, strict=True)):
            return message
        return {**{key: value for key, value in message.items() if key != "function_call"}, "tool_calls": made}

    def _named(self, call: Mapping[str, Any], place: str, *, number: int) -> dict[str, Any]:
        count = len(self._used)
        while f"call_{count}" in self._used:
            count += 1
        self._used.add(f"call_{count}")
        self._notes.append(Note(NoteCode.CALL_ID_MADE, f"{place}.tool_calls[{number}]: the id call_{count} was made"))
        return {**call, "id": f"call_{count}"}

    def _answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result with the id of the first call that has no answer yet, of its own name where it has one."""
        given, name = message.get("tool_call_id"), message.get("name")
        fits = [each for each in self._open if (each[2] == str(given) if given else name in (None, each[1]))]
        answered = next(iter(fits or (() if given else self._open)), None)
        if answered is not None:
            self._open.remove(answered)
        fitting = answered is None or (bool(given) and str(given) == answered[0])
        if message["role"] == _TOOL and fitting:
            return message
        named = {} if fitting or answered is None else {"tool_call_id": answered[0]}
        return {**message, "role": _TOOL, **named}


def _is_complete(message: Mapping[str, Any]) -> bool:
    """Whether a message has the ids of all calls that it speaks of, each once."""
    role = message.get("role")
    if role == _TOOL:
        given = message.get("tool_call_id")
        return type(given) is str and given != ""
    if role != _ASSISTANT:
        return role != _LEGACY_ROLE
    calls = message.get("tool_calls")
    if not calls:
        return "function_call" not in message
    ids = [call.get("id") for call in calls]
    return all(type(each) is str and each != "" for each in ids) and (len(ids) == 1 or len(set(ids)) == len(ids))


def _name(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    return function.get("name") if isinstance(function, Mapping) else None
