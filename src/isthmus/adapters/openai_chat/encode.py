"""The request body of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.adapters.openai_chat.history import SCHEMAS, render
from isthmus.adapters.openai_chat.reply import DIALECT
from isthmus.adapters.openai_chat.server import ChatServer
from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import ModelCapabilities, effort_sent, unsupported, within
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext, OutputForm, ToolSpec
from isthmus.models.declare import Declaration, declared
from isthmus.models.dialects import legal_name
from isthmus.models.events import Note, NoteCode
from isthmus.models.options import put_options
from isthmus.models.reshape import normalise
from isthmus.models.strictness import conforms

_CEILINGS = frozenset(("max_tokens", "max_completion_tokens"))
_CHOICES = frozenset(("auto", "required", "none"))


def tool(each: Declaration) -> dict[str, Any]:
    """A tool as this dialect declares it."""
    function: dict[str, Any] = {"name": each.name}
    if each.description:
        function["description"] = each.description
    function["parameters"] = each.parameters
    if each.strict is not None:
        function["strict"] = each.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: str, tools: Iterable[ToolSpec]) -> Any:
    if choice in _CHOICES:
        return choice
    names = [spec.name for spec in tools]
    if choice not in names:
        raise InvalidRequestError(f"tool_choice {choice!r} names no tool of this request: it has {', '.join(names)}")
    return {"type": "function", "function": {"name": legal_name(choice, dialect=SCHEMAS)}}


def _tools(ctx: GenerateContext, body: dict[str, Any], notes: list[Note]) -> None:
    if not ctx.tools:
        if ctx.tool_choice not in (None, "auto", "none"):
            unsupported(ctx, f"tool_choice {ctx.tool_choice!r}: there are no tools", notes=notes)
        return
    made = declared(ctx.tools, dialect=SCHEMAS, notes=notes)
    body["tools"] = [tool(each) for each in made]
    if ctx.tool_choice:
        body["tool_choice"] = _tool_choice(ctx.tool_choice, ctx.tools)
    if not ctx.parallel_tool_calls:
        body["parallel_tool_calls"] = False


def _output(output: OutputForm, body: dict[str, Any], notes: list[Note]) -> None:
    """The form of the reply as its author wrote it; not strict where no server could enforce that."""
    form = output.response_format()
    if form is None:
        return
    body["response_format"] = form
    inner = form.get("json_schema")
    if not isinstance(inner, Mapping) or not inner.get("strict") or not isinstance(inner.get("schema"), Mapping):
        return
    made = normalise(inner["schema"], SCHEMAS)
    if not conforms(made):
        notes.append(Note(NoteCode.PARAMETER_CHANGED, f"output: is not strict: {made.report.summary()}"))
        body["response_format"] = {**form, "json_schema": {**inner, "strict": False}}


def _effort(level: str | None, server: ChatServer) -> dict[str, Any]:
    """The members for a level of effort."""
    if level == "off":
        return dict(server.effort_off)
    return {} if level is None else {"reasoning_effort": level}


def _sampling(ctx: GenerateContext, server: ChatServer, body: dict[str, Any], notes: list[Note]) -> None:
    if ctx.temperature is not None:
        body["temperature"] = ctx.temperature
    if ctx.top_p is not None:
        body["top_p"] = ctx.top_p
    if ctx.stop:
        body["stop"] = list(ctx.stop)
    if ctx.seed is None:
        return
    if server.seed_key:
        body[server.seed_key] = ctx.seed
        return
    unsupported(ctx, f"seed {ctx.seed} was left out: {server.provider} takes none", notes=notes)


def request_body(
    ctx: GenerateContext,
    server: ChatServer,
    *,
    model: str,
    stream: bool,
    capabilities: ModelCapabilities | None = None,
) -> tuple[dict[str, Any], list[Note]]:
    """The body for a context, and what was changed on the way; keys in a fixed order, the caller's options last.

    Args:
        ctx: what to ask; never changed.
        server: whose habits to follow.
        model: the model's id.
        stream: whether to ask for a stream.
        capabilities: what the model can do; None where nothing is known.

    Raises:
        InvalidRequestError: a message or the tool choice has no form here.
    """
    messages, notes = render(ctx.messages, DIALECT)
    if ctx.brief:
        messages.insert(0, {"role": "system", "content": ctx.brief})
    body: dict[str, Any] = {"model": model, "messages": messages}
    if ctx.tools or ctx.tool_choice is not None:
        _tools(ctx, body, notes)
    if _CEILINGS.isdisjoint(ctx.options):
        body[server.ceiling_key] = within(ctx.max_output_tokens or DEFAULT_CEILING, capabilities, notes=notes)
    if ctx.output is not None:
        _output(ctx.output, body, notes)
    if ctx.effort is not None:
        body.update(_effort(effort_sent(ctx, capabilities, model=model, notes=notes), server))
    _sampling(ctx, server, body, notes)
    if stream:
        body["stream"] = True
        if server.stream_usage:
            body["stream_options"] = {"include_usage": True}
    if ctx.options:
        put_options(ctx, body, notes=notes)
    return body, notes
