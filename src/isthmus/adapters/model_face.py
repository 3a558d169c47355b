"""What a model-face method is given, what it was given as a context again, and what its stream yields as events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.adapters.render import Rendered, fresh, read_context, remembered, role_dict
from isthmus.adapters.views import from_model_event, from_response
from isthmus.errors import ProtocolError, UnclassifiedError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Event, Finish, Reasoning, StepResult, Text
from isthmus.models.fold import classify, close, iterate

_CEILINGS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_PORTABLE = ("temperature", "top_p", "stop", "seed", "tool_choice", "parallel_tool_calls")


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one request, with their policy.

    Args:
        normalized_tools: what may be called.
        tool_choice: "auto", "required", "none", or the name of one tool.
        parallel_tool_calls: whether one reply may hold several calls.
    """

    normalized_tools: tuple[ToolSpec, ...]
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True

    def as_args(self) -> dict[str, Any]:
        """The same in the Chat Completions shape."""
        functions = [
            {"name": tool.name, "description": tool.description, "parameters": fresh(dict(tool.parameters))}
            | ({} if tool.strict is None else {"strict": tool.strict})
            for tool in self.normalized_tools
        ]
        named = self.tool_choice not in ("auto", "required", "none")
        return {
            "tools": [{"type": "function", "function": function} for function in functions],
            "tool_choice": (
                {"type": "function", "function": {"name": self.tool_choice}} if named else self.tool_choice
            ),
            "parallel_tool_calls": self.parallel_tool_calls,
        }


def model_messages(ctx: GenerateContext) -> Rendered:
    """The transcript as a model-face class takes it: the brief in front as a system message."""
    lead = [{"role": "system", "content": ctx.brief}] if ctx.brief else []
    return Rendered([*lead, *(role_dict(message, ctx) for message in ctx.messages)], ctx)


def model_arguments(ctx: GenerateContext) -> dict[str, Any]:
    """What a model-face method gets beside the messages: request options, the form of the reply, the tools."""
    said = {
        "max_tokens": ctx.max_output_tokens,
        "reasoning_effort": ctx.effort,
        "temperature": ctx.temperature,
        "top_p": ctx.top_p,
        "stop": list(ctx.stop) or None,
        "seed": ctx.seed,
    }
    options = {**{name: value for name, value in said.items() if value is not None}, **fresh(dict(ctx.options))}
    tools = OfferedTools(ctx.tools, ctx.tool_choice or "auto", ctx.parallel_tool_calls) if ctx.tools else None
    return {
        "extra_call_args": options or None,
        "schema": ctx.output,
        "tools": tools,
        "cancellation_token": None,
        "parent_span": None,
    }


def read_model_context(
    messages: Any, options: Mapping[str, Any], *, schema: Any, tools: Any, own_brief: str
) -> GenerateContext:
    """The context that a call of the model face asks for.

    Args:
        messages: neutral messages; leading system messages are the brief.
        options: request options: the portable ones by name, the rest is the provider's own.
        schema: the form of the reply.
        tools: what `read_tools` reads; its policy counts where it has one.
        own_brief: the brief where neither the messages nor the list has one.
    """
    rest = dict(options)
    ceilings = [rest.pop(name, None) for name in _CEILINGS]
    settings = {name: rest.pop(name, None) for name in _PORTABLE}
    settings["effort"] = rest.pop("reasoning_effort", None)
    settings["max_output_tokens"] = next((count for count in ceilings if count is not None), None)
    if isinstance(settings["stop"], str):
        settings["stop"] = (settings["stop"],)
    elif settings["stop"] is not None:
        settings["stop"] = tuple(settings["stop"])
    for name in ("tool_choice", "parallel_tool_calls"):
        if settings[name] is None:
            settings[name] = getattr(tools, name, None)
    base = remembered(messages)
    settings["options"] = {**(base.options if base else {}), **rest} if rest else None
    return read_context(messages, tools, own_brief=own_brief, output=schema, **settings)


async def model_events(said: Any) -> AsyncIterator[Event]:
    """The events of a model-face stream.

    Args:
        said: what `stream_response` returned.

    Raises:
        TierError: it yielded an "error" event.
        ProtocolError: anything after "completed", no "completed", a final text that is not the streamed one.
    """
    source = iterate(said)
    texts: list[str] = []
    thought, completed, response = False, False, None
    try:
        async for shown in source:
            kind = str(getattr(shown, "kind", ""))
            if kind == "error":
                raise _failure(shown.error)
            if completed:
                raise ProtocolError(
                    f"{kind!r} after 'completed': stream_response must end with exactly one 'completed'"
                )
            if kind == "completed":
                completed, response = True, shown.response
                continue
            event = from_model_event(shown)
            if isinstance(event, Text):
                texts.append(event.text)
            thought = thought or isinstance(event, Reasoning)
            if event is not None:
                yield event
    finally:
        await close(source)
    if not completed:
        raise ProtocolError("stream_response ended without a 'completed' event")
    for event in _rest(from_response(response), "".join(texts), thought):
        yield event


def _failure(error: Any) -> Exception:
    return classify(error) if isinstance(error, Exception) else UnclassifiedError(f"stream_response: {error}")


def _rest(step: StepResult, streamed: str, thought: bool) -> list[Event]:
    """What the whole reply has beyond what was streamed."""
    if streamed and step.text and step.text.strip() != streamed.strip():
        raise ProtocolError(f"the text of 'completed' ({step.text!r:.60}) is not the streamed one ({streamed!r:.60})")
    events: list[Event] = [] if thought or not step.reasoning else [Reasoning(step.reasoning)]
    last = step.native[-1] if step.native and step.native[-1].event_type == "message" else None
    events += step.native if last is None else step.native[:-1]
    events += step.calls if streamed else step.events
    return [*events, Finish(step.finish, step.usage, step.raw_reason, None, last, step.notes)]
