"""The provider's own options of a request: put into its body over what was made for it, and each change noted."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from isthmus.models.contract import GenerateContext
from isthmus.models.events import Note, NoteCode


def put_options(
    ctx: GenerateContext,
    body: dict[str, Any],
    *,
    notes: list[Note],
    read: Container[str] = (),
    merged: Container[str] = (),
) -> None:
    """Put a request's own options into its body, last of all.

    Args:
        ctx: the request; never changed.
        body: what was made for it; changed.
        notes: takes a note of each member that gives way, and of `stream`, which is left out.
        read: options that were read before, and are no members by themselves.
        merged: members whose tables an option adds to instead of standing in their place.
    """
    for name, value in ctx.options.items():
        if name == "stream":
            notes.append(Note(NoteCode.PARAMETER_DROPPED, "options.stream: the way of calling decides that"))
            continue
        if name in read:
            continue
        held = body.get(name)
        if name in merged and isinstance(held, Mapping) and isinstance(value, Mapping):
            changed = [f"{name}.{key}" for key in value if key in held and held[key] != value[key]]
            value = {**held, **value}
        else:
            changed = [name] if name in body and held != value else []
        for place in changed:
            detail = f"options.{place} stands in place of what was made for it"
            notes.append(Note(NoteCode.PARAMETER_CHANGED, detail))
        body[name] = value
