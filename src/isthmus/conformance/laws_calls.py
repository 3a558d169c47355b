"""Laws on tool calls: a name that was offered, an id of its own, and the arguments as the model meant them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from isthmus.conformance.law import Found, Group, NotJudged, of_shape
from isthmus.conformance.reading import CallRead, not_json, shown
from isthmus.conformance.report import ERROR, WARNING
from isthmus.conformance.seen import Heard, Seen
from isthmus.models.contract import ToolSpec

GROUP = Group()
law = GROUP.law

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}\Z")
_WRAPPERS = frozenset({"arguments", "args", "input", "parameters", "raw", "json", "__raw__", "_raw", "value"})
_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


async def _calls(seen: Seen) -> list[tuple[Heard, CallRead]]:
    """The calls of right shape, with the call that each came from.

    Raises:
        NotJudged: the adapter made no call.
    """
    found = [(heard, call) for heard in await seen.usual() if heard.reading for call in heard.reading.calls]
    if not found:
        raise NotJudged("it made no tool call: give tools= and messages= that make it")
    return found


async def _plays(seen: Seen) -> bool:
    """Whether the adapter plays a canned reply: it calls tools although none is offered."""
    return any(heard.reading is not None and heard.reading.calls for heard in await seen.without_tools())


law(
    "call-shape",
    "A call has a name, and its arguments as a dict.",
    why="A tool that gets a string, or nothing, for its arguments rejects the call.",
    fix="ToolCall(id, name, json.loads(arguments)); on the step face Call(tool, input, call_id, arguments)",
    covers=("F15",),
    after=("answers", "reply-shape", "event-shape"),
)(of_shape("call-shape"))


law(
    "call-ids",
    "Each call of a reply has an id of its own.",
    why="Results find their calls by id: two calls with one id get each other's results.",
    fix="keep the provider's id; where it has none, make one from the reply and the place in it",
    covers=("F02", "F07"),
    after=("answers", "reply-shape", "event-shape"),
)(of_shape("call-ids"))


law(
    "calls-stop",
    "A reply with calls says so in its stop reason, and one that says so has calls.",
    why="A loop that goes by the reason would drop the calls, or wait for calls that never come.",
    fix='stop_reason = "tool_use" exactly where tool_calls is not empty',
    covers=("F12",),
    after=("answers", "reply-shape", "event-shape", "finish-present"),
)(of_shape("calls-stop"))


law(
    "cut-call",
    "A call whose arguments were cut by the output limit is left out.",
    why="It would run with half of its arguments, or with none.",
    fix="hand on a call only when its arguments came whole; report the truncation as the stop reason",
    covers=("F15", "F12"),
    after=("answers", "reply-shape", "event-shape"),
)(of_shape("cut-call"))


@law(
    "call-offered",
    "A call names a tool that was offered, by a name that a provider takes.",
    why="A name that nobody offered runs nothing; one that providers refuse fails the next request.",
    fix="hand on the name as the model wrote it, and undo whatever renaming the request needed",
    covers=("F26", "F02"),
    after=("answers", "call-shape"),
)
async def _call_offered(seen: Seen) -> AsyncIterator[Found]:
    for heard, call in await _calls(seen):
        offered = sorted(tool.name for tool in heard.ask.tools)
        if call.name in offered:
            continue
        if not _NAME.match(call.name):
            yield Found(f"{heard.face}: no provider takes the name {call.name!r}", shown(call.name), str(offered))
        elif seen.told:
            yield Found(f"{heard.face}: {call.name!r} was not offered", shown(call.name), str(offered))
        elif not await _plays(seen):
            # A canned reply knows nothing of tools that the kit made up.
            wrong = f"{heard.face}: {call.name!r} was not offered; tell the kit the adapter's tools: tools="
            yield Found(wrong, shown(call.name), str(offered), WARNING)


@law(
    "call-json",
    "The arguments of a call are JSON values, and their text says the same.",
    why="They are stored, sent back and validated as JSON.",
    fix="take the arguments from json.loads, and convert nothing in them",
    covers=("F15", "F30"),
    after=("answers", "call-shape"),
)
async def _call_json(seen: Seen) -> AsyncIterator[Found]:
    for heard, call in await _calls(seen):
        place = not_json(call.input)
        if place:
            yield Found(f"{heard.face}: {call.name}: {place} is no JSON value", shown(call.input), "JSON values")
        elif isinstance(call.arguments, str) and isinstance(call.input, dict):
            said = _loaded(call.arguments) if call.arguments.strip() else {}
            if said is not None and said != call.input and not _twice(said):
                yield Found(
                    f"{heard.face}: {call.name}: input is not what arguments say",
                    shown(call.input),
                    shown(call.arguments),
                )


def _loaded(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _twice(value: Any) -> bool:
    """Whether a decoded value is JSON text of an object once more."""
    return isinstance(value, str) and isinstance(_loaded(value), dict)


@law(
    "call-encoded-once",
    "The arguments of a call are encoded once.",
    why="A string of JSON inside JSON reaches the tool as a string.",
    fix="json.loads the arguments exactly once, and nest them in nothing",
    covers=("F15",),
    after=("answers", "call-shape", "call-json", "call-offered"),
)
async def _call_encoded_once(seen: Seen) -> AsyncIterator[Found]:
    for heard, call in await _calls(seen):
        spec = next((tool for tool in heard.ask.tools if tool.name == call.name), None)
        quoted = [name for name, value in call.input.items() if _is_quoted(value)] if call.input else []
        for name in quoted:
            wrong = f"{heard.face}: {call.name}: input[{name!r}] is in quotes of its own"
            yield Found(wrong, shown(call.input), "text without quotes, unless the model meant them", WARNING)
        for place in _encoded(call, spec):
            yield Found(
                f"{heard.face}: {call.name}: {place} is encoded twice", shown(call.input), "values, not JSON text"
            )


def _is_quoted(value: Any) -> bool:
    return isinstance(value, str) and value[:1] == '"' and isinstance(_loaded(value), str)


def _encoded(call: CallRead, spec: ToolSpec | None) -> Iterator[str]:
    if isinstance(call.arguments, str) and _twice(_loaded(call.arguments)):
        yield "arguments"
        return
    declared = _properties(spec)
    for name, value in call.input.items() if isinstance(call.input, Mapping) else ():
        decoded = _loaded(value) if isinstance(value, str) else None
        if name not in declared:
            if name in _WRAPPERS and len(call.input) == 1 and isinstance(decoded, dict):
                yield f"input[{name!r}]"
            continue
        kinds = _KINDS.get(str(declared[name].get("type")), ())
        if kinds and isinstance(decoded, kinds):
            yield f"input[{name!r}]"


def _properties(spec: ToolSpec | None) -> Mapping[str, Mapping[str, Any]]:
    found = spec.parameters.get("properties") if spec is not None else None
    return found if isinstance(found, Mapping) else {}


@law(
    "call-arguments",
    "A call brings the arguments that its tool requires.",
    why="Arguments that are swallowed on the way make a tool run with nothing.",
    fix="hand on the arguments whole, and raise (or leave the call out) where they cannot be read",
    covers=("F15",),
    after=("answers", "call-shape", "call-offered", "call-encoded-once", "cut-call"),
)
async def _call_arguments(seen: Seen) -> AsyncIterator[Found]:
    for heard, call in await _calls(seen):
        spec = next((tool for tool in heard.ask.tools if tool.name == call.name), None)
        required = spec.parameters.get("required") or () if spec is not None else ()
        if not isinstance(call.input, Mapping):
            continue
        missing = [name for name in required if name not in call.input]
        if missing:
            # A canned reply knows nothing of tools that the kit made up, but it has arguments of some kind.
            severity = ERROR if seen.told or not call.input else WARNING
            yield Found(
                f"{heard.face}: {call.name}: {missing[0]!r} is missing",
                shown(call.input),
                f"{list(required)}",
                severity,
            )
