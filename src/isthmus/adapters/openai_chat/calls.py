"""Which call a fragment belongs to, and what the calls of a reply amount to.

The wire's labels cannot be trusted: indexes are missing, repeated, strings or full of gaps, ids are empty, repeated or
reused, names arrive late or twice (F02). Calls are kept in order of arrival and each learns the labels seen for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from isthmus.adapters.openai_chat.merge import hollow, joined, merge, plain, shown
from isthmus.errors import ProtocolError
from isthmus.models.events import Call, CallDelta, Native, Note, NoteCode, framed
from isthmus.models.jsontext import Raw, as_it_came
from isthmus.models.normalise import parse_arguments
from isthmus.wire.frame import Frame

_FRAME_KEYS = frozenset(("index", "id", "type", "function", "custom"))
_BODY_KEYS = frozenset(("name", "arguments"))
_FLAT_KEYS = _FRAME_KEYS | _BODY_KEYS


class _Fragment(msgspec.Struct):
    label: str | None
    call_id: str | None
    name: str | None
    arguments: str
    extra: dict[str, Any]
    inner: dict[str, Any]
    custom: bool


def _label(value: Any) -> str | None:
    """A label as text; whole numbers in any form are the same one, and nothing but text and numbers is a label."""
    if value is None:
        return None
    if isinstance(value, Raw):
        value = plain(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    usable = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if usable and value not in ("", "null") else None


def _read(value: Mapping[str, Any]) -> _Fragment:
    function, custom = value.get("function"), value.get("custom")
    is_custom = isinstance(custom, dict) and not hollow(custom) and hollow(function)
    body: Any = custom if is_custom else function
    flat = not isinstance(body, dict)
    body = value if flat else body
    given = body.get("input" if is_custom else "arguments")
    return _Fragment(
        _label(value.get("index")),
        _label(value.get("id")),
        _label(body.get("name")),
        given if isinstance(given, str) else "" if given is None else as_it_came(given),
        _beside(value, _FLAT_KEYS if flat else _FRAME_KEYS),
        {} if flat or is_custom else _beside(body, _BODY_KEYS),
        is_custom,
    )


def _beside(value: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What an object holds beside what is known."""
    if value.keys() <= known:
        return {}
    return {key: item for key, item in value.items() if key not in known and not hollow(item)}


class _Slot:
    """One call in the making."""

    __slots__ = (
        *("again", "at", "custom", "extra", "frame", "indexes", "inner", "name", "pieces", "relabelled"),
        *("shown_id", "size", "wire_id"),
    )

    def __init__(self, at: int, custom: bool) -> None:
        self.at = at
        self.custom = custom
        self.indexes: set[str] = set()
        self.wire_id: str | None = None
        self.shown_id: str | None = None
        self.name: str | None = None
        self.pieces: list[str] = []
        self.size = 0
        self.extra: dict[str, Any] = {}
        self.inner: dict[str, Any] = {}
        self.again = False
        self.relabelled = False
        self.frame: Frame | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        """Whether the arguments are there and are an object."""
        # Only a text with the right end is parsed: this may be asked at every fragment of a long one.
        end = next((piece for piece in reversed(self.pieces) if piece.strip()), "").rstrip()
        return bool(self.pieces) and end[-1:] in ("", "}", "l") and parse_arguments(self.text)[0] is not None

    def append(self, text: str) -> None:
        """The arguments go on."""
        self.pieces.append(text)
        self.size += len(text)

    def says(self, arguments: str) -> bool:
        """Whether these are the arguments so far."""
        return len(arguments) == self.size and arguments == self.text

    def wire(self, call_id: str | None) -> dict[str, Any]:
        """The call as a message holds it."""
        if self.custom:
            held = {"id": call_id, "type": "custom", "custom": {"name": self.name, "input": self.text}}
        else:
            function = {"name": self.name, "arguments": self.text, **joined(self.inner)}
            held = {"id": call_id, "type": "function", "function": function}
        return {**held, **joined(self.extra)}


class Settled(NamedTuple):
    """What the calls of a reply amount to.

    Args:
        calls: the whole calls.
        natives: those that are no calls: cut short, or of a kind that takes free text.
        notes: what was made up, changed or left out.
        sent: what the reply's own message holds: each call in the making, and the id it got.
        plain: whether `calls` say all that `wire` says.
    """

    calls: list[Call]
    natives: list[Native]
    notes: list[Note]
    sent: list[tuple[_Slot, str | None]]
    plain: bool

    @property
    def wire(self) -> list[dict[str, Any]]:
        """The calls as the reply's own message holds them."""
        return [slot.wire(call_id) for slot, call_id in self.sent]


class Calls:
    """The calls of one reply.

    Args:
        dialect: the name under which native blocks are kept.
        names: the tools' own names by those that they were sent under; None where these are the same.
    """

    __slots__ = ("_dialect", "_last", "_names", "_slots", "notes")

    def __init__(self, dialect: str, names: Mapping[str, str] | None = None) -> None:
        self._dialect = dialect
        self._names = names or {}
        self._slots: list[_Slot] = []
        self._last: _Slot | None = None
        self.notes: list[Note] = []

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, value: Any, frame: Frame, *, whole: bool) -> CallDelta | None:
        """Take one fragment; returns the preview that it makes.

        Args:
            value: an entry of `tool_calls`, or a legacy `function_call` in the same clothes.
            frame: where it came from.
            whole: whether it stands in a whole message, where every named entry is a call of its own.

        Raises:
            ProtocolError: nothing tells which call it belongs to.
        """
        if not isinstance(value, dict):
            if value is None:
                return None
            raise ProtocolError(f"tool_calls: an entry must be an object, not {shown(value)}")
        part = _read(value)
        slot = self._new(part) if whole and part.name else self._find(part)
        if slot is None:
            return None
        fresh = slot.frame is None
        known = slot.shown_id, slot.name
        self._learn(slot, part, frame)
        repeat = not fresh and bool(part.name) and slot.says(part.arguments) and slot.complete
        text = "" if repeat or (part.arguments == "null" and not slot.pieces) else part.arguments
        if text:
            slot.append(text)
        if slot.custom or not (text or known != (slot.shown_id, slot.name)):
            return None
        name = slot.name and self._names.get(slot.name, slot.name)
        return framed(CallDelta(slot.at, slot.shown_id, name, text), frame)  # type: ignore[no-any-return]

    def _learn(self, slot: _Slot, part: _Fragment, frame: Frame) -> None:
        """Note the labels."""
        if part.label is not None:
            slot.indexes.add(part.label)
        if part.call_id is not None and slot.wire_id is None:
            unique = all(other.wire_id != part.call_id for other in self._slots)
            slot.wire_id = part.call_id
            slot.shown_id = part.call_id if unique else None
        slot.name = slot.name or part.name
        if part.extra:
            merge(slot.extra, part.extra)
        if part.inner:
            merge(slot.inner, part.inner)
        slot.frame = frame
        self._last = slot

    def _new(self, part: _Fragment) -> _Slot:
        slot = _Slot(len(self._slots), part.custom)
        self._slots.append(slot)
        return slot

    def _owner(self, index: str | None) -> _Slot | None:
        for slot in reversed(self._slots):
            if index in slot.indexes:
                return slot
        return None

    def _find(self, part: _Fragment) -> _Slot | None:
        if part.call_id is None:
            return self._find_without_id(part)
        known = [slot for slot in self._slots if slot.wire_id == part.call_id]
        return self._find_known(part, known) if known else self._find_unseen(part)

    def _find_without_id(self, part: _Fragment) -> _Slot | None:
        owner = self._owner(part.label)
        if part.name is None:
            slot = owner or self._last
            if slot is None:
                return self._new(part) if part.arguments else None
            return self._new_namesake(part, slot) if slot.again and part.arguments else slot
        if owner is None and (part.label is None or (self._last is not None and self._last.name is None)):
            owner = self._last
        return self._new(part) if owner is None or self._opens(owner, part) else owner

    def _new_namesake(self, part: _Fragment, slot: _Slot) -> _Slot:
        """The second call to the same tool, whose name came alone."""
        fresh = self._new(part)
        fresh.name = slot.name
        return fresh

    def _find_known(self, part: _Fragment, known: list[_Slot]) -> _Slot:
        slot = next((item for item in reversed(known) if part.label in item.indexes), None)
        if slot is None:
            slot = known[-1]
            elsewhere = part.label is not None and slot.indexes and self._owner(part.label) is None
            growing = slot.pieces and not slot.complete and part.name == slot.name
            if elsewhere and part.name and slot.name and not growing:
                return self._new(part)
        if part.name and not (part.name == slot.name and slot.says(part.arguments)) and self._opens(slot, part):
            return self._new(part)
        return slot

    def _find_unseen(self, part: _Fragment) -> _Slot:
        owner = self._owner(part.label) if part.label is not None else self._last
        if owner is None:
            return self._new(part)
        if owner.wire_id is None:
            return self._new(part) if part.name and self._opens(owner, part) else owner
        if part.name is None and owner.name is not None and part.label is not None and not owner.complete:
            if not owner.relabelled:
                owner.relabelled = True
                detail = f"{owner.name}: {part.call_id} is {owner.wire_id} again"
                self.notes.append(Note(NoteCode.CALL_ID_CHANGED, detail))
            return owner
        return self._new(part)

    def _opens(self, slot: _Slot, part: _Fragment) -> bool:
        """Whether a name that arrives at a call begins another one."""
        same = part.name == slot.name
        opens = slot.name is not None and (slot.complete or not same)
        if opens and slot.pieces and not slot.complete:
            raise ProtocolError(
                f"tool_calls: {part.name!r} arrives in the middle of the call to {slot.name!r} "
                f"({slot.text[-80:]!r} + {part.arguments[:80]!r}), and no id or index tells them apart"
            )
        # A name that comes again alone may still be of the call that has it.
        slot.again = opens and same and not part.arguments
        return opens and not slot.again

    def settle(self, *, cut: bool, doubtful: bool, seed: str) -> Settled:
        """The calls, now that the reply has ended.

        Args:
            cut: the reply stopped short, so that incomplete arguments, or none yet in the last call, are no call.
            doubtful: nothing says whether it did: only incomplete arguments are no call.
            seed: what makes an id that must be made up differ from those of other replies.

        Raises:
            ProtocolError: a call has arguments and no name.
        """
        done = Settled([], [], self.notes, [], plain=not any(s.extra or s.inner or s.custom for s in self._slots))
        used: set[str] = set()
        for slot in self._slots:
            text = slot.text
            broken = (cut or doubtful) and not slot.custom and parse_arguments(text)[1] is not None
            if broken or (cut and slot is self._last and not text.strip()):
                self._lay_aside(slot, done, NoteCode.CALL_CUT, "was cut short and is no call")
            elif slot.name is None:
                self._nameless(slot, done)
            elif slot.custom:
                self._lay_aside(slot, done, NoteCode.UNKNOWN_CONTENT, "takes free text and is kept as it came")
                done.sent.append((slot, slot.wire_id))
            else:
                self._call(slot, slot.name, call_id=self._identify(slot, used, seed, done), done=done)
        return done

    def _lay_aside(self, slot: _Slot, done: Settled, code: NoteCode, why: str) -> None:
        held = Native(self._dialect, "tool_call", slot.wire(slot.wire_id))
        done.natives.append(framed(held, slot.frame))
        done.notes.append(Note(code, f"the call to {slot.name} {why}: {slot.text[-80:]!r}"))

    def _nameless(self, slot: _Slot, done: Settled) -> None:
        if slot.text.strip():
            raise ProtocolError(f"tool_calls: a call has arguments and no name: {shown(slot.wire(slot.wire_id))}")
        done.notes.append(Note(NoteCode.CALL_CUT, f"a call without name and arguments was left out: {slot.wire_id}"))

    def _identify(self, slot: _Slot, used: set[str], seed: str, done: Settled) -> str:
        call_id = slot.wire_id
        if call_id is None or call_id in used:
            said = f"{seed}\0{slot.at}\0{slot.name}\0{slot.text}"
            made = "call_" + sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:20]
            code = NoteCode.CALL_ID_MADE if call_id is None else NoteCode.CALL_ID_CHANGED
            done.notes.append(Note(code, f"{slot.name}: {made}" + (f" for the second {call_id}" if call_id else "")))
            call_id = made
        used.add(call_id)
        return call_id

    def _call(self, slot: _Slot, name: str, *, call_id: str, done: Settled) -> None:
        text = slot.text
        value, problem = parse_arguments(text)
        if problem is not None:
            done.notes.append(Note(NoteCode.CALL_ARGUMENTS_INVALID, f"{name} {call_id}: {problem}"))
        done.calls.append(framed(Call(self._names.get(name, name), value, call_id, text, problem), slot.frame))
        done.sent.append((slot, call_id))
