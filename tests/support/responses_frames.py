"""Makes replies of the Responses API for tests, and decodes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.adapters.openai_responses.decode import ResponsesDecoder
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 6,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}


def message(text: str = "Hello", item_id: str = "msg_1", **more: Any) -> dict[str, Any]:
    """An output message of one text."""
    part = {"type": "output_text", "text": text, "annotations": more.pop("annotations", [])}
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part], **more}


def refusal(text: str = "I can't.") -> dict[str, Any]:
    """An output message that refuses."""
    return {**message(), "content": [{"type": "refusal", "refusal": text}]}


def call(name: str = "look", arguments: str = '{"x":1}', call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    """A function call."""
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        **more,
    }


def reasoning(text: str = "Hm.", encrypted: str | None = "gAAA", item_id: str = "rs_1") -> dict[str, Any]:
    """A reasoning item."""
    summary = [{"type": "summary_text", "text": text}] if text else []
    hidden = {} if encrypted is None else {"encrypted_content": encrypted}
    return {"id": item_id, "type": "reasoning", "summary": summary, **hidden}


def response(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    """A response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "model": "m-1",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": list(output),
        "usage": USAGE,
        **more,
    }


def body(value: Mapping[str, Any]) -> bytes:
    """A whole reply's bytes."""
    return json.dumps(value).encode()


def frame(kind: str, **members: Any) -> Frame:
    """One event as a frame."""
    return Frame(json.dumps({"type": kind, **members}).encode(), kind)


def text_events(item: Mapping[str, Any], at: int, size: int = 3) -> list[Frame]:
    """A message's events, its text in pieces."""
    label = {"output_index": at, "item_id": item["id"], "content_index": 0}
    part = item["content"][0]
    word, kind = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
    text = part[word]
    return [frame(f"response.{kind}.delta", **label, delta=text[n : n + size]) for n in range(0, len(text), size)]


def call_events(item: Mapping[str, Any], at: int, size: int = 3) -> list[Frame]:
    """A call's events, its arguments in pieces."""
    text, label = item["arguments"], {"output_index": at, "item_id": item["id"]}
    pieces = [text[n : n + size] for n in range(0, len(text), size)]
    return [frame("response.function_call_arguments.delta", **label, delta=piece) for piece in pieces]


def reasoning_events(item: Mapping[str, Any], at: int) -> list[Frame]:
    """A reasoning item's events, one a part of its summary."""
    return [
        frame("response.reasoning_summary_text.delta", output_index=at, item_id=item["id"], summary_index=n, **delta)
        for n, part in enumerate(item["summary"])
        for delta in [{"delta": part["text"]}]
    ]


_DELTAS = {"message": text_events, "function_call": call_events, "reasoning": reasoning_events}
_BEGUN = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}


def streamed(whole: Mapping[str, Any]) -> list[Frame]:
    """The events of a stream that ends in this response."""
    begun = {**whole, "output": [], "status": "in_progress", "usage": None}
    frames = [frame("response.created", response=begun), frame("response.in_progress", response=begun)]
    for at, item in enumerate(whole["output"]):
        start = {**item, **_BEGUN.get(item["type"], {}), "status": "in_progress"}
        frames.append(frame("response.output_item.added", output_index=at, item=start))
        make = _DELTAS.get(item["type"])
        frames += make(item, at) if make is not None else []  # type: ignore[operator]
        frames.append(frame("response.output_item.done", output_index=at, item=item))
    return [*frames, frame(f"response.{whole['status']}", response=whole)]


def sse(frames: Iterable[Frame]) -> bytes:
    """The frames as an event stream."""
    return b"".join(b"event: " + each.event.encode() + b"\ndata: " + each.data + b"\n\n" for each in frames)


def decode(frames: Iterable[Frame], *, whole: bool = False, ended: Ended = Ended.FRAMED) -> list[Event]:
    """The events that frames amount to."""
    decoder = ResponsesDecoder(whole=whole)
    events: list[Event] = []
    for each in frames:
        events += decoder.feed(each)
        if decoder.done:
            break
    return [*events, *decoder.close(Ended.FRAMED if decoder.done else ended)]


def fold(events: Iterable[Event]) -> StepResult:
    """The reply that events fold into."""
    held = Fold()
    held.extend(events)
    return held.result()


def read(value: Mapping[str, Any]) -> StepResult:
    """A whole response, decoded."""
    return fold(decode([Frame(body(value))], whole=True))


def read_stream(frames: Iterable[Frame], ended: Ended = Ended.FRAMED) -> StepResult:
    """A stream, decoded."""
    return fold(decode(frames, ended=ended))
