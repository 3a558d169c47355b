"""A hostile file in the current folder runs nothing, sends nothing anywhere, and stops nobody for long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from isthmus import build
from isthmus.errors import ConfigError
from isthmus.settings import load_settings, trust_store
from support.homes import Home, enter_home
from support.loopback import whole
from support.sockets import Elsewhere

KEY = "CANARYplainWords+42"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose user has a key and a model, beside a module that leaves a trace when it is imported."""
    home = enter_home(tmp_path, monkeypatch)
    (home.folder / "hostile.py").write_text("open('ran', 'w')\ndef Adapter(**k): open('ran', 'w')\n")
    monkeypatch.syspath_prepend(str(home.folder))
    home.write_user(f'[llm]\nprovider = "openai"\nmodel = "m"\napi_key = "{KEY}"\n')
    return home


LINES = [
    'provider = "hostile:Adapter"',
    'provider = "scripted"',
    'provider = "local"\nmodel = "/etc/passwd"',
    '"provider" = "hostile:Adapter"',
    'model = "evil.gguf"',
    'model = "./evil"',
    'model = "../evil"',
    'model = "/evil"',
    'model = "~/evil"',
    'model = "hostile.py"',
    'api_key = "x"',
    'api_key_command = "touch ran"',
    '"api_key_command" = "touch ran"',
    "'api_key_command' = 'touch ran'",
    '"api\\u005fkey_command" = "touch ran"',
    'API_KEY_COMMAND = "touch ran"',
    'base_url = "URL"',
    '"base_url " = "URL"',
    '"b\\u0430se_url" = "URL"',
    "base_url_trusted = true",
    "base-url = 'URL'",
    "headers = {a = 'b'}",
    "headers.a = 'b'",
    'proxy = "URL"',
    "verify = false",
    'ca_bundle = "ca.pem"',
    'client_cert = "c.pem"',
    "transport = {}",
    "server = {base_url = 'URL'}",
    "timeouts = {connect = 0}",
    "model_limits = {m = {max_output_tokens = 1}}",
    'include = "other.toml"',
]
WHOLE = [
    '[plugins]\nmodules = ["hostile"]',
    '[[chain.tiers]]\nprovider = "hostile:Adapter"',
    '[[chain.tiers]]\nbase_url = "URL"',
    '[[chain.tiers]]\nmodel = "m"',
    'chain.tiers = [{provider = "hostile:Adapter"}]',
    '[chain]\nid = "x"',
    'include = ["other.toml"]',
    'base_url = "URL"',
    '[llm.llm]\nbase_url = "URL"',
    '["llm "]\nbase_url = "URL"',
]


@pytest.mark.parametrize("text", [*("[llm]\n" + line for line in LINES), *WHOLE])
def test_nothing_that_matters_can_be_set(home: Home, text: str) -> None:
    """F29: each way to run code or to send a key elsewhere, however it is spelt, is an error before anything else."""
    with Elsewhere([whole(b"{}")]) as there:
        home.write_folder(text.replace("URL", there.server.url))
        for call in (build.load, lambda: build.load(model="n")):
            with pytest.raises(ConfigError):
                call()
        for problem in load_settings(strict=False).problems:
            assert KEY not in str(problem)
        assert not (home.folder / "ran").exists()
        assert there.server.connections == 0


def test_what_may_be_set_reaches_no_other_place(home: Home) -> None:
    """F29: the keys that are open change the model and its manner, and nothing else."""
    home.write_folder('[llm]\nmodel = "lab/m:free"\nmax_tokens = 5\neffort = "low"\ntemperature = 1\nsystem = "x"\n')
    table = build.connections(load_settings())[0]
    assert (table["provider"].value, table["model"].value) == ("openai", "lab/m:free")
    assert "base_url" not in table
    assert table["api_key"].value == KEY


def test_an_accepted_file_that_changes_is_a_stranger_again(home: Home) -> None:
    """F29: trust is in the content that was read, here; one other byte, or another folder, is not trusted."""
    text = '[llm]\napi_key_command = "echo k"\n'
    file = home.write_folder(text)
    trust_store().accept(file, text.encode())
    assert load_settings().get("api_key_command") == "echo k"
    home.write_folder(text + " ")
    with pytest.raises(ConfigError, match="config trust"):
        load_settings()
    home.write_folder(text)
    elsewhere = home.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "isthmus.toml").write_text(text)
    os.chdir(elsewhere)
    with pytest.raises(ConfigError, match="config trust"):
        load_settings()


def _link(file: Path) -> None:
    file.symlink_to("/etc/passwd")


def _dangling(file: Path) -> None:
    file.symlink_to("nowhere")


BOMBS: dict[str, Any] = {
    "link": _link,
    "dangling link": _dangling,
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda file: file.symlink_to("/dev/zero"),
    "huge": lambda file: file.write_bytes(b"#" * 16_385),
    "sparse": lambda file: (file.touch(), os.truncate(file, 1 << 40)),
    "deep": lambda file: file.write_text("[llm]\nx = " + "[" * 16_000),
    "dotted": lambda file: file.write_text("[llm]\nx" + ".a" * 3_000 + " = 1"),
    "not text": lambda file: file.write_bytes(b"\xff\xfe"),
    "cut": lambda file: file.write_text('[llm]\nmodel = "x'),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", BOMBS)
def test_what_is_no_small_plain_file_is_refused(home: Home, kind: str) -> None:
    """A link, a pipe, a folder, a bomb: an error that names the file, at once, and nothing is read on."""
    BOMBS[kind](home.folder_file)
    with pytest.raises(ConfigError, match=r"isthmus\.toml"):
        load_settings()
