from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.errors import ConfigError
from isthmus.settings import load_settings
from support.homes import Home

HOSTILE = {
    "api_key_command": 'api_key_command = "touch ran"',
    "base_url": 'base_url = "http://127.0.0.1:9"',
    "provider": 'provider = "evil.module:Adapter"',
    "headers": 'headers = {x = "y"}',
    "model_limits": "model_limits = {}",
    "unheard_of": "unheard_of = 1",
}


@pytest.mark.parametrize("key", HOSTILE)
def test_a_folder_file_may_not_set_what_runs_code_or_moves_keys(home: Home, key: str) -> None:
    """F29: a restricted key in an unaccepted file is refused; the error names file, key and the way to accept it."""
    home.write_folder(f"[llm]\n{HOSTILE[key]}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={})
    message = str(caught.value)
    assert str(home.folder_file) in message
    assert f"llm.{key}" in message
    assert "isthmus config trust" in message
    assert not (home.folder / "ran").exists()


@pytest.mark.parametrize(
    "text", ['[plugins]\nmodules = ["evil"]\n', "[[chain.tiers]]\nmodel = 'x'\n", "[chain]\nid='x'\n"]
)
def test_a_folder_file_may_not_set_other_tables(home: Home, text: str) -> None:
    """F29: plugins and chains in an unaccepted file are refused."""
    home.write_folder(text)
    with pytest.raises(ConfigError, match="isthmus config trust"):
        load_settings(environ={})


def test_a_folder_file_may_set_the_five_harmless_keys(home: Home) -> None:
    """Model, max_tokens, effort, temperature and system need no acceptance."""
    home.write_folder('[llm]\nmodel="m"\nmax_tokens=5\neffort="low"\ntemperature=0.5\nsystem="Be brief."\n')
    settings = load_settings(environ={})
    assert {key: item.value for key, item in settings.llm.items()} == {
        "model": "m",
        "max_tokens": 5,
        "effort": "low",
        "temperature": 0.5,
        "system": "Be brief.",
    }


@pytest.mark.parametrize("place", ["user", "folder"])
def test_a_broken_file_is_named_with_its_line(home: Home, place: str) -> None:
    """Text that is not UTF-8, and text that is not TOML, are errors with file and line."""
    file = home.folder_file if place == "folder" else home.write_user("")
    file.write_bytes(b'[llm]\nmodel = "x"\nsystem = "\xff"\n')
    with pytest.raises(ConfigError, match=r"line 3 is not UTF-8") as caught:
        load_settings(environ={})
    assert str(file) in str(caught.value)
    file.write_text("[llm]\nmodel = \n")
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 2") as caught:
        load_settings(environ={})
    assert str(file) in str(caught.value)


def test_a_file_with_a_byte_order_mark_is_read(home: Home) -> None:
    """Editors that put a mark in front of UTF-8 do no harm."""
    home.write_user("")
    home.user_file.write_bytes(b'\xef\xbb\xbf[llm]\nmodel = "m"\n')
    assert load_settings(environ={}).get("model") == "m"


def test_a_file_named_by_the_user_is_trusted(home: Home) -> None:
    """`ISTHMUS_CONFIG=isthmus.toml` is the user's own word, and the file is read once."""
    home.write_folder('[llm]\nbase_url = "http://gateway"\n')
    settings = load_settings(environ={"ISTHMUS_CONFIG": "isthmus.toml"})
    assert settings.get("base_url") == "http://gateway"
    assert len(settings.sources) == 1


def test_a_current_folder_that_is_gone_does_no_harm(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a current folder there is no folder file."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert dict(load_settings(environ={}).llm) == {}
