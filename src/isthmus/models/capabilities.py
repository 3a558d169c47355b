"""What the model behind an adapter can do, and how its reasoning effort is asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Note, NoteCode

_log = logging.getLogger("isthmus.models.capabilities")

EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The named levels of reasoning effort; anything else is off."""

OFF = frozenset({"", "off", "none"})
"""The words for no reasoning effort, in lower case."""
_FALSE = frozenset({"", "0", "false", "no", "off"})
_lowered: set[str] = set()


@dataclass
class ModelCapabilities:
    """What one model can do, whoever carries the request.

    Args:
        context_window: prompt and output tokens together; None where unknown.
        max_output_tokens: hard ceiling of one reply, in tokens; None where unknown.
        adaptive_thinking: the endpoint accepts the thinking and effort fields.
        thinking_default_on: the model thinks when the field is left out.
        thinking_disable: the endpoint accepts that thinking is switched off.
        cache_markers: prompt-cache breakpoints are honoured.
        strict_tools: the endpoint enforces the schema of tool arguments.
    """

    context_window: int | None = None
    max_output_tokens: int | None = None
    adaptive_thinking: bool = True
    thinking_default_on: bool = False
    thinking_disable: bool = True
    cache_markers: bool = True
    strict_tools: bool = False


def _tokens(value: Any) -> int | None:
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return count if count > 0 else None


def _flag(value: Any) -> bool:
    return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    field.name: _tokens if field.default is None else _flag for field in fields(ModelCapabilities)
}


def capabilities_from_limits(
    model: str, limits: Mapping[str, Any] | None, *, base: ModelCapabilities | None = None
) -> ModelCapabilities:
    """The capabilities that a table of limits declares for a model.

    Every entry whose key is part of the model's id counts, ignoring case; the longest key wins, field by field. The
    key "" is the default of all. Unknown fields and entries that are no tables are passed over; never raises.

    Args:
        model: the model's id.
        limits: part of a model id → fields of `ModelCapabilities`; numbers and booleans may be strings.
        base: what holds where the table says nothing.
    """
    found = declared_limits(model, limits)
    return ModelCapabilities(**found) if base is None else replace(base, **found)


def declared_limits(model: str, limits: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of `ModelCapabilities` that a table declares for a model, read as `capabilities_from_limits` does."""
    found: dict[str, Any] = {}
    name = (model or "").lower()
    tables: Mapping[Any, Any] = limits if isinstance(limits, Mapping) else {}
    for key in sorted([key for key in tables if isinstance(key, str) and key.lower() in name], key=_specific):
        entry = tables[key]
        if isinstance(entry, Mapping):
            found.update({field: _READERS[field](value) for field, value in entry.items() if field in _READERS})
    return found


def _specific(key: str) -> tuple[int, str]:
    return len(key), key


def apply_thinking(
    kwargs: dict[str, Any], effort: str | None, caps: ModelCapabilities | None = None, model: str = ""
) -> dict[str, Any]:
    """Ask for a level of reasoning effort in the Anthropic shape, in place.

    A named level asks for adaptive thinking at that level; what else `output_config` holds stays. Off, or anything that
    is no level, depends on the model: nothing where leaving it out is off (or `caps` is None), an explicit switch-off
    where the model thinks by itself, the lowest level where it refuses to be switched off (logged once a model).

    Args:
        kwargs: the request's fields; changed and returned.
        effort: "low", "medium", "high", "xhigh", "max"; None, "" and "off" are off.
        caps: what the model can do.
        model: its id, for the log.
    """
    level = effort.strip().lower() if isinstance(effort, str) else ""
    if level in EFFORTS:
        return _at(kwargs, level)
    if caps is None or not caps.adaptive_thinking or not caps.thinking_default_on:
        return kwargs
    if caps.thinking_disable:
        kwargs["thinking"] = {"type": "disabled"}
        return kwargs
    lowered(model)
    return _at(kwargs, "low")


def unsupported(
    ctx: GenerateContext, detail: str, *, notes: list[Note], code: NoteCode = NoteCode.PARAMETER_DROPPED
) -> None:
    """Note a portable setting that a provider lacks, and that is left out for it.

    Args:
        ctx: the request.
        detail: the setting, its value and why.
        notes: takes the note.
        code: what became of it, where it was not left out.

    Raises:
        InvalidRequestError: the request wants an error instead.
    """
    if ctx.on_unsupported == "error":
        raise InvalidRequestError(f"{detail} (on_unsupported is 'error')")
    notes.append(Note(code, detail))


def effort_sent(ctx: GenerateContext, caps: ModelCapabilities | None, *, model: str, notes: list[Note]) -> str | None:
    """The level of reasoning effort for a dialect that names one: a word as it is, or what its absence takes.

    None says nothing; "off" is a switch-off that must be said, as the model reasons by itself; "low" stands for one
    that the model refuses (logged once a model).

    Args:
        ctx: the request; its effort is any word, also one that the model may refuse; "", "off" and "none" are off; None
            asks for nothing.
        caps: what the model can do; None where nothing is known.
        model: its id, for the log.
        notes: takes a note of what was left out or changed.

    Raises:
        InvalidRequestError: the endpoint takes no effort, and the request wants an error.
    """
    effort = ctx.effort
    if effort is None:
        return None
    if effort.strip().lower() not in OFF:
        if caps is None or caps.adaptive_thinking:
            return effort
        unsupported(ctx, f"effort {effort!r}: this endpoint takes none", notes=notes)
        return None
    if caps is None or not caps.adaptive_thinking or not caps.thinking_default_on:
        return None
    if caps.thinking_disable:
        return "off"
    notes.append(Note(NoteCode.PARAMETER_CHANGED, lowered(model)))
    return "low"


def within(wanted: int, capabilities: ModelCapabilities | None, *, notes: list[Note]) -> int:
    """The output ceiling that is sent: never more than the model's; a lower one is noted.

    Args:
        wanted: what the request or the adapter asks for, in tokens.
        capabilities: what the model can do; None where nothing is known.
        notes: takes a note of the change.
    """
    most = capabilities.max_output_tokens if capabilities is not None else None
    if most is None or wanted <= most:
        return wanted
    notes.append(Note(NoteCode.PARAMETER_CHANGED, f"max_output_tokens: {wanted} became {most}, the model's ceiling"))
    return most


def lowered(model: str) -> str:
    """What is said of an effort of off that is sent as low; logged once a model."""
    said = f"effort 'off' became 'low': {model or 'the model'} cannot stop thinking"
    if model not in _lowered:
        _lowered.add(model)
        _log.info("%s", said)
    return said


def _at(kwargs: dict[str, Any], level: str) -> dict[str, Any]:
    kwargs["thinking"] = {"type": "adaptive"}
    held = kwargs.get("output_config")
    kwargs["output_config"] = {**(held if isinstance(held, Mapping) else {}), "effort": level}
    return kwargs
