"""What a model-face method is given, what it was given as a context again, and what its stream yields as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace as changed

from isthmus.adapters.adjust import CEILINGS
from isthmus.adapters.render import Rendered, fresh, read_context, remembered, role_dict
from isthmus.adapters.views import from_model_event, from_response
from isthmus.errors import (
    CallCancelledError,
    OutputDefinitionError,
    OutputError,
    ProtocolError,
    UnclassifiedError,
)
from isthmus.models.aside import Aside
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, CallDelta, Event, Finish, Note, Reasoning, StepResult, Text, framed
from isthmus.models.fold import classify, close, iterate
from isthmus.models.output import resolve_output_schema
from isthmus.models.pairing import Pairing
from isthmus.models.repair import RETRIES, Repair, answered, repairing
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.strategy import Asked
from isthmus.models.stream import EventStream

UNCLASSIFIED = (OutputError, OutputDefinitionError, CallCancelledError)
"""What the model face raises as it is: no failure of a provider's."""

_GRACE = 0.03
_TOOLS = frozenset({"tools"})
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
        """The same in the Chat Completions shape, which says nothing where there are no tools."""
        if not self.normalized_tools:
            return {}
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


def model_messages(ctx: GenerateContext, notes: list[Note]) -> Rendered:
    """The transcript as a model-face class takes it: the brief in front as a system message, each call with an id."""
    lead = [{"role": "system", "content": ctx.brief}] if ctx.brief else []
    pairing = Pairing(notes)
    turns = (pairing.turn(message, f"messages[{at}]") for at, message in enumerate(ctx.messages))
    return Rendered([*lead, *(role_dict(turn, ctx) for turn in turns)], ctx)


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
    # "none" is said without tools too: a client may have tools of its own that it would offer else.
    policy = bool(ctx.tools) or ctx.tool_choice == "none"
    tools = OfferedTools(ctx.tools, ctx.tool_choice or "auto", ctx.parallel_tool_calls) if policy else None
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
        schema: the form of the reply: a type, a JSON Schema or a form.
        tools: what `read_tools` reads; its policy counts where it has one.
        own_brief: the brief where neither the messages nor the list has one.
    """
    rest = dict(options)
    ceilings = [rest.pop(name, None) for name in CEILINGS]
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
    return read_context(messages, tools, own_brief=own_brief, output=resolve_output_schema(schema), **settings)


def repair_of(adapter: Any, ctx: GenerateContext, *, messages: Any, retries: int | None = None) -> Repair | None:
    """How a call of the model face asks for the form that it was given.

    Args:
        adapter: who is asked; its `schema_validation_retries` counts where it has one.
        ctx: the request.
        messages: what the call was given; where they remember a request, whoever made that one asks for the form.
        retries: how often a reply that does not fit is asked for again.
    """
    if remembered(messages) is not None:
        return None
    if retries is None:
        retries = getattr(adapter, "schema_validation_retries", RETRIES)
    return repairing(ctx.output, getattr(adapter, "supports", _TOOLS), retries=retries)


async def response_step(
    ask: Callable[[GenerateContext], Awaitable[StepResult]], ctx: GenerateContext, *, repair: Repair | None
) -> StepResult:
    """The reply to a call of the model face, of the form that was asked for."""
    if repair is None:
        return await ask(ctx)
    step, _ = await answered(ask, ctx, repair=repair)
    return step


async def unless_cancelled(work: Coroutine[Any, Any, StepResult], token: Any) -> StepResult:
    """What a coroutine returns, or an error as soon as a token is cancelled.

    Args:
        work: what to wait for; cancelled with the token, and waited for no longer than 30 ms then.
        token: a `CancellationToken`, or None.

    Raises:
        CallCancelledError: the token was cancelled first.
    """
    if token is None:
        return await work
    if token.cancelled:
        work.close()
        raise _cancelled()
    task = asyncio.ensure_future(work)
    waiter = asyncio.ensure_future(token.wait())
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise _cancelled()
    finally:
        waiter.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE)
            task.add_done_callback(_seen)


def _cancelled() -> CallCancelledError:
    return CallCancelledError("the call was given up: its cancellation token was cancelled")


def _seen(task: asyncio.Future[Any]) -> None:
    """Take the outcome of a call that nobody waits for, so that nobody is told that it was lost."""
    if not task.cancelled():
        task.exception()


class _Closing(Protocol):
    """What can be closed from another task."""

    async def aclose(self) -> None:
        """Close it."""


@asynccontextmanager
async def closed_on(token: Any, events: _Closing) -> AsyncIterator[None]:
    """See to it that a stream is closed as soon as a token is cancelled.

    Raises:
        CallCancelledError: it is already.
    """
    if token is None:
        yield
        return

    async def watch() -> None:
        await token.wait()
        await events.aclose()

    task = asyncio.ensure_future(watch())
    try:
        if token.cancelled:
            raise _cancelled()
        yield
    finally:
        task.cancel()


def failure_of_stream(error: Exception, events: EventStream, *, token: Any) -> Exception:
    """What the reader of a stream is told of what it raised."""
    if token is not None and token.cancelled:
        return _cancelled()
    return error if isinstance(error, UNCLASSIFIED) else events.failure(error)


def read_as_text(event: Event, asked: Asked | None) -> Event | None:
    """An event of a structured reply's stream: the call that takes the answer is its text."""
    if asked is None or asked.tool is None:
        return event
    if isinstance(event, CallDelta) and event.tool == asked.tool:
        return framed(Text(event.arguments_delta), event.raw)  # type: ignore[no-any-return]
    return None if isinstance(event, Call) and event.tool == asked.tool else event


async def model_events(said: Any, notes: Iterable[Note] = ()) -> AsyncIterator[Event]:
    """The events of a model-face stream.

    Args:
        said: what `stream_response` returned.
        notes: what was changed on the way in; handed on with the finish.

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
                if isinstance(shown, ModelStreamEvent) and shown.steering:
                    # What became of steered input is told though the failure itself may yet be mended.
                    yield Aside(changed(shown, kind="provider", error=None))
                raise _failure(shown.error)
            if completed:
                raise ProtocolError(
                    f"{kind!r} after 'completed': stream_response must end with exactly one 'completed'"
                )
            if kind == "completed":
                completed, response = True, shown.response
                if getattr(shown, "continuation", None) is not None:
                    yield Aside(shown)
                continue
            event = from_model_event(shown)
            if isinstance(event, Text):
                texts.append(event.text)
            thought = thought or isinstance(event, Reasoning)
            yield event
    finally:
        await close(source)
    if not completed:
        raise ProtocolError("stream_response ended without a 'completed' event")
    step = from_response(response)
    for event in _rest(changed(step, notes=(*notes, *step.notes)), "".join(texts), thought):
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


def judged(step: StepResult, repair: Repair | None, *, asked: Asked | None) -> StepResult:
    """The reply of a stream, read as it was asked for.

    Raises:
        OutputError: it is not of the form.
        RefusedError: the model, or the provider's filter, would not answer.
    """
    if repair is None or asked is None:
        return step
    step = asked.read(step)
    verdict = repair.judge(step)
    if verdict.error is not None:
        raise verdict.error
    return step
