"""Drives the Chat Completions decoder without a network: bytes to frames to events to a folded reply."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from isthmus.adapters.openai_chat.decode import ChatDecoder
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame


class ReferenceSSE:
    """A slow and obvious splitter of server-sent events: keeps all bytes, splits at blank lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Frames completed by these bytes."""
        self._rest += data
        held_back = b"\r" if self._rest.endswith(b"\r") else b""
        text = self._rest[: len(self._rest) - len(held_back)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *blocks, rest = text.split(b"\n\n")
        self._rest = rest + held_back
        return [frame for block in blocks if (frame := _frame(block)) is not None]

    def close(self) -> list[Frame]:
        """The frame whose blank line never came, if there is one."""
        frame = _frame(self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        return [] if frame is None else [frame]


def _frame(block: bytes) -> Frame | None:
    data: list[bytes] = []
    event = ""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode()
    return Frame(b"\n".join(data), event) if data else None


def decode(pieces: Iterable[bytes], *, ended: Ended = Ended.FRAMED) -> list[Event]:
    """The events of a streamed body that arrives in these pieces."""
    parser, decoder = ReferenceSSE(), ChatDecoder(whole=False)
    events: list[Event] = []
    for piece in pieces:
        for frame in parser.feed(piece):
            events += () if decoder.done else decoder.feed(frame)
    if not decoder.done:
        for frame in parser.close():
            events += decoder.feed(frame)
    return [*events, *decoder.close(Ended.FRAMED if decoder.done else ended)]


def decode_whole(body: bytes, *, ended: Ended = Ended.FRAMED) -> list[Event]:
    """The events of a whole reply."""
    decoder = ChatDecoder(whole=True)
    return [*decoder.feed(Frame(body)), *decoder.close(ended)]


def fold(events: Iterable[Event]) -> StepResult:
    """The reply that the events amount to."""
    folded = Fold()
    for event in events:
        folded.add(event)
    return folded.result()


def step(pieces: Iterable[bytes], *, ended: Ended = Ended.FRAMED) -> StepResult:
    """The folded reply of a streamed body."""
    return fold(decode(pieces, ended=ended))


def whole(body: Any, *, ended: Ended = Ended.FRAMED) -> StepResult:
    """The folded reply of a whole body, given as bytes or as the value to encode."""
    return fold(decode_whole(body if isinstance(body, bytes) else json.dumps(body).encode(), ended=ended))


def sse(*values: Any, done: bool = True) -> bytes:
    """A streamed body of these chunks; bytes stand as they are, with the end mark unless told otherwise."""
    data = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return b"".join(b"data: " + item + b"\n\n" for item in [*data, *([b"[DONE]"] if done else [])])


def chunk(delta: Any = None, finish: str | None = None, **top: Any) -> dict[str, Any]:
    """One chunk with one choice."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}],
        **top,
    }


ABSENT: Any = object()


def tc(index: Any, call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """One entry of `tool_calls`, with the keys that are not `ABSENT`."""
    function = {k: v for k, v in {"name": name, "arguments": arguments}.items() if v is not ABSENT}
    entry = {"index": index, "id": call_id, "type": "function", "function": function}
    return {key: value for key, value in entry.items() if value is not ABSENT}


def call_stream(*entries: dict[str, Any] | list[dict[str, Any]], finish: str = "tool_calls") -> bytes:
    """A stream with one chunk for each entry (or list of entries) of `tool_calls`, and a finish."""
    deltas = [{"tool_calls": entry if isinstance(entry, list) else [entry]} for entry in entries]
    return sse(*[chunk(delta) for delta in deltas], chunk(finish=finish))
