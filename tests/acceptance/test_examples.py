"""The examples check themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user does."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "ISTHMUS_LOG": ""}
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_against_the_scripted_server(path: Path) -> None:
    """It ends without an error, and it says what it saw."""
    done = run(path.read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("steering.py", ("next to the WALLBOX", "nowhere"), "should follow the input"),
        ("steering.py", ('await peer.accept("steer_1")', 'await peer.refuse("invalid_input", INPUT)'), "steered"),
        ("async_tools.py", ('**{"async": True}', ""), "two calls should have run"),
        ("async_tools.py", ('await peer.text("I am looking both up.")', "pass"), "should have spoken"),
    ],
    ids=["ignored", "refused", "not asynchronous", "silent"],
)
def test_an_example_fails_where_it_does_not_see_what_it_should(name: str, change: tuple[str, str], why: str) -> None:
    """A provider that lacks the feature makes it fail and say so."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    assert change[0] in text
    done = run(text.replace(*change))
    assert done.returncode != 0
    assert why in done.stderr
