"""An environment of its own for a peer that must not share ours: made once, kept, shared by all test processes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 300


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
        steps = (
            [sys.executable, "-m", "venv", "--clear", str(home)],
            [str(found), "-m", "pip", "-qq", "--disable-pip-version-check", "install", *pins],
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
