"""`isthmus doctor`: what is installed, configured and missing; never a secret."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import click

from isthmus import build
from isthmus.console.terminal import say, tell
from isthmus.errors import IsthmusError
from isthmus.secret import redact
from isthmus.settings import Settings, folder_file, load_settings, user_file
from isthmus.version import __version__

_PACKAGES = ("aiohttp", "msgspec", "pydantic", "jinja2", "click", "rich", "platformdirs")


@click.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Say what is installed, configured and missing."""
    settings = load_settings(strict=False)
    for line in (*_versions(), *_files(settings)):
        tell(line)
    problems = [str(problem) for problem in settings.problems]
    try:
        for line in build.findings(settings):
            tell(line)
    except IsthmusError as error:
        problems.append(str(error))
    for problem in problems:
        say(f"isthmus: {redact(problem)}")
    ctx.exit(2 if problems else 0)


def _versions() -> Iterator[str]:
    yield f"isthmus {__version__}, Python {platform.python_version()} on {platform.system()}"
    for package in (*_PACKAGES, *build.optional_packages()):
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package}: not installed"


def _files(settings: Settings) -> Iterator[str]:
    read = {source.where for source in settings.sources}
    for path in (user_file(), folder_file()):
        if path is not None and str(path) not in read:
            yield f"config: {path}: not there"
    for source in settings.sources:
        accepted = "" if source.trusted else " (not accepted: see `isthmus config trust`)"
        yield f"config: {source.layer}: {source.where}{accepted}"
    for note in settings.notes:
        yield f"config: {note}"
