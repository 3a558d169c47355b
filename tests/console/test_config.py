from __future__ import annotations

import json

import pytest

from isthmus.console.main import run
from isthmus.settings import load_settings
from support.homes import Home

SECRETS = (
    '[llm]\nprovider = "support.talkative:Talk"\nmodel = "m"\napi_key = "CANARY-1"\nclient_secret = "CANARY-2"\n'
    'headers = {x-trace = "CANARY-3"}\napi_key_command = "vend CANARY-4"\nbase_url = "https://u:CANARY-5@h/v1?key=CANARY-6"\n'
)


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run the command; its status and what it wrote."""
    status = run(args)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("args", [["config", "show"], ["config", "show", "--json"], ["doctor"]])
def test_no_secret_is_shown(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    """F29: keys, headers, commands' arguments and passwords in addresses stand in no output."""
    home.write_user(SECRETS)
    monkeypatch.setenv("ISTHMUS_GATEWAY_TOKEN", "CANARY-7")
    _, out, err = shown(capsys, *args)
    assert "CANARY" not in out + err
    assert "api_key" in out


def test_each_setting_is_shown_with_its_origin(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and origin stand on one line; JSON has both."""
    home.write_user('[llm]\nmodel = "m"\n[[chain.tiers]]\nmodel = "t"\n[plugins]\nmodules = ["p"]\n')
    monkeypatch.setenv("ISTHMUS_MAX_TOKENS", "7")
    status, out, _ = shown(capsys, "config", "show")
    assert status == 0
    assert f'model = "m"  # {home.user_file}' in out
    assert "max_tokens = 7  # ISTHMUS_MAX_TOKENS" in out
    assert f'model = "t"  # {home.user_file}' in out.split("[[chain.tiers]]")[1]
    assert 'modules = ["p"]' in out
    data = json.loads(shown(capsys, "config", "show", "--json")[1])
    assert data["llm"]["max_tokens"] == {"value": 7, "from": "ISTHMUS_MAX_TOKENS"}


def test_problems_are_shown_and_make_status_2(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong is said on stderr, and what is right is still shown."""
    home.write_user('[llm]\nmodel = "m"\nmax_tokens = "x"\n')
    status, out, err = shown(capsys, "config", "show")
    assert status == 2
    assert 'model = "m"' in out
    assert "whole number" in err


def test_the_users_file_is_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """`config path` prints the one path, whether or not there is a file."""
    assert shown(capsys, "config", "path") == (0, f"{home.user_file}\n", "")


def test_a_folder_file_is_accepted_and_taken_back(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """`config trust` lists what the file may now set; `config untrust` takes it back."""
    home.write_folder('[llm]\nbase_url = "http://gateway"\nmodel = "m"\n[plugins]\nmodules = []\n')
    assert run(["config", "show"]) == 2
    capsys.readouterr()
    status, out, err = shown(capsys, "config", "trust")
    assert (status, out) == (0, "")
    assert "llm.base_url" in err
    assert "plugins.modules" in err
    assert "llm.model" not in err
    assert load_settings().get("base_url") == "http://gateway"
    assert run(["config", "untrust"]) == 0
    assert run(["config", "untrust"]) == 1
    assert run(["config", "show"]) == 2


@pytest.mark.parametrize("kind", ["absent", "link", "folder", "broken"])
def test_what_cannot_be_accepted_is_refused(home: Home, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Only a plain, valid file that is there can be accepted."""
    if kind == "link":
        (home.root / "t.toml").write_text("")
        home.folder_file.symlink_to(home.root / "t.toml")
    elif kind == "folder":
        home.folder_file.mkdir()
    elif kind == "broken":
        home.write_folder("[llm\n")
    status, _, err = shown(capsys, "config", "trust")
    assert status == 2
    assert str(home.folder_file) in err


def test_the_doctor_names_files_versions_and_unused_keys(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """What was read, what is not there, what is not used, and where the key comes from."""
    home.write_user('[llm]\nprovider = "support.talkative:Talk"\napi_key = "k"\neffort = "low"\n')
    status, out, _ = shown(capsys, "doctor")
    assert status == 0
    assert "aiohttp " in out
    assert f"config: user: {home.user_file}" in out
    assert f"config: {home.folder_file}: not there" in out
    assert "llm.effort: not used by provider 'support.talkative:Talk'" in out
    assert "api_key: set" in out


def test_the_doctor_reports_a_wrong_configuration(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown provider or key is status 2."""
    home.write_user('[llm]\nprovider = "nowhere"\n')
    status, _, err = shown(capsys, "doctor")
    assert status == 2
    assert "no provider is called 'nowhere'" in err
