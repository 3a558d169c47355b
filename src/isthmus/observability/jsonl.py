"""A sink that writes one JSON object a span to a file, for people without a collector."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from os import getpid
from pathlib import Path
from secrets import token_hex
from time import monotonic, time
from typing import Any

from isthmus.observability.background import Background
from isthmus.observability.contents import View
from isthmus.observability.facts import Begun, begun, happened, over, tool_unrun
from isthmus.observability.hooks import Record, ToolEnded, TurnEnded
from isthmus.observability.scope import Operation, current


class _Line:
    """A line that waits for the end of its span, and is written at the latest when nobody holds that any more."""

    __slots__ = ("_later", "_process", "_since", "line")

    def __init__(self, line: dict[str, Any], later: Callable[[Any], Any]) -> None:
        self.line = line
        self._later = later
        self._since = monotonic()
        self._process = getpid()

    def end(self, error: str | None, attributes: Mapping[str, Any]) -> None:
        line, self.line = self.line, {}
        if self._process != getpid():
            # At a fork the child gets a copy of what its parent will write.
            return
        line["seconds"] = round(monotonic() - self._since, 6)
        line["error"] = error
        # What the adapter has said itself stands.
        line["attributes"] = {**attributes, **line["attributes"]}
        self._later(line)

    def __del__(self) -> None:
        if self.line:
            self.end(None, {"isthmus.outcome": "abandoned"})


class JsonLines:
    """Appends a line for each span that ends; a thread of its own writes.

    A line has `trace`, `span`, `parent`, `kind`, `name`, `start`, `seconds`, `error`, `attributes` and `events`. When
    the thread cannot keep up, lines are dropped and counted.

    Args:
        path: the file; it is made if it is not there, for its owner alone.
        view: what may leave.
    """

    def __init__(self, path: str | Path, view: View) -> None:
        self._path = Path(path)
        self._view = view
        self._later = Background(self._write)
        self._process = token_hex(4)

    def __call__(self, record: Record) -> None:
        """Take one record."""
        op: Operation | None = getattr(record, "op", None)
        if op is None:
            return
        if self not in op.held and type(record) is ToolEnded:
            self._begin(op, tool_unrun(record, self._view))
        if self not in op.held and type(record) is TurnEnded:
            self._begin(op, Begun("agent", f"invoke_agent {record.agent}".strip(), {}))
        opened, closed, told = begun(record, self._view), over(record, self._view), happened(record)
        if opened is not None:
            self._begin(op, opened)
        elif closed is not None and self in op.held:
            told_at_end = {**closed.attributes, "error.type": closed.error, "exception.message": closed.message}
            attributes = self._view.sent(told_at_end)
            op.held.pop(self).end(attributes.pop("error.type", None), attributes)
        elif told is not None and self in op.held:
            op.held[self].line["events"].append({"name": told[0], **self._view.sent(told[1])})

    def _begin(self, op: Operation, opened: Begun) -> None:
        line = {
            # Numbers are unique in a process only, files are appended to, and a child of it goes on with them.
            "trace": f"{self._process}{getpid():x}-{op.root.id}",
            "span": op.id,
            "parent": None if op.parent is None else op.parent.id,
            "kind": opened.kind,
            "name": self._view.title(opened.name),
            "start": datetime.fromtimestamp(time(), UTC).isoformat(),
            "seconds": 0.0,
            "error": None,
            "attributes": self._view.sent(opened.attributes),
            "events": [],
        }
        op.held[self] = _Line(line, self._later)

    def enrich(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the current span."""
        op = current()
        if op is not None and self in op.held:
            op.held[self].line["attributes"].update(attributes)

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, default=str) + "\n"
        if not self._path.exists():
            self._path.touch(0o600)
        with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)

    def flush(self, timeout: float) -> bool:
        """Wait until all lines are written; whether they were in time."""
        return self._later.flush(timeout)

    def shutdown(self, timeout: float) -> None:
        """Write what waits and end."""
        self._later.shutdown(timeout)
