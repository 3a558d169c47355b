"""One reply as each face shows it, and what an author showed as one reply again: pure projections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import urandom
from typing import Any

from isthmus.adapters.chat import ChatResponse, ToolCall, peek, plain, usage_of
from isthmus.adapters.render import with_origin
from isthmus.errors import ProtocolError, TierError, UnclassifiedError
from isthmus.models import responses
from isthmus.models.checks import BREAKING, check_reply
from isthmus.models.contract import ToolSpec
from isthmus.models.events import (
    Call,
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Native,
    Note,
    NoteCode,
    Reasoning,
    StepResult,
    Text,
    Usage,
)
from isthmus.models.finish import CHAT_NAMES, MODEL_NAMES, finish_of
from isthmus.models.jsontext import dumps
from isthmus.models.messages import assistant_message, text_of
from isthmus.models.normalise import make_call, to_step_result
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent, ToolCallFunction


def events_of(step: StepResult) -> Iterator[Event]:
    """A whole reply as the events that fold into it.

    Raises:
        TierError: the reply is "error-post": its failure, after what had arrived.
    """
    if step.reasoning:
        yield Reasoning(step.reasoning)
    last = step.native[-1] if step.native and step.native[-1].event_type == "message" else None
    yield from step.native if last is None else step.native[:-1]
    yield from step.events
    if step.finish == FinishReason.ERROR_POST:
        raise failure_of(step)
    yield Finish(step.finish, step.usage, step.raw_reason, None, last, step.notes)


def failure_of(step: StepResult) -> TierError:
    """The failure that cut a reply, with what had arrived as its `partial`."""
    error = step.error or UnclassifiedError("the reply was cut by a failure that nobody named")
    error.partial = step
    return error


def to_chat(step: StepResult, *, inner: bool = False) -> ChatResponse:
    """A reply as the chat face shows it; the reply itself is its `_raw`.

    Args:
        step: the reply.
        inner: the caller is an author's method that is itself read back, so that a call whose arguments are no JSON
            object may pass through it.

    Raises:
        TierError: the reply is "error-post".
        ProtocolError: a call's arguments are no JSON object, which this face cannot say.
    """
    if step.finish == FinishReason.ERROR_POST:
        raise failure_of(step)
    for call in step.calls:
        if call.problem and not inner:
            error = ProtocolError(f"call of {call.tool!r}: {call.problem}: {call.arguments!r:.200}")
            error.partial = step
            raise error
    calls = [ToolCall(call.call_id or "", call.tool, call.input or {}) for call in step.calls]
    response = ChatResponse(step.text or None, calls, CHAT_NAMES[step.finish], step)
    return with_origin(response, assistant_message(step))


def from_chat(response: Any, dialect: str, *, tools: Iterable[ToolSpec] = ()) -> StepResult:
    """The reply that a chat-face method returned.

    Args:
        response: its `ChatResponse`, or an object with the same attributes.
        dialect: the name under which its native form is kept.
        tools: what was offered.

    Raises:
        ProtocolError: it breaks a rule of the chat face; names it.
    """
    for finding in check_reply(response, tools):
        if finding.rule in BREAKING:
            raise ProtocolError(f"{finding.message} (rule {finding.rule})")
    raw = getattr(response, "_raw", None)
    base = raw if isinstance(raw, StepResult) else None
    if base is not None and _shows(response, base):
        return base
    reason = response.stop_reason
    notes = () if reason else (Note(NoteCode.NO_FINISH_REASON, "the reply came without a stop_reason"),)
    content: list[Text | Call] = [Text(response.text)] if response.text else []
    content += [make_call(call.name, call.input, call_id=call.id or None) for call in response.tool_calls or ()]
    step = StepResult(
        events=tuple(content),
        finish=finish_of(str(reason or "")),
        raw_reason=str(reason) if reason else None,
        usage=usage_of(raw),
        native=_chat_native(response, dialect),
        notes=notes,
    )
    return to_step_result(step if base is None else _changed(step, base))


def _shows(response: Any, step: StepResult) -> bool:
    """Whether a reply still is the projection of a step that it was made from."""
    calls = [(call.id, call.name, call.input) for call in response.tool_calls or ()]
    same = calls == [(call.call_id or "", call.tool, call.input or {}) for call in step.calls]
    said = (response.text or None, response.stop_reason)
    return same and said == (step.text or None, CHAT_NAMES.get(step.finish))


def _changed(step: StepResult, base: StepResult) -> StepResult:
    """A reply that an author changed on its way: what was his is new, the rest stays; the old native form is gone."""
    kept = tuple(item for item in base.native if item.event_type != "message")
    dropped = Note(NoteCode.NATIVE_DROPPED, "the reply was changed after its native form was made")
    notes = base.notes if len(kept) == len(base.native) else (*base.notes, dropped)
    return StepResult(
        events=step.events,
        finish=step.finish,
        raw_reason=base.raw_reason if step.finish == base.finish else step.raw_reason,
        usage=base.usage,
        reasoning=base.reasoning,
        native=kept,
        notes=(*notes, *step.notes),
    )


def _chat_native(response: Any, dialect: str) -> tuple[Native, ...]:
    """The author's own reply as a native form: live while the process has it, saved only if it is plain JSON."""
    raw = getattr(response, "_raw", None)
    if isinstance(raw, StepResult) or (raw is None and type(response) is ChatResponse):
        return ()
    return (Native(dialect, "message", plain(raw)[0], held=response),)


def to_response(step: StepResult, model: str = "") -> ModelResponse:
    """A reply as the model face shows it.

    Raises:
        TierError: the reply is "error-post".
    """
    if step.finish == FinishReason.ERROR_POST:
        raise failure_of(step)
    calls = [
        responses.ToolCall(
            id=call.call_id or "",
            function=ToolCallFunction(call.tool, call.arguments or dumps(call.input or {}).decode()),
        )
        for call in step.calls
    ]
    refused = step.finish == FinishReason.REFUSAL
    text = step.text or None
    message = Message(
        content=None if refused else text,
        tool_calls=calls or None,
        refusal=(text or step.raw_reason or "refused") if refused else None,
    )
    extra = {
        "raw_reason": step.raw_reason,
        "reasoning_content": step.reasoning or None,
        "notes": [{"code": str(note.code), "detail": note.detail} for note in step.notes] or None,
    }
    response = ModelResponse(
        id=f"isthmus-{urandom(12).hex()}",
        model=model,
        choices=[Choice(message=message, finish_reason=MODEL_NAMES[step.finish])],
        usage=None if step.usage is None else _usage(step.usage),
        model_extra={name: value for name, value in extra.items() if value is not None},
    )
    response._step = step
    return response


def _usage(usage: Usage) -> responses.Usage | None:
    prompt, output = usage.prompt_tokens, usage.output_tokens
    if prompt is None and output is None:
        return None
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    details = {name: count for name, count in cached.items() if count is not None}
    return responses.Usage(
        prompt_tokens=prompt or 0,
        completion_tokens=output or 0,
        total_tokens=(prompt or 0) + (output or 0),
        prompt_tokens_details=details or None,
        completion_tokens_details=(
            None if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
        ),
    )


def from_response(response: Any) -> StepResult:
    """The reply that a model-face method returned: a `ModelResponse`, or any object or dict of its shape.

    Raises:
        ProtocolError: it has no choice, or no message in it.
    """
    base = response.step if isinstance(response, ModelResponse) else None
    if base is not None and response.choices == to_response(base).choices:
        return base
    choices = peek(response, "choices")
    message = peek(choices[0], "message") if isinstance(choices, list | tuple) and choices else None
    if message is None:
        raise ProtocolError(f"get_response must return a ModelResponse with a choice, not {response!r:.80}")
    refusal, reason = peek(message, "refusal"), peek(choices[0], "finish_reason")
    text = text_of(peek(message, "content")) or (refusal if isinstance(refusal, str) else "")
    content: list[Text | Call] = [Text(text)] if text else []
    for call in peek(message, "tool_calls") or ():
        function = peek(call, "function")
        content.append(
            make_call(str(peek(function, "name") or ""), peek(function, "arguments"), call_id=peek(call, "id"))
        )
    finish = FinishReason.REFUSAL.value if refusal else finish_of(reason)
    notes = [] if reason else [Note(NoteCode.NO_FINISH_REASON, "the reply came without a finish_reason")]
    if len(choices) > 1:
        notes.append(Note(NoteCode.EXTRA_CHOICES, f"{len(choices) - 1} more choices were left out"))
    reasoning = peek(message, "reasoning_content") or peek(peek(response, "model_extra") or {}, "reasoning_content")
    step = StepResult(
        events=tuple(content),
        finish=finish,
        raw_reason=reason,
        usage=usage_of(response),
        reasoning=reasoning if isinstance(reasoning, str) else "",
        notes=tuple(notes),
    )
    return to_step_result(step if base is None else _changed(step, base))


def to_model_event(event: Event) -> ModelStreamEvent | None:
    """One event as the model face shows it; None where the whole reply will say it."""
    kind = type(event)
    if kind is Text:
        return ModelStreamEvent(kind="text_delta", text=event.text, raw=event.raw) if event.text else None  # type: ignore[union-attr]
    if isinstance(event, CallDelta):
        return ModelStreamEvent(
            kind="tool_call_arguments_delta",
            tool_call_id=event.call_id,
            tool_call_index=event.index,
            arguments_delta=event.arguments_delta,
            raw=event.raw,
        )
    if isinstance(event, Reasoning):
        opaque = event.signature or event.encrypted
        return ModelStreamEvent(kind="reasoning", reasoning=event.text, reasoning_signature=opaque, raw=event.raw)
    if isinstance(event, Call | Finish):
        return None
    raw = event.payload if isinstance(event, Native) else event.raw
    return ModelStreamEvent(kind="provider", provider_event_type=event.type, raw=raw)


def from_model_event(event: Any) -> Event | None:
    """The event that a model-face stream showed, or None where it shows none of ours.

    Raises:
        ProtocolError: it is no event of the model face.
    """
    kind = str(getattr(event, "kind", ""))
    if kind == "text_delta":
        return Text(event.text)
    if kind == "reasoning":
        return Reasoning(event.reasoning or "", signature=event.reasoning_signature)
    if kind == "tool_call_arguments_delta":
        return CallDelta(event.tool_call_index or 0, event.tool_call_id, None, event.arguments_delta or "")
    if kind != "provider":
        known = ", ".join(responses.ModelStreamEventKind)
        raise ProtocolError(f"stream_response must yield events of the kinds {known}, not {event!r:.80}")
    return None
