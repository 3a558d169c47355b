"""Events of the Responses API to events of the contract: one decoder for streams and for whole replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from isthmus.adapters.openai_responses.errors import failure_of
from isthmus.adapters.openai_responses.items import Items, word
from isthmus.adapters.openai_responses.usage import read_usage
from isthmus.errors import InvalidRequestError, ProtocolError, TierError, TransientError, UnclassifiedError
from isthmus.models.events import (
    Call,
    Event,
    Finish,
    FinishReason,
    Native,
    Note,
    NoteCode,
    Text,
    Usage,
    framed,
    set_raw,
)
from isthmus.models.finish import finish_of
from isthmus.models.jsontext import Raw, items, loads, members
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

_EXCERPT = 200
_END = b"[DONE]"
_TEXT = "response.output_text.delta"
_WORST_FIRST = ("failed", "cancelled", "incomplete")


class _Delta(msgspec.Struct, gc=False):
    type: Literal["response.output_text.delta"]
    output_index: int
    delta: str


_plain_text: Callable[[bytes], _Delta] = msgspec.json.Decoder(_Delta).decode
_DECLINED = (msgspec.DecodeError, UnicodeDecodeError)


class ResponsesDecoder:
    """Decodes one reply.

    Args:
        whole: whether the one frame is a whole response.
        names: the tools' own names by those that they were sent under.
    """

    def __init__(self, *, whole: bool, names: Mapping[str, str] | None = None) -> None:
        self.done = False
        self.response: bytes = b""
        """The native response once it has ended, or the event that says why it failed; undecoded."""
        self.event_type = ""
        """The type of the last frame's event."""
        self.item: tuple[int | None, str | None] = (None, None)
        """Place and type of the output item that it is about."""
        self.waiting: tuple[str, ...] = ()
        """The types of those items of a finished reply that wait for their caller."""
        self._whole = whole
        self._items = Items(names)
        self._usage: Any = None
        self._began: str | None = None
        self._malformed: TierError | None = None
        self._finish: Finish | None = None
        # Which item's text goes on, and the pieces of it so far.
        self._here: int | None = None
        self._pieces: list[str] = []

    @property
    def usage(self) -> Usage | None:
        """The tokens spent so far, as far as known."""
        return read_usage(self._usage)[0]

    @property
    def running(self) -> list[tuple[Call, Mapping[str, Any]]]:
        """The calls so far that may run while the reply goes on, each with its item."""
        return self._items.running

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            TierError: an error or failure event, classified; "protocol" for a malformed one. Carries the usage so far.
        """
        if self._here is None:
            return self._read(frame)
        try:
            delta = _plain_text(frame[0])
        except _DECLINED:
            return self._read(frame)
        if delta.output_index != self._here or not delta.delta:
            return self._read(frame)
        self._pieces.append(delta.delta)
        event = Text(delta.delta)
        set_raw(event, frame)
        return (event,)

    def _read(self, frame: Frame) -> Iterable[Event]:
        if self._malformed is not None:
            raise self._malformed
        data = frame.data.strip()
        if data == _END or not (data or self._whole or frame.event == "error"):
            return ()
        self._here = None
        self._items.frame = frame
        try:
            value = members(data)
        except (ValueError, RecursionError):
            return self._unreadable(frame, data)
        try:
            return self._response(value, frame) if self._whole else self._event(value, frame)
        except TierError as error:
            error.usage = error.usage or self.usage
            raise
        except (ValueError, TypeError, RecursionError) as error:
            said = f"an event cannot be read: {error}: {data[:_EXCERPT].decode('utf-8', 'replace')!r}"
            raise ProtocolError(said, usage=self.usage) from None

    def _unreadable(self, frame: Frame, data: bytes) -> Iterable[Event]:
        """Hold on to the fault: at the end of the bytes it is a cut, before that a breach of protocol."""
        shown = data[:_EXCERPT].decode("utf-8", "replace")
        if frame.event == "error":
            self.response = data
            raise failure_of({"message": shown or "an error without details"})
        try:
            loads(data)
        except (ValueError, RecursionError):
            self._malformed = ProtocolError(f"malformed JSON: {shown!r}")
            return ()
        raise ProtocolError(f"an object should be here: {shown!r}")

    def _event(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        kind = loads(value["type"]) if "type" in value else frame.event
        if not isinstance(kind, str) or not kind:
            if "error" in value:
                kind = "error"
            else:
                raise ProtocolError(f"an event without a type: {frame.data[:_EXCERPT].decode('utf-8', 'replace')!r}")
        at = loads(value["output_index"]) if "output_index" in value else None
        slot = self._items.slots.get(at) if isinstance(at, int) else None
        self.event_type, self.item = kind, (at, None if slot is None else slot.kind)
        handle = self._EVENTS.get(kind)
        return () if handle is None else handle(self, value, frame)

    def _created(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        """A response begins; another one inside it would be glued to it."""
        response = loads(value.get("response", b"{}"))
        begun = word(response.get("id")) if isinstance(response, dict) else None
        if self._began is not None and begun != self._began and self._items.slots:
            raise ProtocolError("response.created came twice: a second reply inside the first")
        self._began = begun or ""
        return self._progress(value, frame)

    def _progress(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        """The response as it stands: nothing yet, but for tokens spent."""
        response = loads(value.get("response", b"{}"))
        if isinstance(response, dict):
            self._usage = response.get("usage") or self._usage
        return ()

    def _added(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        item = loads(value.get("item", b"null"))
        if not isinstance(item, dict):
            raise ProtocolError(f"{self.event_type}: no item in it")
        at = loads(value.get("output_index", b"null"))
        self.item = (at, word(item.get("type")))
        return self._items.added(at, item, json=bytes(value["item"]))

    def _item_done(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        raw = value.get("item", Raw(b"null"))
        item, at = loads(raw), loads(value.get("output_index", b"null"))
        item_id = item.get("id") if isinstance(item, dict) else None
        slot = self._items.find({"output_index": at, "item_id": item_id})
        if slot.settled and slot.json == bytes(raw):
            return ()
        if slot.settled:
            slot = self._items.open(None, {})
        events = self._items.done(slot, item, json=bytes(raw))
        self.item = (at, slot.kind)
        return events

    def _slot(self, value: dict[str, Raw]) -> tuple[Any, dict[str, Any]]:
        event = {key: loads(raw) for key, raw in value.items() if key != "logprobs"}
        slot = self._items.find(event)
        self.item = (slot.at, slot.kind or None)
        return slot, event

    def _text_delta(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        slot, event = self._slot(value)
        events = self._items.text_delta(slot, _delta(event))
        # Where servers count every item as the first, an index is the newest one's alone.
        self._here = slot.at if slot.at == max(self._items.slots) else None
        self._pieces = slot.pieces
        return events

    def _refusal_delta(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        slot, event = self._slot(value)
        return self._items.text_delta(slot, _delta(event), refused=True)

    def _summary_delta(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        slot, event = self._slot(value)
        return self._items.reasoning_delta(slot, ("summary", _place(event, "summary_index")), text=_delta(event))

    def _reasoning_delta(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        slot, event = self._slot(value)
        return self._items.reasoning_delta(slot, ("content", _place(event, "content_index")), text=_delta(event))

    def _arguments_delta(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        slot, event = self._slot(value)
        return (self._items.call_delta(slot, _delta(event)),)

    def _text_done(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        """A part's whole text: what of it no delta has said."""
        slot, event = self._slot(value)
        return self._items.text_done(slot, event.get("text"))

    def _refusal_done(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        slot, event = self._slot(value)
        return self._items.text_done(slot, event.get("refusal"), refused=True)

    def _arguments_done(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        """The arguments are whole: its item, or the end of the reply, tells what no delta has."""
        slot, event = self._slot(value)
        slot.name = slot.name or word(event.get("name"))
        slot.kind, slot.whole = slot.kind or "function_call", word(event.get("arguments"))
        return ()

    def _error(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        self.response = frame.data
        raise failure_of(loads(frame.data))

    def _ended(self, value: dict[str, Raw], frame: Frame) -> Iterable[Event]:
        raw = value.get("response")
        if raw is None:
            raise ProtocolError(f"{self.event_type}: no response in it")
        return self._response(members(raw), frame, bytes(raw))

    def _response(self, value: dict[str, Raw], frame: Frame, raw: bytes | None = None) -> Iterable[Event]:
        """A response that says it has ended, whole or at the end of its stream."""
        self.response = frame.data if raw is None else raw
        self._usage = loads(value.get("usage", b"null")) or self._usage
        details = loads(value.get("incomplete_details", b"null"))
        reason = word(details.get("reason")) if isinstance(details, dict) else None
        status = self._status(loads(value.get("status", b"null")), reason)
        self._check(status, value)
        listed = value["output"]
        output = [] if bytes(listed) == b"null" else [bytes(item) for item in items(listed)]
        events = self._settle(output, cut=status == "incomplete")
        # As they were told one by one: the last event has other ciphers of the same, and with some servers no items.
        self._finish = self._close(status, reason, self._items.output(), frame)
        self.done = True
        return events

    def _status(self, said: Any, reason: str | None) -> Any:
        """How the response ended: of its status, its event's name and its reason to be incomplete the worst."""
        named = None if self._whole else self.event_type.removeprefix("response.")
        found = (said, named, "incomplete" if reason else None)
        return next((status for status in _WORST_FIRST if status in found), said if named is None else named)

    def _check(self, status: Any, value: dict[str, Raw]) -> None:
        """Whether it is an answer.

        Raises:
            TierError: it failed, was cancelled, has not begun, or is no response at all.
        """
        error = loads(value.get("error", b"null"))
        if status == "failed" or (error and status not in ("completed", "incomplete")):
            raise failure_of(error or {"message": "the response failed and does not say why"})
        if status == "cancelled":
            raise UnclassifiedError("the response was cancelled at its provider", code="cancelled")
        if status in ("queued", "in_progress"):
            raise InvalidRequestError(
                f"the response is {status}: a background reply is no answer yet; leave `background` out", code=status
            )
        if "output" not in value:
            raise ProtocolError("not a response: it has no output")

    def _settle(self, output: list[bytes], *, cut: bool) -> list[Event]:
        """What the response says beyond the items that were done before it."""
        items, events = self._items, []
        for at, json in enumerate(output):
            item = loads(json)
            slot = items.place(at, item if isinstance(item, dict) else {})
            if not slot.settled:
                events += items.done(slot, item, json=json, cut=cut)
        for slot in [slot for slot in items.slots.values() if not slot.settled]:
            events += items.unfinished(slot, cut=cut)
        return events

    def _close(self, status: Any, reason: str | None, output: list[bytes], frame: Frame) -> Finish:
        items = self._items
        usage, odd = read_usage(self._usage)
        self.waiting = tuple(items.waiting(output))
        notes = [*items.notes, *odd]
        finish = self._reason(status, reason, notes)
        if usage is None:
            notes.append(Note(NoteCode.USAGE_MISSING, "the provider did not say how many tokens were spent"))
        native = Native(NATIVE_DIALECT, "message", json=b"[" + b",".join(output) + b"]") if output else None
        said = reason or word(status)
        return framed(Finish(finish.value, usage, said, None, native, tuple(notes)), frame)  # type: ignore[no-any-return]

    def _reason(self, status: Any, reason: str | None, notes: list[Note]) -> FinishReason:
        finish = FinishReason.STOP
        if status == "incomplete":
            finish = FinishReason(finish_of(reason))
            finish = finish if finish in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER) else FinishReason.OTHER
        elif status != "completed":
            notes.append(Note(NoteCode.NO_FINISH_REASON, f"the response's status is {status!r}"))
            finish = FinishReason.OTHER
        if self._items.calls:
            if status != "completed":
                detail = f"{reason or status} became tool-calls: the reply holds whole calls"
                notes.append(Note(NoteCode.FINISH_CHANGED, detail))
            return FinishReason.TOOL_CALLS
        cut = any(note.code == NoteCode.CALL_CUT for note in notes)
        if finish is FinishReason.STOP and (self.waiting or cut):
            kinds = ", ".join(dict.fromkeys(self.waiting))
            why = f"{kinds} waits for its caller" if kinds else "the reply holds no whole call"
            notes.append(Note(NoteCode.FINISH_CHANGED, f"completed became other: {why}"))
            return FinishReason.OTHER
        refused = self._items.refused and finish is not FinishReason.CONTENT_FILTER
        return FinishReason.REFUSAL if refused else finish

    def close(self, ended: Ended) -> Iterable[Event]:
        """The one `Finish`.

        Raises:
            TransientError: the bytes ended before the reply did.
            ProtocolError: the last frame is malformed though all bytes arrived.
        """
        if self._finish is not None:
            return (self._finish,)
        error: TierError = TransientError("the stream was cut: it ended before response.completed")
        if self._malformed is not None:
            error = self._malformed if ended is Ended.FRAMED else TransientError("the reply was cut inside a frame")
        error.usage = self.usage
        raise error

    _EVENTS: ClassVar[dict[str, Callable[[ResponsesDecoder, dict[str, Raw], Frame], Iterable[Event]]]] = {
        "response.created": _created,
        **dict.fromkeys(("response.queued", "response.in_progress"), _progress),
        "response.output_item.added": _added,
        "response.output_item.done": _item_done,
        _TEXT: _text_delta,
        "response.refusal.delta": _refusal_delta,
        "response.reasoning_summary_text.delta": _summary_delta,
        "response.reasoning_text.delta": _reasoning_delta,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.output_text.done": _text_done,
        "response.refusal.done": _refusal_done,
        "response.function_call_arguments.done": _arguments_done,
        **dict.fromkeys(("response.completed", "response.incomplete", "response.failed", "response.cancelled"), _ended),
        "error": _error,
    }


def _place(event: Mapping[str, Any], name: str) -> int:
    at = event.get(name)
    return at if isinstance(at, int) else 0


def _delta(event: Mapping[str, Any]) -> str:
    delta = event.get("delta")
    if not isinstance(delta, str):
        raise ProtocolError(f"{event.get('type')}: its delta must be text, not {type(delta).__name__}")
    return delta
