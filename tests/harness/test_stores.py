"""Where conversations are kept: one contract for all stores, and what is particular to each."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import MissingDependencyError
from isthmus.harness.errors import SnapshotError, StateConflictError
from isthmus.harness.snapshot import AgentSnapshot
from isthmus.harness.sqlstores import PostgresStateStore, SqliteStateStore
from isthmus.harness.state import RunState
from isthmus.harness.stores import JsonFileStateStore, MemoryStateStore, StateStore
from support import postgres

KINDS = ["memory", "json", "sqlite", "postgres"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A real server, or a skip that says why there is none."""
    if postgres.missing():
        pytest.skip(postgres.missing())
    with postgres.running() as conninfo:
        yield conninfo


Make = Callable[[], StateStore]


@pytest.fixture(params=KINDS)
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores of the same place."""
    if request.param == "memory":
        memory = MemoryStateStore()
        return lambda: memory
    if request.param == "json":
        return lambda: JsonFileStateStore(tmp_path / "new" / "state.json")
    if request.param == "sqlite":
        return lambda: SqliteStateStore(tmp_path / "new" / "state.db")
    conninfo = request.getfixturevalue("server")
    return lambda: PostgresStateStore(conninfo, key=str(tmp_path))


def shot(revision: int, text: str = "hi") -> AgentSnapshot:
    """A snapshot of this revision."""
    state = RunState(history=[{"role": "user", "content": text}], shim_state={"x": [revision]}, revision=revision)
    return AgentSnapshot.capture(state, agent_id={"type": "scout", "key": "7"})


def test_an_empty_place_holds_nothing(again: Make) -> None:
    """Loading what was never saved gives None and makes nothing; emptying it again is no conflict."""
    assert again().load() is None
    again().delete(expected_revision=None)
    assert again().load() is None


def test_what_was_saved_is_loaded(again: Make) -> None:
    """Another store of the same place gives an equal snapshot, whatever text is in it."""
    first, second = shot(1, 'a "quoted"\x00 {text} % ? é \U0001f642 \ud800'), shot(5)
    again().save(first, expected_revision=None)
    assert again().load() == first
    again().save(second, expected_revision=1)
    assert again().load() == second
    again().delete(expected_revision=5)
    assert again().load() is None
    again().save(first, expected_revision=None)
    assert again().load() == first


def test_two_loads_share_nothing(again: Make) -> None:
    """F13: what is done to a state that was restored reaches neither the store nor another restore."""
    again().save(shot(1), expected_revision=None)
    one, two = (store.load().to_run_state() for store in (again(), again()))  # type: ignore[union-attr]
    one.shim_state["x"].append(9)
    assert two.shim_state == {"x": [1]}
    assert again().load().to_run_state().shim_state == {"x": [1]}  # type: ignore[union-attr]


@pytest.mark.parametrize("expected", [None, 1, 3])
def test_a_change_from_another_revision_is_a_conflict(again: Make, expected: int | None) -> None:
    """The error names both revisions, is a ValueError, and what is there stays."""
    again().save(shot(2), expected_revision=None)
    for change in (
        lambda: again().save(shot(9), expected_revision=expected),
        lambda: again().delete(expected_revision=expected),
    ):
        with pytest.raises(StateConflictError, match="holds revision 2, not") as caught:
            change()
        assert isinstance(caught.value, ValueError)
        assert (caught.value.expected, caught.value.held) == (expected, 2)
    assert again().load().revision == 2  # type: ignore[union-attr]


def test_a_change_of_what_is_gone_is_a_conflict(again: Make) -> None:
    """A revision is expected and nothing is there."""
    for change in (
        lambda: again().save(shot(2), expected_revision=1),
        lambda: again().delete(expected_revision=1),
    ):
        with pytest.raises(StateConflictError, match="holds nothing, not revision 1"):
            change()
    assert again().load() is None


@pytest.mark.parametrize("revision", [1, 2])
def test_a_revision_must_rise(again: Make, revision: int) -> None:
    """A snapshot that is not newer than what it was made from is refused."""
    again().save(shot(2), expected_revision=None)
    with pytest.raises(ValueError, match=f"revision={revision}: must be higher than expected_revision=2"):
        again().save(shot(revision), expected_revision=2)
    assert again().load().revision == 2  # type: ignore[union-attr]


def test_of_many_threads_one_wins(again: Make) -> None:
    """Eight threads change the same revision at once: one succeeds, seven have a conflict."""
    again().save(shot(1), expected_revision=None)
    start, results = threading.Barrier(8), []

    def change(number: int) -> None:
        start.wait()
        try:
            again().save(shot(2, str(number)), expected_revision=1)
            results.append(number)
        except StateConflictError:
            results.append(None)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number in results if number is not None]
    assert (len(results), len(winners)) == (8, 1)
    assert again().load().to_run_state().history[0]["content"] == str(winners[0])  # type: ignore[union-attr]


RIVAL = """
import sys
from isthmus.harness.errors import StateConflictError
from isthmus.harness.snapshot import AgentSnapshot
from isthmus.harness.sqlstores import PostgresStateStore, SqliteStateStore
from isthmus.harness.state import RunState
from isthmus.harness.stores import JsonFileStateStore
kind, place, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "postgres":
    store = PostgresStateStore(place, key="rivals")
else:
    store = {"json": JsonFileStateStore, "sqlite": SqliteStateStore}[kind](place)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(rounds):
    held = store.load()
    before = None if held is None else held.revision
    state = RunState(shim_state={"pad": "x" * 5000}, revision=(before or 0) + 1)
    try:
        store.save(AgentSnapshot.capture(state, agent_id={"type": "a", "key": "b"}), expected_revision=before)
    except StateConflictError:
        print("lost", flush=True)
    else:
        print("won", state.revision, flush=True)
"""


def rivals(kind: str, place: str, *, count: int, rounds: int) -> list[subprocess.Popen[str]]:
    """Start writers in processes of their own, all at once."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", RIVAL, kind, place, str(rounds)]
    pipe = subprocess.PIPE
    made = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) for _ in range(count)]
    for each in made:
        assert each.stdout is not None
        assert each.stdin is not None
        assert each.stdout.readline() == "ready\n"
    for each in made:
        each.stdin.write("go\n")  # type: ignore[union-attr]
        each.stdin.flush()  # type: ignore[union-attr]
    return made


@pytest.mark.parametrize("kind", ["json", "sqlite", "postgres"])
def test_of_several_processes_one_wins_each_revision(kind: str, tmp_path: Path, request: Any) -> None:
    """Four processes write as fast as they can, the place empty at first: each revision was won once, none was lost."""
    place = request.getfixturevalue("server") if kind == "postgres" else str(tmp_path / "state")
    said = [each.communicate(timeout=120)[0].split("\n") for each in rivals(kind, place, count=4, rounds=25)]
    won = sorted(int(line.split()[1]) for lines in said for line in lines if line.startswith("won"))
    assert sum(len(lines) - 1 for lines in said) == 100, said
    assert won == list(range(1, len(won) + 1))


@pytest.mark.parametrize("kind", ["json", "sqlite"])
def test_a_killed_writer_leaves_a_whole_snapshot(kind: str, tmp_path: Path) -> None:
    """After `kill -9` while it writes, the last revision that was acknowledged, or the next, is there whole."""
    for number in range(5):
        (writer,) = rivals(kind, str(tmp_path / "state"), count=1, rounds=100_000)
        time.sleep(0.02 + 0.017 * number)
        writer.send_signal(signal.SIGKILL)
        said = writer.communicate()[0].split()
        store = JsonFileStateStore(tmp_path / "state") if kind == "json" else SqliteStateStore(tmp_path / "state")
        held = store.load()
        last = int(said[-1]) if said and said[-1].isdigit() else None
        if last is not None:
            assert held is not None
            assert held.revision in (last, last + 1)
        store.save(shot((held.revision if held else 0) + 1), expected_revision=held.revision if held else None)


def test_a_file_is_its_owners_and_leaves_no_scraps(tmp_path: Path) -> None:
    """The file can be read by nobody else, and only the lock file stands beside it."""
    store = JsonFileStateStore(tmp_path / "state.json")
    store.save(shot(1), expected_revision=None)
    store.save(shot(2), expected_revision=1)
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "state.json.lock"]
    assert json.loads((tmp_path / "state.json").read_text())["revision"] == 2


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is an error of its own type, the old snapshot stays, and no scrap."""
    store = JsonFileStateStore(tmp_path / "state.json")
    store.save(shot(1), expected_revision=None)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.save(shot(2), expected_revision=1)
    assert store.load().revision == 1  # type: ignore[union-attr]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "state.json.lock"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The file behind a symbolic link is replaced, not the link."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "real.json")
    JsonFileStateStore(tmp_path / "link.json").save(shot(1), expected_revision=None)
    assert (tmp_path / "link.json").is_symlink()
    assert JsonFileStateStore(tmp_path / "there" / "real.json").load().revision == 1  # type: ignore[union-attr]


def test_a_file_that_cannot_be_read_fails_closed(tmp_path: Path) -> None:
    """F13: a broken file is an error that names it, for writers too, and nothing overwrites it."""
    path = tmp_path / "state.json"
    path.write_text('{"schema_version": 2}')
    store = JsonFileStateStore(path)
    for use in (
        store.load,
        lambda: store.save(shot(1), expected_revision=None),
        lambda: store.delete(expected_revision=1),
    ):
        with pytest.raises(SnapshotError, match=r"state\.json: schema_version"):
            use()
    assert path.read_text() == '{"schema_version": 2}'


def test_rows_of_one_database_are_apart(tmp_path: Path) -> None:
    """Two keys in one file, and a table of the application's own, do not touch each other."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as mine, mine:
        mine.execute("CREATE TABLE orders (id INTEGER)")
    mine.close()
    one, two = SqliteStateStore(path, key="one"), SqliteStateStore(path, key="two")
    assert one.load() is None
    one.save(shot(1, "a"), expected_revision=None)
    assert two.load() is None
    two.save(shot(4, "b"), expected_revision=None)
    one.delete(expected_revision=1)
    assert (one.load(), two.load().revision) == (None, 4)  # type: ignore[union-attr]


def test_tables_of_a_later_version_fail_closed(tmp_path: Path) -> None:
    """What a later version of this library made is neither read nor written."""
    path = tmp_path / "state.db"
    SqliteStateStore(path).save(shot(1), expected_revision=None)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE isthmus_schema SET version = 2")
    other.close()
    for use in (SqliteStateStore(path).load, lambda: SqliteStateStore(path).save(shot(2), expected_revision=1)):
        with pytest.raises(SnapshotError, match="of version 2, and only 1 is known"):
            use()


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    """A locked database is waited for as long as was said, then the error is SQLite's own."""
    path = tmp_path / "state.db"
    SqliteStateStore(path).save(shot(1), expected_revision=None)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        SqliteStateStore(path, timeout=0.01).save(shot(2), expected_revision=1)
    timer = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
    timer.start()
    SqliteStateStore(path).save(shot(2), expected_revision=1)
    timer.join()
    other.close()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_sqlite_needs_a_file(path: str) -> None:
    """A database that vanishes with its connection keeps nothing: the error says what does."""
    with pytest.raises(ValueError, match="MemoryStateStore"):
        SqliteStateStore(path)


def test_postgres_needs_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver the error names the extra."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"isthmus\[postgres\]"):
        PostgresStateStore("dbname=x")


def test_no_store_shows_a_password(server: str) -> None:
    """Neither the repr nor a conflict holds what the connection was made with."""
    store = PostgresStateStore(f"{server} password=hunter2", key="secret-test")
    with pytest.raises(StateConflictError) as caught:
        store.save(shot(2), expected_revision=1)
    assert "hunter2" not in repr(store) + str(caught.value) + str(vars(caught.value))


def test_what_the_database_says_is_said_of_its_file(tmp_path: Path) -> None:
    """With the type that it has: which of several files it was cannot be guessed."""
    path = tmp_path / "agents.db"
    path.write_bytes(b"no database at all" * 9)
    with pytest.raises(sqlite3.DatabaseError, match=r"agents\.db, row 'ann': file is not a database"):
        SqliteStateStore(path, key="ann").load()
