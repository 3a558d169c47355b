"""Drives Bedrock's codecs by hand, and plays its server over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from isthmus.adapters.bedrock.codec import ConverseCodec, InvokeCodec
from isthmus.adapters.bedrock.sniff import BedrockDecoder
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.eventstream import EventStreamParser
from isthmus.wire.frame import Frame
from support.bedrock_reading import message
from support.loopback import LAST, Step, chunk, head, whole

NAMES: dict[str, str] = {}
USAGE = {"inputTokens": 7, "outputTokens": 9, "totalTokens": 16}


def text(said: str, index: int = 0) -> tuple[str, dict[str, Any]]:
    """A piece of text."""
    return delta(index, text=said)


def delta(index: int, **held: Any) -> tuple[str, dict[str, Any]]:
    """A piece of a block."""
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": held, "p": "abc"}


def start(index: int, **held: Any) -> tuple[str, dict[str, Any]]:
    """A block begins."""
    return "contentBlockStart", {"contentBlockIndex": index, "start": held}


def stop(index: int = 0) -> tuple[str, dict[str, Any]]:
    """A block is whole."""
    return "contentBlockStop", {"contentBlockIndex": index}


def tool(index: int, *pieces: str, call_id: str = "t1", name: str = "f") -> list[tuple[str, dict[str, Any]]]:
    """A whole call, its arguments in pieces."""
    made = [delta(index, toolUse={"input": piece}) for piece in pieces]
    return [start(index, toolUse={"toolUseId": call_id, "name": name}), *made, stop(index)]


def tail(reason: str = "end_turn", **metadata: Any) -> list[tuple[str, dict[str, Any]]]:
    """A reply ends: its reason, then its usage."""
    return [("messageStop", {"stopReason": reason}), ("metadata", {"usage": USAGE, "metrics": {}, **metadata})]


def frames(*events: tuple[str, dict[str, Any]]) -> list[Frame]:
    """The frames of a stream of these events."""
    return [Frame(json.dumps(value).encode(), name) for name, value in events]


def decode(found: Iterable[Frame], *, whole: bool = False, ended: Ended = Ended.FRAMED) -> list[Event]:
    """All events of a reply."""
    decoder = BedrockDecoder(whole=whole, names=NAMES)
    events: list[Event] = []
    for frame in found:
        events += decoder.feed(frame)
        if decoder.done:
            break
    return events + list(decoder.close(Ended.FRAMED if decoder.done else ended))


def folded(events: Iterable[Event]) -> StepResult:
    """The reply that these events amount to."""
    fold = Fold()
    for event in events:
        fold.add(event)
    return fold.result()


def result(*events: tuple[str, dict[str, Any]], ended: Ended = Ended.FRAMED) -> StepResult:
    """The reply that a stream of wire events amounts to."""
    return folded(decode(frames(*events), ended=ended))


def document(content: list[Any], reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    """A whole reply of Converse."""
    held = {"message": {"role": "assistant", "content": content}}
    return {"output": held, "stopReason": reason, "usage": USAGE, "metrics": {"latencyMs": 1}, **more}


def read_whole(value: Any) -> StepResult:
    """The reply that a JSON document amounts to."""
    return folded(decode([Frame(json.dumps(value).encode())], whole=True))


def read_body(body: bytes, *, ended: Ended = Ended.FRAMED) -> StepResult:
    """The reply that the bytes of a stream amount to."""
    parser = EventStreamParser()
    return folded(decode([*parser.feed(body), *parser.close()], ended=ended))


def codes(item: Any) -> list[str]:
    """The codes of a reply's, or a request's, notes."""
    return [str(note.code) for note in item.notes]


def request(*messages: dict[str, Any], codec: Any = None, **fields: Any) -> tuple[dict[str, Any], Any]:
    """The body that a context is sent as by Converse, decoded, and the request that holds it."""
    made = (codec or ConverseCodec("amazon.m")).encode(GenerateContext(messages=messages, **fields), stream=False)
    return json.loads(made.call.body), made


def invoked(*messages: dict[str, Any], codec: Any = None, **fields: Any) -> tuple[dict[str, Any], Any]:
    """The same by InvokeModel."""
    return request(*messages, codec=codec or InvokeCodec("anthropic.m"), **fields)


def served(*messages: bytes, last: bool = True) -> list[Step]:
    """A streamed reply over HTTP, one chunk a message."""
    kind = "application/vnd.amazon.eventstream"
    steps: list[Step] = [head(content_type=kind, transfer_encoding="chunked")]
    steps += [chunk(each) for each in messages]
    return [*steps, LAST] if last else steps


def stream(*events: tuple[str, dict[str, Any]]) -> list[Step]:
    """A streamed reply of Converse over HTTP."""
    return served(*(message(name, value) for name, value in events))


def reply(value: Any, status: int = 200, **headers: str) -> list[Step]:
    """A whole reply over HTTP."""
    return [whole(json.dumps(value).encode(), status, **headers)]
