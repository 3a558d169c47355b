"""The events of one model call, and what they fold into.

Owns the vocabulary between adapters and everything above them. Must not know a provider, a transport or a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias, get_args

import msgspec

from isthmus.errors import TierError
from isthmus.models.aside import Aside
from isthmus.models.jsontext import dumps, loads, utf8
from isthmus.models.rawslot import RawSlot
from isthmus.models.rawslot import framed as framed
from isthmus.models.rawslot import set_raw as set_raw


class FinishReason(StrEnum):
    """Why a reply ended; the strings themselves are valid too."""

    STOP = "stop"
    TOOL_CALLS = "tool-calls"
    LENGTH = "length"
    CONTENT_FILTER = "content-filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    OTHER = "other"
    ERROR_POST = "error-post"


class NoteCode(StrEnum):
    """What the layer did to a request or a reply that its author might not expect."""

    NO_END_MARK = "no-end-mark"
    NO_FINISH_REASON = "no-finish-reason"
    USAGE_MISSING = "usage-missing"
    USAGE_INCONSISTENT = "usage-inconsistent"
    FINISH_CHANGED = "finish-changed"
    CALL_ID_MADE = "call-id-made"
    CALL_ID_CHANGED = "call-id-changed"
    CALL_CUT = "call-cut"
    CALL_ARGUMENTS_INVALID = "call-arguments-invalid"
    EXTRA_CHOICES = "extra-choices"
    NATIVE_STALE = "native-stale"
    NATIVE_DROPPED = "native-dropped"
    PARAMETER_DROPPED = "parameter-dropped"
    PARAMETER_CHANGED = "parameter-changed"
    HISTORY_CHANGED = "history-changed"
    SETTINGS_COPIED = "settings-copied"
    CONTINUED = "continued"
    UNKNOWN_CONTENT = "unknown-content"
    METADATA = "metadata"
    OUTPUT_STRATEGY = "output-strategy"
    OUTPUT_REPAIRED = "output-repaired"
    MARKER_DISCARDED = "marker-discarded"


class Note(msgspec.Struct, frozen=True):
    """One thing that was renamed, dropped, merged, repaired, synthesised or downgraded.

    Args:
        code: a `NoteCode`.
        detail: the place and the value, for a person.
    """

    code: str
    detail: str = ""


class _AttemptsSlot:
    """Holds the tries behind a result of a chain, hidden like the frame."""

    __slots__ = ("_attempts",)

    @property
    def attempts(self) -> tuple[Any, ...]:
        """Every try that a chain made for it, failed ones too (`isthmus.chain.Attempt`); () outside of chains."""
        return getattr(self, "_attempts", ())


class _BothSlots(RawSlot):
    __slots__ = ("_attempts",)
    attempts: property = _AttemptsSlot.attempts  # type: ignore[assignment]


class Text(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="text"):
    """A piece of the reply's text."""

    type: ClassVar[str] = "text"
    text: str


class Call(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="call"):
    """One complete tool call.

    Args:
        tool: the tool's name.
        input: the arguments, or None where they are not valid JSON of an object.
        call_id: the id that its result must carry.
        arguments: the arguments as the model wrote them.
        problem: why `input` is None.
    """

    type: ClassVar[str] = "call"
    tool: str
    input: dict[str, Any] | None = None
    call_id: str | None = None
    arguments: str | None = None
    problem: str | None = None


class Reasoning(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="reasoning"):
    """A piece of the model's reasoning; `signature` or `encrypted` hold its opaque part."""

    type: ClassVar[str] = "reasoning"
    text: str = ""
    phase: str | None = None
    signature: str | None = None
    encrypted: str | None = None


class CallDelta(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="call-delta"):
    """A preview of a call to come: the next piece of its arguments.

    Args:
        index: which call of this reply, counted from 0 in order of arrival.
        call_id: its id, as far as known.
        tool: its name, as far as known.
        arguments_delta: the next characters of the arguments; all of them joined are the `arguments` of the `Call`.
    """

    type: ClassVar[str] = "call-delta"
    index: int
    call_id: str | None = None
    tool: str | None = None
    arguments_delta: str = ""


class Native(RawSlot):
    """A provider's own block, kept because it must survive.

    Args:
        provider: the dialect it belongs to, e.g. "anthropic-messages".
        event_type: what it is there, e.g. "thinking" or "message".
        payload: the value; or
        json: its JSON text exactly as it came, decoded only when `payload` is asked for.
        held: the live object behind it, for as long as this process has it; no part of equality, repr or JSON.
    """

    __slots__ = ("_payload", "event_type", "held", "json", "provider")

    type: ClassVar[str] = "native"
    provider: str
    event_type: str
    json: bytes
    held: Any

    def __init__(
        self, provider: str, event_type: str, payload: Any = None, *, json: bytes | None = None, held: Any = None
    ) -> None:
        object.__setattr__(self, "provider", provider)
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "event_type", event_type)
        object.__setattr__(self, "json", dumps(payload) if json is None else utf8(json))

    @property
    def payload(self) -> Any:
        """The decoded value; the same object each time."""
        try:
            return self._payload
        except AttributeError:
            object.__setattr__(self, "_payload", loads(self.json))
            return self._payload

    _payload: Any

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"immutable type: {type(self).__name__!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Native):
            return NotImplemented
        mine, theirs = (self.provider, self.event_type), (other.provider, other.event_type)
        return mine == theirs and (self.json == other.json or self.payload == other.payload)

    def __hash__(self) -> int:
        return hash((self.provider, self.event_type))

    def __repr__(self) -> str:
        return f"Native(provider={self.provider!r}, event_type={self.event_type!r}, payload={self.payload!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _native, (self.provider, self.event_type, self.json)

    def to_dict(self) -> dict[str, Any]:
        """Provider, type and payload as plain JSON values."""
        return {"provider": self.provider, "type": self.event_type, "payload": self.payload}


def _native(provider: str, event_type: str, json: bytes) -> Native:
    return Native(provider, event_type, json=json)


class Marker(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="marker"):
    """A delimited construct that a chain promoted from text."""

    type: ClassVar[str] = "marker"
    name: str
    value: Any = None
    text: str = ""


class Reset(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="reset"):
    """A chain tries again: forget the side events shown so far. `attempt` is the number of the try to come."""

    type: ClassVar[str] = "reset"
    attempt: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call in disjoint buckets; what the provider did not say is None.

    Args:
        input_tokens: prompt tokens that were neither read from nor written to a cache.
        output_tokens: all tokens produced, reasoning included.
        cache_read_tokens: prompt tokens read from a cache.
        cache_write_tokens: prompt tokens written to a cache.
        cache_write_1h_tokens: of these, those kept for an hour.
        reasoning_tokens: of the output, those spent on reasoning.
        estimated: whether any number is an estimate.
        raw: the provider's own usage object.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    raw: Any = None

    @property
    def prompt_tokens(self) -> int | None:
        """Input, cache reads and cache writes together."""
        parts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens)
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Finish(msgspec.Struct, _BothSlots, frozen=True, tag_field="type", tag="finish"):
    """The one terminal event.

    Args:
        finish: a `FinishReason`.
        usage: the tokens spent, or None where the provider did not say.
        raw_reason: the provider's own reason, unmapped.
        error: with "error-post" only: the classified failure.
        native: the reply's own native form, where the neutral one would lose something.
        notes: what was changed on the way.
        content: the whole content as the model wrote it, where a chain took markers out of what it handed on; else ().
    """

    type: ClassVar[str] = "finish"
    finish: str
    usage: Usage | None = None
    raw_reason: str | None = None
    error: TierError | None = None
    native: Native | None = None
    notes: tuple[Note, ...] = ()
    content: tuple[Text | Call, ...] = ()


ModelEvent: TypeAlias = Text | Call
StreamEvent: TypeAlias = Text | Call | Finish
SideEvent: TypeAlias = Reasoning | CallDelta | Native | Marker | Reset | Aside
Event: TypeAlias = StreamEvent | SideEvent

EVENT_TYPES: frozenset[type] = frozenset(get_args(Event))


def tried(thing: Any, attempts: tuple[Any, ...]) -> Any:
    """The same finish or result, with the tries behind it as its `attempts`."""
    if attempts:
        type(thing)._attempts.__set__(thing, attempts)
    return thing


class StepResult(msgspec.Struct, _AttemptsSlot, frozen=True):
    """One reply, whole.

    Args:
        events: its content in order, adjacent texts joined; any sequence, kept as a tuple.
        finish: a `FinishReason`.
        raw_reason: the provider's own reason.
        usage: the tokens spent, if known.
        reasoning: the readable reasoning, joined.
        native: blocks that must survive; one of type "message" is the reply's own native form.
        notes: what was renamed, dropped, repaired or made up.
        error: with "error-post": the classified failure.
    """

    events: tuple[Text | Call, ...] = ()
    finish: str = "stop"
    raw_reason: str | None = None
    usage: Usage | None = None
    reasoning: str = ""
    native: tuple[Native, ...] = ()
    notes: tuple[Note, ...] = ()
    error: TierError | None = None

    def __post_init__(self) -> None:
        if type(self.events) is tuple and type(self.native) is tuple and type(self.notes) is tuple:
            return
        for name in ("events", "native", "notes"):
            if type(getattr(self, name)) is not tuple:
                msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))

    @property
    def text(self) -> str:
        """All text, joined."""
        return "".join([event.text for event in self.events if isinstance(event, Text)])

    @property
    def calls(self) -> tuple[Call, ...]:
        """All tool calls, in order."""
        return tuple([event for event in self.events if isinstance(event, Call)])

    @property
    def message(self) -> Native | None:
        """The reply's own native form, where it has one."""
        return next((item for item in self.native if item.event_type == "message"), None)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "calls": [
                {"tool": call.tool, "input": call.input, "call_id": call.call_id, "arguments": call.arguments}
                for call in self.calls
            ],
            "finish": str(self.finish),
            "raw_reason": self.raw_reason,
            "usage": None if self.usage is None else self.usage.to_dict(),
            "error": None if self.error is None else self.error.to_dict(),
            "notes": [{"code": str(note.code), "detail": note.detail} for note in self.notes],
            "native": [item.to_dict() for item in self.native],
        }


def event_to_dict(event: Event) -> Mapping[str, Any]:
    """One event as plain JSON values, `type` first and absent fields left out."""
    if isinstance(event, Native):
        return {"type": "native", "provider": event.provider, "event_type": event.event_type, "payload": event.payload}
    if isinstance(event, Aside):
        return {"type": "aside", **event.to_dict()}
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    shown = {name: _plain(value) for name, value in values.items() if value is not None and value != ()}
    return {"type": event.type, **shown}


def _plain(value: Any) -> Any:
    if isinstance(value, Usage | Native | TierError):
        return value.to_dict()
    if isinstance(value, tuple):
        return [msgspec.to_builtins(item) for item in value]
    return value
