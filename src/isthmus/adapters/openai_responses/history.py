"""The neutral history as input items; native items verbatim and once, and every change is noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from isthmus.adapters.openai_responses.parts import spell_for
from isthmus.adapters.openai_responses.tools import SCHEMAS
from isthmus.errors import InvalidRequestError
from isthmus.models.dialects import legal_name
from isthmus.models.enums import MessageRole
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import Raw, dumps, loads, reader
from isthmus.models.jsontext import items as items_of
from isthmus.models.messages import RESERVED, check_form, native_of, sendable, without_reserved
from isthmus.models.neutral import NATIVE_DIALECT, NATIVE_INPUT, split
from isthmus.models.pairing import Pairing

Item = Mapping[str, Any] | Raw

_PLAIN = frozenset(("role", "content"))
_ROLES = {"system": "developer", "developer": "developer", "user": "user"}
# What an assistant's message may bring along from the item that it was.
_KEPT = ("id", "status", "phase")
_SAID = frozenset(("role", "content", "tool_calls", "refusal", "name", "reasoning_content", *_KEPT))
_ANSWERS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


class _Peek(msgspec.Struct, gc=False):
    """What the history must know of a native item."""

    type: Any = None
    id: Any = None
    call_id: Any = None
    caller: Any = None
    encrypted_content: Any = None


_peek = reader(_Peek)


def render(messages: Iterable[Mapping[str, Any]], *, stateless: bool) -> tuple[list[Item], list[Note]]:
    """The messages as input items.

    Args:
        messages: neutral messages and native items; never changed.
        stateless: whether the provider keeps nothing, so that it cannot look up reasoning by its id.

    Raises:
        InvalidRequestError: a message that is none, or a part that this dialect cannot hold; names it.
    """
    said = _Input(stateless)
    for at, message in enumerate(messages):
        if type(message) is dict and message.keys() == _PLAIN and type(message["content"]) is str:
            role = _ROLES.get(message["role"])
            if role is not None:
                said.items.append({"role": role, "content": message["content"]})
                continue
        said.add(message, f"messages[{at}]")
    return said.items, said.notes


class _Input:
    """Input items in the making."""

    def __init__(self, stateless: bool) -> None:
        self.items: list[Item] = []
        self.notes: list[Note] = []
        self._stateless = stateless
        self._spell = spell_for(self.notes)
        self._calls: dict[str, _Peek] = {}
        self._pairing = Pairing(self.notes)

    def add(self, message: Mapping[str, Any], place: str) -> None:
        """Say one message: its native items where it has some, else what it says in the neutral form."""
        check_form(message, place)
        message = self._pairing.turn(message, place)
        own = message.get(NATIVE_INPUT)
        form, note = native_of(message, NATIVE_DIALECT)
        if own:
            items = _checked(own, f"{place}.{NATIVE_INPUT}")
            # The text of the items as they came is sent while the public spelling still says the same.
            verbatim = form is not None and form.payload == items
            self._native(items_of(form.json) if verbatim and form is not None else items, place)
        elif form is not None:
            self._native(items_of(form.json), place)
        elif not message.get("role") or message.get("type") == "message":
            if not message.get("type"):
                raise InvalidRequestError(f"{place}: a message needs a role, or a native item its type")
            self._native([without_reserved(message)], place)
        else:
            if note is not None:
                self.notes.append(Note(note.code, f"{place}: {note.detail}"))
            neutral = {key: value for key, value in message.items() if key not in (RESERVED, NATIVE_INPUT)}
            for turn in split(neutral, place, spell=self._spell, notes=self.notes):
                self._turn(turn, place)

    def _native(self, items: Iterable[Item], place: str) -> None:
        for item in items:
            try:
                known = _peek(item if isinstance(item, Raw) else dumps(item))
            except ValueError as error:
                raise InvalidRequestError(f"{place}: a native item cannot be read: {error}") from None
            if known.type == "reasoning" and self._stateless and not known.encrypted_content:
                detail = f"{place}: reasoning {known.id} was left out: it has no encrypted content and is not stored"
                self.notes.append(Note(NoteCode.HISTORY_CHANGED, detail))
                continue
            if isinstance(known.call_id, str) and not str(known.type).endswith("_output"):
                self._calls[known.call_id] = known
            self.items.append(item)

    def _turn(self, turn: dict[str, Any], place: str) -> None:
        """Say a neutral turn."""
        role = turn["role"]
        if role == MessageRole.TOOL:
            self._result(turn, place)
        elif role == MessageRole.ASSISTANT:
            self._assistant(turn, place)
        elif role in _ROLES:
            self._leave(turn, place)
            self.items.append({"role": _ROLES[role], "content": "" if turn.get("content") is None else turn["content"]})
        else:
            known = ", ".join(MessageRole)
            raise InvalidRequestError(f"{place}: the role {role!r} cannot be said here; there are {known}")

    def _leave(self, turn: dict[str, Any], place: str) -> None:
        left = sorted(key for key in turn if key not in _SAID and not key.startswith("_") and turn[key] is not None)
        if left or (turn.get("name") and turn["role"] != MessageRole.TOOL):
            detail = f"{place}: {', '.join([*left, *(['name'] if turn.get('name') else [])])} cannot be said here"
            self.notes.append(Note(NoteCode.PARAMETER_DROPPED, detail))

    def _assistant(self, turn: dict[str, Any], place: str) -> None:
        self._leave(turn, place)
        content = turn.get("content")
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []
        said = [part for given in parts if (part := self._answered(given, place)) is not None]
        if turn.get("refusal"):
            said.append({"type": "refusal", "refusal": turn["refusal"]})
        kept = {key: turn[key] for key in _KEPT if turn.get(key) is not None}
        calls = turn.get("tool_calls") or ()
        if said:
            self.items.append({"type": "message", "role": "assistant", "status": "completed", **kept, "content": said})
        elif not calls:
            self.notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: an empty assistant turn was left out"))
        self.items += [self._call(call, place) for call in calls]

    def _answered(self, part: Mapping[str, Any], place: str) -> Mapping[str, Any] | None:
        """A part of what the model said; only text and refusals can be said back to it."""
        if part.get("type") == "input_text":
            text = part.get("text")
            return {"type": "output_text", "text": text, "annotations": []} if text else None
        if part.get("type") == "output_text":
            return {"annotations": [], **part} if part.get("text") else None
        if part.get("type") in ("input_image", "input_file", "input_audio"):
            detail = f"{place}: an {part['type']} in the model's own turn was left out"
            self.notes.append(Note(NoteCode.HISTORY_CHANGED, detail))
            return None
        return part

    def _call(self, call: Mapping[str, Any], place: str) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidRequestError(f"{place}: a call needs a function with a name, not {call!r:.80}")
        given = function.get("arguments")
        if not isinstance(given, str):
            given = sendable({} if given is None else given, f"{place}: arguments of {function['name']}").decode()
        name = legal_name(function["name"], dialect=SCHEMAS)
        return {"type": "function_call", "call_id": call.get("id"), "name": name, "arguments": given or "{}"}

    def _result(self, turn: dict[str, Any], place: str) -> None:
        if turn.get("is_error"):
            self.notes.append(Note(NoteCode.PARAMETER_DROPPED, f"{place}: is_error cannot be said here"))
        call_id = turn.get("tool_call_id")
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        content = turn.get("content")
        kind = "function_call_output" if call is None else _ANSWERS.get(str(call.type), "function_call_output")
        item = {"type": kind, "call_id": call_id, "output": "" if content is None else content}
        self.items.append(item if call is None or not call.caller else {**item, "caller": call.caller})


def _checked(items: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(items, list | tuple) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidRequestError(f"{place}: must be a list of dicts, not {items!r:.80}")
    return [loads(sendable(item, f"{place}[{at}]")) for at, item in enumerate(items)]
