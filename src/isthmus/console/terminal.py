"""What the command needs of a terminal: a line with history, whether anybody is there, and output that cannot act."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO

import click

_MOST_LINES = 1000
# What makes a terminal act, as signs that only show it; tabs and line ends stay.
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys(range(0x7F, 0xA0), 0xFFFD),
    0x7F: 0x2421,
}


def visible(text: str, stream: TextIO | None) -> str:
    """The text as it may go to a stream: as it is, but on a terminal without anything that would make that act.

    A model, a server or a file could otherwise set its title, its clipboard or what is shown.
    """
    return text.translate(_SHOWN) if stream is not None and stream.isatty() else text


def interactive() -> bool:
    """Whether a person types."""
    return sys.stdin is not None and sys.stdin.isatty()


def typed() -> str:
    """All of standard input.

    Raises:
        UnicodeError: it is not text.
    """
    return as_text("" if sys.stdin is None else sys.stdin.read()).removeprefix("\ufeff")


def as_text(taken: str) -> str:
    """What was typed or given as an argument, where the locale could not read all of its bytes.

    Raises:
        UnicodeError: they are no UTF-8 either.
    """
    return taken.encode("utf-8", "surrogateescape").decode("utf-8")


def write(text: str) -> None:
    """Put a piece of a reply on stdout at once."""
    if sys.stdout is not None:
        sys.stdout.write(visible(text, sys.stdout))
        sys.stdout.flush()


def write_json(line: bytes) -> None:
    """Put a line of JSON on stdout at once, in UTF-8 whatever the locale says."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def tell(text: str) -> None:
    """Put a line of a result on stdout."""
    write(text + "\n")


def say(text: str) -> None:
    """Tell the person something that is no result."""
    click.echo(visible(text, sys.stderr), err=True)


@contextmanager
def stdout_kept() -> Iterator[None]:
    """Send what a stranger's code prints to stderr, so that stdout holds the result alone, whatever he does to it."""
    kept, number = sys.stdout, _number(sys.stdout)
    if number is None:
        with redirect_stdout(sys.stderr):
            yield
        return
    kept.flush()
    own = os.dup(number)
    os.dup2(2, number)
    shown = open(number, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    try:
        with redirect_stdout(shown):
            yield
    finally:
        with suppress(OSError, ValueError):
            shown.flush()
        os.dup2(own, number)
        os.close(own)
        if kept.closed:
            sys.stdout = open(number, "w", encoding=kept.encoding, errors=kept.errors, closefd=False)  # noqa: SIM115


def _number(stream: TextIO | None) -> int | None:
    """The file descriptor behind a stream, if there is one."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


class _Warnings(logging.Handler):
    """Says what the library warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def prepare() -> None:
    """Make output ready for any locale, and have warnings said here where nobody else takes them."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    logging.lastResort = _Warnings(logging.WARNING)


@contextmanager
def history(folder: Path) -> Iterator[None]:
    """Line editing with a history that outlives the program; without one where the platform has none.

    Args:
        folder: where the history is kept.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    file = folder / "chat_history"
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
