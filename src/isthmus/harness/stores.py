"""Where an agent's committed conversation is kept: in memory, or in a file.

A change says which revision it was made from, and is refused if another one is there: of several writers one wins.
Stores are synchronous and may be used from any thread; an agent calls them in a thread of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO

from isthmus.harness.errors import SnapshotError, StateConflictError
from isthmus.harness.snapshot import AgentSnapshot


class StateStore(ABC):
    """The place of one agent's committed conversation."""

    @abstractmethod
    def load(self) -> AgentSnapshot | None:
        """What is there, or None.

        Raises:
            SnapshotError: it cannot be read.
        """

    @abstractmethod
    def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
        """Put a snapshot in the place of the one that it was made from; all of it, or nothing.

        Args:
            snapshot: its revision must be higher.
            expected_revision: the revision that is there; None if nothing is.

        Raises:
            StateConflictError: something else is there.
            ValueError: the revision is not higher.
        """

    @abstractmethod
    def delete(self, *, expected_revision: int | None) -> None:
        """Empty the place.

        Args:
            expected_revision: the revision that is there; None if nothing is.

        Raises:
            StateConflictError: something else is there.
        """


def check_higher(snapshot: AgentSnapshot, expected_revision: int | None) -> None:
    """Whether a snapshot may follow the revision that it was made from.

    Raises:
        ValueError: its revision is not higher.
    """
    if expected_revision is not None and snapshot.revision <= expected_revision:
        raise ValueError(
            f"snapshot.revision={snapshot.revision}: must be higher than expected_revision={expected_revision}"
        )


def check_held(held: int | None, expected_revision: int | None, *, place: str) -> None:
    """Whether the revision is there that a change was made from.

    Raises:
        StateConflictError: it is not.
    """
    if held != expected_revision:
        there, wanted = (_said(revision) for revision in (held, expected_revision))
        raise StateConflictError(
            f"{place} holds {there}, not {wanted}: somebody else has changed it; load it and begin from there",
            expected=expected_revision,
            held=held,
        )


def _said(revision: int | None) -> str:
    return "nothing" if revision is None else f"revision {revision}"


class MemoryStateStore(StateStore):
    """Keeps the conversation in this process: for tests, and for agents that follow one another."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: AgentSnapshot | None = None

    def load(self) -> AgentSnapshot | None:
        """What is there, or None."""
        return self._held

    def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
        """Put a snapshot in the place of the one that it was made from."""
        check_higher(snapshot, expected_revision)
        self._change(AgentSnapshot.from_json(snapshot.to_json()), expected_revision)

    def delete(self, *, expected_revision: int | None) -> None:
        """Empty the place."""
        self._change(None, expected_revision)

    def _change(self, snapshot: AgentSnapshot | None, expected_revision: int | None) -> None:
        with self._lock:
            check_held(None if self._held is None else self._held.revision, expected_revision, place="the memory store")
            self._held = snapshot


class JsonFileStateStore(StateStore):
    """Keeps the conversation in a file of JSON that only its owner may read.

    A new file is written beside the old one, forced to the disk and moved over it, so that a reader, and whoever comes
    after a crash, finds the old one or the new one. Writers wait for each other, in other processes too, at a lock file
    of the same name with `.lock` behind it, which stays.

    Args:
        path: the file; its folder is made when it is first written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"JsonFileStateStore({str(self.path)!r})"

    def load(self) -> AgentSnapshot | None:
        """What is in the file, or None if there is no file."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return AgentSnapshot.from_json(text)
        except SnapshotError as error:
            raise SnapshotError(f"{self.path}: {error}") from error

    def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
        """Put a snapshot in the place of the one that it was made from."""
        check_higher(snapshot, expected_revision)
        text = snapshot.to_json().encode()
        with self._locked(expected_revision) as target:
            _replace(target, text)

    def delete(self, *, expected_revision: int | None) -> None:
        """Remove the file."""
        with self._locked(expected_revision) as target:
            target.unlink(missing_ok=True)
            _sync_folder(target.parent)

    @contextmanager
    def _locked(self, expected_revision: int | None) -> Iterator[Path]:
        # The file that a link points to is the one to replace.
        target = Path(os.path.realpath(self.path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(target.name + ".lock").open("a+b") as guard, _alone(guard):
            held = self.load()
            check_held(None if held is None else held.revision, expected_revision, place=str(self.path))
            yield target


def _replace(target: Path, text: bytes) -> None:
    number, written = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(written).replace(target)
    finally:
        Path(written).unlink(missing_ok=True)
    _sync_folder(target.parent)


if sys.platform == "win32":
    import msvcrt

    def _take(guard: IO[bytes]) -> None:
        guard.seek(0)
        while True:
            # It gives up after ten seconds, and the other writer may be slower.
            with suppress(OSError):
                msvcrt.locking(guard.fileno(), msvcrt.LK_LOCK, 1)
                return

    def _give(guard: IO[bytes]) -> None:
        guard.seek(0)
        msvcrt.locking(guard.fileno(), msvcrt.LK_UNLCK, 1)

    def _sync_folder(folder: Path) -> None:
        """Moves are durable there without."""

else:
    import fcntl

    def _take(guard: IO[bytes]) -> None:
        fcntl.flock(guard, fcntl.LOCK_EX)

    def _give(guard: IO[bytes]) -> None:
        fcntl.flock(guard, fcntl.LOCK_UN)

    def _sync_folder(folder: Path) -> None:
        """Make a move or a removal in it durable."""
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _alone(guard: IO[bytes]) -> Iterator[None]:
    _take(guard)
    try:
        yield
    finally:
        _give(guard)
