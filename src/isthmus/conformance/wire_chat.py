"""Chat Completions, as a server says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from isthmus.conformance.wire import Asked, Wire, halves, sse, status_of
from isthmus.errors import ErrorClass, TierError
from isthmus.models.events import Call, Finish, Reasoning, StepResult, Text, Usage
from isthmus.models.finish import MODEL_NAMES
from isthmus.models.jsontext import dumps, loads

_FINISHES = {**MODEL_NAMES, "pause": "pause"}
_CODES = {
    ErrorClass.OVERFLOW: "context_length_exceeded",
    ErrorClass.REFUSED: "content_policy_violation",
    ErrorClass.CREDENTIALS: "invalid_api_key",
    ErrorClass.UNAVAILABLE: "service_unavailable",
    ErrorClass.TRANSIENT: "server_error",
    ErrorClass.INVALID: "invalid_request",
}
_CREATED = 1_700_000_000


def _head(asked: Asked, kind: str) -> dict[str, Any]:
    model = str(asked.get("model") or "scripted")
    return {"id": "chatcmpl-scripted", "object": kind, "created": _CREATED, "model": model}


def _usage(usage: Usage) -> dict[str, Any]:
    prompt, output = usage.prompt_tokens or 0, usage.output_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


def _reason(finish: str, raw: str | None) -> str:
    return raw or "other" if finish == "other" else _FINISHES[finish]


def _call(call: Call, index: int, arguments: str) -> dict[str, Any]:
    return {
        "id": call.call_id or f"call_{index}",
        "type": "function",
        "function": {"name": call.tool, "arguments": arguments},
    }


def _stream(items: Sequence[Any], asked: Asked) -> Iterator[bytes | float | BaseException]:
    head = _head(asked, "chat.completion.chunk")
    wants_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
    refused = any(isinstance(item, Finish) and item.finish == "refusal" for item in items)

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def call_chunk(slot: dict[str, Any]) -> bytes:
        return chunk({"tool_calls": [slot]})

    role = {"role": "assistant"}
    calls = 0
    for item in items:
        if isinstance(item, Text):
            yield chunk({**role, "refusal" if refused else "content": item.text})
        elif isinstance(item, Reasoning):
            yield chunk({**role, "reasoning_content": item.text})
        elif isinstance(item, Call):
            first, second = halves(item.arguments or "{}")
            yield call_chunk({"index": calls, **_call(item, calls, first)})
            yield call_chunk({"index": calls, "function": {"arguments": second}})
            calls += 1
        elif isinstance(item, Finish):
            yield chunk({}, _reason(item.finish, item.raw_reason))
            if item.usage is not None and wants_usage:
                yield sse({**head, "choices": [], "usage": _usage(item.usage)})
            yield sse("[DONE]")
        elif isinstance(item, bytes | float | int | BaseException):
            yield item


def _whole(step: StepResult, asked: Asked) -> bytes:
    said = "refusal" if step.finish == "refusal" else "content"
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    message[said] = step.text or None
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    if step.calls:
        message["tool_calls"] = [_call(call, index, call.arguments or "{}") for index, call in enumerate(step.calls)]
    choice = {"index": 0, "message": message, "finish_reason": _reason(step.finish, step.raw_reason)}
    usage = {} if step.usage is None else {"usage": _usage(step.usage)}
    return dumps({**_head(asked, "chat.completion"), "choices": [choice], **usage})


def _error(error: TierError) -> dict[str, Any]:
    kind = "invalid_request_error" if status_of(error) < 500 else "server_error"
    code = error.code or _CODES.get(error.error_class)
    return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


def _failure(error: TierError) -> bytes:
    return dumps(_error(error))


def _error_frame(error: TierError) -> bytes:
    return sse(_error(error))


def _ends(frame: bytes) -> bool:
    """Whether a frame holds the mark of the end, the reason, or the usage that comes after it."""
    data = b"".join(line[5:] for line in frame.splitlines() if line.startswith(b"data:")).strip()
    if data == b"[DONE]":
        return True
    try:
        value = loads(data)
    except ValueError:
        return False
    if not isinstance(value, dict) or not isinstance(choices := value.get("choices"), list):
        return False
    return any(choice.get("finish_reason") for choice in choices) or bool(not choices and value.get("usage"))


CHAT = Wire(
    dialect="openai-chat",
    paths=("/chat/completions",),
    stream=_stream,
    whole=_whole,
    failure=_failure,
    error_frame=_error_frame,
    ends=_ends,
)
