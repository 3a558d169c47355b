"""The neutral history as messages of this dialect; pure, and every change is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import Raw, dumps
from isthmus.models.messages import MessageRole, check_form, native_of, text_of, without_reserved

# Another dialect's native form in its public spelling; the neutral fields beside it are what is sent here.
_FOREIGN = "openai_responses_input"
_SERVER_TOOLS = ("_tool_use", "_tool_result")

Rendered = Mapping[str, Any] | Raw

# What a message without anything to look after has, and who may say it.
_PLAIN = frozenset(("role", "content"))
_SAID = ("system", "developer", "user")


def render(messages: Iterable[Mapping[str, Any]], dialect: str) -> tuple[list[Rendered], list[Note]]:
    """The messages as they are sent: native forms of this dialect verbatim, block turns translated.

    Args:
        messages: neutral messages; never changed.
        dialect: whose native forms stand as they are.

    Raises:
        InvalidRequestError: a message without a role, or a part that this dialect cannot hold; names it.
    """
    sent: list[Rendered] = []
    notes: list[Note] = []
    for at, message in enumerate(messages):
        if _is_plain(message):
            sent.append(message)
            continue
        check_form(message, f"messages[{at}]")
        native, note = native_of(message, dialect)
        if note is not None:
            notes.append(Note(note.code, f"messages[{at}]: {note.detail}"))
        if native is not None:
            sent.append(Raw(native.json))
            continue
        for turn in _turns(at, message, notes):
            _tidied(at, turn, sent, notes)
    return sent, notes


def _is_plain(message: Any) -> bool:
    """Whether a message can go as it is, without a look at anything in it."""
    plain = type(message) is dict and message.keys() == _PLAIN and type(message["content"]) is str
    return plain and message["role"] in _SAID


def _turns(at: int, message: Mapping[str, Any], notes: list[Note]) -> list[dict[str, Any]]:
    neutral = {key: value for key, value in message.items() if not key.startswith("_")}
    if _FOREIGN in neutral:
        del neutral[_FOREIGN]
        notes.append(Note(NoteCode.NATIVE_DROPPED, f"messages[{at}]: {_FOREIGN} was left out"))
    if not neutral.get("role"):
        raise InvalidRequestError(
            f"messages[{at}] has no role (type {message.get('type')!r}): it is another provider's own item; "
            "convert the history with to_neutral first"
        )
    content = neutral.get("content")
    if isinstance(content, Mapping) and "type" in content:
        content = [content]
    if not isinstance(content, list | tuple):
        if content is not None and not isinstance(content, str) and neutral["role"] != MessageRole.TOOL:
            raise InvalidRequestError(
                f"messages[{at}].content: must be text or a list of parts, not {type(content).__name__}"
            )
        return [neutral]
    split = _Split(at, notes)
    for part in content:
        split.take(part)
    return split.turns(neutral)


class _Split:
    """Takes a list of content parts apart: parts that stay, calls, and results that become turns of their own."""

    def __init__(self, at: int, notes: list[Note]) -> None:
        self._at = at
        self._notes = notes
        self._parts: list[Any] = []
        self._calls: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []

    def take(self, part: Any) -> None:
        """Sort one part."""
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping):
            raise InvalidRequestError(
                f"messages[{self._at}]: a part must be a dict with a 'type', not {type(part).__name__}"
            )
        kind = str(part.get("type"))
        handle = self._KINDS.get(kind) or (_Split._elsewhere if kind.endswith(_SERVER_TOOLS) else None)
        if handle is None:
            self._parts.append(part)
        else:
            handle(self, part)

    def _text(self, part: Mapping[str, Any]) -> None:
        text = part.get("text")
        if not isinstance(text, str):
            raise InvalidRequestError(
                f"messages[{self._at}]: a text part's text must be a string, not {type(text).__name__}"
            )
        if not text.strip():
            self._note("an empty text part was left out")
        else:
            self._parts.append(part)

    def _tool_use(self, part: Mapping[str, Any]) -> None:
        given = part.get("input")
        given = {} if given is None else without_reserved(given)
        arguments = given if isinstance(given, str) else dumps(given).decode()
        function = {"name": part.get("name"), "arguments": arguments}
        self._calls.append({"id": part.get("id"), "type": "function", "function": function})

    def _tool_result(self, part: Mapping[str, Any]) -> None:
        content = part.get("content")
        if isinstance(content, list | tuple) and any(_kind(item) != "text" for item in content):
            self._note(f"what is not text in the result of {part.get('tool_use_id')} was left out")
        said = text_of(content) if isinstance(content, list | tuple) else content
        self._results.append({"role": "tool", "tool_call_id": part.get("tool_use_id"), "content": _as_text(said)})

    def _elsewhere(self, part: Mapping[str, Any]) -> None:
        """Leave out a block that only the server that made it takes back."""
        code = NoteCode.NATIVE_DROPPED
        self._notes.append(Note(code, f"messages[{self._at}]: a {part.get('type')} block was left out"))

    def _image(self, part: Mapping[str, Any]) -> None:
        source = part.get("source")
        if not isinstance(source, Mapping):
            self._parts.append(part)
            return
        if not source.get("url") and not source.get("data"):
            raise InvalidRequestError(
                f"messages[{self._at}]: an image without its data or a url has no form here: send its bytes"
            )
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        self._parts.append({"type": "image_url", "image_url": {"url": url}})

    def _document(self, part: Mapping[str, Any]) -> None:
        source = part.get("source")
        if not isinstance(source, Mapping) or not source.get("data"):
            raise InvalidRequestError(
                f"messages[{self._at}]: a document without its data has no form here: send its bytes"
            )
        if source.get("type") == "text":
            self._parts.append({"type": "text", "text": source["data"]})
            return
        data = f"data:{source.get('media_type')};base64,{source['data']}"
        self._parts.append({"type": "file", "file": {"filename": part.get("title") or "document", "file_data": data}})

    def _note(self, detail: str) -> None:
        self._notes.append(Note(NoteCode.HISTORY_CHANGED, f"messages[{self._at}]: {detail}"))

    _KINDS: Mapping[str, Callable[[_Split, Mapping[str, Any]], None]] = {
        "text": _text,
        "tool_use": _tool_use,
        "tool_result": _tool_result,
        **dict.fromkeys(("thinking", "redacted_thinking", "compaction", "fallback", "container_upload"), _elsewhere),
        "image": _image,
        "document": _document,
    }

    def turns(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The results first, as their calls precede them; then what is left of the message."""
        parts: Any = self._parts
        if self._calls or self._results:
            simple = all(isinstance(part, Mapping) and set(part) == {"type", "text"} for part in parts)
            parts = text_of(parts) if simple else parts
        rest = {**message, "content": parts or None}
        if self._calls:
            rest["tool_calls"] = [*(message.get("tool_calls") or ()), *self._calls]
        if self._results and not parts and not self._calls:
            return self._results
        return [*self._results, rest]


def _kind(part: Any) -> Any:
    return part.get("type", "text") if isinstance(part, Mapping) else "text"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else dumps(value).decode()


def _tidied(at: int, turn: dict[str, Any], sent: list[Rendered], notes: list[Note]) -> None:
    """Send the turn on in the form that servers take, where there is only one."""
    role = turn["role"]
    if role == MessageRole.ASSISTANT:
        calls = turn.get("tool_calls")
        if calls:
            turn["tool_calls"] = [_call(at, call, notes) for call in calls]
        elif calls is not None:
            del turn["tool_calls"]
        if not calls and not turn.get("content") and not turn.keys() - {"role", "content", "name"}:
            notes.append(Note(NoteCode.HISTORY_CHANGED, f"messages[{at}]: an empty assistant turn was left out"))
            return
    elif turn.get("content") is None:
        turn["content"] = ""
    if role == MessageRole.TOOL and not isinstance(turn["content"], str | list | tuple):
        turn["content"] = _as_text(turn["content"])
        notes.append(Note(NoteCode.HISTORY_CHANGED, f"messages[{at}]: a tool result was written as JSON text"))
    sent.append(turn)


def _call(at: int, call: Mapping[str, Any], notes: list[Note]) -> dict[str, Any]:
    """A call whose arguments are text; text is never touched."""
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or isinstance(arguments, str):
        return dict(call)
    text = dumps({} if arguments is None else without_reserved(arguments)).decode()
    notes.append(
        Note(NoteCode.HISTORY_CHANGED, f"messages[{at}]: arguments of {function.get('name')} were written as text")
    )
    return {**call, "function": {**function, "arguments": text}}
