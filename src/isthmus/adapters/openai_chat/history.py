"""The neutral history as messages of this dialect; pure, and every change is noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.adapters.openai_chat.parts import spell_for
from isthmus.models.dialects import legal_name
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import Raw
from isthmus.models.messages import MessageRole, check_form, native_of, sendable
from isthmus.models.neutral import NATIVE_INPUT, check_projection, split
from isthmus.models.pairing import Pairing

Rendered = Mapping[str, Any] | Raw
SCHEMAS = "openai-strict"

# What a message without anything to look after has, and who may say it.
_PLAIN = frozenset(("role", "content"))
_SAID = ("system", "developer", "user")
# What one has that a loop of tools wrote: an answer that calls them, and a result.
_CALLED, _CALL, _FUNCTION = (
    frozenset(("role", "content", "tool_calls")),
    frozenset(("id", "type", "function")),
    frozenset(("name", "arguments")),
)
_RESULT = frozenset(("role", "tool_call_id", "content", "name"))
_TEXT = (str, type(None))


def render(messages: Iterable[Mapping[str, Any]], dialect: str) -> tuple[list[Rendered], list[Note]]:
    """The messages as they are sent: native forms of this dialect verbatim, block turns translated.

    Args:
        messages: neutral messages; never changed.
        dialect: whose native forms stand as they are.

    Raises:
        InvalidRequestError: a message without a role, or a part that this dialect cannot hold; names it.
    """
    sent = _Sent()
    notes = sent.notes
    message: Any
    for at, message in enumerate(messages):
        # Most are nothing but text, and go as they are, without a look at anything in them.
        plain = type(message) is dict and message.keys() == _PLAIN and type(message["content"]) is str
        if plain and message["role"] in _SAID:
            sent.add(message)
            continue
        place = f"messages[{at}]"
        if _is_usual(message):
            sent.usual(message, place)
            continue
        check_form(message, place)
        message = sent.paired(message, place)
        native, note = native_of(message, dialect)
        if note is not None:
            notes.append(Note(note.code, f"{place}: {note.detail}"))
        if native is not None:
            sent.add(Raw(native.json))
            continue
        for turn in _turns(at, message, notes):
            sent.turn(at, turn)
    sent.settle()
    return sent.messages, notes


def _is_usual(message: Any) -> bool:
    """Whether a message calls tools, or is a result, in the very form in which both are sent."""
    if type(message) is not dict or type(message.get("content", 0)) not in _TEXT:
        return False
    role = message.get("role")
    if role == "tool":
        return message.keys() <= _RESULT and message["content"] is not None
    return role == "assistant" and message.keys() == _CALLED and _are_usual(message["tool_calls"])


def _are_usual(calls: Any) -> bool:
    """Whether calls are dicts of what a call has, under legal names, their arguments text."""
    if type(calls) is not list or not calls:
        return False
    for call in calls:
        if type(call) is not dict or call.keys() != _CALL:
            return False
        function = call["function"]
        if type(function) is not dict or function.keys() != _FUNCTION or type(function["arguments"]) is not str:
            return False
        name = function["name"]
        if type(name) is not str or legal_name(name, dialect=SCHEMAS) != name:
            return False
    return True


def _turns(at: int, message: Mapping[str, Any], notes: list[Note]) -> list[dict[str, Any]]:
    neutral = {key: value for key, value in message.items() if not key.startswith("_")}
    check_projection(neutral, f"messages[{at}]")
    if NATIVE_INPUT in neutral:
        del neutral[NATIVE_INPUT]
        notes.append(Note(NoteCode.NATIVE_DROPPED, f"messages[{at}]: {NATIVE_INPUT} was left out"))
    return split(neutral, f"messages[{at}]", spell=spell_for(notes), notes=notes)


class _Sent:
    """Messages in the form that servers take, where there is only one."""

    def __init__(self) -> None:
        self.messages: list[Rendered] = []
        self.notes: list[Note] = []
        self._moved: list[dict[str, Any]] = []
        self._pairing = Pairing(self.notes)

    def paired(self, message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """The message with ids; the legacy form is this dialect's own, and stays."""
        legacy = message.get("role") == "function" or (message.get("function_call") and not message.get("tool_calls"))
        return message if legacy else self._pairing.turn(message, place)

    def usual(self, message: Mapping[str, Any], place: str) -> None:
        """Send a message that calls tools or is a result as it is, but for its ids."""
        if self._moved and message["role"] != "tool":
            self.settle()
        self.messages.append(self._pairing.turn(message, place))

    def add(self, message: Rendered) -> None:
        """Send a message that is no tool's; what tools before it gave beside text stands in front."""
        if self._moved:
            self.settle()
        self.messages.append(message)

    def settle(self) -> None:
        """Send what the tools gave beside text, once all their messages stand."""
        if self._moved:
            self.messages.append({"role": MessageRole.USER.value, "content": self._moved})
            self._moved = []

    def turn(self, at: int, turn: dict[str, Any]) -> None:
        """Send a neutral turn."""
        place = f"messages[{at}]"
        if turn["role"] == MessageRole.TOOL:
            self._tool(place, turn)
            return
        if turn["role"] == MessageRole.ASSISTANT:
            calls = turn.get("tool_calls")
            if calls:
                turn["tool_calls"] = [_call(at, call, self.notes) for call in calls]
            elif calls is not None:
                del turn["tool_calls"]
            if not calls and not turn.get("content") and not turn.keys() - {"role", "content", "name"}:
                self.notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: an empty assistant turn was left out"))
                return
        elif turn.get("content") is None:
            turn["content"] = ""
        self.add(_named(turn) if "tool_calls" in turn else turn)

    def _tool(self, place: str, turn: dict[str, Any]) -> None:
        """A tool's message takes text alone here; Chat Completions, 2026-11. The rest follows as the user's."""
        if turn.pop("is_error", None):
            self.notes.append(Note(NoteCode.PARAMETER_DROPPED, f"{place}: is_error cannot be said here"))
        content = turn.get("content")
        if isinstance(content, list):
            texts = [part for part in content if part.get("type") == "text"]
            moved = [part for part in content if part.get("type") != "text"]
            if moved:
                call_id = turn.get("tool_call_id")
                lead = {"type": "text", "text": f"This is what tool call {call_id} returned beside text:"}
                self._moved += [lead, *moved]
                detail = f"{place}: what is not text in the result of {call_id} was moved into a user message after it"
                self.notes.append(Note(NoteCode.HISTORY_CHANGED, detail))
                content = texts or "The result is in the user message that follows."
        turn["content"] = "" if content is None else content
        self.messages.append(_named(turn) if "tool_calls" in turn else turn)


def _call(at: int, call: Mapping[str, Any], notes: list[Note]) -> dict[str, Any]:
    """A call whose arguments are text; text is never touched."""
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or isinstance(arguments, str):
        return dict(call)
    text = sendable(
        {} if arguments is None else arguments, f"messages[{at}]: arguments of {function.get('name')}"
    ).decode()
    notes.append(
        Note(NoteCode.HISTORY_CHANGED, f"messages[{at}]: arguments of {function.get('name')} were written as text")
    )
    return {**call, "function": {**function, "arguments": text}}


def _named(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have the names that they are declared under; a native form has them already."""
    calls = message["tool_calls"]
    if not isinstance(calls, list) or all(_legal(call) is None for call in calls):
        return message
    return {**message, "tool_calls": [_legal(call) or call for call in calls]}


def _legal(call: Any) -> dict[str, Any] | None:
    """The call under a legal name; None where it has one."""
    function = call.get("function") if isinstance(call, (dict, Mapping)) else None
    if not isinstance(function, (dict, Mapping)):
        return None
    name = function.get("name")
    if not isinstance(name, str) or not name or legal_name(name, dialect=SCHEMAS) == name:
        return None
    return {**call, "function": {**function, "name": legal_name(name, dialect=SCHEMAS)}}
