"""The first seed's own blocks on configuration and registration, against an installed distribution."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import build
from isthmus.adapters import registry
from isthmus.adapters.base import available_providers
from isthmus.sync import run_sync
from support.homes import SRC, Home, enter_home

ADAPTER = """
from isthmus.adapters.base import (
    ModelAdapter, ChatResponse, ToolCall,
)


class MyCorpAdapter(ModelAdapter):
    def __init__(self, *, base_url=None, api_key=None, model="", max_tokens=8192, tenant_id="", model_limits=None,
                 effort="", **rest):
        self.model = model
        self.max_tokens = int(max_tokens) or 8192
        self._model_limits = model_limits
        self.got = {"base_url": base_url, "api_key": api_key, "tenant_id": tenant_id, "effort": effort, "rest": rest}

    async def chat(self, messages, tools) -> ChatResponse:
        return ChatResponse(text=f"{self.model} heard {messages[-1]['content']}", tool_calls=[], stop_reason="end_turn")
"""
CONFIG = """
[llm]
provider = "PROVIDER"          # selects your adapter (see Registration)
model = "claude-via-gateway"
base_url = "https://llm.corp/invoke"
max_tokens = 8192
tenant_id = "acme"           # any custom key your __init__ declares
"""
LIMITS = """
[llm]
provider = "mycorp_console.adapter:MyCorpAdapter"
model    = "claude-sonnet-4-6-via-gateway"
max_tokens = 64000

[llm.model_limits."claude"]
context_window    = 200000
max_output_tokens = 8192

[llm.model_limits."claude-sonnet-4-6"]
max_output_tokens = OURS
adaptive_thinking = true     # this gateway does forward thinking/effort
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home, and a place on the path that holds the package without its distribution's metadata."""
    home = enter_home(tmp_path, monkeypatch)
    package = tmp_path / "site" / "mycorp_console"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "adapter.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(str(package.parent))
    importlib.invalidate_caches()
    yield home
    for name in [name for name in sys.modules if name.startswith("mycorp")]:
        del sys.modules[name]
    registry._registered.pop("mycorp", None)
    registry._failed_plugins.pop("mycorp_plugin", None)


def install(home: Home, groups: str) -> None:
    """Lay down what an installed wheel's metadata is."""
    info = home.root / "site" / "mycorp_console-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mycorp-console\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(groups)
    importlib.invalidate_caches()


def answer(chain: Any) -> str:
    """What the chain says to "hello"."""
    return run_sync(build.ask, "hello", model=chain)


def adapter_of(settings: Any = None) -> Any:
    """The one adapter that the configuration makes."""
    return build.adapter_of(build.connections(settings or build.load_settings())[0])


@pytest.mark.parametrize("way", ["mycorp_console.adapter:MyCorpAdapter", "entry point", "in process"])
def test_the_three_registrations(home: Home, way: str) -> None:
    """Dotted path, entry point of an installed distribution, `register_adapter` in a plugin module: each will do."""
    text = CONFIG.replace("PROVIDER", way if ":" in way else "mycorp")
    if way == "entry point":
        install(home, "[isthmus.adapters]\nmycorp = mycorp_console.adapter:MyCorpAdapter\n")
        assert "mycorp" in available_providers()
    if way == "in process":
        (home.root / "site" / "mycorp_plugin.py").write_text(
            "from isthmus.adapters.base import register_adapter\n"
            "from mycorp_console.adapter import MyCorpAdapter\n"
            'register_adapter("mycorp", MyCorpAdapter)\n'
        )
        text += '[plugins]\nmodules = ["mycorp_plugin"]\n'
    home.write_user(text)
    assert answer(build.load()) == "claude-via-gateway heard hello"
    made = adapter_of()
    assert (made.model, made.max_tokens) == ("claude-via-gateway", 8192)
    assert made.got == {
        "base_url": "https://llm.corp/invoke",
        "api_key": None,
        "tenant_id": "acme",
        "effort": "",
        "rest": {},
    }


@pytest.mark.parametrize(("ours", "ceiling"), [(64000, 64000), (32000, 32000), (100000, 64000)])
def test_the_table_of_limits(home: Home, ours: int, ceiling: int) -> None:
    """The longest matching entry wins a field, the broad one gives the rest, and `max_tokens` only goes down."""
    home.write_user(LIMITS.replace("OURS", str(ours)))
    made = adapter_of()
    told = made.capabilities()
    assert (told.context_window, told.max_output_tokens, told.adaptive_thinking) == (200000, ours, True)
    assert made.max_tokens == ceiling


def test_effort_reaches_whoever_declares_it(home: Home) -> None:
    """`effort` is forwarded the moment the constructor declares it, with no list to edit."""
    home.write_user(CONFIG.replace("PROVIDER", "mycorp_console.adapter:MyCorpAdapter") + 'effort = "medium"   # off\n')
    assert adapter_of().got["effort"] == "medium"


def test_an_installed_distribution_brings_its_configuration(home: Home) -> None:
    """A config seed of an installed distribution names the provider; the user's file is above it."""
    install(
        home,
        "[isthmus.adapters]\nmycorp = mycorp_console.adapter:MyCorpAdapter\n"
        "[isthmus.config_seed]\nmycorp = mycorp_console\n",
    )
    seeds = home.root / "site" / "mycorp_console" / "config_seed"
    seeds.mkdir()
    (seeds / "config.toml").write_text(CONFIG.replace("PROVIDER", "mycorp"))
    assert answer(build.load()) == "claude-via-gateway heard hello"
    home.write_user('[llm]\nmodel = "mine"\n')
    assert answer(build.load()) == "mine heard hello"


def test_the_command_finds_it_too(home: Home) -> None:
    """A process of its own answers with the installed adapter, from configuration alone."""
    install(home, "[isthmus.adapters]\nmycorp = mycorp_console.adapter:MyCorpAdapter\n")
    home.write_user(CONFIG.replace("PROVIDER", "mycorp"))

    done = home.run("-m", "isthmus", "chat", "--json", "hello", env={"PYTHONPATH": f"{SRC}:{home.root / 'site'}"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["text"] == "claude-via-gateway heard hello"
