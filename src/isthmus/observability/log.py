"""A sink that writes records to the standard logging, under logger names that start with `isthmus.`.

One switch, the variable `ISTHMUS_LOG`, sends them to stderr: "info" for turns and chains, "debug" for tools and reply
heads too, "wire" for every byte as well, with anything key-like taken out.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from isthmus.observability.background import Background
from isthmus.observability.config import LEVELS
from isthmus.observability.hooks import (
    ChainEvent,
    ChainEventType,
    ModelEnded,
    Record,
    ToolEnded,
    TurnEnded,
    WireChunk,
    WireReceived,
    WireSent,
    add_sink,
)
from isthmus.observability.scope import trace_ids
from isthmus.secret import HIDDEN, clean_url, names_secret, redact, redact_members

VARIABLE = "ISTHMUS_LOG"

# What may be the beginning of a key: it waits for the next chunk, so that a key cut in two is still seen whole.
_UNFINISHED = re.compile(r'(?i)(?:bearer\s+|"[-\w]+"\s*:\s*")?[\w\-*.~+/=\\]*$')
_MOST_HELD = 4096
# How many seconds to wait, at the end, for lines to be written.
_PATIENCE = 2.0
_ENDS = (ChainEventType.ATTEMPT_FINISHED, ChainEventType.ATTEMPT_FAILED, ChainEventType.ATTEMPT_CANCELLED)


def _clean_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if names_secret(name) else redact(str(value)) for name, value in headers.items()}


class LogSink:
    """Writes each record as one line; give it to `isthmus.observability.hooks.add_sink`.

    Args:
        wire: whether to write bodies and chunks too.
        contents: whether to write what may repeat what was said: messages of errors, and names that a model made up.
    """

    def __init__(self, wire: bool = False, *, contents: bool = True) -> None:
        self.wire = wire
        self._contents = contents
        self._held: dict[str, str] = {}
        self._writers: Mapping[type, Callable[[Any], None]] = {
            TurnEnded: self._turn,
            ChainEvent: self._chain,
            ModelEnded: self._model,
            ToolEnded: self._tool,
            WireSent: self._sent,
            WireReceived: self._received,
            WireChunk: self._chunk,
        }

    def __call__(self, record: Record) -> None:
        """Write one record."""
        writer = self._writers.get(type(record))
        if writer is not None:
            writer(record)

    def _turn(self, record: TurnEnded) -> None:
        self._flush()
        why = "" if record.reason is None else f" ({record.reason})"
        extra = trace_ids(record.op)
        _turn.info("%s: %s%s after %d steps", record.agent, record.outcome, why, record.steps, extra=extra)

    def _chain(self, record: ChainEvent) -> None:
        if record.type in _ENDS:
            self._flush()
        said = record.fields
        if not self._contents:
            silent = {"message", *(name for name, value in record.detail.items() if not isinstance(value, int | float))}
            said = {name: value for name, value in said.items() if name not in silent}
        fields = " ".join(f"{name}={redact_members(str(value))}" for name, value in said.items())
        _chain.info("%s: %s %s", record.chain, record.type, fields, extra=trace_ids(record.op))

    def _tool(self, record: ToolEnded) -> None:
        known = self._contents or record.outcome != "unknown-tool"
        said = (record.tool if known else "", record.call_id, record.outcome, record.seconds)
        _tool.debug("%s %s: %s after %.3f s", *said, extra=trace_ids(record.op))

    def _model(self, record: ModelEnded) -> None:
        said = (record.reply_model or "", record.outcome, record.seconds)
        _model.debug("%s: %s after %.3f s", *said, extra=trace_ids(record.op))

    def _sent(self, record: WireSent) -> None:
        self._flush()
        if self.wire:
            headers, body = (
                _clean_headers(record.headers),
                redact_members(record.body.decode("utf-8", "backslashreplace")),
            )
            _wire.debug("> %s %s %r %r", record.method, clean_url(record.url), headers, body)

    def _received(self, record: WireReceived) -> None:
        headers: Any = _clean_headers(record.headers) if self.wire else ""
        _wire.debug("< %d %s %s", record.status, clean_url(record.url), headers)

    def _chunk(self, record: WireChunk) -> None:
        if not self.wire:
            return
        text = self._held.pop(record.url, "") + record.data.decode("utf-8", "backslashreplace")
        tail = _UNFINISHED.search(text)
        cut = tail.start() if tail is not None and len(text) - tail.start() <= _MOST_HELD else len(text)
        if text[cut:]:
            self._held[record.url] = text[cut:]
        if text[:cut]:
            _wire.debug("< %s %r", clean_url(record.url), redact_members(text[:cut]))

    def _flush(self) -> None:
        held, self._held = self._held, {}
        for url, text in held.items():
            _wire.debug("< %s %r", clean_url(url), redact_members(text))


_turn = logging.getLogger("isthmus.turn")
_chain = logging.getLogger("isthmus.chain")
_tool = logging.getLogger("isthmus.tool")
_model = logging.getLogger("isthmus.model")
_wire = logging.getLogger("isthmus.wire")


class TraceIds(logging.Filter):
    """Gives each log record the attributes `trace_id` and `span_id`, "" outside of any trace; put it on a handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let it pass, with the ids of what it is about, or else of what is current."""
        if not hasattr(record, "trace_id"):
            record.__dict__.update({"trace_id": "", "span_id": "", **trace_ids()})
        return True


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        trace_id, line = getattr(record, "trace_id", ""), super().format(record)
        return f"{line} trace_id={trace_id} span_id={getattr(record, 'span_id', '')}" if trace_id else line


class _Later(logging.Handler):
    """Writes to stderr in a thread of its own: a terminal that blocks holds up nobody."""

    def __init__(self, *, contents: bool) -> None:
        super().__init__()
        self._contents = contents
        stream = logging.StreamHandler()
        stream.setFormatter(_Line("%(asctime)s %(name)s %(levelname)s %(message)s"))
        self.addFilter(TraceIds())
        self.later = Background(stream.handle)

    def emit(self, record: logging.LogRecord) -> None:
        # What it was asked to say may change before it is written.
        shown = copy(record)
        shown.msg, shown.args = record.getMessage(), None
        if not self._contents:
            shown.msg, shown.exc_info = getattr(record, "without_contents", shown.msg), None
            if shown.msg is None:
                return
        self.later(shown)


class Logged:
    """Writes records to stderr from now on, until it is shut down.

    Args:
        level: "info", "debug" or "wire".
        contents: whether to write what may repeat what was said.

    Raises:
        ValueError: another level.
    """

    def __init__(self, level: str, *, contents: bool = True) -> None:
        if level not in LEVELS:
            raise ValueError(f"{VARIABLE} must be one of {', '.join(LEVELS)}, not {level!r}")
        root = logging.getLogger("isthmus")
        self._handler = _Later(contents=contents)
        self._before = root.level
        root.addHandler(self._handler)
        root.setLevel(logging.INFO if level == "info" else logging.DEBUG)
        self._remove = add_sink(LogSink(wire=level == "wire", contents=contents))

    def flush(self, timeout: float) -> bool:
        """Wait until all lines are written; whether they were in time."""
        return self._handler.later.flush(timeout)

    def shutdown(self, timeout: float) -> None:
        """Write what waits and end."""
        root = logging.getLogger("isthmus")
        self._remove()
        root.removeHandler(self._handler)
        root.setLevel(self._before)
        self._handler.later.shutdown(timeout)


def start(level: str) -> Callable[[], None]:
    """Write records to stderr from now on, contents and all; call what is returned to stop.

    Args:
        level: "info", "debug" or "wire".

    Raises:
        ValueError: another level.
    """
    logged = Logged(level)

    def stop() -> None:
        logged.shutdown(_PATIENCE)
        atexit.unregister(stop)

    atexit.register(stop)
    return stop


def start_from_environment() -> None:
    """Do what `ISTHMUS_LOG` says; a value that says nothing is reported, and nothing is logged."""
    level = os.environ.get(VARIABLE, "").strip().lower()
    try:
        start(level)
    except ValueError as error:
        logging.getLogger("isthmus").warning("%s", error)
