from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isthmus.errors import ConfigError
from isthmus.settings import Layer, load_settings
from support.homes import Home

LAYERS = ["user", "folder", "explicit", "environment", "flags"]


def load_with(home: Home, tmp_path: Path, names: list[str]):
    """Settings where each named layer sets the model to its own name."""
    environ: dict[str, str] = {}
    if "user" in names:
        home.write_user('[llm]\nmodel = "user"\n')
    if "folder" in names:
        home.write_folder('[llm]\nmodel = "folder"\n')
    if "explicit" in names:
        file = tmp_path / "named.toml"
        file.write_text('[llm]\nmodel = "explicit"\n')
        environ["ISTHMUS_CONFIG"] = str(file)
    if "environment" in names:
        environ["ISTHMUS_MODEL"] = "environment"
    flags = {"model": "flags"} if "flags" in names else {}
    return load_settings(flags=flags, environ=environ)


@pytest.mark.parametrize("count", range(1, 6))
def test_the_highest_layer_wins(home: Home, tmp_path: Path, count: int) -> None:
    """User file, folder file, named file, environment and flags win in that order, lowest first."""
    settings = load_with(home, tmp_path, LAYERS[:count])
    assert settings.get("model") == LAYERS[count - 1]
    assert settings.llm["model"].layer == Layer(LAYERS[count - 1])


def test_each_value_remembers_where_it_came_from(home: Home) -> None:
    """Origins are the file, the variable and the flag themselves."""
    home.write_user('[llm]\nprovider = "p"\n')
    settings = load_settings(flags={"base_url": "http://x"}, environ={"ISTHMUS_MAX_TOKENS": "7"})
    assert settings.llm["provider"].where == str(home.user_file)
    assert settings.llm["max_tokens"].where == "ISTHMUS_MAX_TOKENS"
    assert settings.llm["base_url"].where == "--base-url"
    assert settings.get("max_tokens") == 7


def test_nothing_configured_is_valid(home: Home) -> None:
    """Without any file or variable there are no settings, and one connection without any."""
    settings = load_settings(environ={})
    assert dict(settings.llm) == {}
    assert settings.connections() == ({},)
    assert settings.sources == ()


def test_model_limits_are_merged_field_by_field(home: Home, tmp_path: Path) -> None:
    """A higher layer changes one field of one entry and leaves all others."""
    home.write_user(
        '[llm.model_limits."claude"]\ncontext_window = 200000\nmax_output_tokens = 8192\n[llm.model_limits.""]\nx = 1\n'
    )
    file = tmp_path / "more.toml"
    file.write_text('[llm.model_limits."claude"]\nmax_output_tokens = 64000\n')
    settings = load_settings(file, environ={})
    assert settings.get("model_limits") == {
        "claude": {"context_window": 200000, "max_output_tokens": 64000},
        "": {"x": 1},
    }


def test_a_seed_is_the_lowest_layer(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution's package data is read below the user's file, and says which distribution it came from."""
    package = tmp_path / "site" / "mycorp"
    (package / "config_seed").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "config_seed" / "llm.toml").write_text('[llm]\nmodel = "seed"\ntenant_id = "acme"\n')
    info = tmp_path / "site" / "mycorp-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mycorp\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[isthmus.config_seed]\nmycorp = mycorp\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    home.write_user('[llm]\nmodel = "user"\n')
    settings = load_settings(environ={})
    assert settings.get("model") == "user"
    assert settings.get("tenant_id") == "acme"
    assert "mycorp" in settings.llm["tenant_id"].where
    monkeypatch.delitem(sys.modules, "mycorp", raising=False)
    (package / "__init__.py").write_text("import sys; sys.exit('licence is missing')")
    with pytest.raises(ConfigError, match=r"config seed 'mycorp'.*licence is missing"):
        load_settings(environ={})


def test_tables_of_a_chain_are_merged_entry_by_entry(home: Home, tmp_path: Path) -> None:
    """A higher file that adds one limit to `[chain]` leaves the limits of a lower one as they are."""
    home.write_user('[chain.budget]\nsteps = 5\ntokens = 900\n[chain.prices.m]\ninput = "1"\noutput = "2"\n')
    named = tmp_path / "more.toml"
    named.write_text('[chain.budget]\ntokens = 700\n[chain.prices.m]\noutput = "3"\n')
    chain = load_settings(named, environ={}).chain
    assert chain["budget"].value == {"steps": 5, "tokens": 700}
    assert chain["prices"].value == {"m": {"input": "1", "output": "3"}}


def test_chain_tiers_replace_llm_which_fills_what_they_leave_out(home: Home) -> None:
    """`[chain]` wins; `[llm]` gives a tier of the same provider what the tier does not say itself."""
    home.write_user(
        '[llm]\nprovider = "a"\napi_key = "ka"\nmax_tokens = 100\n'
        '[chain]\nid = "two"\n[[chain.tiers]]\nmodel = "m1"\n[[chain.tiers]]\nmodel = "m2"\nmax_tokens = 5\n'
    )
    settings = load_settings(environ={})
    first, second = settings.connections()
    assert (first["provider"].value, first["model"].value, first["max_tokens"].value) == ("a", "m1", 100)
    assert (second["model"].value, second["max_tokens"].value, second["api_key"].value) == ("m2", 5, "ka")
    assert settings.chain["id"].value == "two"


def test_a_tier_of_another_provider_gets_no_key_or_address(home: Home) -> None:
    """F29: what belongs to one provider never reaches the tier of another."""
    home.write_user(
        '[llm]\nprovider = "a"\napi_key = "ka"\nbase_url = "http://a"\nmodel = "ma"\neffort = "high"\n'
        "headers = {x = 'y'}\n[[chain.tiers]]\nprovider = 'b'\nmodel = 'mb'\n"
    )
    (tier,) = load_settings(environ={}).connections()
    assert set(tier) == {"provider", "model", "effort"}
    assert tier["model"].value == "mb"


def test_a_key_stays_with_the_provider_named_beside_it(home: Home) -> None:
    """F29: another provider chosen by a flag does not get key, address and model of the file's provider."""
    home.write_user('[llm]\nprovider = "a"\napi_key = "ka"\nbase_url = "http://a"\nmodel = "m"\n')
    settings = load_settings(flags={"provider": "b"}, environ={"ISTHMUS_API_KEY": ""})
    assert set(settings.llm) == {"provider"}
    assert any("api_key" in note for note in settings.notes)
    assert not any("ka" in note.split() for note in settings.notes)


def test_a_key_in_a_file_without_provider_belongs_to_any(home: Home) -> None:
    """A key beside no provider's name is used with whichever is chosen."""
    home.write_user('[llm]\napi_key = "ka"\n')
    assert load_settings(flags={"provider": "b"}, environ={}).get("api_key") == "ka"


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("[llm]\nmax_tokens = 'many'\n", "llm.max_tokens", "whole number"),
        ("[llm]\nmax_tokens = -1\n", "max_tokens", "whole number"),
        ("[llm]\nmax_tokens = true\n", "max_tokens", "whole number"),
        ("[llm]\neffort = 'huge'\n", "effort", "off, low, medium, high, xhigh, max"),
        ("[llm]\ntemperature = 'hot'\n", "temperature", "number"),
        ("[llm]\nmodel = 3\n", "model", "text"),
        ("[llm]\nheaders = 'x'\n", "headers", "table"),
        ("[llm]\nmodel_limits = {claude = 3}\n", "model_limits", "claude"),
        ("[plugins]\nmodules = [1]\n", "modules", "list"),
        ("llm = 3\n", "", "[llm]"),
        ("model = 'x'\n", "model", "put it under [llm]"),
        ("[chain]\ntiers = 3\n", "chain.tiers", "[[chain.tiers]]"),
    ],
)
def test_a_wrong_value_names_file_key_and_remedy(home: Home, text: str, key: str, said: str) -> None:
    """A value of the wrong type is refused with the file, the key and what it must be."""
    home.write_user(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={})
    message = str(caught.value)
    assert str(home.user_file) in message
    assert key.removeprefix("llm.") in message
    assert said in message


@pytest.mark.parametrize(
    ("text", "near"),
    [("[lllm]\nx = 1\n", "'llm'"), ("[plugins]\nmodule = ['x']\n", "'modules'"), ("[chain]\nretrys = {}\n", "'retry'")],
)
def test_an_unknown_table_or_key_gets_the_nearest_name(home: Home, text: str, near: str) -> None:
    """Tables, and keys of tables that the library owns, are checked when they are read."""
    home.write_user(text)
    with pytest.raises(ConfigError, match="did you mean " + near):
        load_settings(environ={})


def test_a_variable_of_the_wrong_type_is_named(home: Home) -> None:
    """The error names the variable, not a file."""
    with pytest.raises(ConfigError, match=r"ISTHMUS_MAX_TOKENS.*whole number"):
        load_settings(environ={"ISTHMUS_MAX_TOKENS": "lots"})
    with pytest.raises(ConfigError, match=r"ISTHMUS_HEADERS.*JSON"):
        load_settings(environ={"ISTHMUS_HEADERS": "x: y"})


def test_empty_and_reserved_variables_set_nothing(home: Home) -> None:
    """An empty variable is no setting; `ISTHMUS_LOG` is a switch of its own."""
    assert dict(load_settings(environ={"ISTHMUS_MODEL": "", "ISTHMUS_LOG": "wire"}).llm) == {}


def test_a_missing_named_file_is_an_error(home: Home, tmp_path: Path) -> None:
    """A file that was asked for must be there."""
    with pytest.raises(ConfigError, match="no such file"):
        load_settings(environ={"ISTHMUS_CONFIG": str(tmp_path / "nowhere.toml")})


def test_secrets_show_in_no_repr(home: Home) -> None:
    """F29: keys, tokens, passwords and header values stand in no repr of settings."""
    home.write_user(
        '[llm]\napi_key = "CANARY-1"\nclient_secret = "CANARY-2"\nheaders = {x-trace = "CANARY-3"}\n'
        'nested = {password = "CANARY-4", plain = ["a"]}\napi_key_command = "get CANARY-5"\n'
    )
    settings = load_settings(environ={"ISTHMUS_GATEWAY_TOKEN": "CANARY-6"})
    texts = [repr(settings), str(settings), repr(settings.llm), repr(settings.sources), str(settings.to_dict())]
    texts += [repr(item.value) for key, item in settings.llm.items() if key != "api_key_command"]
    assert not [text for text in texts if "CANARY" in text]
    assert settings.get("api_key") == "CANARY-1"
    assert settings.get("headers")["x-trace"] == "CANARY-3"


@pytest.mark.parametrize("key", ["api_key", "headers", "api_key_command"])
def test_a_secret_of_the_wrong_type_is_not_shown(home: Home, key: str) -> None:
    """F29: the error about a secret's type does not repeat the secret."""
    home.write_user(f'[llm]\n{key} = ["CANARY"]\n')
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={})
    assert "CANARY" not in str(caught.value)


def test_an_address_is_shown_without_its_password(home: Home) -> None:
    """Passwords and query values in addresses are hidden where settings are shown."""
    home.write_user('[llm]\nbase_url = "https://me:CANARY@host/v1?key=CANARY"\n')
    shown = str(load_settings(environ={}).to_dict())
    assert "CANARY" not in shown
    assert "host/v1" in shown


def test_problems_are_collected_where_nothing_may_be_raised(home: Home) -> None:
    """Without `strict`, what is right is kept and what is wrong is listed."""
    home.write_user('[llm]\nmodel = "m"\nmax_tokens = "x"\n')
    settings = load_settings(environ={}, strict=False)
    assert settings.get("model") == "m"
    assert len(settings.problems) == 1
