"""What drives the step machine reports to it of the effects that it carried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from isthmus.harness.history import Said
from isthmus.harness.pending import Question
from isthmus.models.events import Note, StepResult, Usage
from isthmus.models.executor import ToolResult
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.tools import Tools

_NOTHING = Said()


class Prepared(Struct, frozen=True):
    """What the turn is made of; the messages stay, the rest is for this turn.

    Args:
        messages: the transcript.
        tools: the tools and their policy.
        brief: the system text.
        options: the model's own request options.
        spent: the tokens of what was asked of a model to prepare it.
        notes: what was changed.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: Tools
    brief: str
    options: Mapping[str, Any]
    spent: tuple[Usage | None, ...] = ()
    notes: tuple[Note, ...] = ()


class Replied(Struct, frozen=True):
    """The model answered, or broke off after content ("error-post").

    Args:
        step: the reply.
        said: its text, without what it repeated.
        tier: the id of the tier that served.
        continued: says who goes on where the reply is not the last, and how.
    """

    step: StepResult
    said: Said
    tier: str | None = None
    continued: ModelStreamEvent | None = None


class Failed(Struct, frozen=True):
    """The run failed, before any content where a model was `called`."""

    error: Exception
    called: bool = True


class ToolsRan(Struct, frozen=True):
    """The calls were answered."""

    results: tuple[ToolResult, ...]


class Held(Struct, frozen=True):
    """Calls wait for a decision: none of the batch was run.

    Args:
        run: the run that asks.
        asked: the calls that wait, and why.
        results: the calls that have their answers.
    """

    run: str
    asked: Mapping[str, Question]
    results: Mapping[str, ToolResult]


class Collected(Struct, frozen=True):
    """Running calls were answered.

    Args:
        results: the answers, in the order in which they came.
        round: whether that was a round of its own.
    """

    results: tuple[ToolResult, ...]
    round: bool = False


class Aborted(Struct, frozen=True):
    """Somebody stopped the run.

    Args:
        step: what had arrived of a reply that was being read.
        said: its text, without what it repeated.
        results: the calls that were answered, of a batch that was being run.
        started: the ids of the calls that had begun.
        continued: as with `Replied`.
    """

    step: StepResult | None = None
    said: Said = _NOTHING
    results: tuple[ToolResult, ...] = ()
    started: frozenset[str] = frozenset()
    continued: ModelStreamEvent | None = None


Report: TypeAlias = Prepared | Replied | Failed | ToolsRan | Held | Collected | Aborted
