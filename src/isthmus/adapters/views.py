"""One reply as each face shows it, and what an author showed as one reply again: pure projections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import time
from typing import Any

import msgspec

from isthmus.adapters.chat import ChatResponse, ToolCall, peek, plain, usage_of
from isthmus.adapters.render import with_origin
from isthmus.errors import ProtocolError, TierError, UnclassifiedError
from isthmus.models import responses
from isthmus.models.aside import Aside
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
    framed,
)
from isthmus.models.finish import CHAT_NAMES, MODEL_NAMES, finish_of
from isthmus.models.jsontext import dumps, loads
from isthmus.models.messages import RESERVED, assistant_message, fingerprint, text_of
from isthmus.models.neutral import NATIVE_DIALECT, NATIVE_INPUT
from isthmus.models.normalise import make_call, to_step_result
from isthmus.models.responses import (
    Choice,
    CompletionTokensDetails,
    Message,
    ModelResponse,
    ModelStreamEvent,
    PromptTokensDetails,
    ToolCallFunction,
)
from isthmus.wire.frame import Frame


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
    own = step.message
    usage, notes = _usage(step.usage)
    blocks = [
        {"provider": item.provider, "type": item.event_type, "json": item.json.decode("utf-8", "surrogatepass")}
        for item in step.native
        if item is not own
    ]
    extra = {
        "reasoning_content": step.reasoning or None,
        "raw_reason": step.raw_reason,
        "finish": None if finish_of(MODEL_NAMES[step.finish]) == step.finish else str(step.finish),
        "notes": [{"code": str(note.code), "detail": note.detail} for note in (*step.notes, *notes)] or None,
        "native": blocks or None,
    }
    response = ModelResponse(
        model=model,
        created=int(time()),
        choices=[Choice(message=_message(step), finish_reason=MODEL_NAMES[step.finish])],
        usage=usage,
        model_extra={name: value for name, value in extra.items() if value is not None},
    )
    response._step = step
    return response


def _message(step: StepResult) -> Message:
    """What was said, with its native form, so that it can go into the history as it is."""
    calls = [
        responses.ToolCall(
            id=call.call_id or "",
            function=ToolCallFunction(call.tool, call.arguments or dumps(call.input or {}).decode()),
        )
        for call in step.calls
    ]
    refused = step.finish == FinishReason.REFUSAL
    message = Message(
        content=None if refused else step.text or None,
        tool_calls=calls or None,
        refusal=(step.text or _unsaid(step.raw_reason)) if refused else None,
    )
    ours = assistant_message(step).get(RESERVED)
    if ours is not None:
        ours["native"]["of"] = fingerprint(message.to_dict())
        message.model_extra = {RESERVED: ours}
        if ours["native"]["dialect"] == NATIVE_DIALECT:
            message.model_extra[NATIVE_INPUT] = loads(ours["native"]["json"])
    return message


def _unsaid(reason: str | None) -> str:
    """What stands for the text of a refusal that has none."""
    return reason or "refused"


def _usage(usage: Usage | None) -> tuple[responses.Usage | None, tuple[Note, ...]]:
    """The tokens in the model face's buckets, and a note where one of its numbers had to be made up."""
    prompt, output = (None, None) if usage is None else (usage.prompt_tokens, usage.output_tokens)
    if usage is None or (prompt is None and output is None):
        return None, ()
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    longer, extra = usage.cache_write_1h_tokens, {"estimated": True} if usage.estimated else {}
    made = responses.Usage(
        prompt_tokens=prompt or 0,
        completion_tokens=output or 0,
        total_tokens=(prompt or 0) + (output or 0),
        prompt_tokens_details=None
        if set(cached.values()) == {None}
        else PromptTokensDetails(**cached, model_extra={} if longer is None else {"cache_write_1h_tokens": longer}),
        completion_tokens_details=None
        if usage.reasoning_tokens is None
        else CompletionTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        model_extra=extra if usage.raw is None else {**extra, "raw": usage.raw},
    )
    if prompt is not None and output is not None:
        return made, ()
    missing = "prompt_tokens" if prompt is None else "completion_tokens"
    return made, (Note(NoteCode.USAGE_MISSING, f"{missing} is not known and shown as 0"),)


def from_response(response: Any) -> StepResult:
    """The reply that a model-face method returned: a `ModelResponse`, or any object or dict of its shape.

    Raises:
        ProtocolError: it has no choice, or no message in it.
    """
    base = response.step if isinstance(response, ModelResponse) else None
    if base is not None:
        return _edited(response, base)
    return _read(response)


def _edited(response: ModelResponse, base: StepResult) -> StepResult:
    """The reply that a response was made from, with what an author changed on its way."""
    shown = to_response(base)
    same = response.choices == shown.choices
    if same and response.usage == shown.usage and response.model_extra == shown.model_extra:
        return base
    step = _read(response)
    step = msgspec.structs.replace(step, notes=tuple(note for note in step.notes if note not in base.notes))
    changed = msgspec.structs.replace(base, notes=(*base.notes, *step.notes)) if same else _changed(step, base)
    return msgspec.structs.replace(
        changed,
        raw_reason=base.raw_reason if step.finish == base.finish else response.choices[0].finish_reason,
        usage=base.usage if response.usage == shown.usage else step.usage,
        reasoning=step.reasoning,
    )


def _read(response: Any) -> StepResult:
    choices = peek(response, "choices")
    message = peek(choices[0], "message") if isinstance(choices, list | tuple) and choices else None
    if message is None:
        raise ProtocolError(f"get_response must return a ModelResponse with a choice, not {response!r:.80}")
    reason = peek(choices[0], "finish_reason")
    finish, raw_reason = _finish(response, reason)
    refusal = peek(message, "refusal")
    if refusal and finish == FinishReason.REFUSAL and refusal == _unsaid(_extra(response, "raw_reason")):
        text = ""
    else:
        text = text_of(peek(message, "content")) or (refusal if isinstance(refusal, str) else "")
    content: list[Text | Call] = [Text(text)] if text else []
    for call in peek(message, "tool_calls") or ():
        function = peek(call, "function")
        content.append(
            make_call(str(peek(function, "name") or ""), peek(function, "arguments"), call_id=peek(call, "id"))
        )
    notes = _notes(response)
    if not reason:
        notes.append(Note(NoteCode.NO_FINISH_REASON, "the reply came without a finish_reason"))
    if len(choices) > 1:
        notes.append(Note(NoteCode.EXTRA_CHOICES, f"{len(choices) - 1} more choices were left out"))
    reasoning = peek(message, "reasoning_content") or _extra(response, "reasoning_content")
    step = StepResult(
        events=tuple(content),
        finish=FinishReason.REFUSAL.value if refusal else finish,
        raw_reason=raw_reason,
        usage=usage_of(response),
        reasoning=reasoning if isinstance(reasoning, str) else "",
        notes=tuple(notes),
    )
    return to_step_result(step)


def _extra(response: Any, name: str) -> Any:
    found = peek(response, name)
    return peek(peek(response, "model_extra") or {}, name) if found is None else found


def _finish(response: Any, reason: Any) -> tuple[str, str | None]:
    """The finish and the provider's own reason; of a reply that was one of ours, those that it had."""
    own, raw = _extra(response, "finish"), _extra(response, "raw_reason")
    ours = isinstance(own, str) and own in MODEL_NAMES and MODEL_NAMES[own] == reason
    return (own if ours else finish_of(reason)), (raw if isinstance(raw, str) else reason)


def _notes(response: Any) -> list[Note]:
    found = _extra(response, "notes")
    items = found if isinstance(found, list) else ()
    return [
        Note(item["code"], str(item.get("detail", "")))
        for item in items
        if isinstance(item, dict) and isinstance(item.get("code"), str)
    ]


def to_model_event(event: Event) -> ModelStreamEvent | None:
    """One event as the model face shows it; None where the whole reply will say it."""
    kind, raw = type(event), event.raw
    name = raw.event or None if raw is not None else None
    if kind is Text:
        if not event.text:  # type: ignore[union-attr]
            return None
        return ModelStreamEvent(kind="text_delta", text=event.text, raw=raw, provider_event_type=name)  # type: ignore[union-attr]
    if isinstance(event, CallDelta):
        return ModelStreamEvent(
            kind="tool_call_arguments_delta",
            tool_call_id=event.call_id,
            tool_call_index=event.index,
            arguments_delta=event.arguments_delta,
            raw=raw,
            provider_event_type=name,
        )
    if isinstance(event, Reasoning):
        opaque = event.signature or event.encrypted
        return ModelStreamEvent(
            kind="reasoning", reasoning=event.text, reasoning_signature=opaque, raw=raw, provider_event_type=name
        )
    if isinstance(event, Native):
        return ModelStreamEvent(kind="provider", provider_event_type=event.event_type, raw=event.payload)
    if isinstance(event, Call | Finish):
        return None
    if isinstance(event, Aside):
        return event.event  # type: ignore[no-any-return]
    return ModelStreamEvent(kind="provider", provider_event_type=event.type, raw=raw)


def from_model_event(event: Any) -> Event:
    """The event that a model-face stream showed; an `Aside` where it shows none of ours.

    Raises:
        ProtocolError: it is no event of the model face.
    """
    made = _shown(event)
    raw = getattr(event, "raw", None)
    return framed(made, raw) if isinstance(raw, Frame) else made


def _shown(event: Any) -> Event:
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
    if not isinstance(event, ModelStreamEvent):
        names = ModelStreamEvent.__struct_fields__
        event = ModelStreamEvent(**{name: getattr(event, name) for name in names if hasattr(event, name)})
    return Aside(event)
