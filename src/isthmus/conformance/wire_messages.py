"""The Messages API, as a server says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from isthmus.conformance.wire import Asked, Wire, halves, sse, status_of
from isthmus.errors import ConfigError, ErrorClass, TierError
from isthmus.models.events import Call, Finish, Reasoning, StepResult, Text, Usage
from isthmus.models.finish import CHAT_NAMES
from isthmus.models.jsontext import Raw, dumps, loads

_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_KINDS |= {402: "billing_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}
_KINDS |= {529: "overloaded_error", 504: "timeout_error"}
# The API says it in words alone, and so must who plays it.
_SAID = {ErrorClass.OVERFLOW: "prompt is too long: ", ErrorClass.REFUSED: "blocked by content filtering policy: "}


def _reason(finish: str, raw: str | None) -> str:
    return raw or "other" if finish == "other" else CHAT_NAMES[finish]


def _message(asked: Asked, content: list[Any], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": str(asked.get("model") or "scripted"),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _prompt(usage: Usage | None) -> dict[str, int]:
    usage = usage or Usage()
    return {
        "input_tokens": usage.input_tokens or 0,
        "cache_creation_input_tokens": usage.cache_write_tokens or 0,
        "cache_read_input_tokens": usage.cache_read_tokens or 0,
    }


def _output(usage: Usage | None) -> dict[str, int]:
    return {"output_tokens": (usage.output_tokens if usage else None) or 0}


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


class _Blocks:
    """The block that is open, and how many there were."""

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""

    def close(self) -> Iterator[bytes]:
        if self._kind:
            self._kind = ""
            yield _event("content_block_stop", index=self._index)

    def say(self, block: dict[str, Any], *deltas: dict[str, Any], joins: bool = True) -> Iterator[bytes]:
        """Deltas in the open block where it is of that type and they join it, else in a new one."""
        if not (joins and self._kind == block["type"]):
            yield from self.close()
            self._index += 1
            self._kind = block["type"]
            yield _event("content_block_start", index=self._index, content_block=block)
        for delta in deltas:
            yield _event("content_block_delta", index=self._index, delta=delta)


def _stream(items: Sequence[Any], asked: Asked) -> Iterator[bytes | float | BaseException]:
    usage = next((item.usage for item in items if isinstance(item, Finish)), None)
    yield _event("message_start", message=_message(asked, [], None, {**_prompt(usage), "output_tokens": 1}))
    blocks = _Blocks()
    calls = 0
    for item in items:
        if isinstance(item, Text):
            yield from blocks.say({"type": "text", "text": ""}, {"type": "text_delta", "text": item.text})
        elif isinstance(item, Reasoning):
            yield from blocks.say({"type": "thinking", "thinking": "", "signature": ""}, *_thought(item))
        elif isinstance(item, Call):
            opened = {"type": "tool_use", "id": item.call_id or f"toolu_{calls}", "name": item.tool, "input": {}}
            parts = [{"type": "input_json_delta", "partial_json": part} for part in halves(item.arguments or "{}")]
            yield from blocks.say(opened, *parts, joins=False)
            calls += 1
        elif isinstance(item, Finish):
            yield from blocks.close()
            reason = {"stop_reason": _reason(item.finish, item.raw_reason), "stop_sequence": None}
            yield _event("message_delta", delta=reason, usage=_output(item.usage))
            yield _event("message_stop")
        elif isinstance(item, bytes | float | int | BaseException):
            yield item


def _thought(item: Reasoning) -> Iterator[dict[str, Any]]:
    if item.text:
        yield {"type": "thinking_delta", "thinking": item.text}
    if item.signature:
        yield {"type": "signature_delta", "signature": item.signature}


def _whole(step: StepResult, asked: Asked) -> bytes:
    content: list[Any] = []
    if step.reasoning:
        content.append({"type": "thinking", "thinking": step.reasoning, "signature": ""})
    for index, event in enumerate(step.events):
        if isinstance(event, Text):
            content.append({"type": "text", "text": event.text})
            continue
        if event.input is None:
            raise ConfigError(f"call of {event.tool!r}: arguments that are no JSON object can only be streamed here")
        arguments = Raw((event.arguments or "{}").encode())
        identity = event.call_id or f"toolu_{index}"
        content.append({"type": "tool_use", "id": identity, "name": event.tool, "input": arguments})
    usage = {**_prompt(step.usage), **_output(step.usage)}
    return dumps(_message(asked, content, _reason(step.finish, step.raw_reason), usage))


def _error(error: TierError) -> dict[str, Any]:
    kind = error.code or _KINDS.get(status_of(error), "api_error")
    said = _SAID.get(error.error_class, "") + error.message
    return {"type": "error", "error": {"type": kind, "message": said}}


def _failure(error: TierError) -> bytes:
    return dumps(_error(error))


def _error_frame(error: TierError) -> bytes:
    return sse(_error(error), "error")


def _ends(frame: bytes) -> bool:
    """Whether a frame is the end or tells the reason."""
    data = next((line[5:] for line in frame.splitlines() if line.startswith(b"data:")), b"")
    try:
        value = loads(data)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("type") in ("message_delta", "message_stop")


MESSAGES = Wire(
    dialect="anthropic-messages",
    paths=("/v1/messages", "/messages"),
    stream=_stream,
    whole=_whole,
    failure=_failure,
    error_frame=_error_frame,
    ends=_ends,
)
