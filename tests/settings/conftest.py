from __future__ import annotations

from pathlib import Path

import pytest

from support.homes import Home, enter_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own; its working folder is the current one."""
    return enter_home(tmp_path, monkeypatch)
