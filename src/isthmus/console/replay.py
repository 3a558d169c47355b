"""`isthmus replay`: decode a recorded reply with an adapter's own decoder."""

from __future__ import annotations

import json
from pathlib import Path

import click

from isthmus import conformance
from isthmus.console.terminal import say, tell, write_json
from isthmus.models.events import StepResult


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--adapter", metavar="NAME", help="The provider whose adapter decodes it; absent: by the request's path.")
@click.option("--split", type=click.IntRange(min=1), metavar="N", help="Hand the body over in pieces of N bytes.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@click.pass_context
def replay(ctx: click.Context, path: Path, *, adapter: str | None, split: int | None, as_json: bool) -> None:
    """Decode the recording in the folder PATH; the exit status is 1 where the result is an error."""
    result = conformance.replay(path, adapter=adapter, split=split)
    if as_json:
        # Escaped, so that the lone surrogates that servers send are JSON too.
        write_json(json.dumps(result.to_dict(), indent=2, default=str).encode())
    else:
        _print(result)
    ctx.exit(1 if result.error is not None else 0)


def _print(result: StepResult) -> None:
    if result.text:
        tell(result.text)
    for call in result.calls:
        tell(f"call {call.tool} {call.arguments}")
    usage = result.usage
    tokens = "usage unknown" if usage is None else f"{usage.prompt_tokens} tokens in, {usage.output_tokens} out"
    say(f"{result.finish} ({result.raw_reason}), {tokens}")
    for note in result.notes:
        say(f"note {note.code}: {note.detail}")
    if result.error is not None:
        say(f"isthmus: {result.error.error_class}: {result.error.message}")
