"""An adapter's own settings and a context's: which of them count, and how the chat face is told of the latter.

What that face has no argument for is set on a copy, put in front, or noted as left out.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from isthmus.adapters.render import Rendered
from isthmus.models.capabilities import unsupported
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext
from isthmus.models.events import Note, NoteCode

CEILINGS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The options that are an output ceiling in one dialect or another."""
_COPIES = "_isthmus_copies"
_KEPT = 16
_NO_WORDS = ("tool_choice", "output", "temperature", "top_p", "stop", "seed", "options")


def with_own(adapter: Any, ctx: GenerateContext) -> GenerateContext:
    """The context, with the adapter's own brief, ceiling, effort and temperature where it says nothing itself.

    They are read from the adapter at each call, so that a copy with other settings sends those.

    Args:
        adapter: what may have `system`, `max_tokens`, `effort` and `temperature`.
        ctx: the request; never changed. An option that is a ceiling goes before the adapter's.
    """
    own: dict[str, Any] = {}
    if not ctx.brief and (brief := getattr(adapter, "system", None)):
        own["brief"] = brief
    if not ctx.max_output_tokens:
        ceiling = getattr(adapter, "max_tokens", None)
        # Every dialect sends the usual one by itself: most requests need no copy.
        if ceiling not in (None, 0, DEFAULT_CEILING) and not any(each in ctx.options for each in CEILINGS):
            own["max_output_tokens"] = ceiling
    if ctx.effort is None and (effort := getattr(adapter, "effort", None)) is not None:
        own["effort"] = effort
    if ctx.temperature is None and (temperature := getattr(adapter, "temperature", None)) is not None:
        own["temperature"] = temperature
    return replace(ctx, **own) if own else ctx


def adjusted(adapter: Any, ctx: GenerateContext, *, notes: list[Note], alone: bool = True) -> Any:
    """The adapter with the context's brief, ceiling and effort: itself, or a shallow copy that is kept for next time.

    Args:
        adapter: one whose `chat` takes messages and tools alone.
        ctx: the request.
        notes: takes a note where a copy was made, or a setting could not be set.
        alone: whether no parent is told by the list of messages, so that what cannot be set is lost.
    """
    wanted: dict[str, Any] = {}
    for name, value in (("system", ctx.brief), ("max_tokens", ctx.max_output_tokens), ("effort", ctx.effort)):
        if not value or value == (own := getattr(adapter, name, None)) or (value == "off" and not own):
            continue
        if _settable(adapter, name):
            wanted[name] = value
        elif name != "system" and alone:
            _leave_out(name, value, ctx, notes)
    if not wanted:
        return adapter
    notes.append(Note(NoteCode.SETTINGS_COPIED, f"{', '.join(wanted)} differ from the adapter's own: set on a copy"))
    return _copy(adapter, wanted)


def _settable(adapter: Any, name: str) -> bool:
    found = getattr(type(adapter), name, None)
    return hasattr(adapter, name) and not (isinstance(found, property) and found.fset is None)


def _copy(adapter: Any, wanted: dict[str, Any]) -> Any:
    kept: dict[Any, Any] = vars(adapter).setdefault(_COPIES, {})
    key = tuple(wanted.items())
    if key in kept:
        return kept[key]
    made = copy.copy(adapter)
    vars(made).pop(_COPIES, None)
    for name, value in wanted.items():
        object.__setattr__(made, name, value)
    while len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    kept[key] = made
    return made


def is_one(adapter: Any, other: Any) -> bool:
    """Whether two are one adapter: the same object, its copy for a request, or what stands for it in a chain."""
    if adapter is other:
        return True
    if adapter is None or other is None:
        return False
    for one, two in ((adapter, other), (other, adapter)):
        held = getattr(one, "__dict__", {})
        stood_for = held.get("plain") if getattr(type(one), "_isthmus_stands", False) else None
        if stood_for is two or any(each is two for each in held.get(_COPIES, {}).values()):
            return True
    return False


def with_brief(messages: Rendered, adapter: Any, *, ctx: GenerateContext) -> Rendered:
    """The messages, the brief in front where the adapter has no `system` that holds it."""
    if ctx.brief and getattr(adapter, "system", None) != ctx.brief:
        messages.insert(0, {"role": "system", "content": ctx.brief})
    return messages


def note_left_out(ctx: GenerateContext, notes: list[Note]) -> None:
    """Note each portable setting that a chat-face method cannot be told.

    Raises:
        InvalidRequestError: there is one, and the request wants an error.
    """
    for name in _NO_WORDS:
        value = getattr(ctx, name)
        if value is not None and value not in ((), {}, "auto", "none"):
            _leave_out(name, value, ctx, notes)
    if not ctx.parallel_tool_calls:
        _leave_out("parallel_tool_calls", False, ctx, notes)


def _leave_out(name: str, value: Any, ctx: GenerateContext, notes: list[Note]) -> None:
    unsupported(ctx, f"{name}={value!r:.60}: this adapter's chat face has no place for it", notes=notes)
