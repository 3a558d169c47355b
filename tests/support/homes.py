"""A home of its own for configuration and state, and processes that run the command in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"


@dataclass
class Home:
    """A home folder and a working folder, both empty at first."""

    root: Path

    @property
    def user_file(self) -> Path:
        return self.root / "config" / "isthmus" / "config.toml"

    @property
    def state(self) -> Path:
        return self.root / "state" / "isthmus"

    @property
    def folder(self) -> Path:
        return self.root / "work"

    @property
    def folder_file(self) -> Path:
        return self.folder / "isthmus.toml"

    def variables(self) -> dict[str, str]:
        """The variables that make a process live here."""
        return {
            "HOME": str(self.root),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "XDG_STATE_HOME": str(self.root / "state"),
        }

    def write_user(self, text: str) -> Path:
        self.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.user_file.write_text(text)
        return self.user_file

    def write_folder(self, text: str) -> Path:
        self.folder_file.write_text(text)
        return self.folder_file

    def run(self, *args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments in the working folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS_")}
        return subprocess.run(
            [sys.executable, *args],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**kept, **self.variables(), "PYTHONPATH": str(SRC), **(env or {})},
            timeout=60,
            check=False,
        )


def enter_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Live in a home of one's own under `root` for the length of a test; its working folder is the current one."""
    home = Home(root)
    home.folder.mkdir()
    for name in [name for name in os.environ if name.startswith("ISTHMUS_")]:
        monkeypatch.delenv(name)
    for name, value in home.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.folder)
    return home
