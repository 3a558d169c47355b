"""Turns whatever an adapter hands over into the contract's structs, or says which rule it broke."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from isthmus.errors import ProtocolError, TierError
from isthmus.models.events import (
    EVENT_TYPES,
    Call,
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Marker,
    Native,
    Note,
    NoteCode,
    Reasoning,
    Reset,
    StepResult,
    Text,
    Usage,
    framed,
)
from isthmus.models.jsontext import dumps, loads

_FINISHES = frozenset(FinishReason)

# The spellings of seed 001, a TypeScript document, for dicts that an adapter yields.
_SPELLINGS = {
    "callId": "call_id",
    "argumentsDelta": "arguments_delta",
    "eventType": "event_type",
    "rawReason": "raw_reason",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cache_read_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}


def _fields(value: Mapping[str, Any], allowed: tuple[str, ...], what: str) -> dict[str, Any]:
    found = {_SPELLINGS.get(key, key): item for key, item in value.items() if key != "type"}
    unknown = sorted(set(found) - set(allowed))
    if unknown:
        raise ProtocolError(f"{what}: unknown field {unknown[0]!r}; it has {', '.join(allowed)}")
    return found


def _need(found: Mapping[str, Any], name: str, kind: type, what: str) -> Any:
    value = found.get(name)
    if not isinstance(value, kind):
        raise ProtocolError(f"{what}: {name!r} must be {kind.__name__}, not {type(value).__name__}")
    return value


def parse_arguments(arguments: Any) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments of a call as a dict, or None and why not.

    Empty, blank, `null` and absent arguments mean none: `{}`.
    """
    if arguments is None:
        return {}, None
    if isinstance(arguments, Mapping):
        return dict(arguments), None
    if not isinstance(arguments, str):
        return None, f"arguments are {type(arguments).__name__}, not a JSON object"
    if not arguments.strip():
        return {}, None
    try:
        value = loads(arguments)
    except (ValueError, RecursionError) as error:
        return None, f"arguments are not valid JSON: {error}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return None, f"arguments are a JSON {type(value).__name__}, not an object"
    return value, None


def make_call(tool: str, arguments: Any, *, call_id: str | None) -> Call:
    """A call from arguments as text or as an object; the text is kept as it came."""
    value, problem = parse_arguments(arguments)
    text = arguments if isinstance(arguments, str) else dumps(arguments if arguments is not None else {}).decode()
    return Call(tool, value, call_id, text, problem)


def _call(value: Mapping[str, Any]) -> Call:
    found = _fields(value, Call.__struct_fields__, "call event")
    tool = _need(found, "tool", str, "call event")
    if not tool:
        raise ProtocolError("call event: 'tool' is empty")
    given = found.get("input") if found.get("input") is not None else found.get("arguments")
    call = make_call(tool, given, call_id=found.get("call_id"))
    if isinstance(found.get("arguments"), str):
        return Call(call.tool, call.input, call.call_id, found["arguments"], call.problem)
    return call


def _text(value: Mapping[str, Any]) -> Text:
    return Text(_need(_fields(value, ("text",), "text event"), "text", str, "text event"))


def _native(value: Mapping[str, Any]) -> Native:
    found = _fields(value, ("provider", "event_type", "payload"), "native event")
    kind = _need(found, "event_type", str, "native event")
    return Native(_need(found, "provider", str, "native event"), kind, found.get("payload"))


def _plain(cls: Callable[..., Any], names: tuple[str, ...], what: str) -> Callable[[Mapping[str, Any]], Any]:
    def build(value: Mapping[str, Any]) -> Any:
        try:
            return cls(**_fields(value, names, what))
        except TypeError as error:
            raise ProtocolError(f"{what}: {error}") from None

    return build


def to_usage(value: Any) -> Usage | None:
    """`Usage` from a `Usage`, a dict of its fields, or None.

    Raises:
        ProtocolError: anything else, an unknown field, a count that is no whole number.
    """
    if value is None or isinstance(value, Usage):
        return value
    if not isinstance(value, Mapping):
        raise ProtocolError(f"usage: must be a Usage or a dict, not {type(value).__name__}")
    found = _fields(value, Usage.__struct_fields__, "usage")
    for name, count in found.items():
        whole = isinstance(count, int) and not isinstance(count, bool) and count >= 0
        if name not in {"estimated", "raw"} and count is not None and not whole:
            raise ProtocolError(f"usage: {name!r} must be a whole number of tokens, not {count!r}")
    return Usage(**found)


def to_finish_reason(value: Any, what: str = "finish") -> str:
    """A valid finish, as a plain string.

    Raises:
        ProtocolError: not one of `FinishReason`.
    """
    if value not in _FINISHES:
        raise ProtocolError(f"{what}: unknown finish {value!r}; use one of {', '.join(FinishReason)}")
    return str(value)


def _notes(value: Any) -> tuple[Note, ...]:
    return tuple(item if isinstance(item, Note) else Note(**item) for item in value or ())


def _finish(value: Mapping[str, Any]) -> Finish:
    found = _fields(value, Finish.__struct_fields__, "finish event")
    found["finish"] = to_finish_reason(found.get("finish"), "finish event")
    found["usage"] = to_usage(found.get("usage"))
    found["notes"] = _notes(found.get("notes"))
    return Finish(**found)


_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Event]] = {
    "text": _text,
    "call": _call,
    "finish": _finish,
    "native": _native,
    "reasoning": _plain(Reasoning, Reasoning.__struct_fields__, "reasoning event"),
    "call-delta": _plain(CallDelta, CallDelta.__struct_fields__, "call-delta event"),
    "marker": _plain(Marker, Marker.__struct_fields__, "marker event"),
    "reset": _plain(Reset, Reset.__struct_fields__, "reset event"),
}


def to_event(value: Any) -> Event:
    """One event as a struct; dicts of the same shape are accepted, with the spellings of either seed.

    Raises:
        ProtocolError: an unknown type, an unknown field, a field of the wrong type.
    """
    if type(value) in EVENT_TYPES:
        return value  # type: ignore[no-any-return]
    if not isinstance(value, Mapping):
        raise ProtocolError(f"a stream must yield events, not {type(value).__name__}: {value!r:.80}")
    build = _BUILDERS.get(value.get("type", ""))
    if build is None:
        raise ProtocolError(f"unknown event type {value.get('type')!r}; use one of {', '.join(_BUILDERS)}")
    return build(value)


def to_step_result(value: Any) -> StepResult:
    """A whole reply as a `StepResult`; a dict of its fields is accepted.

    Raises:
        ProtocolError: a field that it has not, an event that is none, a finish that is none.
    """
    if isinstance(value, Mapping):
        found = _fields(value, StepResult.__struct_fields__, "step result")
        value = StepResult(**{"finish": None, **found})
    if not isinstance(value, StepResult):
        raise ProtocolError(f"generate must return a StepResult or a dict, not {type(value).__name__}")
    if not isinstance(value.reasoning, str):
        raise ProtocolError(f"step result: 'reasoning' must be str, not {type(value.reasoning).__name__}")
    made: list[Note] = []
    events = _content([to_event(event) for event in value.events], made)
    error = value.error if isinstance(value.error, TierError) else None
    reason = to_finish_reason(value.finish, "step result")
    finish, notes = settle(reason, events, notes=(*made, *_notes(value.notes)))
    return StepResult(
        events=events,
        finish=finish,
        raw_reason=value.raw_reason,
        usage=to_usage(value.usage),
        reasoning=value.reasoning,
        native=tuple(value.native),
        notes=notes,
        error=error,
    )


def identified(call: Call, seen: set[str], *, notes: list[Note]) -> Call:
    """The call with an id that is unique in its reply: its own, or one made from what it is and where it stands.

    Args:
        call: the call.
        seen: the ids of the calls before it; its own is added.
        notes: takes a note where an id was made.

    Raises:
        ProtocolError: its id was there before.
    """
    call_id = call.call_id
    if not call_id:
        place = f"{len(seen)}\0{call.tool}\0{call.arguments}"
        call_id = "call_" + sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:20]
        notes.append(Note(NoteCode.CALL_ID_MADE, f"{call.tool}: {call_id}"))
        call = framed(Call(call.tool, call.input, call_id, call.arguments, call.problem), call.raw)
    if call_id in seen:
        raise ProtocolError(f"two calls with the id {call_id!r}: ids must be unique within a reply")
    seen.add(call_id)
    return call


def _content(events: Iterable[Event], notes: list[Note]) -> tuple[Text | Call, ...]:
    """A reply's content as a stream of it would fold: texts joined, empty ones gone, every call with an id."""
    content: list[Text | Call] = []
    seen: set[str] = set()
    for event in events:
        if isinstance(event, Call):
            content.append(identified(event, seen, notes=notes))
        elif not isinstance(event, Text):
            raise ProtocolError(f"step result: events hold text and calls only, not {event.type!r}")
        elif content and isinstance(content[-1], Text):
            content[-1] = Text(content[-1].text + event.text)
        elif event.text:
            content.append(event)
    return tuple(content)


def settle(finish: str, events: tuple[Any, ...], *, notes: tuple[Note, ...]) -> tuple[str, tuple[Note, ...]]:
    """The finish that the content calls for: any whole call runs, whatever the reason says.

    Raises:
        ProtocolError: "tool-calls" without a call.
    """
    has_calls = Call in map(type, events)
    if finish in (FinishReason.TOOL_CALLS, FinishReason.ERROR_POST):
        if finish == FinishReason.TOOL_CALLS and not has_calls:
            raise ProtocolError("finish 'tool-calls' without a call")
        return finish, notes
    if has_calls:
        note = Note(NoteCode.FINISH_CHANGED, f"{finish} became tool-calls: the reply holds whole calls")
        return FinishReason.TOOL_CALLS.value, (*notes, note)
    return finish, notes
