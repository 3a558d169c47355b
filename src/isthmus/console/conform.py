"""`isthmus conform`: hold an adapter to every law, or stand in for its provider."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from pathlib import Path
from typing import Any

import click

from isthmus import conformance
from isthmus.console.terminal import say, stdout_kept, tell, write_json
from isthmus.errors import ConfigError, IsthmusError
from isthmus.models.jsontext import dumps
from isthmus.secret import redact

_PLACE = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("ref", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.option("--github", is_flag=True, help="Print the findings as annotations of a workflow.")
@click.option("--list", "every", is_flag=True, help="List every law with how it stands.")
@click.option("--laws", is_flag=True, help="Say what the laws are; judges nothing.")
@click.option(
    "--recordings", type=click.Path(path_type=Path, exists=True), metavar="DIR", help="The provider's replies."
)
@click.option(
    "--patience", type=click.FloatRange(min=0.1), default=5.0, metavar="S", help="Seconds that a call may take."
)
@click.option(
    "--serve", type=click.Path(path_type=Path, exists=True), metavar="SOURCE", help="Play recordings or a script."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="With --serve: where; 0 for any.")
@click.option("--fault", "faults", multiple=True, metavar="FAULT", help="With --serve: what goes wrong, e.g. cut:100.")
@click.pass_context
def conform(ctx: click.Context, /, ref: str | None, **options: Any) -> None:
    """Hold the adapter REF to every law: a dotted path (package.module:Class), a provider, or provider:model.

    The exit status is 1 where it breaks one. With --serve no adapter is judged: a server on loopback plays recordings,
    or a script, as their provider, for tests of clients in any language.
    """
    if options["laws"]:
        _laws(as_json=options["as_json"])
    elif options["serve"] is not None:
        _serve(options["serve"], port=options["port"], faults=options["faults"])
    elif ref is None:
        raise click.UsageError("name an adapter: isthmus conform package.module:Class (or --laws, --serve SOURCE)")
    else:
        ctx.exit(_judge(ref, options))


def _judge(ref: str, options: dict[str, Any]) -> int:
    # At the end, so that nothing in the current folder stands in for an installed package.
    sys.path.append(str(Path.cwd()))
    try:
        with stdout_kept():
            maker, report = _judged(ref, options["recordings"], options["patience"])
    except IsthmusError as error:
        if options["as_json"]:
            write_json(dumps({"adapter": ref, "ok": False, "error": redact(str(error))}))
        raise
    if options["as_json"]:
        write_json(report.to_json().encode())
    elif options["github"]:
        tell(report.annotations(_file(maker)))
    else:
        tell(report.table(every=options["every"]))
    return 0 if report.ok else 1


def _judged(ref: str, recordings: Path | None, patience: float) -> tuple[Any, Any]:
    maker = conformance.maker_of(ref)
    return maker, asyncio.run(conformance.conform(maker, recordings=recordings, patience=patience))


def _file(maker: Any) -> str:
    """The source file of what makes an adapter, from here."""
    try:
        return os.path.relpath(inspect.getsourcefile(inspect.unwrap(maker)) or "")
    except (TypeError, ValueError):
        return ""


def _laws(*, as_json: bool) -> None:
    if as_json:
        write_json(conformance.laws_as_json().encode())
        return
    for law in conformance.LAWS:
        tell(f"{law.id}\n    {law.claim}\n    why: {law.why}\n    fix: {law.fix}")
        if law.covers:
            tell(f"    fault classes: {', '.join(law.covers)}")


def _serve(source: Path, *, port: int, faults: tuple[str, ...]) -> None:
    def ready(url: str) -> None:
        say(f"serving {source} at {url} (Ctrl-C ends it)")

    def heard(request: Any) -> None:
        say(f"{request.method} {request.path}")

    serving = conformance.serve_forever(source, port=port, faults=faults, ready=ready, heard=heard)
    try:
        asyncio.run(serving)
    except KeyboardInterrupt:
        return
    except OSError as error:
        raise ConfigError(f"cannot listen on port {port}: {error.strerror}") from None
