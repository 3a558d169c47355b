"""Where the steps of runs are kept while they happen, so that a run survives its process.

A record is a dict of plain JSON with a `kind`. The records of a run stand one behind another, by place, from 0.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeAlias, runtime_checkable
from weakref import finalize

from isthmus.harness.errors import JournalError
from isthmus.models.jsontext import dumps, loads

Record: TypeAlias = Mapping[str, Any]

CLOSING = ("end", "paused")
"""The kinds that a run ends with which is not to be taken up after a crash: it is done, or waits for a person."""


@runtime_checkable
class Journal(Protocol):
    """Keeps the records of runs; synchronous, and called in threads.

    A method that cannot do its work raises a `JournalError` and leaves all as it was.
    """

    def load(self, run_id: str) -> Sequence[Record]:
        """The records of a run, in order; none if it is not known."""
        ...

    def append(self, run_id: str, place: int, *, records: Sequence[Record]) -> None:
        """Add records, all or none; they are on the disk when this returns.

        Args:
            run_id: the run.
            place: how many records the run has; another number means that another process goes on with it.
            records: what to add.

        Raises:
            JournalError: there is a record at this place, or they could not be written.
        """
        ...

    def replace(self, run_id: str, place: int, *, records: Sequence[Record]) -> None:
        """Put these in the place of all records of a run, so that nothing of the old ones is left in the medium.

        Args:
            run_id: the run.
            place: how many records it has.
            records: what is to stand there.

        Raises:
            JournalError: it has another number of records, or they could not be written.
        """
        ...

    def delete(self, run_id: str) -> None:
        """Forget a run; nothing of it is left in the medium."""
        ...

    def unfinished(self) -> Sequence[str]:
        """The runs that came to no end and wait for nobody: they crashed, failed, were stopped, or are under way."""
        ...


_VERSION = 1
_TABLES = (
    "CREATE TABLE IF NOT EXISTS isthmus_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS isthmus_journal (
        run TEXT NOT NULL, place INTEGER NOT NULL, kind TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (run, place)
    ) WITHOUT ROWID""",
    "INSERT INTO isthmus_schema (part, version) VALUES ('journal', 1) ON CONFLICT DO NOTHING",
)
_LAST = """SELECT run FROM isthmus_journal AS each WHERE kind NOT IN (?, ?)
    AND place = (SELECT max(place) FROM isthmus_journal WHERE run = each.run) ORDER BY run"""


class SqliteJournal:
    """A journal in an SQLite file, which several runs, agents and processes may share; a state store, too.

    Each append is a transaction of its own in the write-ahead log, with `synchronous = FULL`: SQLite forces it to the
    disk (`fsync`) before the call returns, so that what was appended survives the loss of power as far as the disk
    keeps its word. What is replaced or deleted is overwritten with zeros, and the log is cut.
    https://www.sqlite.org/pragma.html#pragma_synchronous

    Args:
        path: the file; its folder is made when it is first written.
        timeout: how long to wait for other writers, in seconds; then it is a `JournalError`.

    Raises:
        ValueError: the path is no file.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        if not os.fspath(path) or os.fspath(path) == ":memory:":
            raise ValueError(f"path={os.fspath(path)!r}: must be a file: what is in memory survives no crash")
        self.path = Path(path)
        self._timeout = timeout
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._checked = False

    def __repr__(self) -> str:
        return f"SqliteJournal({str(self.path)!r})"

    def load(self, run_id: str) -> list[Record]:
        """The records of a run, in order; none if it is not known."""
        with self._transaction(writes=False) as connection:
            query = "SELECT record FROM isthmus_journal WHERE run = ? ORDER BY place"
            rows = connection.execute(query, (run_id,)).fetchall() if connection is not None else []
        return [_read(row[0], f"{self.path}, run {run_id!r}, record {place}") for place, row in enumerate(rows)]

    def append(self, run_id: str, place: int, *, records: Sequence[Record]) -> None:
        """Add records, all or none; they are on the disk when this returns."""
        with self._transaction(writes=True) as connection:
            self._add(connection, run_id, _rows(records, place))

    def replace(self, run_id: str, place: int, *, records: Sequence[Record]) -> None:
        """Put these in the place of all records of a run."""
        with self._transaction(writes=True) as connection:
            removed = connection.execute("DELETE FROM isthmus_journal WHERE run = ?", (run_id,)).rowcount
            if removed != place:
                raise self._taken(run_id, place)
            self._add(connection, run_id, _rows(records, 0))
        self._cut()

    def delete(self, run_id: str) -> None:
        """Forget a run."""
        with self._transaction(writes=True) as connection:
            connection.execute("DELETE FROM isthmus_journal WHERE run = ?", (run_id,))
        self._cut()

    def unfinished(self) -> tuple[str, ...]:
        """The runs that came to no end and wait for nobody."""
        with self._transaction(writes=False) as connection:
            rows = connection.execute(_LAST, CLOSING).fetchall() if connection is not None else []
        return tuple(row[0] for row in rows)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            connection, self._connection, self._checked = self._connection, None, False
            if connection is not None:
                connection.close()

    def _add(self, connection: sqlite3.Connection, run_id: str, rows: Iterable[tuple[int, str, bytes]]) -> None:
        try:
            connection.executemany(
                "INSERT INTO isthmus_journal (run, place, kind, record) VALUES (?, ?, ?, ?)",
                [(run_id, *row) for row in rows],
            )
        except sqlite3.IntegrityError:
            raise self._taken(run_id, None) from None

    def _taken(self, run_id: str, place: int | None) -> JournalError:
        expected = "" if place is None else f", which had {place} records"
        return JournalError(
            f"{self.path}: somebody else goes on with run {run_id!r}{expected}: load it anew, and resume it once"
        )

    def _cut(self) -> None:
        """Take what was overwritten out of the write-ahead log as well."""
        with self._lock, self._named():
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Any]:
        """The connection in a transaction, undone by an error; None for a reader where nothing was written yet."""
        with self._lock, self._named():
            connection = self._opened(writes)
            if connection is None:
                yield None
                return
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            with connection:
                if not self._checked:
                    self._check(connection)
                yield connection
            self._checked = True

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{self.path}: {error}: nothing was changed") from error

    def _opened(self, writes: bool) -> sqlite3.Connection | None:
        if self._connection is None:
            if not writes and not self.path.exists():
                return None
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            finalize(self, connection.close)
            for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                connection.execute(f"PRAGMA {setting}").fetchall()
            self._connection = connection
        return self._connection

    def _check(self, connection: sqlite3.Connection) -> None:
        for making in _TABLES:
            connection.execute(making)
        row = connection.execute("SELECT version FROM isthmus_schema WHERE part = 'journal'").fetchone()
        if row[0] != _VERSION:
            raise JournalError(
                f"{self.path}: its tables are of version {row[0]}, and only {_VERSION} is known here: "
                "use the version of this library that made them, or a later one"
            )


def _rows(records: Sequence[Record], place: int) -> list[tuple[int, str, bytes]]:
    return [(place + number, str(record["kind"]), dumps(record)) for number, record in enumerate(records)]


def _read(text: bytes, place: str) -> Record:
    try:
        record = loads(text)
    except ValueError as error:
        raise JournalError(f"{place}: is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise JournalError(f"{place}: must be an object, not a {type(record).__name__}")
    return record
