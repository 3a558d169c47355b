"""A journal in memory, to be cut anywhere, and to fail on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isthmus.harness.errors import JournalError


class Tape:
    """Keeps records as JSON text, as any journal must be able to.

    Args:
        records: what it holds to begin with, by run.
        fails: told of each batch before it is kept; True refuses it.
    """

    def __init__(
        self,
        records: Mapping[str, Sequence[Any]] | None = None,
        *,
        fails: Callable[[Sequence[Any]], bool] = lambda batch: False,
    ) -> None:
        self.runs = {run: [json.dumps(each) for each in held] for run, held in (records or {}).items()}
        self.fails = fails
        self.batches: list[list[str]] = []

    def load(self, run_id: str) -> list[Any]:
        """The records of a run."""
        return [json.loads(each) for each in self.runs.get(run_id, [])]

    def append(self, run_id: str, place: int, *, records: Sequence[Any]) -> None:
        """Add records."""
        held = self.runs.setdefault(run_id, [])
        if len(held) != place:
            raise JournalError(f"somebody else goes on with run {run_id!r}")
        if self.fails(records):
            raise JournalError("the disk is full")
        self.batches.append([each["kind"] for each in records])
        held += [json.dumps(each) for each in records]

    def replace(self, run_id: str, place: int, *, records: Sequence[Any]) -> None:
        """Put others in their place."""
        self.runs[run_id] = [json.dumps(each) for each in records]

    def delete(self, run_id: str) -> None:
        """Forget a run."""
        self.runs.pop(run_id, None)

    def unfinished(self) -> list[str]:
        """Those without an end."""
        return [run for run in self.runs if self.kinds(run)[-1] not in ("end", "paused")]

    def kinds(self, run_id: str) -> list[str]:
        """What a run's records are."""
        return [each["kind"] for each in self.load(run_id)]

    def cut(self, run_id: str, count: int) -> Tape:
        """A journal as it was when the run had this many records."""
        return Tape({run_id: self.load(run_id)[:count]})
