"""What passes between the step machine and what drives it: effects to carry out, and reports of what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from isthmus.harness.handoffs import Handoff
from isthmus.harness.history import Said
from isthmus.harness.outcome import Outcome
from isthmus.harness.pending import Question
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Event, Note, StepResult, Usage
from isthmus.models.executor import ToolResult
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.strategy import Asked
from isthmus.models.tools import Tools

# What the driver is to do.


@dataclass(frozen=True, slots=True)
class PrepareTurn:
    """Let those who attend the run change what the next call is made of."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model; its text continues `said`, as that was written, its calls must not have an id that is `taken`.

    A reply of a given form is read as `asked` says. One that `follows` comes by itself: nothing is asked for.
    """

    ctx: GenerateContext
    said: str = ""
    taken: frozenset[str] = frozenset()
    asked: Asked | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the calls under this policy; `used` says how often each tool has run before."""

    calls: tuple[Call, ...]
    tools: Tools
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let another agent go on: what comes next is decided for that one, by `taken_over` in the loop."""

    call: Call
    to: Handoff


@dataclass(frozen=True, slots=True)
class Collect:
    """Take the results of running calls that are ready.

    Args:
        needed: the calls to wait for.
        first: whether to wait until at least one is there.
    """

    needed: tuple[str, ...] = ()
    first: bool = False


@dataclass(frozen=True, slots=True)
class Emit:
    """Show the consumer an event."""

    event: Event


@dataclass(frozen=True, slots=True)
class Done:
    """The run is over."""

    outcome: Outcome


Effect: TypeAlias = PrepareTurn | CallModel | RunTools | HandOver | Collect | Emit | Done


# What the driver reports.


_NOTHING = Said()


@dataclass(frozen=True, slots=True)
class Prepared:
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


@dataclass(frozen=True, slots=True)
class Replied:
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


@dataclass(frozen=True, slots=True)
class Failed:
    """The run failed, before any content where a model was `called`."""

    error: Exception
    called: bool = True


@dataclass(frozen=True, slots=True)
class ToolsRan:
    """The calls were answered."""

    results: tuple[ToolResult, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Calls wait for a decision: none of the batch was run.

    Args:
        run: the run that asks.
        asked: the calls that wait, and why.
        results: the calls that have their answers.
    """

    run: str
    asked: Mapping[str, Question]
    results: Mapping[str, ToolResult]


@dataclass(frozen=True, slots=True)
class Collected:
    """Running calls were answered.

    Args:
        results: the answers, in the order in which they came.
        round: whether that was a round of its own.
    """

    results: tuple[ToolResult, ...]
    round: bool = False


@dataclass(frozen=True, slots=True)
class Aborted:
    """Somebody stopped the run.

    Args:
        step: what had arrived of a reply that was being read.
        said: its text, without what it repeated.
        results: the calls that were answered, of a batch that was being run.
        started: the ids of the calls that had begun.
    """

    step: StepResult | None = None
    said: Said = _NOTHING
    results: tuple[ToolResult, ...] = ()
    started: frozenset[str] = frozenset()


Report: TypeAlias = Prepared | Replied | Failed | ToolsRan | Held | Collected | Aborted
