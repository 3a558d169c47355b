"""The tools of a request: a provider's own first, then those of the context, and which of two choices holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import unsupported
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.declare import declared
from isthmus.models.dialects import legal_name
from isthmus.models.events import Note, NoteCode

SCHEMAS = "openai-strict"

_CHOICES = ("auto", "required", "none")
_HANDLED = ("function", "custom")


def put_tools(ctx: GenerateContext, body: dict[str, Any], *, notes: list[Note]) -> None:
    """Write tools and choice into a body.

    A context that has tools, or a choice, has a policy: functions beside it have nobody to run them.

    Args:
        ctx: the request; its options may hold native `tools` and a native `tool_choice`.
        body: what is sent.
        notes: takes a note of each change.

    Raises:
        InvalidRequestError: two tools have one name; a native function stands beside the context's policy; the choice
            names no tool.
    """
    native = _native(ctx)
    local = [_local(each) for each in declared([_strict(spec) for spec in ctx.tools], dialect=SCHEMAS, notes=notes)]
    taken = {tool["name"] for tool in native if isinstance(tool.get("name"), str)}
    for tool in local:
        if tool["name"] in taken:
            raise InvalidRequestError(
                f"Duplicate native tool name {tool['name']!r}: options.tools and the tools have it"
            )
    if native or local:
        body["tools"] = [*native, *local]
    if local:
        body["parallel_tool_calls"] = ctx.parallel_tool_calls
    choice = _choice(ctx, notes, any_tool=bool(native or local))
    if choice is not None:
        body["tool_choice"] = choice


def _strict(spec: ToolSpec) -> ToolSpec:
    """A tool that is strict unless it says otherwise: this API's own default."""
    if spec.strict is not None:
        return spec
    return ToolSpec(
        name=spec.name,
        description=spec.description,
        args_model=spec.args_model,
        parameters_schema=spec.parameters_schema,
        strict=True,
    )


def _local(each: Any) -> dict[str, Any]:
    described = {"description": each.description} if each.description else {}
    return {
        "type": "function",
        "name": each.name,
        **described,
        "parameters": each.parameters,
        "strict": bool(each.strict),
    }


def _native(ctx: GenerateContext) -> list[Mapping[str, Any]]:
    given = ctx.options.get("tools") or ()
    if not isinstance(given, list | tuple) or not all(isinstance(tool, Mapping) for tool in given):
        raise InvalidRequestError(f"options.tools: must be a list of dicts, not {given!r:.80}")
    named: set[Any] = set()
    for tool in given:
        if tool.get("type") in _HANDLED and (ctx.tools or ctx.tool_choice is not None):
            raise InvalidRequestError(
                f"options.tools: {tool.get('type')} {tool.get('name')!r} has nobody to run it beside the tools that "
                "are given: make it one of them"
            )
        name = tool.get("name")
        if name is not None and name in named:
            raise InvalidRequestError(f"Duplicate native tool name {name!r}: options.tools has it twice")
        named.add(name)
    return list(given)


def _choice(ctx: GenerateContext, notes: list[Note], *, any_tool: bool) -> Any:
    """The choice that holds: a native one where the context says "auto" or nothing, else the context's."""
    native, local = ctx.options.get("tool_choice"), ctx.tool_choice
    if local in (None, "auto"):
        return native if native is not None else local if any_tool else None
    if native is not None and native != local:
        notes.append(Note(NoteCode.PARAMETER_CHANGED, f"options.tool_choice gave way to {local!r}"))
    if local == "none" or (local == "required" and any_tool):
        return local
    if local == "required":
        unsupported(ctx, "tool_choice 'required': there are no tools", notes=notes)
        return None
    names = [spec.name for spec in ctx.tools]
    if local not in names:
        raise InvalidRequestError(f"tool_choice {local!r} names no tool of this request: it has {', '.join(names)}")
    return {"type": "function", "name": legal_name(local, dialect=SCHEMAS)}
