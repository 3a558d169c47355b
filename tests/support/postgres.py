"""A PostgreSQL server of its own for tests, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def missing() -> str:
    """Why no server can be started here; "" where one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "the driver psycopg is not installed"
    return "" if _program("initdb") else "PostgreSQL's initdb is not installed"


def _program(name: str) -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


@contextmanager
def running() -> Iterator[str]:
    """Start a server that only this machine's sockets reach, and give what a driver needs to find it."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    # The server refuses to be run by root.
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)

    def run(name: str, *arguments: str) -> None:
        command = [str(_program(name)), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=120)

    try:
        run("initdb", "-U", "isthmus", "-A", "trust", "-N", "-E", "UTF8")
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -c listen_addresses=''", "start")
        try:
            yield f"host={folder} user=isthmus dbname=postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
