"""A stranger's package, beside this library as a wheel and without this repository's tests, is proven by the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

from support.ownenv import ROOT, pip, python

PINS = (
    *tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"],
    *("hatchling>=1.27", "pytest>=8.4"),
)


def test_a_strangers_package_is_proven_by_its_own_recordings(tmp_path: Path) -> None:
    """By its entry point, by its test of one line, by the option of pytest, and each recording by itself."""
    made = python("stranger", *PINS)
    package, site = tmp_path / "quill", tmp_path / "site"
    shutil.copytree(ROOT / "examples" / "quill", package)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str, by: Sequence[str] = (made, "-m")) -> str:
        done = subprocess.run([*by, *words], cwd=package, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    flags = ("--no-deps", "--no-build-isolation", "--no-compile", "--target", str(site))
    run("-q", "install", *flags, str(ROOT), ".", by=pip(made))
    assert not (site / "tests").exists()
    env["PYTHONPATH"] = str(site)
    table = run("isthmus", "conform", "quill", "--recordings", "tape", "--list")
    assert "QuillAdapter conforms" in table
    assert "warning" not in table
    assert "skip" not in table
    for law in ("same-text", "call-json", "wire-cut", "wire-split", "wire-status", "wire-results"):
        assert f"pass  {law}" in table
    assert "failed" not in run("pytest", "-q", "test_quill.py")
    ref = ("--conform", "quill", "--conform-recordings", "tape")
    assert "failed" not in run("pytest", "-q", *ref, "-k", "quill")
    assert '"input": null' in run("isthmus", "replay", "tape/broken", "--adapter", "quill", "--json")
