"""`isthmus config`: what the configuration is, where it came from, and which folder files are accepted."""

from __future__ import annotations

import json
from pathlib import Path

import click

from isthmus.console.terminal import say, tell
from isthmus.errors import ConfigError
from isthmus.settings import LLM_KEYS, folder_file, load_settings, read_regular, trust_store, user_file
from isthmus.settings.sources import parse_toml


@click.group()
def config() -> None:
    """Show the configuration; accept the current folder's isthmus.toml."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Print every setting with the place that it came from; secrets are hidden."""
    settings = load_settings(strict=False)
    shown = settings.to_dict()
    if as_json:
        tell(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        _print(shown)
    for note in settings.notes:
        say(note)
    for problem in settings.problems:
        say(f"isthmus: {problem}")
    ctx.exit(2 if settings.problems else 0)


def _print(shown: dict[str, object]) -> None:
    tables = [("[llm]", shown["llm"]), ("[chain]", shown["chain"])]
    tiers = shown["tiers"]
    tables += [("[[chain.tiers]]", tier) for tier in tiers if isinstance(tiers, list)]  # type: ignore[attr-defined]
    for name, table in tables:
        if isinstance(table, dict) and table:
            tell(name)
            for key, item in table.items():
                value = json.dumps(item["value"], ensure_ascii=False, default=str)
                tell(f"{key} = {value}  # {item['from']}")
    if shown["plugins"]:
        tell(f"[plugins]\nmodules = {json.dumps(shown['plugins'])}")


@config.command()
def path() -> None:
    """Print the user's configuration file, whether or not it exists."""
    tell(str(user_file()))


@config.command()
def trust() -> None:
    """Accept the current folder's isthmus.toml as it is now."""
    file, content = _folder_content()
    tables = parse_toml(content, str(file))
    digest = trust_store().accept(file, content)
    say(f"accepted {file} (sha256 {digest[:16]}…); a change to it must be accepted again")
    for name in sorted(_restricted(tables)):
        say(f"  it may now set {name}")


@config.command()
@click.pass_context
def untrust(ctx: click.Context) -> None:
    """Take back the acceptance of the current folder's isthmus.toml."""
    file = folder_file()
    if file is None or not trust_store().forget(file):
        say(f"{file} was not accepted")
        ctx.exit(1)
    say(f"{file} is no longer accepted")


def _folder_content() -> tuple[Path, bytes]:
    file = folder_file()
    content = None if file is None else read_regular(file)
    if file is None or content is None:
        raise ConfigError("there is no such file in the current folder", where=str(file))
    return file, content


def _restricted(tables: dict[str, object]) -> list[str]:
    return [
        f"{table}.{key}"
        for table, keys in tables.items()
        for key in (keys if isinstance(keys, dict) else ())
        if table != "llm" or key not in LLM_KEYS or not LLM_KEYS[key].open
    ]
