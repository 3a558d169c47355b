"""The readers of each face: from what it returned or yielded to a reading, every broken rule of shape named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from isthmus.adapters.chat import peek, usage_of
from isthmus.adapters.views import from_response
from isthmus.conformance.reading import CallRead, Ends, Reading, is_damaged, shown
from isthmus.errors import ProtocolError
from isthmus.models.checks import check_reply
from isthmus.models.contract import ToolSpec
from isthmus.models.events import Call, Event, Finish, FinishReason, Reasoning, Text
from isthmus.models.finish import finish_of
from isthmus.models.jsontext import loads
from isthmus.models.messages import text_of
from isthmus.models.normalise import to_event, to_finish, to_step_result


def read_events(items: Sequence[Any]) -> Reading:
    """A step-face stream."""
    reading = Reading("stream")
    ends = Ends(reading, "Finish")
    for place, item in enumerate(items):
        try:
            event = to_event(item)
            event = to_finish(event) if isinstance(event, Finish) else event
        except ProtocolError as error:
            reading.wrong("event-shape", f"item {place}: {error.message}", seen=shown(item), expected="an event")
            continue
        if ends.item(f"{event.type!r}", ends=isinstance(event, Finish)):
            _take(reading, event, item, place)
    ends.close()
    _settle(reading)
    return reading


def _take(reading: Reading, event: Event, item: Any, place: int) -> None:
    reading.events.append(event)
    if isinstance(event, Text | Reasoning):
        if not isinstance(event.text, str):
            reading.wrong("event-shape", f"item {place}: text must be str", seen=shown(event.text), expected="str")
        elif isinstance(event, Text):
            reading.pieces.append(event.text)
        else:
            reading.reasoning += event.text
    elif isinstance(event, Call):
        given = peek(item, "input")
        value = given if isinstance(given, str) else event.input
        reading.calls.append(CallRead(event.call_id, event.tool, value, event.arguments, event.problem))
    elif isinstance(event, Finish):
        if event.finish == FinishReason.ERROR_POST:
            reading.wrong(
                "event-shape", "'error-post' is made by the runtime: raise the failure", seen=shown(event.finish)
            )
        reading.finish, reading.reason, reading.usage = str(event.finish), event.raw_reason, event.usage


def _settle(reading: Reading) -> None:
    reading.text = "".join(reading.pieces)
    _calls_shape(reading)
    if reading.finish == FinishReason.TOOL_CALLS and not reading.calls:
        reading.wrong("calls-stop", "the finish says tool calls, and there is none", seen="no call")


def _calls_shape(reading: Reading) -> None:
    """The rules of shape for the calls of the step and model faces; the chat face has its own in `checks`."""
    ids: list[Any] = []
    for place, call in enumerate(reading.calls):
        where = f"call {place}"
        if not isinstance(call.name, str) or not call.name:
            reading.wrong("call-shape", f"{where}: its name must be a non-empty str", seen=shown(call.name))
        if call.input is not None and not isinstance(call.input, dict):
            reading.wrong(
                "call-shape",
                f"{where}: input must be the dict of the arguments",
                seen=shown(call.input),
                expected="dict",
            )
        if call.input is None and call.arguments is None and not call.problem:
            reading.wrong("call-shape", f"{where}: neither input nor arguments", seen="None", expected="dict")
        if call.id is not None and not isinstance(call.id, str):
            reading.wrong("call-ids", f"{where}: its id must be a str", seen=shown(call.id), expected="str")
        elif call.id and call.id in ids:
            reading.wrong("call-ids", f"{where}: the id {call.id!r} is used twice", seen=call.id, expected="unique ids")
        ids.append(call.id)


def read_step(value: Any) -> Reading:
    """A whole reply of the step face."""
    reading = Reading("generate", reply=value)
    content = list(peek(value, "events") or ())
    for item in content:
        given = peek(item, "input") if peek(item, "type") == "call" else None
        if isinstance(given, str):
            reading.wrong("call-shape", "input must be the dict of the arguments", seen=shown(given), expected="dict")
        elif peek(item, "type") == "call" and not peek(item, "tool"):
            reading.wrong("call-shape", "a call without a name", seen=shown(item), expected="a name")
    ids = [peek(item, "call_id") for item in content if peek(item, "type") == "call"]
    twice = next((each for place, each in enumerate(ids) if each and each in ids[:place]), None)
    if twice is not None:
        reading.wrong("call-ids", f"the id {twice!r} is used twice", seen=str(twice), expected="unique ids")
    if reading.problems:
        return reading
    try:
        step = to_step_result(value)
    except ProtocolError as error:
        rule = "calls-stop" if "without a call" in error.message else "reply-shape"
        reading.wrong(rule, error.message, seen=shown(value), expected="StepResult")
        return reading
    if step.finish == FinishReason.ERROR_POST:
        reading.wrong("reply-shape", "'error-post' is made by the runtime: raise the failure", seen="error-post")
    raw = peek(value, "finish")
    reading.calls = [CallRead(c.call_id, c.tool, c.input, c.arguments, c.problem) for c in step.calls]
    reading.text, reading.reasoning, reading.usage = step.text, step.reasoning, step.usage
    reading.finish, reading.reason = str(raw), step.raw_reason
    reading.reply = step
    return reading


_CHAT_LAWS = {
    "reply-type": "reply-shape",
    "text-type": "reply-shape",
    "calls-type": "reply-shape",
    "stop-type": "reply-shape",
    "call-name": "call-shape",
    "call-input": "call-shape",
    "call-id": "call-ids",
    "call-id-unique": "call-ids",
    "calls-stop": "calls-stop",
    "calls-missing": "calls-stop",
    "call-cut": "cut-call",
}


def read_chat(response: Any, tools: Iterable[ToolSpec], *, face: str = "chat") -> Reading:
    """A whole reply of the chat face."""
    reading = Reading(face, reply=response)
    found_all = check_reply(response, tools)
    cut = any(found.rule == "call-cut" for found in found_all)
    for found in found_all:
        rule = found.rule
        if cut and rule == "calls-stop":
            continue
        if rule == "stop-reason" and not (isinstance(response.stop_reason, str) and response.stop_reason):
            rule = "stop-type"
        if rule in _CHAT_LAWS:
            reading.wrong(_CHAT_LAWS[rule], found.message, seen=shown(response), expected="a right ChatResponse")
    if any(problem.law == "reply-shape" for problem in reading.problems):
        return reading
    reading.text = response.text or ""
    reading.calls = [
        CallRead(*(getattr(call, name, None) for name in ("id", "name", "input"))) for call in response.tool_calls or ()
    ]
    reading.reason = response.stop_reason
    reading.finish = finish_of(response.stop_reason)
    reading.usage = usage_of(getattr(response, "_raw", None))
    return reading


_PAIRS = "('text', str), ('thinking', str), last ('done', ChatResponse)"


def read_pairs(items: Sequence[Any], tools: Iterable[ToolSpec]) -> Reading:
    """A chat-face stream."""
    reading = Reading("stream_with_tools")
    ends = Ends(reading, "('done', ChatResponse)")
    response: Any = None
    for place, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2 or item[0] not in ("text", "thinking", "done"):
            reading.wrong("event-shape", f"item {place} is no pair of the contract", seen=shown(item), expected=_PAIRS)
            continue
        kind, value = item
        if not ends.item(repr(kind), ends=kind == "done"):
            continue
        if kind == "done":
            response = value
        elif not isinstance(value, str):
            reading.wrong("event-shape", f"item {place}: the value must be str", seen=shown(item), expected=_PAIRS)
        elif kind == "text":
            reading.pieces.append(value)
        else:
            reading.reasoning += value
    ends.close()
    if not ends.count:
        reading.text = "".join(reading.pieces)
        return reading
    whole = read_chat(response, tools, face="stream_with_tools")
    whole.problems = [*reading.problems, *whole.problems]
    whole.pieces, whole.reasoning = reading.pieces, reading.reasoning
    streamed = "".join(reading.pieces)
    fit = not any(problem.law in _HIDE_TEXT for problem in whole.problems)
    if fit and response.text is not None and response.text.strip() != streamed.strip():
        _text_differs(whole, streamed, response.text)
    whole.text = whole.text or streamed
    return whole


_HIDE_TEXT = frozenset({"reply-shape", "event-shape", "finish-once", "nothing-after-finish"})


def _text_differs(reading: Reading, streamed: str, final: str) -> None:
    if is_damaged(streamed) and not is_damaged(final):
        return  # The law of whole characters says it.
    reading.wrong(
        "text-agrees",
        "the final text is not the streamed one",
        seen=f"streamed {shown(streamed, 60)}, final {shown(final, 60)}",
    )


def read_texts(items: Sequence[Any]) -> Reading:
    """A chat-face stream of text alone."""
    reading = Reading("stream_chat")
    for place, item in enumerate(items):
        if isinstance(item, str):
            reading.pieces.append(item)
        else:
            reading.wrong("event-shape", f"item {place} must be a str", seen=shown(item), expected="str")
    reading.text = "".join(reading.pieces)
    return reading


def read_response(value: Any, *, face: str = "get_response") -> Reading:
    """A whole reply of the model face."""
    reading = Reading(face, reply=value)
    choices = peek(value, "choices")
    message = peek(choices[0], "message") if isinstance(choices, list | tuple) and choices else None
    if message is None:
        reading.wrong("reply-shape", "no choice with a message", seen=shown(value), expected="ModelResponse")
        return reading
    for call in peek(message, "tool_calls") or ():
        function = peek(call, "function")
        arguments = peek(function, "arguments")
        parsed = _parsed(arguments)
        reading.calls.append(CallRead(peek(call, "id"), peek(function, "name"), parsed, arguments))
    _calls_shape(reading)
    reading.reason = peek(choices[0], "finish_reason")
    reading.finish = "refusal" if peek(message, "refusal") else finish_of(reading.reason)
    if reading.finish == FinishReason.TOOL_CALLS and not reading.calls:
        reading.wrong("calls-stop", "finish_reason says tool calls, and there is none", seen="no call")
    if reading.problems:
        return reading
    try:
        step = from_response(value)
    except ProtocolError as error:
        reading.wrong("reply-shape", error.message, seen=shown(value), expected="ModelResponse")
        return reading
    reading.text = text_of(peek(message, "content")) or step.text
    reading.usage, reading.reasoning = step.usage, step.reasoning
    return reading


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments if arguments is None else dict(arguments) if isinstance(arguments, dict) else arguments
    try:
        return loads(arguments) if arguments.strip() else {}
    except ValueError:
        return None


def read_model_events(items: Sequence[Any]) -> Reading:
    """A model-face stream."""
    reading = Reading("stream_response")
    ends = Ends(reading, "'completed'")
    response: Any = None
    failed = False
    kinds = ("text_delta", "tool_call_arguments_delta", "reasoning", "completed", "error", "provider")
    for place, item in enumerate(items):
        kind = str(peek(item, "kind") or "")
        if kind not in kinds:
            reading.wrong(
                "event-shape",
                f"item {place} is no event of the model face",
                seen=shown(item),
                expected=", ".join(kinds),
            )
            continue
        if not ends.item(repr(kind), ends=kind in ("completed", "error")):
            continue
        if kind in ("completed", "error"):
            response, failed = peek(item, "response"), kind == "error"
        elif kind == "text_delta":
            text = peek(item, "text")
            if isinstance(text, str):
                reading.pieces.append(text)
            else:
                reading.wrong("event-shape", f"item {place}: text must be str", seen=shown(item), expected="str")
    ends.close()
    if failed or not ends.count:
        reading.text = "".join(reading.pieces)
        if failed:
            reading.wrong("error-event", "an 'error' event", seen=shown(items[-1]), expected="a reply")
        return reading
    whole = read_response(response, face="stream_response")
    whole.problems = [*reading.problems, *whole.problems]
    whole.pieces = reading.pieces
    streamed = "".join(reading.pieces)
    if streamed and whole.text and not whole.problems and whole.text.strip() != streamed.strip():
        _text_differs(whole, streamed, whole.text)
    whole.text = whole.text or streamed
    return whole


WHOLE_READERS: dict[str, Callable[[Any, Iterable[ToolSpec]], Reading]] = {
    "generate": lambda value, tools: read_step(value),
    "chat": lambda value, tools: read_chat(value, tools),
    "get_response": lambda value, tools: read_response(value),
}
STREAM_READERS: dict[str, Callable[[Sequence[Any], Iterable[ToolSpec]], Reading]] = {
    "stream": lambda items, tools: read_events(items),
    "stream_with_tools": read_pairs,
    "stream_response": lambda items, tools: read_model_events(items),
    "stream_chat": lambda items, tools: read_texts(items),
}
