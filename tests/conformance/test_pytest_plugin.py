"""The laws run as tests: by an option of pytest, and by one line in a package's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.conformance import LAWS
from isthmus.conformance.pytest_plugin import laws_test
from support.plugin import plugin_flags
from support.twins import TOOLS, Chat

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "isthmus.conformance.pytest_plugin"

test_the_twin_keeps_each_law = laws_test(Chat, tools=TOOLS)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin in a folder of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), str(folder)])}
    command = [sys.executable, "-m", "pytest", "-q", *plugin_flags(), "-p", "no:cacheprovider", "-rf", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_the_option_adds_a_test_a_law(tmp_path: Path) -> None:
    """`--conform REF` alone is a run of all laws; those that do not apply are skipped."""
    done = run(tmp_path, "--conform", "support.twins:Chat")
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout
    assert " passed" in done.stdout


def test_a_broken_law_is_a_failed_test(tmp_path: Path) -> None:
    """The test of a broken law fails with what was found, and no traceback through the kit."""
    (tmp_path / "mine.py").write_text(
        "from support.twins import Chat\nclass Mine(Chat):\n    def stop(self, said):\n        return 'end_turn'\n"
    )
    done = run(tmp_path, "--conform", "mine:Mine")
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "mine:Mine[calls-stop]" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_name_of_nothing_is_a_usage_error(tmp_path: Path) -> None:
    """A REF that is not found ends the run as a wrong call does."""
    done = run(tmp_path, "--conform", "nobody")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR


def test_one_line_is_enough(tmp_path: Path) -> None:
    """`laws_test(Adapter)` is a test with one case a law."""
    (tmp_path / "test_mine.py").write_text(
        "from support.twins import Chat\nfrom isthmus.conformance.pytest_plugin import laws_test\n"
        "test_mine = laws_test(Chat)\n"
    )
    done = run(tmp_path, "--collect-only", "test_mine.py")
    assert f"{len(LAWS)} tests collected" in done.stdout


def test_the_plugin_loads_no_kit_by_itself() -> None:
    """F31: a run of pytest without the option pays for no part of the kit."""
    program = (
        f"import sys, {PLUGIN}; print(any('aiohttp' in m or m.endswith('conformance.judge') for m in sys.modules))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
