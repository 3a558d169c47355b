"""The output items of one reply: what deltas said of them, what they amount to, and their bytes in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import count
from typing import Any, ClassVar

from isthmus.errors import ProtocolError
from isthmus.models.events import Call, CallDelta, Event, Native, Note, NoteCode, Reasoning, Text, framed
from isthmus.models.jsontext import as_it_came, dumps, loads
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.models.normalise import make_call, parse_arguments
from isthmus.wire.frame import Frame

_BREAK = "\n\n"
# Items that wait for their caller; a server that runs one itself puts the result into the same output.
_ASKING = frozenset(
    ("custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call")
)

_Part = tuple[str, int]
_TEXTS: Mapping[Any, str] = {"output_text": "text", "text": "text", "refusal": "refusal"}


class Slot:
    """One output item in the making."""

    __slots__ = (
        "at",
        "begun",
        "call_id",
        "call_index",
        "call_pieces",
        "item_id",
        "json",
        "kind",
        "name",
        "parts",
        "pieces",
        "placed",
        "refusing",
        "settled",
        "told",
        "whole",
    )

    def __init__(self, at: int, item: Mapping[str, Any]) -> None:
        self.at = at
        self.pieces: list[str] = []
        self.call_pieces: list[str] = []
        self.call_index: int | None = None
        # The arguments as the event that ends them has them.
        self.whole: str | None = None
        self.settled = self.placed = self.refusing = False
        self.begun = self.json = b""
        # How many pieces the parts that are whole have, and these parts; whether the open one is a refusal.
        self.told = 0
        self.parts: list[dict[str, Any]] = []
        self.learn(item)

    def learn(self, item: Mapping[str, Any]) -> None:
        """Take the labels that an item shows."""
        self.kind = str(item.get("type") or "")
        self.item_id = word(item.get("id"))
        self.name, self.call_id = word(item.get("name")), word(item.get("call_id"))

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.call_pieces)

    @property
    def part(self) -> str:
        """The text of the open part so far."""
        return "".join(self.pieces[self.told :])

    def close_part(self) -> None:
        """The open part is whole."""
        if text := self.part:
            refusal = {"type": "refusal", "refusal": text}
            self.parts.append(refusal if self.refusing else {"type": "output_text", "text": text, "annotations": []})
        self.told = len(self.pieces)


def _open_message(slot: Slot, cut: bool) -> dict[str, Any] | None:
    slot.close_part()
    status = "incomplete" if cut else "completed"
    made = {"type": "message", "id": slot.item_id, "role": "assistant", "status": status, "content": slot.parts}
    return {name: value for name, value in made.items() if value is not None} if slot.parts else None


def _open_call(slot: Slot, cut: bool) -> dict[str, Any]:
    """The call: whole if its arguments are, in a reply that is."""
    text = slot.whole or slot.arguments
    whole = not cut and text.strip() and not parse_arguments(text)[1]
    return {
        "type": "function_call",
        "id": slot.item_id,
        "call_id": slot.call_id,
        "name": slot.name,
        "arguments": text,
        "status": "completed" if whole else "incomplete",
    }


class Items:
    """The items of one reply, and the events that they make.

    Args:
        names: the tools' own names by those that they were sent under; None where these are the same.
    """

    # Of the item that is done: whether the reply ended before it was, and its events.
    _cut: bool
    _out: list[Event]

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}
        self.slots: dict[int, Slot] = {}
        self.notes: list[Note] = []
        self.refused = False
        self.frame: Frame | None = None
        """The frame that is being read."""
        self.calls: list[Call] = []
        self._ids: set[str] = set()
        self.running: list[tuple[Call, Mapping[str, Any]]] = []
        """Those that may run while the reply goes on, each with its item."""
        self._indexes = count()
        self._reasoned: tuple[int, _Part] | None = None

    def find(self, event: Mapping[str, Any]) -> Slot:
        """The slot that an event is about: by the item's id, by index, else the last one (F01).

        Some servers count every item as the first, others give an item another id in each event.
        """
        at, item_id = event.get("output_index"), event.get("item_id")
        if isinstance(item_id, str):
            known = next((slot for slot in self.slots.values() if slot.item_id == item_id), None)
            if known is not None:
                return known
        if isinstance(at, int) and at in self.slots:
            return self.slots[at]
        if not isinstance(at, int) and self.slots and not self.slots[max(self.slots)].settled:
            return self.slots[max(self.slots)]
        return self.open(at if isinstance(at, int) else None, {"id": item_id})

    def place(self, at: int, item: Mapping[str, Any]) -> Slot:
        """The slot of an item of the finished response, each once: by id, by place and type, by type, else a new one.

        Some servers leave items out of it that they have told, and give those that are in it other ids.
        """
        item_id, kind = word(item.get("id")), item.get("type")
        left = [slot for slot in self.slots.values() if not slot.placed]
        same = [slot for slot in left if slot.kind == kind]
        found = next((slot for slot in left if item_id and slot.item_id == item_id), None)
        found = found or next((slot for slot in same if slot.at == at), None) or next(iter(same), None)
        slot = found or self.open(None if at in self.slots else at, {})
        slot.placed = True
        return slot

    def open(self, at: int | None, item: Mapping[str, Any]) -> Slot:
        """A slot for an item that was not seen before."""
        place = max(self.slots, default=-1) + 1 if at is None else at
        slot = self.slots[place] = Slot(place, item)
        return slot

    def added(self, at: Any, item: Mapping[str, Any], *, json: bytes) -> list[Event]:
        """An item begins; `json` is what there is of it."""
        slot = self.slots.get(at) if isinstance(at, int) else None
        if slot is None or slot.settled or (slot.begun and slot.item_id != word(item.get("id"))):
            slot = self.open(at if isinstance(at, int) and slot is None else None, item)
        else:
            slot.learn(item)
        slot.begun = json
        if slot.kind != "function_call":
            return []
        return [self.call_delta(slot, word(item.get("arguments")) or "")]

    def call_delta(self, slot: Slot, text: str) -> Event:
        """The arguments of a call go on."""
        slot.kind = slot.kind or "function_call"
        if slot.call_index is None:
            slot.call_index = next(self._indexes)
        slot.call_pieces.append(text)
        name = slot.name and self._names.get(slot.name, slot.name)
        return framed(CallDelta(slot.call_index, slot.call_id, name, text), self.frame)  # type: ignore[no-any-return]

    def text_delta(self, slot: Slot, text: str, *, refused: bool = False) -> list[Event]:
        """The text or the refusal of a message goes on."""
        self.refused = self.refused or refused
        slot.kind = slot.kind or "message"
        if refused != slot.refusing:
            slot.close_part()
            slot.refusing = refused
        slot.pieces.append(text)
        if not text:
            return []
        return [framed(Text(text), self.frame)]

    def text_done(self, slot: Slot, text: Any, *, refused: bool = False) -> list[Event]:
        """A text or a refusal is whole: what its deltas have not said of it."""
        said = slot.part
        if slot.settled or not isinstance(text, str) or not text.startswith(said):
            return []
        out = self.text_delta(slot, text[len(said) :], refused=refused)
        slot.close_part()
        return out

    def reasoning_delta(self, slot: Slot, part: tuple[str, int], *, text: str) -> list[Event]:
        """Reasoning goes on; two parts of it are a blank line apart."""
        slot.kind = slot.kind or "reasoning"
        slot.pieces.append(text)
        if not text:
            return []
        here = (slot.at, part)
        apart = self._reasoned is not None and self._reasoned != here
        self._reasoned = here
        return [framed(Reasoning(_BREAK + text if apart else text), self.frame)]

    def done(self, slot: Slot, item: Any, *, json: bytes, cut: bool = False) -> list[Event]:
        """An item is whole: what its deltas have not said yet.

        Args:
            slot: its slot.
            item: the item.
            json: its bytes as they came.
            cut: whether the reply ended before it was done, so that a call may not be whole.

        Raises:
            ProtocolError: it is no object with a type.
        """
        if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
            raise ProtocolError(
                f"output: an item must be an object with a type, not {json[:80].decode(errors='replace')}"
            )
        slot.learn(item)
        slot.json, slot.settled = json, True
        self._out, self._cut = [], cut
        self._KINDS.get(slot.kind, Items._native)(self, slot, item)
        return self._out

    def unfinished(self, slot: Slot, *, cut: bool) -> list[Event]:
        """An item that nothing closed, of a reply that has ended: what there is of it (F01)."""
        make = self._LEFT_OPEN.get(slot.kind)
        if make is None:
            return self.done(slot, loads(slot.begun), json=slot.begun, cut=cut)
        item = make(slot, cut)
        return [] if item is None else self.done(slot, item, json=dumps(item), cut=cut)

    def _rest(self, slot: Slot, parts: list[tuple[_Part, str]]) -> list[tuple[_Part, str]]:
        """What whole parts say beyond the deltas, which some servers give other numbers."""
        said, rest = "".join(slot.pieces), []
        for part, text in parts:
            if said.startswith(text):
                said = said[len(text) :]
            elif text.startswith(said):
                rest.append((part, text[len(said) :]))
                said = ""
            else:
                detail = f"output[{slot.at}]: its whole text is not the streamed one, which stands"
                self.notes.append(Note(NoteCode.UNKNOWN_CONTENT, detail))
                return []
        return rest

    def _message(self, slot: Slot, item: Mapping[str, Any]) -> None:
        annotations: list[Any] = []
        parts: list[tuple[_Part, str]] = []
        given = item.get("content")
        parts_given = [{"type": "output_text", "text": given}] if isinstance(given, str) else _list(given)
        for at, part in enumerate(parts_given):
            kind = part.get("type") if isinstance(part, Mapping) else None
            text = part.get(_TEXTS.get(kind)) if isinstance(part, Mapping) else None
            if not isinstance(text, str):
                detail = f"output[{slot.at}].content[{at}]: {kind!r} is no text"
                self.notes.append(Note(NoteCode.UNKNOWN_CONTENT, detail))
                continue
            self.refused = self.refused or kind == "refusal"
            parts.append(((str(kind), at), text))
            annotations += _list(part.get("annotations"))
        for _, text in self._rest(slot, parts):
            self._out += self.text_delta(slot, text)
        if annotations:
            self._emit(Native(NATIVE_DIALECT, "annotations", annotations))

    def _reasoning(self, slot: Slot, item: Mapping[str, Any]) -> None:
        parts = [
            ((kind, at), part["text"])
            for kind in ("summary", "content")
            for at, part in enumerate(_list(item.get(kind)))
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        ]
        for part, text in self._rest(slot, parts):
            self._out += self.reasoning_delta(slot, part, text=text)
        hidden = word(item.get("encrypted_content"))
        if hidden:
            self._emit(Reasoning("", encrypted=hidden))

    def _call(self, slot: Slot, item: Mapping[str, Any]) -> None:
        given = item.get("arguments")
        if given is not None and not isinstance(given, str):
            given = as_it_came(given)
        text = given or slot.arguments
        unfinished = item.get("status") == "incomplete" or (item.get("status") == "in_progress" and self._cut)
        if unfinished or (self._cut and parse_arguments(text)[1]):
            self.notes.append(Note(NoteCode.CALL_CUT, f"{slot.name}: its arguments were cut; it is kept and not run"))
            if slot.name:
                self._native(slot, item)
            else:
                # Nobody takes it back.
                slot.json = b""
            return
        if not slot.name:
            raise ProtocolError(f"output[{slot.at}]: a function call without a name")
        item = self._identified(slot, item, text)
        text = self._agreed(slot, text)
        call = make_call(self._names.get(slot.name, slot.name), text, call_id=slot.call_id)
        if call.problem:
            self.notes.append(Note(NoteCode.CALL_ARGUMENTS_INVALID, f"{slot.name}: {call.problem}"))
        if item.get("async") is True:
            repeated = any(each.call_id == call.call_id for each, _ in self.running)
            self.running.append((call, item))
            if repeated:
                # Told again it is the same call, which its caller runs once.
                return
        self.calls.append(call)
        self._emit(call)

    def _identified(self, slot: Slot, item: Mapping[str, Any], text: str) -> Mapping[str, Any]:
        """The item of a call with an id of its own: its result must find it."""
        given = slot.call_id
        if given is not None and given not in self._ids:
            self._ids.add(given)
            return item
        if given is not None and item.get("async") is True and any(each.call_id == given for each, _ in self.running):
            return item
        seed = f"{slot.at}\0{slot.item_id}\0{slot.name}\0{text}".encode("utf-8", "surrogatepass")
        slot.call_id = f"call_{sha256(seed).hexdigest()[:20]}"
        code = NoteCode.CALL_ID_CHANGED if given else NoteCode.CALL_ID_MADE
        again = f" for the second {given}" if given else ""
        self.notes.append(Note(code, f"{slot.name}: {slot.call_id}{again}"))
        item = {**item, "call_id": slot.call_id}
        slot.json = dumps(item)
        return item

    def _agreed(self, slot: Slot, text: str) -> str:
        """The arguments of a whole call, its previews brought to say the same.

        The item is what the server finalised and takes back: where it says something else than its deltas, it stands,
        under a preview of its own.
        """
        said = slot.arguments
        if slot.call_index is None or text == said:
            return text
        if not text.startswith(said):
            value, problem = parse_arguments(said)
            if problem is None and value == parse_arguments(text)[0]:
                return said
            detail = f"output[{slot.at}]: its whole arguments are not the streamed ones, and stand"
            self.notes.append(Note(NoteCode.UNKNOWN_CONTENT, detail))
            slot.call_index, slot.call_pieces = None, []
        self._out.append(self.call_delta(slot, text.removeprefix(slot.arguments)))
        return text

    def _native(self, slot: Slot, item: Mapping[str, Any]) -> None:
        self._emit(Native(NATIVE_DIALECT, slot.kind, json=slot.json))

    def _emit(self, event: Event) -> None:
        self._out.append(framed(event, self.frame))

    _KINDS: ClassVar[dict[str, Callable[[Items, Slot, Mapping[str, Any]], None]]] = {
        "message": _message,
        "reasoning": _reasoning,
        "function_call": _call,
    }
    _LEFT_OPEN: ClassVar[dict[str, Callable[[Slot, bool], dict[str, Any] | None]]] = {
        "message": _open_message,
        "function_call": _open_call,
        # What was said of it is told; without its cipher nobody takes it back.
        "reasoning": lambda slot, cut: None,
    }

    def waiting(self, output: list[bytes]) -> list[str]:
        """The types of those items that wait for something that only the caller can do or give.

        A server that ran one itself put the result into the same output, or let the model go on after it.
        """
        items = [item for item in map(loads, output) if isinstance(item, dict)]
        last = max((at for at, item in enumerate(items) if item.get("type") == "message"), default=-1)
        answered = {item.get("call_id") for item in items if str(item.get("type")).endswith("_output")}
        found = []
        for item in items[last + 1 :]:
            kind = str(item.get("type"))
            runs = kind in _ASKING and item.get("call_id") not in answered and item.get("execution") != "server"
            if kind == "mcp_approval_request" or runs:
                found.append(kind)
        return found

    def output(self) -> list[bytes]:
        """The items that were done, in the order of their places."""
        return [self.slots[at].json for at in sorted(self.slots) if self.slots[at].json]


def word(value: Any) -> str | None:
    """A text that says something, or None."""
    return value if isinstance(value, str) and value else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
