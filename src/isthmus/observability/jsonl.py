"""A sink that writes one JSON object a span to a file, for people without a collector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from time import monotonic, time
from typing import Any

from isthmus.observability.background import Background
from isthmus.observability.contents import View
from isthmus.observability.facts import Begun, begun, happened, over, tool_unrun
from isthmus.observability.hooks import Record, ToolEnded, TurnEnded
from isthmus.observability.scope import Operation, current


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
        # Numbers are unique in a process only, and files are appended to.
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
            line, since = op.held.pop(self)
            line["seconds"] = round(monotonic() - since, 6)
            line["error"] = closed.error
            # What the adapter has said itself stands.
            line["attributes"] = {**self._view.sent(closed.attributes), **line["attributes"]}
            if closed.message is not None:
                line["attributes"].update(self._view.sent({"exception.message": closed.message}))
            self._later(line)
        elif told is not None and self in op.held:
            op.held[self][0]["events"].append({"name": told[0], **self._view.sent(told[1])})

    def _begin(self, op: Operation, opened: Begun) -> None:
        line = {
            "trace": f"{self._process}-{op.root.id}",
            "span": op.id,
            "parent": None if op.parent is None else op.parent.id,
            "kind": opened.kind,
            "name": opened.name,
            "start": datetime.fromtimestamp(time(), UTC).isoformat(),
            "seconds": 0.0,
            "error": None,
            "attributes": self._view.sent(opened.attributes),
            "events": [],
        }
        op.held[self] = (line, monotonic())

    def enrich(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the current span."""
        op = current()
        if op is not None and self in op.held:
            op.held[self][0]["attributes"].update(attributes)

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
