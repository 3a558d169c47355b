"""Keeps a transcript valid: no id stands for two calls, and a reply enters it as it was shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from isthmus.models.events import Call, Native, Note, NoteCode, StepResult, framed
from isthmus.models.messages import assistant_message

Message: TypeAlias = Mapping[str, Any]

UNKNOWN = "The outcome of this call is unknown: the run ended before its result was recorded. It may have taken effect."
NOT_EXECUTED = "This call was not executed: the run ended before it."


class Said(NamedTuple):
    """The text of a reply, as the consumer saw it and as the model wrote it: with the markers that a chain took out."""

    shown: str = ""
    written: str = ""


def fresh_id(call_id: str, taken: Iterable[str]) -> str:
    """An id that no call of the transcript has; the same one for the same arguments."""
    number = 2
    while f"{call_id}_{number}" in taken:
        number += 1
    return f"{call_id}_{number}"


def renamed(calls: Collection[Call], taken: Iterable[str]) -> dict[str, str]:
    """Which ids of a reply must change, and to what, because earlier calls of the transcript have them."""
    changes: dict[str, str] = {}
    if not calls:
        return changes
    ids = set(taken)
    for call in calls:
        call_id = call.call_id or ""
        if call_id in ids:
            changes[call_id] = call_id = fresh_id(call_id, ids)
        ids.add(call_id)
    return changes


def with_id(call: Call, call_id: str) -> Call:
    """The same call under an id, with the frame that it came from."""
    if call.call_id == call_id:
        return call
    return framed(Call(call.tool, call.input, call_id, call.arguments, call.problem), call.raw)  # type: ignore[no-any-return]


class _Kept(Struct, frozen=True):
    text: str
    calls: tuple[Call, ...]
    message: Native | None


def reply_message(step: StepResult, text: str, *, calls: tuple[Call, ...]) -> tuple[Message | None, tuple[Note, ...]]:
    """The transcript's entry of a reply, or None where it has nothing to keep.

    Args:
        step: the reply as it came.
        text: its text as it was shown, with what it continued.
        calls: its calls as they were shown.

    Returns:
        The entry, and a note where its native form no longer fits and was left out.
    """
    native = step.message
    notes: tuple[Note, ...] = ()
    if native is not None and (text != step.text or calls != step.calls):
        why = "the reply was joined or renumbered: its native form no longer fits"
        native, notes = None, (Note(NoteCode.NATIVE_DROPPED, why),)
    empty = not text and not calls and native is None
    return (None if empty else assistant_message(_Kept(text, calls, native))), notes
