"""The request body of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.adapters.openai_responses.history import render
from isthmus.adapters.openai_responses.tools import SCHEMAS, put_tools
from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import ModelCapabilities, effort_sent, unsupported, within
from isthmus.models.contract import GenerateContext, OutputForm
from isthmus.models.events import Note, NoteCode
from isthmus.models.options import put_options
from isthmus.models.reshape import normalise
from isthmus.models.strictness import conforms

_ENCRYPTED = "reasoning.encrypted_content"
# Read where they are needed, so that they are not passed on a second time.
_READ = frozenset(("tools", "tool_choice", "text", "reasoning", "max_tokens", "reasoning_effort", "verbosity"))


def request_body(
    ctx: GenerateContext, *, model: str, ceiling: int | None, capabilities: ModelCapabilities | None = None
) -> tuple[dict[str, Any], list[Note]]:
    """The body for a context, and what was changed on the way; keys in a fixed order, the caller's options last.

    Args:
        ctx: what to ask; never changed.
        model: the model's id.
        ceiling: the output ceiling where the context has none; None sends none.
        capabilities: what the model can do; None where nothing is known.

    Raises:
        InvalidRequestError: a message, a tool, the tool choice or an option has no form here; names it.
    """
    stateless = ctx.options.get("store") is False
    items, notes = render(ctx.messages, stateless=stateless)
    body: dict[str, Any] = {"model": model}
    if ctx.brief:
        body["instructions"] = ctx.brief
    body["input"] = items
    put_tools(ctx, body, notes=notes)
    limit = ctx.max_output_tokens or ctx.options.get("max_tokens") or ceiling
    if limit and "max_output_tokens" not in ctx.options:
        body["max_output_tokens"] = within(limit, capabilities, notes=notes) if isinstance(limit, int) else limit
    merged = {"reasoning": _reasoning(ctx, capabilities, model=model, notes=notes), "text": _text(ctx, notes)}
    body.update({name: value for name, value in merged.items() if value})
    _sampling(ctx, body, notes)
    if stateless and "include" not in ctx.options:
        # Without it reasoning could not be shown to the model again.
        body["include"] = [_ENCRYPTED]
    put_options(ctx, body, notes=notes, read=_READ)
    return body, notes


def _merged(ctx: GenerateContext, name: str) -> dict[str, Any]:
    given = ctx.options.get(name)
    if given is not None and not isinstance(given, Mapping):
        raise InvalidRequestError(f"options.{name}: must be a dict, not {given!r:.80}")
    return dict(given or {})


def _text(ctx: GenerateContext, notes: list[Note]) -> dict[str, Any]:
    """The text settings: the form of the reply joins those that the caller gave."""
    text = _merged(ctx, "text")
    if ctx.options.get("verbosity") is not None:
        text["verbosity"] = ctx.options["verbosity"]
    form = None if ctx.output is None else _format(ctx.output, notes)
    if form is not None:
        if "format" in text and text["format"] != form:
            notes.append(
                Note(NoteCode.PARAMETER_CHANGED, "options.text.format gave way to the form that was asked for")
            )
        text["format"] = form
    return text


def _format(output: OutputForm, notes: list[Note]) -> dict[str, Any] | None:
    form = output.response_format()
    inner = None if form is None else form.get("json_schema")
    if form is None or not isinstance(inner, Mapping):
        return form
    strict = bool(inner.get("strict"))
    if strict and isinstance(inner.get("schema"), Mapping):
        made = normalise(inner["schema"], SCHEMAS)
        if not conforms(made):
            notes.append(Note(NoteCode.PARAMETER_CHANGED, f"output: is not strict: {made.report.summary()}"))
            strict = False
    return {"type": "json_schema", **inner, "strict": strict}


def _reasoning(
    ctx: GenerateContext, capabilities: ModelCapabilities | None, *, model: str, notes: list[Note]
) -> dict[str, Any]:
    """The reasoning settings: the effort joins those that the caller gave, which go before it."""
    reasoning = _merged(ctx, "reasoning")
    if ctx.options.get("reasoning_effort") is not None:
        reasoning["effort"] = ctx.options["reasoning_effort"]
    if "effort" not in reasoning:
        level = effort_sent(ctx, capabilities, model=model, notes=notes)
        if level is not None:
            reasoning["effort"] = "none" if level == "off" else level
    return reasoning


def _sampling(ctx: GenerateContext, body: dict[str, Any], notes: list[Note]) -> None:
    """Temperature and top_p; this API has neither stop strings nor a seed (its reference, 2026-11)."""
    for name in ("temperature", "top_p"):
        value = getattr(ctx, name)
        if value is not None:
            body[name] = value
    for name in ("stop", "seed"):
        value = getattr(ctx, name)
        if value not in (None, ()):
            unsupported(ctx, f"{name}={value!r:.60}: the Responses API has no such setting", notes=notes)
