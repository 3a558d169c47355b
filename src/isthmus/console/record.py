"""`isthmus record`: ask a model once and keep what passes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from isthmus import build, conformance
from isthmus.console.interrupt import Interrupted, interruptible
from isthmus.console.terminal import as_text, say, write
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult, Text
from isthmus.models.fold import consume_stream
from isthmus.settings import load_settings


@click.command()
@click.argument("ref")
@click.argument("question", nargs=-1, required=True)
@click.option("--to", "folder", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where it goes.")
@click.option("--whole", is_flag=True, help="Ask for the reply whole instead of streamed.")
@click.pass_context
def record(ctx: click.Context, ref: str, *, question: tuple[str, ...], folder: Path, whole: bool) -> None:
    """Ask QUESTION of REF, "provider:model" or a provider, and keep the exchange below DIR, without keys.

    Keys, addresses and all else come from the configuration. The exit status is 1 where the reply is an error, which is
    kept too.
    """
    try:
        asked = as_text(" ".join(question))
    except UnicodeError:
        raise ConfigError("the question is not text in UTF-8") from None
    provider, model = build.named(ref)
    settings = load_settings(flags={"provider": provider, "model": model or None})
    adapter = conformance.record(build.adapter_of(build.connections(settings)[0]), folder)
    before = _recordings(folder)
    try:
        with asyncio.Runner() as runner:
            result = runner.run(interruptible(_asked(adapter, asked, whole=whole)))
    except Interrupted:
        raise click.Abort from None
    finally:
        for place in sorted(_recordings(folder) - before):
            say(f"recorded: {place}")
    if result.error is not None:
        say(f"isthmus: {result.error.error_class}: {result.error.message}")
    ctx.exit(0 if result.error is None else 1)


async def _asked(adapter: Any, question: str, *, whole: bool) -> StepResult:
    ctx = GenerateContext(messages=({"role": "user", "content": question},))
    result: StepResult
    try:
        if whole:
            result = await adapter.generate(ctx)
            write(result.text)
        else:
            result = await consume_stream(adapter.stream(ctx), on_text=write)
    finally:
        await adapter.aclose()
    if any(isinstance(event, Text) for event in result.events):
        write("\n")
    return result


def _recordings(folder: Path) -> set[Path]:
    return {place for place in folder.iterdir() if place.is_dir()} if folder.is_dir() else set()
