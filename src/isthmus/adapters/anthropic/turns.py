"""The neutral history as this API's system text and turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from isthmus.adapters.anthropic.blocks import INVALID_JSON, input_of, items, object_text
from isthmus.adapters.anthropic.names import SCHEMAS, wire_id
from isthmus.adapters.anthropic.parts import blocks_of, is_own, result_of
from isthmus.adapters.anthropic.reply import DIALECT
from isthmus.errors import InvalidRequestError
from isthmus.models.dialects import legal_name
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import reader
from isthmus.models.messages import RESERVED, check_form, native_of, sendable
from isthmus.models.neutral import check_projection
from isthmus.models.pairing import Pairing

_SAID = frozenset({"role", "content", "tool_calls", "tool_call_id", "function_call", "refusal", "is_error", RESERVED})


class _Glance(msgspec.Struct):
    """What the rules need to know of a native block."""

    type: Any = None
    text: Any = None
    signature: Any = None
    id: Any = None
    name: Any = None
    tool_use_id: Any = None


_look = reader(_Glance)


class Transcript:
    """A history as it is sent: `system` text blocks, `turns`, the names of the tools it used, and what was changed.

    Args:
        brief: the instructions, in front of the history's own.
    """

    dialect: ClassVar[str] = DIALECT
    """Whose native forms are sent verbatim."""
    schemas: ClassVar[str] = SCHEMAS
    """Whose rule for names is kept."""

    def __init__(self, brief: str) -> None:
        self.system: list[dict[str, Any]] = [{"type": "text", "text": brief}] if brief.strip() else []
        self.turns: list[dict[str, Any]] = []
        self.notes: list[Note] = []
        self.tools: dict[str, None] = {}
        self._ids: dict[str, str] = {}
        self._used: set[str] = set()
        self._order: dict[str, int] = {}
        self._answers = False
        self._pairing = Pairing(self.notes)

    def read(self, messages: Iterable[Mapping[str, Any]]) -> Transcript:
        """Take a history in; returns the transcript itself.

        Raises:
            InvalidRequestError: a message or a part that this API cannot be told; names it.
        """
        for number, message in enumerate(messages):
            place = f"messages[{number}]"
            check_form(message, place)
            check_projection(message, place)
            role = message.get("role")
            handle = _ROLES.get(str(role))
            if handle is None:
                raise InvalidRequestError(f"{place}: no role {role!r} here; use one of {', '.join(_ROLES)}")
            lost = [key for key, value in message.items() if key not in _SAID and value]
            if lost and not (role in ("tool", "function") and lost == ["name"]):
                self._note(f"{place}: {', '.join(map(str, lost))} left out")
            handle(self, self._pairing.turn(message, place), place)
        self._trim_prefill()
        return self

    def _note(self, detail: str, code: NoteCode = NoteCode.HISTORY_CHANGED) -> None:
        self.notes.append(Note(code, detail))

    # How parts, results and ids are said.

    def _blocks(self, content: Any, place: str) -> list[Any]:
        return blocks_of(content, place, notes=self.notes)

    def _result(self, content: Any, place: str) -> Any:
        return result_of(content, place, notes=self.notes)

    def _held(self, message: Mapping[str, Any], place: str) -> list[Any] | None:
        """The blocks of the native form that hangs on a message; None where there is none to be sent."""
        native, note = native_of(message, self.dialect)
        if note is not None:
            self.notes.append(Note(note.code, f"{place}: {note.detail}"))
        return None if native is None else self._native(native.json, place)

    def _legal_id(self, given: str) -> str:
        return wire_id(given)

    # One method a role.

    def _system(self, message: Mapping[str, Any], place: str) -> None:
        content = message.get("content")
        if isinstance(content, list | tuple) and any(_is_own_block(part) for part in content):
            # What is no text has no place in the system text: models that know such a block take it where it stands.
            self.turns.append({"role": "system", "content": self._blocks(content, place)})
            return
        blocks = self._blocks(content, place)
        if blocks and self.turns:
            self._note(f"{place}: a {message['role']} message inside the conversation was lifted into the system text")
        self.system += blocks

    def _user(self, message: Mapping[str, Any], place: str) -> None:
        blocks = self._blocks(message.get("content"), place)
        for block in blocks:
            if block["type"] == "tool_result" and isinstance(block.get("tool_use_id"), str):
                block["tool_use_id"] = self._ids.get(block["tool_use_id"], block["tool_use_id"])
        if not blocks:
            self._note(f"{place}: an empty user message was left out")
            return
        self._say("user", blocks, place)

    def _tool(self, message: Mapping[str, Any], place: str) -> None:
        given = message.get("tool_call_id")
        if not given:
            raise InvalidRequestError(f"{place}: a tool message needs the tool_call_id of the call that it answers")
        call_id = self._ids.get(str(given)) or self._legal_id(str(given))
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
        content = message.get("content")
        if isinstance(content, str):
            if content.strip():
                result["content"] = content
            elif content:
                self._note(f"{place}: a blank result was sent as an empty one")
        elif content is not None:
            result["content"] = self._result(content, place)
        if message.get("is_error"):
            result["is_error"] = True
        self._say("user", [result], place)

    def _assistant(self, message: Mapping[str, Any], place: str) -> None:
        blocks = self._held(message, place)
        if blocks is None:
            blocks = self._projection(message, place)
        if not blocks:
            self._note(f"{place}: an empty assistant message was left out")
            return
        self._say("assistant", blocks, place)

    def _projection(self, message: Mapping[str, Any], place: str) -> list[Any]:
        blocks: list[Any] = self._blocks(message.get("content") or message.get("refusal"), place)
        self._begin_calls()
        for block in [block for block in blocks if block["type"] == "tool_use"]:
            self._called(block.get("id"), str(block.get("name")))
        for number, call in enumerate(message.get("tool_calls") or ()):
            blocks.append(self._tool_use(call, f"{place}.tool_calls[{number}]"))
        return blocks

    def _tool_use(self, call: Mapping[str, Any], place: str) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, Mapping) or not function.get("name"):
            raise InvalidRequestError(f"{place}: a call needs a function with a name")
        name = str(function["name"])
        sent = legal_name(name, dialect=self.schemas)
        if sent != name:
            self._note(f"{place}: the tool {name!r} is sent as {sent!r}", NoteCode.PARAMETER_CHANGED)
        given = str(call["id"])
        call_id = self._unique(given, place)
        self._called(call_id, sent)
        self._ids[given] = call_id
        return {"type": "tool_use", "id": call_id, "name": sent, "input": self._input(function.get("arguments"), place)}

    def _input(self, arguments: Any, place: str) -> msgspec.Raw:
        text = "" if arguments is None else arguments
        if not isinstance(text, str):
            text = sendable(arguments, f"{place}: its arguments").decode()
        if object_text(text) is None:
            detail = f"{place}: arguments that are no JSON object were sent under {INVALID_JSON}"
            self._note(detail, NoteCode.CALL_ARGUMENTS_INVALID)
        return input_of(text)

    def _native(self, content: bytes, place: str) -> list[Any] | None:
        """The blocks of a native form verbatim, save those that the API does not take back."""
        try:
            blocks = items(content)
            seen = [_look(block) for block in blocks]
        except ValueError as error:
            self._note(f"{place}: the native form cannot be read: {error}", NoteCode.NATIVE_STALE)
            return None
        self._begin_calls()
        kept: list[Any] = []
        for number, (block, glance) in enumerate(zip(blocks, seen, strict=True)):
            if glance.type == "text" and not glance.signature and not str(glance.text or "").strip():
                self._note(f"{place}: an empty text block of the reply was left out")
                continue
            if glance.type == "thinking" and not glance.signature and number == len(blocks) - 1:
                # A server that signs gives no signature to thinking that it did not finish, and refuses it back.
                self._note(f"{place}: thinking that was cut before its signature was left out")
                continue
            if glance.type == "tool_use":
                self._called(glance.id, str(glance.name))
            kept.append(block)
        return kept

    # Calls and their ids.

    def _begin_calls(self) -> None:
        if not (self.turns and self.turns[-1]["role"] == "assistant"):
            self._order = {}

    def _called(self, call_id: Any, name: str) -> None:
        self.tools.setdefault(name)
        if isinstance(call_id, str):
            self._used.add(call_id)
            self._ids[call_id] = call_id
            self._order.setdefault(call_id, len(self._order))

    def _unique(self, given: str, place: str) -> str:
        """An id that is legal and stands for one call only: the API refuses a history that uses one twice."""
        legal = base = self._legal_id(given)
        count = 1
        while legal in self._used:
            count += 1
            legal = f"{base}_{count}"
        if legal != given:
            self._note(f"{place}: the id {given!r} is sent as {legal!r}", NoteCode.CALL_ID_CHANGED)
        return legal

    # Turns.

    def _say(self, role: str, blocks: list[Any], place: str) -> None:
        answers = role == "user" and all(block["type"] == "tool_result" for block in blocks)
        if not self.turns or self.turns[-1]["role"] != role:
            self.turns.append({"role": role, "content": blocks})
        else:
            content = self.turns[-1]["content"]
            if not (answers and self._answers):
                self._note(f"{place}: merged into the {role} turn before it")
            content += blocks
        self._answers = answers
        if role == "user":
            self._results_first(self.turns[-1], place)

    def _results_first(self, turn: dict[str, Any], place: str) -> None:
        blocks = turn["content"]
        last = len(self._order)

        def rank(block: dict[str, Any]) -> int:
            if block["type"] != "tool_result":
                return last + 1
            # A block in the dialect's own spelling goes as it is, whatever its id is.
            call_id = block.get("tool_use_id")
            return self._order.get(call_id, last) if isinstance(call_id, str) else last

        ordered = sorted(blocks, key=rank)
        if any(new is not old for new, old in zip(ordered, blocks, strict=True)):
            self._note(f"{place}: tool results were put first, in the order of their calls")
            turn["content"] = ordered

    def _trim_prefill(self) -> None:
        """A closing assistant text may not end in white space; Messages API, 2026-11."""
        if not self.turns or self.turns[-1]["role"] != "assistant":
            return
        last = self.turns[-1]["content"][-1]
        if isinstance(last, dict) and last.get("type") == "text" and last["text"] != last["text"].rstrip():
            last["text"] = last["text"].rstrip()
            self._note("the white space at the end of the last assistant message was left out")


def _is_own_block(part: Any) -> bool:
    return isinstance(part, Mapping) and is_own(str(part.get("type", "")))


_ROLES: Mapping[str, Callable[[Transcript, Mapping[str, Any], str], None]] = {
    "system": Transcript._system,
    "developer": Transcript._system,
    "user": Transcript._user,
    "assistant": Transcript._assistant,
    "tool": Transcript._tool,
    "function": Transcript._tool,
}
