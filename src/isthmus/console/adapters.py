"""`isthmus adapters`: the providers that can be used."""

from __future__ import annotations

import json

import click

from isthmus import build
from isthmus.console.terminal import tell
from isthmus.settings import load_settings


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def adapters(as_json: bool) -> None:
    """List the providers that can be used, and where each comes from."""
    found = build.providers(load_settings(strict=False))
    if as_json:
        tell(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for name, source in found.items():
        tell(f"{name:<{width}}  {source}")
