"""A run that is killed again and again does each thing once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("ISTHMUS_KILLS", "20"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked, and killed by a signal")
def test_a_killed_run_does_each_thing_once(tmp_path: Path) -> None:
    """Killed anywhere, each of ten tools ran once, at most a tenth was uncertain, the history is the calm one."""
    where = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))}
    program = [sys.executable, str(ROOT / "tests" / "support" / "crashing.py"), str(KILLS), "1", str(tmp_path)]
    made = subprocess.run(program, env=where, capture_output=True, text=True, check=False, timeout=20 * KILLS + 60)
    assert made.returncode == 0, made.stderr
    report = json.loads(made.stdout)
    print(
        f"{report['kills']} kills, {report['runs']} runs, {report['asked']} of {10 * report['kills']} calls uncertain"
    )
    assert report["faults"] == []
    assert report["kills"] >= KILLS
    assert report["asked"] <= 0.1 * 10 * report["kills"]
