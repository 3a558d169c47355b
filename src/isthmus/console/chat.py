"""`isthmus chat`: one question, or a conversation, with an agent over whatever the configuration names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from isthmus import build
from isthmus.console.interrupt import Interrupted, interruptible
from isthmus.console.terminal import (
    as_text,
    history,
    interactive,
    questions,
    typed,
    write_json,
)
from isthmus.console.toolbox import calculate, current_time
from isthmus.console.turn import Aborted, Display, Failed, Messages, outcome
from isthmus.errors import ChainExhausted, ConfigError, IsthmusError, TierError
from isthmus.harness import DefaultAgent, Limits
from isthmus.models.jsontext import dumps
from isthmus.settings import Settings, load_settings, state_folder

_FLAGS = ("provider", "model", "base_url", "api_key_command", "system", "max_tokens", "effort", "temperature")


@click.command()
@click.argument("question", nargs=-1)
@click.option("--provider", metavar="NAME", help="The provider, or a dotted path package.module:Class.")
@click.option("--model", metavar="ID", help="The model.")
@click.option("--base-url", metavar="URL", help="Where the provider is.")
@click.option("--api-key-command", metavar="COMMAND", help="A command that prints the key.")
@click.option("--system", metavar="TEXT", help="The instructions.")
@click.option("--max-tokens", type=int, metavar="N", help="Ceiling of each reply.")
@click.option("--effort", metavar="LEVEL", help="Reasoning effort: off, low, medium, high, xhigh, max.")
@click.option("--temperature", type=float, metavar="X", help="Sampling temperature.")
@click.option("--tools", is_flag=True, help="Let it ask for the time in a place and do exact arithmetic.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line as JSON, the outcome last.")
@click.pass_context
def chat(ctx: click.Context, /, question: tuple[str, ...], *, tools: bool, as_json: bool, **flags: Any) -> None:
    """Ask QUESTION, or what comes on standard input; without either, talk.

    In a conversation Ctrl-C stops the reply and Ctrl-D ends the program.
    """
    try:
        asked = _asked(question)
        settings = load_settings(flags={key: flags[key] for key in _FLAGS})
        conversation = _Conversation(settings, tools=tools, as_json=as_json)
    except (IsthmusError, KeyboardInterrupt) as error:
        if as_json:
            write_json(dumps(outcome(Aborted("") if isinstance(error, KeyboardInterrupt) else Failed())))
        raise
    with asyncio.Runner() as runner:
        try:
            if asked is not None:
                ctx.exit(0 if conversation.turn(runner, asked) else 1)
            with history(state_folder()):
                for line in questions("> "):
                    conversation.turn(runner, line)
        finally:
            runner.run(conversation.aclose())


def _asked(question: Sequence[str]) -> str | None:
    """The one question, or None where a person is there to talk."""
    text = " ".join(question)
    if not question and interactive():
        return None
    try:
        text = typed() if text == "-" or not question else as_text(text)
    except UnicodeError:
        raise ConfigError("the question is not text in UTF-8") from None
    if not text.strip():
        raise ConfigError("there is no question: give one as an argument or on standard input")
    return text


class _Conversation:
    """An agent and what has been said."""

    def __init__(self, settings: Settings, *, tools: bool, as_json: bool) -> None:
        self._chain = build.load(settings)
        self._json = as_json
        self._messages: Messages = ()
        table = build.connections(settings)[0]
        self._model = f"{table['provider'].value}:{table['model'].value}" if "model" in table else self._chain.id
        self._agent = DefaultAgent(
            model=self._chain,
            instructions=settings.get("system", ""),
            tools=(current_time, calculate) if tools else (),
            limits=Limits(max_continuations=settings.get("max_continuations", Limits().max_continuations)),
        )

    def turn(self, runner: asyncio.Runner, question: str) -> bool:
        """Put one question; returns whether it was answered to the end. Ctrl-C stops the reply and nothing else."""
        display = Display(as_json=self._json)
        try:
            return runner.run(interruptible(self._play(display, question)))
        except (Interrupted, KeyboardInterrupt):
            display.end(Aborted(display.text), self._model)
            return False

    async def _play(self, display: Display, question: str) -> bool:
        async with self._agent.run_stream(question, self._messages) as stream:
            try:
                async for event in stream:
                    display.show(event)
            except (TierError, ChainExhausted):
                if stream.outcome is None:
                    raise
            ending = stream.outcome
        if ending is None:
            return False
        if ending.outcome != "failed":
            self._messages = ending.messages
        display.end(ending, self._model)
        return ending.outcome == "completed"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._chain.aclose()
