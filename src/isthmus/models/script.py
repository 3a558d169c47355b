"""The steps of a script: what a scripted model does in one call, written down in any of several forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from isthmus.errors import ConfigError, TierError, tier_error
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, CallDelta, Event, Finish, FinishReason, Native, Reasoning, StepResult, Text
from isthmus.models.normalise import make_call, to_step_result

Item: TypeAlias = Event | Mapping[str, Any] | float | BaseException
Step: TypeAlias = (
    str | StepResult | Mapping[str, Any] | Sequence[Any] | BaseException | Callable[[GenerateContext], Any]
)

_WRITTEN = ("text", "reasoning", "calls", "finish", "raw_reason", "usage", "error", "delay")


def items_of(step: Any) -> Iterable[Any]:
    """What a step does, in order: events to hand out, seconds to wait, an exception to raise.

    Args:
        step: a text; a `StepResult` or a dict of its fields (streamed in pieces); a dict of "text", "reasoning",
            "calls" ({"tool", "input", "call_id"}), "finish", "raw_reason", "usage", "error" ({"class", "message", …})
            and "delay" (seconds), as JSON can write it; a list of items, played as they stand; an exception.

    Raises:
        ConfigError: a dict has a key that is none of these.
        ProtocolError: what it describes is no reply.
    """
    if isinstance(step, BaseException):
        return (step,)
    if isinstance(step, str):
        return _played(StepResult(events=(Text(step),) if step else ()))
    if isinstance(step, Mapping) and "type" in step:
        return (step,)
    if isinstance(step, Mapping) and not step.keys() & {"events", "native", "notes"}:
        return _from_json(step)
    if isinstance(step, StepResult | Mapping):
        return _played(to_step_result(step))
    return step if isinstance(step, Iterable) else (step,)


def _from_json(step: Mapping[str, Any]) -> Iterator[Any]:
    unknown = sorted(step.keys() - set(_WRITTEN))
    if unknown:
        raise ConfigError(f"no such key; a step has {', '.join(_WRITTEN)}", where="step", key=unknown[0])
    if step.get("delay"):
        yield float(step["delay"])
    calls = [
        make_call(call["tool"], call.get("input", call.get("arguments")), call_id=call.get("call_id"))
        for call in step.get("calls") or ()
    ]
    events: list[Text | Call] = [Text(step["text"])] if step.get("text") else []
    finish = step.get("finish") or (FinishReason.TOOL_CALLS if calls else FinishReason.STOP)
    fields = {name: step[name] for name in ("reasoning", "raw_reason", "usage") if step.get(name) is not None}
    error = step.get("error")
    yield from _played(to_step_result({"events": [*events, *calls], "finish": str(finish), **fields}), _error(error))


def _error(value: Any) -> BaseException | None:
    if not isinstance(value, Mapping):
        return value if value is None or isinstance(value, BaseException) else tier_error("unclassified", str(value))
    named = {name: value[name] for name in ("retry_after", "status", "code") if name in value}
    return tier_error(value.get("class", "transient"), value.get("message", "scripted failure"), **named)


def _played(step: StepResult, error: BaseException | None = None) -> Iterator[Event | BaseException]:
    """The events that fold into this result; one that failed raises its error after its content."""
    if step.reasoning:
        yield Reasoning(step.reasoning)
    yield from (item for item in step.native if item is not step.message)
    index = 0
    for event in step.events:
        if isinstance(event, Text):
            yield from (Text(piece) for piece in _pieces(event.text))
            continue
        yield CallDelta(index, event.call_id, event.tool, event.arguments or "")
        yield event
        index += 1
    failure: TierError | BaseException | None = error or step.error
    if failure is not None:
        yield failure
        return
    native: Native | None = step.message
    yield Finish(step.finish, usage=step.usage, raw_reason=step.raw_reason, native=native, notes=step.notes)


def _pieces(text: str) -> list[str]:
    """A text cut before its words, the way that models stream."""
    return re.findall(r"\s*\S+|\s+\Z", text)
