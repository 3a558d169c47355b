"""Conversations in databases: SQLite and PostgreSQL, a row for each.

A change is one statement that names the revision it was made from, in a transaction: a row that it does not meet is a
conflict. A connection lives as long as one operation, so that a store can be used from any thread and holds nothing.
"""

from __future__ import annotations

import os
import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from isthmus.errors import MissingDependencyError
from isthmus.harness.errors import SnapshotError
from isthmus.harness.snapshot import AgentSnapshot
from isthmus.harness.stores import StateStore, check_held, check_higher

_VERSION = 1
_TABLES = (
    "CREATE TABLE IF NOT EXISTS isthmus_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS isthmus_agent_state (
        key TEXT PRIMARY KEY, revision BIGINT NOT NULL, snapshot TEXT NOT NULL
    )""",
    "INSERT INTO isthmus_schema (part, version) VALUES ('agent_state', 1) ON CONFLICT DO NOTHING",
)
_MADE_WITH = "SELECT version FROM isthmus_schema WHERE part = 'agent_state'"
_READ = "SELECT revision, snapshot FROM isthmus_agent_state WHERE key = ?"
_ADD = "INSERT INTO isthmus_agent_state (revision, snapshot, key) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_CHANGE = "UPDATE isthmus_agent_state SET revision = ?, snapshot = ? WHERE key = ? AND revision = ?"
_REMOVE = "DELETE FROM isthmus_agent_state WHERE key = ? AND revision = ?"


class _Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...


class _Connection(Protocol):
    def execute(self, query: str, values: Sequence[Any] = ..., /) -> _Cursor: ...


class _SqlStateStore(StateStore):
    """What the databases have in common: the statements."""

    key: str
    place: str
    _mark = "?"
    _alone: tuple[str, ...] = ()

    @abstractmethod
    def _transaction(self, *, writes: bool) -> AbstractContextManager[_Connection]:
        """A connection inside of a transaction, which ends with the block and is undone by an error."""

    @abstractmethod
    def _has_tables(self, connection: _Connection) -> bool:
        """Whether the tables are there."""

    def load(self) -> AgentSnapshot | None:
        """What is in the row, or None."""
        with self._transaction(writes=False) as connection:
            if not self._has_tables(connection):
                return None
            self._check_version(connection)
            row = self._run(connection, _READ, self.key).fetchone()
        if row is None:
            return None
        try:
            return AgentSnapshot.from_json(row[1])
        except SnapshotError as error:
            raise SnapshotError(f"{self.place}: {error}") from error

    def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
        """Put a snapshot in the place of the one that it was made from."""
        check_higher(snapshot, expected_revision)
        values = (snapshot.revision, snapshot.to_json(), self.key)
        if expected_revision is None:
            self._change(_ADD, *values, expected=None)
        else:
            self._change(_CHANGE, *values, expected_revision, expected=expected_revision)

    def delete(self, *, expected_revision: int | None) -> None:
        """Remove the row."""
        if expected_revision is None:
            held = self.load()
            check_held(None if held is None else held.revision, None, place=self.place)
        else:
            self._change(_REMOVE, self.key, expected_revision, expected=expected_revision)

    def _change(self, statement: str, *values: Any, expected: int | None) -> None:
        with self._transaction(writes=True) as connection:
            if not self._has_tables(connection):
                for making in (*self._alone, *_TABLES):
                    connection.execute(making)
            self._check_version(connection)
            if self._run(connection, statement, *values).rowcount != 1:
                row = self._run(connection, _READ, self.key).fetchone()
                check_held(None if row is None else row[0], expected, place=self.place)

    def _run(self, connection: _Connection, statement: str, *values: Any) -> _Cursor:
        return connection.execute(statement.replace("?", self._mark), values)

    def _check_version(self, connection: _Connection) -> None:
        row = connection.execute(_MADE_WITH).fetchone()
        if row is None or row[0] != _VERSION:
            made = "no version" if row is None else f"version {row[0]}"
            raise SnapshotError(
                f"{self.place}: its tables are of {made}, and only {_VERSION} is known here: "
                "use the version of this library that made them, or a later one"
            )


class SqliteStateStore(_SqlStateStore):
    """Keeps the conversation in a row of an SQLite file, which other agents, processes and tables may share.

    Args:
        path: the file; its folder is made when it is first written.
        key: the row, e.g. the customer that the agent talks to.
        timeout: how long to wait for other writers, in seconds; then it is an `sqlite3.OperationalError`.

    Raises:
        ValueError: the path is no file.
    """

    def __init__(self, path: str | os.PathLike[str], *, key: str = "agent", timeout: float = 30.0) -> None:
        if not os.fspath(path) or os.fspath(path) == ":memory:":
            raise ValueError(f"path={os.fspath(path)!r}: must be a file; MemoryStateStore() keeps it in memory")
        self.path = Path(path)
        self.key = key
        self.place = f"{self.path}, row {key!r}"
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"SqliteStateStore({str(self.path)!r}, key={self.key!r})"

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[_Connection]:
        try:
            with self._opened(writes=writes) as connection:
                yield connection
        except sqlite3.Error as error:
            raise type(error)(f"{self.place}: {error}") from error

    @contextmanager
    def _opened(self, *, writes: bool) -> Iterator[_Connection]:
        if writes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.exists():
            with closing(sqlite3.connect(":memory:")) as nothing:
                yield nothing
            return
        with closing(sqlite3.connect(self.path, timeout=self._timeout, isolation_level=None)) as connection:
            if writes:
                # Another that is about to do the same does not wait for us, and one is enough.
                with suppress(sqlite3.OperationalError):
                    connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            with connection:
                yield connection

    def _has_tables(self, connection: _Connection) -> bool:
        row = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'isthmus_agent_state'").fetchone()
        return bool(row[0])


class PostgresStateStore(_SqlStateStore):
    """Keeps the conversation in a row of a PostgreSQL table, which agents on other machines may share.

    Needs the extra `postgres`.

    Args:
        conninfo: where the database is, as the driver takes it: a URL, or `host=… dbname=…`; it is never shown.
        key: the row, e.g. the customer that the agent talks to.

    Raises:
        MissingDependencyError: the driver is not installed.
    """

    _mark = "%s"
    # Two that make the tables at once would fail on the catalogue, whatever IF NOT EXISTS says.
    _alone = ("SELECT pg_advisory_xact_lock(hashtext('isthmus_schema'))",)

    def __init__(self, conninfo: str, *, key: str = "agent") -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingDependencyError("PostgresStateStore", "psycopg", extra="postgres") from error
        self._connect = psycopg.connect
        self._conninfo = conninfo
        self.key = key
        self.place = f"PostgreSQL, row {key!r}"

    def __repr__(self) -> str:
        return f"PostgresStateStore(key={self.key!r})"

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[_Connection]:
        with self._connect(self._conninfo) as connection:
            yield connection

    def _has_tables(self, connection: _Connection) -> bool:
        return connection.execute("SELECT to_regclass('isthmus_agent_state')").fetchone()[0] is not None
