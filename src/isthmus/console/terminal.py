"""What the conversation needs of a terminal: a line with history, and whether anybody is there to read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from isthmus.settings import state_folder

_MOST_LINES = 1000


def interactive() -> bool:
    """Whether a person types."""
    return sys.stdin.isatty()


def write(text: str) -> None:
    """Put a piece of a reply on stdout at once; what its encoding lacks, such as half a pair, is shown escaped."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell the person something that is no result."""
    click.echo(text, err=True)


@contextmanager
def history() -> Iterator[None]:
    """Line editing with a history that outlives the program; without one where the platform has none."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = state_folder() / "chat_history"
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):
            _prepare(file)
            readline.set_history_length(_MOST_LINES)
            readline.write_history_file(file)


def _prepare(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    file.chmod(0o600)


def questions(prompt: str) -> Iterator[str]:
    """What the person asks, line by line, to the end of input; Ctrl-C only drops the line."""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("")
            continue
        if line.strip():
            yield line
