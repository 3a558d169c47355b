"""Pieces of LangServe's streams and bodies, written by hand."""

from __future__ import annotations

import json
from typing import Any

from isthmus.adapters.langserve.decode import LangServeDecoder
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

ROOT, ONE, TWO = "run-root", "run-one", "run-two"
DONE = {"finish_reason": "stop"}
SPENT = {"input_tokens": 20, "output_tokens": 6, "total_tokens": 26}


def message(content: Any = "", kind: str = "ai", **fields: Any) -> dict[str, Any]:
    """A message of the assistant's as the server writes it."""
    base = {"content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "id": "run-1"}
    return {**base, "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None, **fields}


def said(content: Any = "", **fields: Any) -> dict[str, Any]:
    """A piece of a message."""
    return message(content, "AIMessageChunk", **fields)


def piece(index: Any, args: str | None, name: str | None = None, call_id: str | None = None) -> dict[str, Any]:
    """A piece of a call, in a piece of a message whose own reading of it is a wrong guess."""
    chunk = {"name": name, "args": args, "id": call_id, "index": index, "type": "tool_call_chunk"}
    return said("", tool_call_chunks=[chunk], tool_calls=[{"name": "", "args": {}, "id": None}])


def event(name: str, run: str | None = ROOT, parents: list[str] | None = (), **data: Any) -> Frame:  # type: ignore[assignment]
    """One event of a run; `parents` None leaves them out, as older servers do."""
    value: dict[str, Any] = {"event": name, "name": "/x", "data": data}
    value |= {} if run is None else {"run_id": run}
    value |= {} if parents is None else {"parent_ids": list(parents)}
    return Frame(json.dumps(value).encode(), "data")


END = Frame(b"", "end")
FAILED = Frame(b'{"status_code": 500, "message": "Internal Server Error"}', "error")


def model_run(*pieces: Any, run: str = ROOT, parents: Any = (), output: Any = None) -> list[Frame]:
    """The events of one model: start, pieces, end."""
    frames = [event("on_chat_model_start", run, parents, input={})]
    frames += [event("on_chat_model_stream", run, parents, chunk=chunk) for chunk in pieces]
    return [*frames, event("on_chat_model_end", run, parents, output=output)]


def chain_run(*inner: Frame, output: Any = None, chunks: tuple[Any, ...] = ()) -> list[Frame]:
    """The events of a root chain around others."""
    shown = [event("on_chain_stream", chunk=chunk) for chunk in chunks]
    return [event("on_chain_start", input={}), *inner, *shown, event("on_chain_end", output=output)]


def decoded(frames: list[Frame], *, parse: Any = None, whole: bool = False, ended: Ended = Ended.FRAMED) -> list[Event]:
    """The events of a reply."""
    decoder = LangServeDecoder(whole=whole, parse=parse)
    found: list[Event] = []
    for frame in frames:
        found += decoder.feed(frame)
        if decoder.done:
            break
    return [*found, *decoder.close(Ended.FRAMED if decoder.done else ended)]


def reply(frames: list[Frame], **how: Any) -> StepResult:
    """The result of a stream."""
    fold = Fold()
    fold.extend(decoded(frames, **how))
    return fold.result()


def body(output: Any, **how: Any) -> StepResult:
    """The result of a body of `/invoke`."""
    return reply([Frame(json.dumps({"output": output, "metadata": {"run_id": "r"}}).encode())], whole=True, **how)


def stream_bytes(frames: list[Frame]) -> bytes:
    """The same frames as the server frames them."""
    return b"".join(b"event: %s\r\ndata: %s\r\n\r\n" % (f.event.encode(), f.data) for f in frames)
