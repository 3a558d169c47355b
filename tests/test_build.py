from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import build
from isthmus.adapters import registry
from isthmus.adapters.base import ModelAdapter
from isthmus.errors import ChainCut, ConfigError, RefusedError, TransientError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Event, Finish, Text, Usage
from isthmus.models.stream import EventStream
from isthmus.settings import load_settings
from support.homes import Home, enter_home

MADE: list[Echo] = []


class Echo(ModelAdapter):
    """Says what it was asked, in two pieces; keeps what it was given."""

    provider = "echo"

    def __init__(
        self,
        *,
        model: str = "m",
        api_key: str | None = None,
        api_key_command: str | None = None,
        base_url: str | None = None,
        base_url_trusted: bool = False,
        max_tokens: int = 8192,
        temperature: float | None = None,
        timeouts: Timeouts | None = None,
        tenant: str = "",
    ) -> None:
        self.model, self.max_tokens = model, max_tokens
        self.given = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        self.contexts: list[GenerateContext] = []
        self.closed = 0
        self.open = 0
        MADE.append(self)

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        self.contexts.append(ctx)
        self.open += 1
        try:
            said = str(ctx.messages[-1]["content"])
            if said == "fail":
                raise TransientError("down")
            yield Text(said[:2])
            if said == "break":
                raise TransientError("lost")
            yield Text(said[2:])
            finish = said if said in ("refusal", "length") else "stop"
            yield Finish(finish, Usage(input_tokens=1, output_tokens=2))
        finally:
            self.open -= 1

    def diagnose(self) -> list[str]:
        return ["weights: there"]

    async def aclose(self) -> None:
        self.closed += 1


class Other(Echo):
    """Another provider."""

    provider = "other"

    def __init__(self, *, model: str = "o", region: str = "") -> None:
        super().__init__(model=model)
        self.region = region


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own, two providers registered, and no adapter made yet."""
    monkeypatch.setattr(registry, "_registered", {"echo": Echo, "other": Other})
    monkeypatch.setattr(registry, "default_provider", lambda: "echo")
    MADE.clear()
    return enter_home(tmp_path, monkeypatch)


def test_connect_splits_at_the_first_colon() -> None:
    """`provider:model` keeps every later colon in the model; settings reach the constructor."""
    made = build.connect("echo:org/model:free", tenant="acme")
    assert made.model == "org/model:free"
    assert made.given["tenant"] == "acme"
    assert build.connect("echo", model="x").model == "x"


def test_connect_reads_a_dot_before_the_colon_as_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dotted path names the class, and the model comes by keyword."""
    (tmp_path / "corppath").mkdir()
    (tmp_path / "corppath" / "adapter.py").write_text(
        "class A:\n    def __init__(self, *, model): self.model = model\n    def generate(self, ctx): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert build.connect("corppath.adapter:A", model="b").model == "b"
    with pytest.raises(ConfigError, match=r"isthmus\.nowhere:Adapter"):
        build.connect("isthmus.nowhere:Adapter", model="m")


def test_connect_refuses_two_models() -> None:
    """A model in the target and another as a setting is a mistake."""
    with pytest.raises(ConfigError, match="two models"):
        build.connect("echo:a", model="b")


def test_load_makes_a_chain_of_the_llm_table(home: Home) -> None:
    """Without `[chain]`, `[llm]` is a chain of one tier, built from every layer."""
    home.write_user('[llm]\nprovider = "echo"\nmodel = "m1"\ntenant = "acme"\n')
    chain = build.load(max_tokens=7)
    (tier,) = chain.tiers
    assert (tier.model, tier.given["max_tokens"], tier.given["tenant"]) == ("m1", 7, "acme")
    assert chain.id == "default"


def test_load_makes_a_chain_of_its_tiers(home: Home) -> None:
    """Tiers come in order, under their own ids and limits, with the chain's retry policy; closing reaches them."""
    home.write_user(
        '[chain]\nid = "mine"\nretry = {max_retries = 0}\ntimeouts = {idle = 5.0}\n'
        '[[chain.tiers]]\nid = "fast"\nprovider = "echo"\nmodel = "a"\nwindow_tokens = 100000\n'
        '[[chain.tiers]]\nprovider = "other"\nmodel = "b"\nregion = "eu"\n'
    )
    chain = build.load()
    fast, other = chain.tiers
    assert chain.id == "mine"
    assert (fast.id, fast.window_tokens, other.region) == ("fast", 100000, "eu")
    build.run_sync(chain.aclose)
    assert [made.closed for made in MADE] == [1, 1]


async def test_a_configured_chain_does_what_its_tables_say(home: Home) -> None:
    """Budget, markers, context and a tier's limits of a file reach the chain that is loaded."""
    home.write_user(
        "[chain]\nretry = {max_retries = 0}\ncontext = {keep_results = 0}\n[chain.budget]\nsteps = 1\n"
        '[[chain.markers]]\nname = "cite"\nopen = "[["\nclose = "]]"\n'
        '[[chain.tiers]]\nid = "one"\nprovider = "echo"\nlimits = {max_concurrent = 1}\n'
    )
    ctx = GenerateContext(messages=({"role": "user", "content": "see [[3]]"},))
    async with build.load() as chain, chain.open_run() as run:
        events = [event async for event in run.stream(ctx)]
        assert [event.type for event in events if event.type != "text"] == ["marker", "finish"]
        with pytest.raises(ChainCut) as caught:
            await run.generate(ctx)
    assert caught.value.reason == "budget-steps"


def test_production_refuses_a_scripted_tier(home: Home) -> None:
    """With `production = true` a scripted model is refused by file and key, in front of a call and by doctor."""
    home.write_user('[chain]\nproduction = true\n[llm]\nprovider = "scripted"\nreplies = ["hi"]\n')
    with pytest.raises(ConfigError, match=r"config\.toml: llm\.provider: provider 'scripted' is for development"):
        build.load()
    with pytest.raises(ConfigError, match="production"):
        list(build.findings(load_settings()))
    home.write_user('[chain]\nproduction = true\n[llm]\nprovider = "echo"\n')
    assert build.load().tiers


_TIER = '[[chain.tiers]]\nid = "a"\nprovider = "echo"\n'


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('[chain]\nid = ""\n' + _TIER, "chain.id", "a name"),
        ("[chain]\nid = 5\n" + _TIER, "chain.id", "text in quotes"),
        ('[chain]\nsticky = "always"\n' + _TIER, "chain.sticky", "'turn' or 'none'"),
        ("[chain]\nstep_timeout = 0\n" + _TIER, "chain.step_timeout", "above 0"),
        ('[chain]\nbudget = {cost = "1"}\n' + _TIER, "chain.budget.cost", "add it to `prices`"),
        ("[chain]\nretry = 5\n" + _TIER, "chain.retry", "a table"),
        (_TIER + _TIER, "chain.tiers", "tier 'a': id: another tier has the same id"),
        (_TIER + "window_tokens = 50\nmax_output_tokens = 50\n", "chain.tiers", "smaller than window_tokens"),
        (_TIER + '[[chain.tiers]]\nprovider = "ecko"\n', "chain.tiers[1].provider", "did you mean 'echo'?"),
        (_TIER + "windw_tokens = 5\n", "chain.tiers[0].windw_tokens", "did you mean 'window_tokens'?"),
        (_TIER + "window_tokens = -5\n", "chain.tiers[0].window_tokens", "whole number"),
        (_TIER + "limits = {max_concurrent = 0}\n", "chain.tiers[0].limits.max_concurrent", "from 1"),
        ('[llm]\nprovider = "ecko"\n', "llm.provider", "did you mean 'echo'?"),
        ('[[chain.tiers]]\nprovider = "local"\nmodel = "/no/such.gguf"\n', "chain.tiers[0].model", "GGUF"),
        ('[llm]\nprovider = "local"\nmodel = "/no/such.gguf"\n', "llm.model", "GGUF"),
        (_TIER + '[[chain.tiers]]\nprovider = "langserve"\n', "chain.tiers[1].base_url", "say where"),
        (
            '[[chain.tiers]]\nprovider = "anthropic"\nmodel = "m"\ncache_ttl = "2h"\n',
            "chain.tiers[0].cache_ttl",
            "'5m'",
        ),
        (_TIER + "timeouts = {idle = -1}\n", "chain.tiers[0].timeouts.idle", "above 0"),
        ("[chain]\nprices = {m = {input = 1.0}}\n" + _TIER, "chain.prices.m", "needs a value for output"),
        ('[chain]\nmarkers = [{name = "a"}]\n' + _TIER, "chain.markers[0]", "needs a value for open, close"),
        ('[llm]\nprovider = "echo"\ntenantt = "x"\n' + _TIER, "llm.tenantt", "did you mean 'tenant'?"),
    ],
)
def test_a_mistake_in_a_chain_is_named_by_file_key_and_remedy(home: Home, text: str, key: str, said: str) -> None:
    """Whatever finds it, a mistake in `[chain]` or in a tier names the file, the dotted key and what to write."""
    file = home.write_user(text)
    with pytest.raises(ConfigError) as caught:
        build.load()
    assert str(caught.value).startswith(f"{file}: {key}: ")
    assert said in str(caught.value)


async def test_a_loaded_chain_answers_and_falls_back(home: Home) -> None:
    """A placed adapter streams like the adapter itself."""
    home.write_user('[[chain.tiers]]\nid = "fast"\nprovider = "echo"\n')
    result = await build.load().generate(GenerateContext(messages=({"role": "user", "content": "hello"},)))
    assert result.text == "hello"


def test_load_reads_a_file_and_settings(home: Home, tmp_path: Path) -> None:
    """A path is read on top of the other files; loaded settings are used as they are."""
    home.write_user('[llm]\nprovider = "echo"\nmodel = "user"\ntenant = "t"\n')
    file = tmp_path / "mine.toml"
    file.write_text('[llm]\nmodel = "file"\n')
    assert build.load(file).tiers[0].given["tenant"] == "t"
    assert build.load(str(file)).tiers[0].model == "file"
    settings = load_settings(flags={"model": "flag"})
    assert build.load(settings).tiers[0].model == "flag"
    with pytest.raises(ConfigError, match="flags"):
        build.load(settings, model="x")


def test_an_unknown_key_names_file_key_and_nearest_name(home: Home) -> None:
    """A key that neither the library nor any provider takes is an error with the nearest right name."""
    home.write_user('[llm]\nprovider = "echo"\ntennant = "acme"\n')
    with pytest.raises(ConfigError) as caught:
        build.load()
    message = str(caught.value)
    assert str(home.user_file) in message
    assert "llm.tennant" in message
    assert "did you mean 'tenant'?" in message


def test_an_unknown_variable_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt variable is an error that names the variable."""
    monkeypatch.setenv("ISTHMUS_BASEURL", "http://x")
    with pytest.raises(ConfigError, match=r"ISTHMUS_BASEURL.*did you mean 'base_url'"):
        build.load()


def test_a_variable_of_somebody_else_is_left_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is near no key may be another program's, such as a cluster's for a service of that name."""
    monkeypatch.setenv("ISTHMUS_PORT_443_TCP_ADDR", "10.0.0.1")
    assert build.load().tiers
    assert any("ISTHMUS_PORT_443_TCP_ADDR" in line for line in build.findings(load_settings()))


def test_a_key_that_only_another_provider_takes_is_a_line_for_the_doctor(home: Home) -> None:
    """A key left over from another provider is no error; the doctor mentions it."""
    home.write_user('[llm]\nprovider = "echo"\nregion = "eu"\neffort = "low"\n')
    assert build.load().tiers
    lines = list(build.findings(load_settings()))
    assert any("llm.region: not used by provider 'echo'" in line for line in lines)
    assert any("llm.effort: not used by provider 'echo'" in line for line in lines)


def test_the_key_command_wins_over_a_configured_key_but_not_over_an_argument(home: Home) -> None:
    """Keys: explicit argument, then command, then configuration."""
    home.write_user('[llm]\nprovider = "echo"\napi_key = "configured"\napi_key_command = "vend"\n')
    given = build.load().tiers[0].given
    assert (given["api_key"], given["api_key_command"]) == (None, "vend")
    assert build.load(api_key="argument").tiers[0].given["api_key"] == "argument"


def test_where_an_address_came_from_reaches_the_adapter(home: Home) -> None:
    """F29: an address from a trusted place is marked as such; without one nothing is claimed, whatever a file says."""
    assert build.load(base_url="http://x").tiers[0].given["base_url_trusted"] is True
    assert build.load().tiers[0].given["base_url_trusted"] is False
    home.write_user("[llm]\nbase_url_trusted = true\n")
    with pytest.raises(ConfigError, match="base_url_trusted"):
        build.load()


def test_timeouts_are_a_table(home: Home) -> None:
    """`[llm.timeouts]` reaches the adapter as time-outs; a wrong name in it is an error that names the file."""
    home.write_user('[llm]\nprovider = "echo"\ntimeouts = {idle = 3.0}\n')
    assert build.load().tiers[0].given["timeouts"] == Timeouts(idle=3.0)
    home.write_user('[llm]\nprovider = "echo"\ntimeouts = {idel = 3.0}\n')
    with pytest.raises(ConfigError, match=r"config.toml: llm.timeouts.*idel"):
        build.load()


@pytest.mark.parametrize("line", ['api_key_command = "touch ran"', 'base_url = "http://evil"', 'provider = "evil:A"'])
async def test_a_hostile_folder_runs_nothing_and_gets_no_key(home: Home, line: str) -> None:
    """F29: in a folder with a hostile file nothing is imported, run, made or sent."""
    (home.folder / "evil.py").write_text("open('ran', 'w')\n")
    home.write_folder(f"[llm]\n{line}\n")
    with pytest.raises(ConfigError, match="isthmus config trust"):
        await build.ask("hello")
    assert not (home.folder / "ran").exists()
    assert MADE == []


async def test_ask_answers_with_text_and_closes_what_it_opened(home: Home) -> None:
    """One call, one text; an adapter that was made for it is closed, a given one is not."""
    home.write_user('[llm]\nprovider = "echo"\n')
    assert await build.ask("hello", system="Be brief.", max_tokens=5) == "hello"
    (made,) = MADE
    assert made.closed == 1
    assert (made.contexts[0].brief, made.contexts[0].max_output_tokens) == ("Be brief.", 5)
    assert await build.ask("hello", model="echo:x") == "hello"
    mine = Echo()
    assert await build.ask("hello", model=mine) == "hello"
    assert mine.closed == 0


async def test_ask_never_passes_a_failure_for_an_answer() -> None:
    """A reply that broke, and one that was refused, are errors that hold what had arrived."""
    with pytest.raises(TransientError) as broken:
        await build.ask("break", model=Echo())
    assert broken.value.partial.text == "br"
    with pytest.raises(RefusedError) as refused:
        await build.ask("refusal", model=Echo())
    assert refused.value.partial.text == "refusal"


async def test_ask_says_when_the_answer_was_cut(caplog: pytest.LogCaptureFixture) -> None:
    """An answer at the output limit is returned with a warning."""
    assert await build.ask("length", model=Echo()) == "length"
    assert "cut at the output limit" in caplog.text


def test_sync_code_streams_and_closes() -> None:
    """`stream_sync` hands out the events of an adapter, a name or a stream; closing it closes the source."""
    mine = Echo()
    assert [event.type for event in build.stream_sync(mine, "hello")] == ["text", "text", "finish"]
    ctx = GenerateContext(messages=({"role": "user", "content": "there"},))
    assert [event.type for event in build.stream_sync("echo:x", ctx)] == ["text", "text", "finish"]
    assert len(list(build.stream_sync(EventStream(mine.stream(ctx))))) == 3
    stream = build.stream_sync(mine, "hello")
    next(stream)
    assert mine.open == 1
    stream.close()
    assert mine.open == 0


async def test_sync_functions_work_inside_a_running_loop() -> None:
    """In a notebook both sync doors work, twice."""
    for _ in range(2):
        assert len(list(build.stream_sync(Echo(), "hello"))) == 3
        assert build.run_sync(build.ask, "hello", model=Echo()) == "hello"


def test_plugins_are_imported_before_a_provider_is_looked_up(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module under `[plugins]` may register the very provider that `[llm]` names."""
    (tmp_path / "corpplug.py").write_text(
        "from isthmus.adapters.registry import register_adapter\n"
        "class A:\n    id = 'corp'\n    def generate(self, ctx): ...\nregister_adapter('corp', A)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_failed_plugins", {})
    home.write_user('[llm]\nprovider = "corp"\n[plugins]\nmodules = ["corpplug"]\n')
    assert build.load().tiers[0].id == "corp"
    assert "corp" in build.providers(load_settings())


def test_findings_show_no_secret(home: Home) -> None:
    """F29: what the doctor says of a configuration holds no key."""
    home.write_user('[llm]\nprovider = "echo"\napi_key = "CANARY-1"\napi_key_command = "vend CANARY-2"\n')
    lines: list[Any] = list(build.findings(load_settings()))
    assert any("api_key: set" in line for line in lines)
    assert "weights: there" in lines
    assert "CANARY" not in str(lines)


@pytest.mark.parametrize("body", ["raise RuntimeError('boom')", "import sys; sys.exit('boom')", "def boom(:"])
@pytest.mark.parametrize(
    "text",
    [
        '[llm]\nprovider = "odd"\n[plugins]\nmodules = ["odd_module"]\n',
        '[llm]\nprovider = "odd_module:Made"\n',
        '[llm]\nprovider = "echo"\n[telemetry]\nenabled = true\nredact = "odd_module:hide"\n',
    ],
    ids=["plugin", "dotted path", "hook"],
)
def test_a_module_that_fails_as_it_is_imported_is_shown_with_its_cause(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, body: str
) -> None:
    """Whatever a stranger's module does as it is imported, an exit included, is a mistake in the configuration."""
    (tmp_path / "odd_module.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_failed_plugins", {})
    file = home.write_user(text)
    with pytest.raises(ConfigError) as caught:
        build.load()
    assert str(caught.value).startswith(f"{file}: ")
    assert re.search("boom|odd_module.py", str(caught.value))


def test_a_factory_that_makes_no_adapter_is_named_where_it_is_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a configured factory makes is judged under the name of the file and the key that name it."""
    (tmp_path / "none_module.py").write_text("class Made: ...")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = home.write_user('[[chain.tiers]]\nprovider = "none_module:Made"\n')
    with pytest.raises(ConfigError, match="no adapter") as caught:
        build.load()
    assert str(caught.value).startswith(f"{file}: chain.tiers[0].provider: ")
