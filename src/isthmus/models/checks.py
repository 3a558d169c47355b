"""What a right reply of the chat face is: the check returns what it found, and raises nothing.

Reads replies by their attributes, so that a reply of a stranger's own class is judged alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from isthmus.models.contract import ToolSpec
from isthmus.models.events import FinishReason
from isthmus.models.finish import finish_of, is_output_truncation

BREAKING = frozenset(
    {"reply-type", "text-type", "calls-type", "call-name", "call-input", "call-id-unique", "call-cut", "calls-missing"}
)
"""The rules without which a reply has no meaning; the others are findings for its author."""

_MISSING = object()


class Finding(NamedTuple):
    """A rule that is broken, and how.

    Args:
        rule: the rule's name, e.g. "call-input".
        message: the place, the value and the remedy.
    """

    rule: str
    message: str


def check_reply(reply: Any, tools: Iterable[ToolSpec] = ()) -> list[Finding]:
    """What is wrong with a reply of the chat face: an object with `text`, `tool_calls` and `stop_reason`.

    Args:
        reply: the `ChatResponse`, or an object with its attributes.
        tools: what was offered, to tell a call without arguments from one whose arguments were cut.
    """
    missing = [name for name in ("text", "tool_calls", "stop_reason") if getattr(reply, name, _MISSING) is _MISSING]
    if missing:
        return [Finding("reply-type", f"a reply must be a ChatResponse, not {type(reply).__name__}: no {missing[0]!r}")]
    found: list[Finding] = []
    if reply.text is not None and not isinstance(reply.text, str):
        found.append(Finding("text-type", f"text must be a str or None, not {type(reply.text).__name__}"))
    calls = reply.tool_calls
    if calls is not None and (isinstance(calls, str | Mapping) or not isinstance(calls, Sequence)):
        return [*found, Finding("calls-type", f"tool_calls must be a list of ToolCall, not {type(calls).__name__}")]
    for number, call in enumerate(calls or ()):
        found += _call(f"tool_calls[{number}]", call)
    found += _unique([getattr(call, "id", None) for call in calls or ()])
    found += _stop(reply.stop_reason, list(calls or ()), tools)
    return found


def _call(place: str, call: Any) -> Iterator[Finding]:
    call_id, name, value = (getattr(call, field, _MISSING) for field in ("id", "name", "input"))
    if not isinstance(name, str) or not name:
        yield Finding("call-name", f"{place}: name must be a non-empty str, not {shown(name)}")
    if not isinstance(value, dict):
        remedy = ": json.loads it in the adapter" if isinstance(value, str) else ""
        yield Finding("call-input", f"{place}: input must be the dict of the arguments, not {shown(value)}{remedy}")
    if not isinstance(call_id, str) or not call_id:
        yield Finding("call-id", f"{place}: id must be a non-empty str, not {shown(call_id)}")


def shown(value: Any) -> str:
    """A value as a finding shows it: its type and its first characters."""
    return "missing" if value is _MISSING else f"{type(value).__name__} {value!r:.60}"


def _unique(ids: list[Any]) -> Iterator[Finding]:
    for number, call_id in enumerate(ids):
        if call_id and call_id in ids[:number]:
            yield Finding("call-id-unique", f"tool_calls[{number}]: id {call_id!r} is used twice in one reply")


def _stop(reason: Any, calls: list[Any], tools: Iterable[ToolSpec]) -> Iterator[Finding]:
    if not isinstance(reason, str) or not reason:
        yield Finding("stop-reason", f"stop_reason must say why the model stopped, not {shown(reason)}")
        return
    finish = finish_of(reason)
    if finish == FinishReason.OTHER:
        yield Finding("stop-reason", f"stop_reason {reason!r} is no known one: 'tool_use', 'max_tokens', 'end_turn', …")
    if calls and finish != FinishReason.TOOL_CALLS:
        yield Finding("calls-stop", f"stop_reason is {reason!r} although there are tool calls: use 'tool_use'")
    if not calls and finish == FinishReason.TOOL_CALLS:
        yield Finding("calls-missing", f"stop_reason is {reason!r}, but tool_calls is empty")
    if calls and is_output_truncation(reason) and _needs_arguments(calls[-1], tools):
        yield Finding(
            "call-cut",
            f"tool_calls[{len(calls) - 1}]: {calls[-1].name!r} has required arguments, and none came in a reply that "
            f"was cut ({reason!r}): leave out a call whose arguments were cut",
        )


def _needs_arguments(call: Any, tools: Iterable[ToolSpec]) -> bool:
    if getattr(call, "input", None) != {}:
        return False
    spec = next((tool for tool in tools if tool.name == getattr(call, "name", None)), None)
    return spec is not None and bool(spec.parameters.get("required"))
