"""What belongs together in a transcript: turns, and calls with their results, in whatever spelling they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.models.internal import is_ephemeral_message, is_internal_message
from isthmus.models.messages import RESERVED, MessageRole
from isthmus.models.neutral import NATIVE_INPUT
from isthmus.models.parts import CallContent, ResultContent
from isthmus.models.reading import read_part

Message = Mapping[str, Any]

_LASTING = ("system", "developer")
# Where a result's text stands, by the type of its part.
_HELD_AT = {"tool_result": "content", "function_call_output": "output"}


@dataclass(frozen=True, slots=True)
class Transcript:
    """How a transcript divides.

    Args:
        turns: the messages of each turn, by index, oldest first; the last one is the current turn.
        results: which messages hold results of calls, by index, in order.
    """

    turns: tuple[range, ...]
    results: tuple[int, ...]


def divided(messages: Sequence[Message]) -> Transcript:
    """Divide a transcript into turns: each begins where the user speaks, and no call is parted from its result.

    Context that stands right before the user's words belongs to the turn that they begin.
    """
    reach, results = _reach(messages)
    begins: list[int] = []
    furthest = 0
    for at, message in enumerate(messages):
        if _speaks(message) and at not in results and (at == 0 or furthest < at):
            begins.append(_led(messages, at, floor=furthest + 1 if furthest else 0))
        furthest = max(furthest, reach[at])
    if not begins or begins[0] != 0:
        begins.insert(0, 0)
    ends = [*begins[1:], len(messages)]
    return Transcript(tuple(range(*pair) for pair in zip(begins, ends, strict=True)), tuple(results))


def joints(messages: Sequence[Message]) -> tuple[int, ...]:
    """Before which messages a transcript may be cut in two, within a turn too.

    No call is parted from its result, no native item from the next one of its reply, no reply that was paused from how
    it goes on.
    """
    reach, results = _reach(messages)
    found: list[int] = []
    furthest = 0
    for at in range(1, len(messages)):
        furthest = max(furthest, reach[at - 1])
        before, here = messages[at - 1].get("role"), messages[at].get("role")
        goes_on = before == here == MessageRole.ASSISTANT or (before is None and at - 1 not in results)
        if furthest < at and not goes_on and at not in results:
            found.append(at)
    return tuple(found)


def _reach(messages: Sequence[Message]) -> tuple[list[int], list[int]]:
    """By index, the last place at which something that begins there is answered; and which messages hold results."""
    asked: dict[str, int] = {}
    results: list[int] = []
    reach = [0] * len(messages)
    for at, message in enumerate(messages):
        calls, answers = call_and_result_ids(message)
        asked |= dict.fromkeys(calls, at)
        if answers:
            results.append(at)
        for call_id in answers:
            reach[asked.get(call_id, at)] = at
    return reach, results


def _speaks(message: Message) -> bool:
    return message.get("role") == MessageRole.USER and not is_internal_message(message)


def _led(messages: Sequence[Message], at: int, *, floor: int) -> int:
    """Where the context begins that stands right before a message."""
    while at > floor and is_internal_message(messages[at - 1]):
        at -= 1
    return at


def lasts(message: Message) -> bool:
    """Whether a message stays when its turn is dropped: instructions, and what belongs to the present run."""
    return message.get("role") in _LASTING or is_ephemeral_message(message)


def call_and_result_ids(message: Message) -> tuple[list[str], list[str]]:
    """The ids of the calls that a message makes, and of those that it answers."""
    if message.get("role") == MessageRole.TOOL:
        return [], [str(message.get("tool_call_id"))]
    calls: list[str] = []
    answers: list[str] = []
    for part in parts_of(message):
        read = read_part(part)
        if isinstance(read, CallContent):
            calls.append(read.call_id)
        elif isinstance(read, ResultContent):
            answers.append(read.call_id)
    return calls, answers


def parts_of(message: Message) -> Iterator[Mapping[str, Any]]:
    """The parts of a message that have a type: of its content, its calls, its native items; or it itself as one."""
    if "role" not in message:
        yield message
    for key in ("content", "tool_calls", NATIVE_INPUT):
        value = message.get(key)
        if isinstance(value, list | tuple):
            yield from (part for part in value if isinstance(part, Mapping) and isinstance(part.get("type"), str))


def with_results(message: Message, change: Callable[[Any], Any]) -> Message:
    """The message with what its results hold replaced, and without a native form, which no longer fits.

    Args:
        message: one of `results`; never changed.
        change: makes the new content of the old.
    """
    held = message.get(RESERVED)
    marks = {key: value for key, value in held.items() if key != "native"} if isinstance(held, Mapping) else {}
    made = {key: value for key, value in message.items() if key != RESERVED}
    if marks:
        made[RESERVED] = marks
    if message.get("role") == MessageRole.TOOL:
        return {**made, "content": change(message.get("content"))}
    if "role" not in message:
        return {**made, **_changed(made, change)}
    for key in ("content", NATIVE_INPUT):
        if isinstance(message.get(key), list | tuple):
            made[key] = [_changed(part, change) for part in message[key]]
    return made


def _changed(part: Any, change: Callable[[Any], Any]) -> Any:
    key = _HELD_AT.get(part.get("type", "")) if isinstance(part, Mapping) else None
    return part if key is None else {**part, key: change(part.get(key))}
