"""Turns whatever an adapter hands over into the contract's structs, or says which rule it broke."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from operator import attrgetter
from typing import Any

from isthmus.errors import ProtocolError, TierError, UnclassifiedError
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
from isthmus.models.jsontext import dumps, strictly
from isthmus.secret import redact

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
        value = strictly(arguments)
    except (ValueError, RecursionError) as error:
        return None, f"arguments are not valid JSON: {error}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return None, f"arguments are a JSON {type(value).__name__}, not an object"
    return value, None


def make_call(tool: str, arguments: Any, *, call_id: str | None) -> Call:
    """A call from arguments as text or as an object; the text is kept as it came."""
    if isinstance(arguments, str):
        value, problem = parse_arguments(arguments)
        return Call(tool, value, call_id, arguments, problem)
    try:
        text = dumps(arguments if arguments is not None else {}).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"call of {tool!r}: its input has no JSON form: {error}") from None
    # As anybody else will read it: what JSON has no words for, in an object that an author made, is in neither.
    value, problem = parse_arguments(text if isinstance(arguments, Mapping) else arguments)
    return Call(tool, value, call_id, text, problem)


def _right(call: Call) -> Call:
    """The call as a decoder would have made it: its input a dict, its arguments text, its names strings.

    Raises:
        ProtocolError: a name or an id that is none.
    """
    tool, call_id = call.tool, call.call_id
    if type(tool) is not str or not tool:
        raise ProtocolError(f"call event: 'tool' must be a name, not {tool!r}")
    if call_id is not None and not isinstance(call_id, str):
        raise ProtocolError(f"call event: 'call_id' must be str, not {type(call_id).__name__}")
    if isinstance(call.arguments, str) and (isinstance(call.input, dict) or call.problem):
        return call
    given = call.input if call.input is not None else call.arguments
    made = make_call(tool, given, call_id=call_id)
    return call if made.input == call.input and call.arguments is None else framed(made, call.raw)


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
    if value is None:
        return None
    if isinstance(value, Usage):
        usage = value
    elif isinstance(value, Mapping):
        usage = Usage(**_fields(value, Usage.__struct_fields__, "usage"))
    else:
        raise ProtocolError(f"usage: must be a Usage or a dict, not {type(value).__name__}")
    counts = _counts(usage)
    # Looked at one by one only where one is wrong: each reply has half a dozen.
    if not (_KINDS.issuperset(map(type, counts)) and min(filter(None, counts), default=0) >= 0):
        for name, count in zip(_COUNTS, counts, strict=True):
            if count is not None and not (type(count) is int and count >= 0):
                raise ProtocolError(f"usage: {name!r} must be a whole number of tokens, not {count!r}")
    return usage


_COUNTS = tuple(name for name in Usage.__struct_fields__ if name not in ("estimated", "raw"))
_counts = attrgetter(*_COUNTS)
_KINDS = frozenset((int, type(None)))


def to_finish_reason(value: Any, what: str = "finish") -> str:
    """A valid finish, as a plain string.

    Raises:
        ProtocolError: not one of `FinishReason`.
    """
    if not isinstance(value, str) or value not in _FINISHES:
        raise ProtocolError(f"{what}: unknown finish {value!r}; use one of {', '.join(FinishReason)}")
    return str(value)


def _notes(value: Any) -> tuple[Note, ...]:
    try:
        return tuple(item if isinstance(item, Note) else Note(**item) for item in value or ())
    except TypeError as error:
        raise ProtocolError(f"notes: must be a list of notes with code and detail: {error}") from None


def _native_form(value: Any) -> Native | None:
    if value is None or isinstance(value, Native):
        return value
    if not isinstance(value, Mapping):
        raise ProtocolError(f"native: must be a Native or a dict, not {type(value).__name__}")
    return _native(value)


def righted(error: TierError) -> TierError:
    """The same error with what every one has, each in its own form, however the author of its class fills it in."""
    message, usage = getattr(error, "message", None), getattr(error, "usage", None)
    if not isinstance(message, str):
        args, held = error.args, {name: getattr(error, name, None) for name in _DETAILS}
        TierError.__init__(error, redact(f"{error if message is None else message}"), **held)
        error.args = args
    if usage is not None:
        try:
            error.usage = to_usage(usage)
        except ProtocolError:
            # The failure counts, not what is wrong with it.
            error.usage = None
    return error


_DETAILS = ("status", "code", "retry_after", "usage", "partial", "body")


def _error(value: Any) -> TierError | None:
    if isinstance(value, TierError):
        return righted(value)
    return value if value is None else UnclassifiedError(redact(f"{value}"))


def _finish(value: Mapping[str, Any]) -> Finish:
    names = tuple(name for name in Finish.__struct_fields__ if name != "content")
    return to_finish(Finish(**{"finish": None, **_fields(value, names, "finish event")}))


def to_finish(event: Finish) -> Finish:
    """The finish with each field in its own form, whoever made it; the same object where all are.

    Raises:
        ProtocolError: a field that is not what it must be.
    """
    reason = to_finish_reason(event.finish, "finish event")
    usage, native, error = to_usage(event.usage), event.native, event.error
    if native is not None:
        native = _native_form(native)
    if error is not None:
        error = _error(error)
    same = usage is event.usage and native is event.native and error is event.error
    if same and type(event.notes) is tuple:
        return event
    made = Finish(reason, usage, event.raw_reason, error, native, _notes(event.notes), event.content)
    return framed(made, event.raw)  # type: ignore[no-any-return]


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
    kind = value.get("type")
    build = _BUILDERS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise ProtocolError(f"unknown event type {kind!r}; use one of {', '.join(_BUILDERS)}")
    return build(value)


def to_step_result(value: Any) -> StepResult:
    """A whole reply as a `StepResult`; a dict of its fields is accepted.

    Raises:
        ProtocolError: a field that it has not, an event that is none, a finish that is none.
    """
    if isinstance(value, Mapping):
        found = _fields(value, StepResult.__struct_fields__, "step result")
        try:
            value = StepResult(**{"finish": None, **found})
        except TypeError as wrong:
            raise ProtocolError(f"step result: events, native and notes must be lists: {wrong}") from None
    if not isinstance(value, StepResult):
        raise ProtocolError(f"generate must return a StepResult or a dict, not {type(value).__name__}")
    if not isinstance(value.reasoning, str):
        raise ProtocolError(f"step result: 'reasoning' must be str, not {type(value.reasoning).__name__}")
    made: list[Note] = []
    events = _content([to_event(event) for event in value.events], made)
    error = _error(value.error)
    reason = to_finish_reason(value.finish, "step result")
    finish, notes = settle(reason, events, notes=(*made, *_notes(value.notes)))
    return StepResult(
        events=events,
        finish=finish,
        raw_reason=value.raw_reason,
        usage=to_usage(value.usage),
        reasoning=value.reasoning,
        native=tuple(block for block in map(_native_form, value.native) if block is not None),
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
        ProtocolError: its id was there before, or a field of it is not what it must be.
    """
    call = _right(call)
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


_SETTLED = frozenset((FinishReason.TOOL_CALLS, FinishReason.ERROR_POST))


def settle(finish: str, events: tuple[Any, ...], *, notes: tuple[Note, ...]) -> tuple[str, tuple[Note, ...]]:
    """The finish that the content calls for: any whole call runs, whatever the reason says.

    Raises:
        ProtocolError: "tool-calls" without a call.
    """
    has_calls = Call in map(type, events)
    if finish in _SETTLED:
        if finish == FinishReason.TOOL_CALLS and not has_calls:
            raise ProtocolError("finish 'tool-calls' without a call")
        return finish, notes
    if has_calls:
        note = Note(NoteCode.FINISH_CHANGED, f"{finish} became tool-calls: the reply holds whole calls")
        return FinishReason.TOOL_CALLS.value, (*notes, note)
    return finish, notes
