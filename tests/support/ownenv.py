"""An environment of its own for a peer that must not share ours: made once, kept, shared by all test processes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 300


def pip(interpreter: str) -> list[str]:
    """The command that is pip for an environment without one."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", interpreter]


def python(name: str, *pins: str) -> str:
    """The interpreter of an environment under `.venvs`, which is made first where it is not there.

    Skips, and says why, where it cannot be made.
    """
    home = ROOT / ".venvs" / name
    home.parent.mkdir(exist_ok=True)
    made, found = home / ".made", home / "bin" / "python"
    with (home.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.is_file() and made.read_text() == "\n".join(pins):
            return str(found)
        # Our own pip fills it, and what is never imported is never compiled: a quarter of the time.
        steps = (
            [sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)],
            [*pip(str(found)), "-qq", "install", "--no-compile", *pins],
        )
        for step in steps:
            try:
                done = subprocess.run(step, capture_output=True, text=True, timeout=_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{name} could not be installed within {_SECONDS} s")
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                pytest.skip(f"{name} could not be installed: {last}")
        made.write_text("\n".join(pins))
    return str(found)
