from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from isthmus.errors import ConfigError
from isthmus.settings import load_settings, trust_store
from support.homes import Home


def test_an_accepted_file_may_set_anything_until_it_changes(home: Home) -> None:
    """Acceptance holds for that content at that place, and for no other."""
    file = home.write_folder('[llm]\nbase_url = "http://gateway"\n')
    trust_store().accept(file, file.read_bytes())
    assert load_settings(environ={}).get("base_url") == "http://gateway"
    home.write_folder('[llm]\nbase_url = "http://elsewhere"\n')
    with pytest.raises(ConfigError, match="config trust"):
        load_settings(environ={})


def test_acceptance_does_not_move_to_another_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same content elsewhere must be accepted there: relative commands mean something else."""
    file = home.write_folder('[llm]\napi_key_command = "./helper"\n')
    trust_store().accept(file, file.read_bytes())
    other = tmp_path / "other"
    other.mkdir()
    (other / "isthmus.toml").write_bytes(file.read_bytes())
    monkeypatch.chdir(other)
    with pytest.raises(ConfigError, match="config trust"):
        load_settings(environ={})


def test_the_list_of_accepted_files_is_private(home: Home) -> None:
    """Only its owner can read or write it, and a damaged one accepts nothing."""
    file = home.write_folder('[llm]\nbase_url = "http://gateway"\n')
    store = trust_store()
    store.accept(file, file.read_bytes())
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert store.forget(file)
    assert not store.forget(file)
    store.accept(file, file.read_bytes())
    store.path.write_text("{")
    with pytest.raises(ConfigError, match="config trust"):
        load_settings(environ={})


def test_a_linked_folder_file_is_refused(home: Home, tmp_path: Path) -> None:
    """A symbolic link is not followed."""
    target = tmp_path / "target.toml"
    target.write_text("[llm]\nmodel = 'x'\n")
    home.folder_file.symlink_to(target)
    with pytest.raises(ConfigError, match="symbolic link"):
        load_settings(environ={})


def test_a_folder_or_pipe_in_its_place_is_refused(home: Home) -> None:
    """A directory or a pipe of that name is an error, and nobody waits for the pipe."""
    home.folder_file.mkdir()
    with pytest.raises(ConfigError, match="not a plain file"):
        load_settings(environ={})
    home.folder_file.rmdir()
    os.mkfifo(home.folder_file)
    with pytest.raises(ConfigError, match="not a plain file"):
        load_settings(environ={})
