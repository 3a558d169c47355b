"""The neutral projection of a history: role dicts, calls under `tool_calls`, one tool message a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from isthmus.errors import InvalidRequestError
from isthmus.models.enums import MessageRole
from isthmus.models.events import Note, NoteCode
from isthmus.models.messages import RESERVED, check_form, copied, listed, text_of, without_reserved
from isthmus.models.pairing import Pairing
from isthmus.models.parts import CallContent, Content, OtherContent, ResultContent, TextContent, ThinkingContent
from isthmus.models.reading import read_part, read_result, remarks

NATIVE_INPUT = "openai_responses_input"
"""The public spelling of one dialect's native items on a message."""
NATIVE_DIALECT = "openai-responses"
"""The dialect whose spelling that is."""

# Blocks that only the server that made them takes back.
_SERVER_TOOLS = ("_tool_use", "_tool_result")
_SERVER_BLOCKS = frozenset({"compaction", "fallback", "container_upload"})
# What a native item that is a message has beside role and content.
_ITEM_KEYS = frozenset({"type", "id", "status"})

Spell: TypeAlias = Callable[[Content, str], Mapping[str, Any]]


def to_neutral(messages: Iterable[Mapping[str, Any]], *, notes: list[Note] | None = None) -> list[dict[str, Any]]:
    """A history without native forms: what any provider can be told, in the neutral spelling.

    Native forms, reasoning, and blocks of a provider's own tools are dropped; text, images, files, calls and results
    stay. Marks of internal messages stay too. Doing it twice changes nothing more.

    Args:
        messages: neutral messages, block turns, and providers' own items; never changed.
        notes: takes one note for each thing that was dropped or changed.

    Raises:
        InvalidRequestError: something that is no message, or stands for content that only a provider has; names it.
    """
    notes = [] if notes is None else notes
    made: list[dict[str, Any]] = []
    pairing = Pairing(notes)
    open_turn: dict[str, Any] | None = None
    for at, message in enumerate(listed(messages)):
        place = f"messages[{at}]"
        check_form(message, place)
        _check_said(message, place)
        for item, own in _items(message, place, notes):
            if "role" in item:
                turns = split(dict(pairing.turn(item, place)), place, spell=_spell_for(notes), notes=notes)
            else:
                turns = _from_item(item, place, open_turn, notes)
            made += turns
            if turns or "role" in item:
                assistant = bool(turns) and turns[-1].get("role") == MessageRole.ASSISTANT
                open_turn = turns[-1] if own and assistant else None
    return made


def _check_said(message: Mapping[str, Any], place: str) -> None:
    role, kind = message.get("role"), message.get("type")
    if not (isinstance(role, str) and role) and ("role" in message or not isinstance(kind, str)):
        raise InvalidRequestError(f"{place}: has neither a role nor, as a provider's own item, a type: give it a role")


def check_projection(message: Mapping[str, Any], place: str) -> None:
    """Whether a message says something to a provider that does not know its native items.

    Raises:
        InvalidRequestError: it has no role, or native items alone; names the place.
    """
    if not message.get("role"):
        what = f"has no role (type {message.get('type')!r})"
    elif message.get(NATIVE_INPUT) and message.get("content") is None and not message.get("tool_calls"):
        what = f"has {NATIVE_INPUT} alone"
    else:
        return
    raise InvalidRequestError(
        f"{place} {what}: it is another provider's own item; convert the history with to_neutral first"
    )


def _items(message: Mapping[str, Any], place: str, notes: list[Note]) -> Iterable[tuple[dict[str, Any], bool]]:
    """The message's own projection; where it has none, its native items; and whether it is such an item."""
    plain = {key: without_reserved(value) for key, value in message.items() if key not in (RESERVED, NATIVE_INPUT)}
    held = message.get(RESERVED)
    mark = {key: value for key, value in held.items() if key != "native"} if isinstance(held, Mapping) else {}
    marked = {RESERVED: mark} if mark else {}
    if isinstance(held, Mapping) and "native" in held:
        notes.append(Note(NoteCode.NATIVE_DROPPED, f"{place}: its native form was left out"))
    native = message.get(NATIVE_INPUT)
    if NATIVE_INPUT in message:
        notes.append(Note(NoteCode.NATIVE_DROPPED, f"{place}: {NATIVE_INPUT} was left out"))
    if native and plain.get("content") is None and not plain.get("tool_calls"):
        if not isinstance(native, list | tuple) or not all(isinstance(item, Mapping) for item in native):
            raise InvalidRequestError(f"{place}.{NATIVE_INPUT}: must be a list of dicts, not {native!r:.80}")
        return [({**_bare_item(item), **marked}, True) for item in native]
    own = "role" not in plain or plain.get("type") == "message"
    return [({**(_bare_item(plain) if own else plain), **marked}, own)]


def _bare_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """A native message as a role dict; another item as it is."""
    if "role" not in item:
        return copied(dict(item))  # type: ignore[no-any-return]
    return {key: copied(value) for key, value in item.items() if key not in _ITEM_KEYS}


def _from_item(
    item: dict[str, Any], place: str, open_turn: dict[str, Any] | None, notes: list[Note]
) -> list[dict[str, Any]]:
    """A native item without a role as neutral messages; a call joins the turn that its reply began."""
    mark = {RESERVED: item.pop(RESERVED)} if RESERVED in item else {}
    part = read_part(item)
    kind = str(item.get("type"))
    if isinstance(part, OtherContent) and part.problem:
        raise InvalidRequestError(f"{place}: {part.problem}")
    if isinstance(part, CallContent):
        if open_turn is not None and open_turn.get(RESERVED) == mark.get(RESERVED):
            open_turn["tool_calls"] = [*open_turn.get("tool_calls", ()), part.neutral()]
            return []
        return [{"role": MessageRole.ASSISTANT.value, "content": None, "tool_calls": [part.neutral()], **mark}]
    if isinstance(part, ResultContent):
        return [{**_answer(part, place, _spell_for(notes)), **mark}]
    if kind == "item_reference":
        raise InvalidRequestError(
            f"{place}: item {item.get('id')!r} is at its provider only: put its text in its place, or leave it out"
        )
    notes.append(Note(NoteCode.NATIVE_DROPPED, f"{place}: a native item of type {kind} was left out"))
    return []


def _spell_for(notes: list[Note]) -> Spell:
    """Spells a part in the neutral way, unless it stands so already."""

    def spell(part: Content, place: str) -> Mapping[str, Any]:
        if isinstance(part, OtherContent):
            return part.value
        said = remarks(part)
        notes.extend(Note(NoteCode.HISTORY_CHANGED, f"{place}: {remark}") for remark in said)
        neutral = part.neutral()
        if part.spelled in (neutral.get("type"), "refusal") and not said:
            return part.to_dict()
        if part.beside:
            notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: {', '.join(part.beside)} left out"))
        return neutral

    return spell


def split(
    message: dict[str, Any], place: str, *, spell: Spell, notes: list[Note], whole: bool = False
) -> list[dict[str, Any]]:
    """A message as neutral turns: calls out of its parts, results as tool messages of their own, in front.

    Args:
        message: a role dict; its content is text or parts in any spelling.
        place: where it stands, for notes and errors.
        spell: how the parts that stay are said.
        notes: takes a note of each thing that was dropped.
        whole: whether to drop nothing: reasoning and blocks of a provider's own tools stay too.

    Raises:
        InvalidRequestError: a content or a part that is none; names it.
    """
    content = message.get("content")
    if message.get("role") == MessageRole.TOOL:
        return [_tool(message, place, spell, notes)]
    if isinstance(content, Mapping) and "type" in content:
        content = [content]
    if not isinstance(content, list | tuple):
        if content is not None and not isinstance(content, str):
            raise InvalidRequestError(f"{place}.content: must be text or a list of parts, not {type(content).__name__}")
        return [message]
    taken = _Taken(place, spell, notes, whole)
    for number, part in enumerate(content):
        taken.take(part, f"{place}.content[{number}]")
    return taken.turns(message)


def _tool(message: dict[str, Any], place: str, spell: Spell, notes: list[Note]) -> dict[str, Any]:
    given = message.get("content")
    if given is None or isinstance(given, str):
        return message
    content: Any = read_result(given)
    if isinstance(content, str):
        notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: a tool result was written as JSON text"))
    else:
        content = [spell(part, f"{place}.content[{number}]") for number, part in enumerate(content)]
    return {**message, "content": content}


class _Taken:
    """A list of parts taken apart: those that stay, calls, and results that become turns of their own."""

    def __init__(self, place: str, spell: Spell, notes: list[Note], whole: bool) -> None:
        self._whole = whole
        self._place = place
        self._spell = spell
        self._notes = notes
        self._parts: list[Any] = []
        self._calls: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []

    def take(self, part: Any, place: str) -> None:
        """Sort one part."""
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping):
            raise InvalidRequestError(f"{place}: a part must be a dict with a 'type', not {type(part).__name__}")
        kind = str(part.get("type"))
        read = read_part(part)
        elsewhere = kind in _SERVER_BLOCKS or kind.endswith(_SERVER_TOOLS) or isinstance(read, ThinkingContent)
        if elsewhere and not self._whole:
            self._notes.append(Note(NoteCode.NATIVE_DROPPED, f"{self._place}: a {kind} block was left out"))
        elif isinstance(read, CallContent):
            self._calls.append(without_reserved(read.neutral()))
        elif isinstance(read, ResultContent):
            self._results.append(_answer(read, place, self._spell))
        elif isinstance(read, TextContent) and not read.text.strip() and not self._whole:
            self._notes.append(Note(NoteCode.HISTORY_CHANGED, f"{self._place}: an empty text part was left out"))
        else:
            self._keep(read, kind, place)

    def _keep(self, read: Content, kind: str, place: str) -> None:
        if isinstance(read, OtherContent) and read.problem and kind in ("text", "tool_use", "tool_result"):
            raise InvalidRequestError(f"{place}: {read.problem}")
        self._parts.append(self._spell(read, place))

    def turns(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The results first, as their calls precede them; then what is left of the message."""
        parts: Any = self._parts
        if self._calls or self._results:
            simple = all(set(part) == {"type", "text"} for part in parts)
            parts = text_of(parts) if simple else parts
        rest = {**message, "content": parts or None}
        if self._calls:
            rest["tool_calls"] = [*(message.get("tool_calls") or ()), *self._calls]
        if self._results and not parts and not self._calls:
            return self._results
        return [*self._results, rest]


def _answer(part: ResultContent, place: str, spell: Spell) -> dict[str, Any]:
    """A result as a tool message: a string where it is text alone."""
    content: Any = part.content
    if not isinstance(content, str):
        if all(isinstance(item, TextContent) for item in content):
            content = "".join(item.text for item in content if isinstance(item, TextContent))
        else:
            content = [spell(item, f"{place}.content[{number}]") for number, item in enumerate(content)]
    failed = {"is_error": True} if part.is_error else {}
    return {"role": MessageRole.TOOL.value, "tool_call_id": part.call_id, "content": content, **failed}
