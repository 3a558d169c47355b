"""Context for one run alone, across a pause of the run: it is kept nowhere, and is given again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from isthmus.models.events import Note, NoteCode
from isthmus.models.internal import is_ephemeral_message, lasting_messages
from isthmus.models.messages import RESERVED

Message: TypeAlias = Mapping[str, Any]
Places: TypeAlias = Sequence[tuple[int, str]]


def places_of(messages: Sequence[Message]) -> tuple[tuple[int, str], ...]:
    """Where ephemeral context stands in a transcript, and its origins: all that may be kept of it."""
    found = (place for place, message in enumerate(messages) if is_ephemeral_message(message))
    return tuple((place, str(messages[place][RESERVED].get("origin", ""))) for place in found)


def parted(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[tuple[int, str], ...]]:
    """The messages that last, and where the others stood."""
    return lasting_messages(messages), places_of(messages)


def check_context(context: Sequence[Message]) -> tuple[Message, ...]:
    """The context that is given again.

    Raises:
        ValueError: a message is not marked as ephemeral.
    """
    for place, message in enumerate(context):
        if not is_ephemeral_message(message):
            raise ValueError(f"context[{place}]: must be internal_message(…, ephemeral=True), as it was in the run")
    return tuple(context)


def rejoined(
    messages: Sequence[Message], left: Places, *, context: Sequence[Message]
) -> tuple[tuple[Message, ...], tuple[Note, ...]]:
    """The transcript with its ephemeral context, and a note on each piece that is missing, or has no place.

    Args:
        messages: what lasted.
        left: where context stood, in order.
        context: what is given again, of each origin in the order in which it stood.
    """
    whole, given, notes = list(messages), list(context), []
    missing = 0
    for place, origin in left:
        found = next((message for message in given if message[RESERVED].get("origin") == origin), None)
        if found is None:
            missing += 1
            detail = f"the run had ephemeral context of {origin!r} before it stopped, and it was not given again"
            notes.append(Note(NoteCode.HISTORY_CHANGED, detail))
            continue
        given = [message for message in given if message is not found]
        whole.insert(place - missing, found)
    for message in given:
        origin = message[RESERVED].get("origin")
        detail = f"ephemeral context of {origin!r} was left out: the run has none missing"
        notes.append(Note(NoteCode.HISTORY_CHANGED, detail))
    return tuple(whole), tuple(notes)
