"""The command `isthmus`: finds the subcommand, and turns what goes wrong into one line and an exit status.

Exit status: 0 done, 1 the work failed, 2 the call or the configuration is wrong.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from isthmus.console.terminal import prepare, say
from isthmus.errors import ChainExhausted, IsthmusError, TierError
from isthmus.secret import redact
from isthmus.version import __version__

# name -> (where the command is, its line in the help); modules are imported when their command runs.
_COMMANDS = {
    "adapters": ("isthmus.console.adapters:adapters", "List the providers that can be used."),
    "chat": ("isthmus.console.chat:chat", "Talk with a model: one question, or a conversation."),
    "conform": ("isthmus.console.conform:conform", "Hold an adapter to every law; play its provider."),
    "config": ("isthmus.console.config:config", "Show the configuration; accept a folder's file."),
    "doctor": ("isthmus.console.doctor:doctor", "Say what is installed, configured and missing."),
    "record": ("isthmus.console.record:record", "Ask a model and keep what passes as a recording."),
    "replay": ("isthmus.console.replay:replay", "Decode a recorded reply."),
}


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _LazyGroup(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        near = get_close_matches(args[0], _COMMANDS, n=1)
        if args[0] not in _COMMANDS and not args[0].startswith("-") and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(_COMMANDS.items())])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="isthmus")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Reach any language model through one contract."""


def _status(error: IsthmusError) -> int:
    return 1 if isinstance(error, TierError | ChainExhausted) else 2


def run(args: Sequence[str]) -> int:
    """Run the command; returns its exit status.

    Args:
        args: the words after `isthmus`.
    """
    prepare()
    try:
        status: Any = cli.main(list(args), prog_name="isthmus", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("isthmus: aborted")
        return 1
    except BrokenPipeError:
        _drop_output()
        return 1
    except Exception as error:
        if "--debug" in args:
            raise
        return _report(error)
    return status if isinstance(status, int) else 0


def _drop_output() -> None:
    """What is still to be written can be written nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception) -> int:
    if isinstance(error, IsthmusError):
        say(f"isthmus: {redact(str(error))}")
        return _status(error)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        _drop_output()
        say(f"isthmus: the output cannot be written: {error.strerror}")
        return 1
    said = redact(f"{type(error).__name__}: {error}")
    say(f"isthmus: {said} (a defect: `isthmus --debug …` shows where)")
    return 1


def main() -> None:
    """The entry point of the command."""
    sys.exit(run(sys.argv[1:]))
