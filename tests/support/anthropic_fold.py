"""Drives a Messages decoder by hand, for the tests of this dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.anthropic.decode import MessagesDecoder
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame


def sse(*events: dict[str, Any]) -> list[Frame]:
    """The frames of a stream of these events."""
    return [Frame(json.dumps(event).encode(), event["type"]) for event in events]


def start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    """A block begins."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    """A block goes on."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    """A block is whole."""
    return {"type": "content_block_stop", "index": index}


def head(**usage: int) -> dict[str, Any]:
    """A reply begins."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    return {"type": "message_start", "message": {**message, "usage": usage or {"input_tokens": 7, "output_tokens": 1}}}


def tail(reason: str | None = "end_turn", **delta: Any) -> list[dict[str, Any]]:
    """A reply ends: its reason and usage, and the end mark."""
    last = {"type": "message_delta", "delta": {"stop_reason": reason, **delta}, "usage": {"output_tokens": 9}}
    return [last, {"type": "message_stop"}]


def decode(frames: Iterable[Frame], *, whole: bool = False, ended: Ended = Ended.FRAMED) -> list[Event]:
    """All events of a reply, read as a transport's driver does: framed once the end mark was seen."""
    decoder = MessagesDecoder(whole=whole)
    events: list[Event] = []
    for frame in frames:
        events += decoder.feed(frame)
    return events + list(decoder.close(Ended.FRAMED if decoder.done else ended))


def folded(events: Iterable[Event]) -> StepResult:
    """The reply that these events amount to."""
    fold = Fold()
    for event in events:
        fold.add(event)
    return fold.result()


def result(*events: dict[str, Any], ended: Ended = Ended.FRAMED) -> StepResult:
    """The reply that a stream of wire events amounts to."""
    return folded(decode(sse(*events), ended=ended))


def whole(content: list[dict[str, Any]], reason: str | None = "end_turn", **more: Any) -> StepResult:
    """The reply that a whole message amounts to."""
    usage = {"input_tokens": 7, "output_tokens": 9}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": reason}
    return folded(decode([Frame(json.dumps({**message, "usage": usage, **more}).encode())], whole=True))


def codes(item: Any) -> list[str]:
    """The codes of a reply's, or a request's, notes."""
    return [str(note.code) for note in item.notes]


def request(*messages: dict[str, Any], codec: MessagesCodec | None = None, **fields: Any) -> tuple[dict[str, Any], Any]:
    """The body that a context is sent as, decoded, and the request that holds it."""
    made = (codec or MessagesCodec("m")).encode(GenerateContext(messages=messages, **fields), stream=False)
    return json.loads(made.call.body), made


def user(content: Any = "hi") -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": content}


def call(call_id: str, name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    """One call of an assistant message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    """An assistant message with calls."""
    return {"role": "assistant", "content": text, "tool_calls": list(made)}


def answer(call_id: str | None, content: Any = "ok", **more: Any) -> dict[str, Any]:
    """A tool's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}
