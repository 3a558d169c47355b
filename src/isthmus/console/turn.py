"""Plays one turn of a conversation: shows its events as they arrive and says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from isthmus.console.terminal import say, write, write_json
from isthmus.errors import ChainExhausted, TierError
from isthmus.models.events import Call, CallDelta, Event, Marker, Reasoning, Text, Usage, event_to_dict
from isthmus.models.executor import ToolResult
from isthmus.models.jsontext import dumps
from isthmus.secret import redact

Messages = tuple[Mapping[str, Any], ...]
_SPOKEN = (Text, Reasoning, Call, CallDelta)


class Ending(Protocol):
    """How a turn ended, as this module reads it."""

    @property
    def outcome(self) -> str:
        """ "completed", "cut" or "failed"."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it was not completed."""
        ...

    @property
    def text(self) -> str:
        """The answer."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The tokens of all its steps."""
        ...

    @property
    def tier(self) -> str | None:
        """Who answered."""
        ...

    @property
    def detail(self) -> str:
        """More about the reason, for a person."""
        ...

    @property
    def error(self) -> Exception | None:
        """The failure behind it."""
        ...

    @property
    def attempts(self) -> tuple[Any, ...]:
        """Every try of every model call."""
        ...


@dataclass(frozen=True, slots=True)
class Aborted:
    """The ending of a turn that the person stopped."""

    text: str
    usage: Usage | None = None
    tier: str | None = None
    outcome: str = "cut"
    reason: str | None = "aborted"
    detail: str = ""
    error: Exception | None = None
    attempts: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed(Aborted):
    """The ending of a turn that could not begin."""

    text: str = ""
    outcome: str = "failed"
    reason: str | None = "configuration"


@dataclass(slots=True)
class Clock:
    """When a turn began and when it first said something.

    Args:
        now: the time in seconds, as a monotonic clock gives it.
    """

    now: Callable[[], float] = monotonic
    began: float = field(init=False)
    first: float | None = None

    def __post_init__(self) -> None:
        self.began = self.now()

    def line(self, ending: Ending, model: str) -> str:
        """Model, tokens and speed, as one line."""
        usage = ending.usage
        parts = [ending.tier or model]
        if usage is not None and usage.prompt_tokens is not None:
            parts.append(f"{usage.prompt_tokens} tokens in")
        if usage is not None and usage.output_tokens is not None:
            parts.append(f"{usage.output_tokens} out")
        if self.first is not None:
            parts.append(f"first after {self.first - self.began:.2f} s")
            taken = self.now() - self.first
            if usage is not None and usage.output_tokens and taken > 0:
                parts.append(f"{usage.output_tokens / taken:.1f} tokens/s")
        return " · ".join(parts)


class Display:
    """Shows the events of one turn.

    Args:
        as_json: whether to print one JSON object a line in place of the text.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._texts: list[str] = []
        self.clock = Clock()

    @property
    def text(self) -> str:
        """The text shown so far."""
        return "".join(self._texts)

    def show(self, event: Event | ToolResult) -> None:
        """Show one event, or the result of a tool."""
        if self.clock.first is None and isinstance(event, _SPOKEN):
            self.clock.first = self.clock.now()
        if isinstance(event, Text):
            self._texts.append(event.text)
        if self._json:
            write_json(dumps(event_to_dict(event)))  # type: ignore[arg-type]
        elif isinstance(event, Text):
            write(event.text)
        elif isinstance(event, Call):
            say(f"[{event.tool} {event.arguments or ''}]")
        elif isinstance(event, ToolResult):
            say(f"[{event.tool}: {redact(event.text)}]")
        elif isinstance(event, Marker):
            say(f"[{event.name}: {redact(event.text)}]")

    def end(self, ending: Ending, model: str) -> None:
        """Show how it ended."""
        if self._json:
            write_json(dumps(outcome(ending)))
            _tell_passed_over(ending)
            if ending.error is not None:
                say(f"isthmus: {ending.outcome}: {_why(ending)}")
            return
        if self._texts and not self._texts[-1].endswith("\n"):
            write("\n")
        _tell_passed_over(ending)
        if ending.outcome != "completed":
            say(f"isthmus: {ending.outcome}: {_why(ending)}")
        say(self.clock.line(ending, model))


def _tell_passed_over(ending: Ending) -> None:
    """Say which tiers failed before another one was asked, and how; what ended the run says so itself."""
    failed: dict[str, list[TierError]] = {}
    for attempt in _tries(ending.attempts):
        if attempt.error not in (None, ending.error) and attempt.finish is None:
            failed.setdefault(attempt.tier, []).append(attempt.error)
    # The failure of a whole chain names every try.
    for tier, errors in failed.items() if not isinstance(ending.error, ChainExhausted) else ():
        tries = f" after {len(errors)} tries" if len(errors) > 1 else ""
        say(redact(f"isthmus: {tier} failed{tries}: {errors[-1].error_class}: {errors[-1].message}"))


def _tries(attempts: Iterable[Any]) -> Iterator[Any]:
    """The tries of tiers themselves, of chains within chains too."""
    for attempt in attempts:
        yield from _tries(attempt.attempts) if attempt.attempts else (attempt,)


def _why(ending: Ending) -> str:
    parts = [str(ending.reason or "no reason given"), ending.detail, str(ending.error or "")]
    return redact(": ".join(part for part in parts if part))


def outcome(ending: Ending) -> dict[str, Any]:
    """The last line of a run's JSON."""
    usage = ending.usage
    return {
        "type": "outcome",
        "outcome": ending.outcome,
        "reason": None if ending.reason is None else str(ending.reason),
        "text": ending.text,
        "usage": None if usage is None else usage.to_dict(),
        "tier": ending.tier,
    }
