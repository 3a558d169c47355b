"""The journal in SQLite: durable, exclusive by place, and without what was taken out."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from isthmus.harness import DefaultAgent, Journal, JournalError, SqliteJournal, SqliteStateStore
from isthmus.models import internal_message
from support.turns import Turns, asks, call, says


def record(kind: str = "reply", **about: Any) -> dict[str, Any]:
    """A record."""
    return {"kind": kind, **about}


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    """A journal in a folder that is not there yet."""
    return SqliteJournal(tmp_path / "new" / "journal.sqlite")


def bytes_of(journal: SqliteJournal) -> bytes:
    """All that is on the disk."""
    return b"".join(path.read_bytes() for path in journal.path.parent.iterdir())


def test_it_is_a_journal(journal: SqliteJournal) -> None:
    """It has the protocol, and its repr names the file."""
    assert isinstance(journal, Journal)
    assert repr(journal) == f"SqliteJournal({str(journal.path)!r})"


def test_what_is_appended_is_there(journal: SqliteJournal) -> None:
    """In order, by run, for another holder of the file too; lone surrogates and large numbers come back."""
    assert (journal.load("a"), journal.unfinished()) == ([], ())
    assert not journal.path.exists()
    odd = record(text="a\ud800", number=2**70)
    journal.append("a", 0, records=[record("begun"), odd])
    journal.append("b", 0, records=[record("begun")])
    journal.append("a", 2, records=[record("end")])
    other = SqliteJournal(journal.path)
    assert other.load("a") == [record("begun"), odd, record("end")]
    assert other.unfinished() == ("b",)


def test_a_place_that_is_taken_is_refused(journal: SqliteJournal) -> None:
    """All or none of the records; the message says what to do."""
    journal.append("a", 0, records=[record(), record()])
    with pytest.raises(JournalError, match="somebody else"):
        journal.append("a", 1, records=[record("x")])
    with pytest.raises(JournalError, match="somebody else"):
        journal.replace("a", 1, records=[])
    assert len(journal.load("a")) == 2


def test_of_many_writers_at_one_place_one_wins(journal: SqliteJournal) -> None:
    """Threads and holders of the file alike."""
    journals = [journal, *(SqliteJournal(journal.path) for _ in range(3))]

    def write(number: int) -> bool:
        try:
            journals[number % 4].append("a", 0, records=[record(number=number)])
        except JournalError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(16))) == 1
    assert len(journal.load("a")) == 1


def test_what_is_replaced_or_deleted_is_nowhere(journal: SqliteJournal) -> None:
    """Neither the file nor the log beside it holds it any more; other runs stay."""
    journal.append("a", 0, records=[record(text="the canary sings") for _ in range(50)])
    journal.append("b", 0, records=[record(text="another bird")])
    assert b"the canary sings" in bytes_of(journal)
    journal.replace("a", 50, records=[record("end")])
    assert b"the canary sings" not in bytes_of(journal)
    assert journal.load("a") == [record("end")]
    journal.delete("b")
    assert b"another bird" not in bytes_of(journal)
    assert journal.load("b") == []


async def test_ephemeral_context_is_in_no_file_afterwards(journal: SqliteJournal) -> None:
    """While a tool runs the file has it; once the run is over no file does."""
    view = internal_message({"role": "user", "content": "the canary sings"}, origin="ui", ephemeral=True)
    during: list[bool] = []

    def look() -> str:
        during.append(b"the canary sings" in bytes_of(journal))
        return "seen"

    agent = DefaultAgent(model=Turns(asks(call("look")), says("done")), tools=[look], journal=journal)
    await agent.run([view, {"role": "user", "content": "go"}])
    assert during == [True]
    assert b"the canary sings" not in bytes_of(journal)


def test_it_shares_a_file_with_a_state_store(tmp_path: Path) -> None:
    """The conversation and the steps of its runs may stand in one file; each knows its own version."""
    path = tmp_path / "all.sqlite"
    SqliteJournal(path).append("a", 0, records=[record()])
    assert SqliteStateStore(path).load() is None


def test_tables_of_another_version_are_left_alone(journal: SqliteJournal) -> None:
    """It says which version they are of."""
    journal.append("a", 0, records=[record()])
    journal.close()
    with closing(sqlite3.connect(journal.path)) as connection, connection:
        connection.execute("UPDATE isthmus_schema SET version = 7 WHERE part = 'journal'")
    for use in (lambda: journal.load("a"), lambda: journal.append("a", 1, records=[record()])):
        with pytest.raises(JournalError, match="version 7"):
            use()


@pytest.mark.parametrize("text", [b"no json", b"[1]"])
def test_a_record_that_is_none_is_refused(journal: SqliteJournal, text: bytes) -> None:
    """It names the file, the run and the record."""
    journal.append("a", 0, records=[record()])
    journal.close()
    with closing(sqlite3.connect(journal.path)) as connection, connection:
        connection.execute("UPDATE isthmus_journal SET record = ?", (text,))
    with pytest.raises(JournalError, match="run 'a', record 0"):
        journal.load("a")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file that is no database, a folder that is a file, a lock that is held, and memory."""
    (tmp_path / "text").write_text("x" * 5000)
    with pytest.raises(JournalError, match="not a database"):
        SqliteJournal(tmp_path / "text").append("a", 0, records=[record()])
    with pytest.raises(JournalError, match="text"):
        SqliteJournal(tmp_path / "text" / "journal").append("a", 0, records=[record()])
    held = SqliteJournal(tmp_path / "held")
    held.append("a", 0, records=[record()])
    other = SqliteJournal(tmp_path / "held", timeout=0.05)
    with closing(sqlite3.connect(tmp_path / "held", isolation_level=None)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="locked"):
            other.append("a", 1, records=[record()])
        connection.execute("ROLLBACK")
    other.append("a", 1, records=[record()])
    with pytest.raises(ValueError, match="memory"):
        SqliteJournal(":memory:")


def test_an_append_that_returned_survives_a_kill(tmp_path: Path) -> None:
    """The log is forced to the disk by each append (`synchronous` FULL); a process that is killed loses none."""
    path = tmp_path / "journal"
    code = f"""
import os, signal
from isthmus.harness import SqliteJournal
journal = SqliteJournal({str(path)!r})
for place in range(11):
    journal.append("a", place, records=[{{"kind": "x"}}])
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ}, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    journal = SqliteJournal(path)
    assert len(journal.load("a")) == 11
    opened = journal._opened(writes=True)
    assert opened is not None
    names = ("synchronous", "journal_mode", "secure_delete")
    assert [opened.execute(f"PRAGMA {name}").fetchone()[0] for name in names] == [2, "wal", 1]
