"""How a run begins, or another agent's part of it; and what is to be done in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from isthmus.harness.crew import Crew
from isthmus.harness.effects import Effect
from isthmus.harness.recovery import Comeback
from isthmus.harness.runlog import RunLog
from isthmus.models.events import StepResult
from isthmus.models.tools import ToolExecutionContext


class Begun(Struct):
    """The first step of a run, and what it has for all its steps.

    Args:
        next: the step.
        context: what tools are told.
        crew: who attends it.
        lead: the agent at work.
        back: where it comes back to, if it stopped before.
        log: its journal.
        about: the system text and the form of the answer of an agent that takes over.
    """

    next: Any
    context: ToolExecutionContext
    crew: Crew | None = None
    lead: Any = None
    back: Comeback | None = None
    log: RunLog | None = None
    about: Mapping[str, Any] | None = None


class Announce(Struct, frozen=True):
    """Tell those who attend the run of the model call that comes next."""


class Heard(Struct, frozen=True):
    """Tell them of its reply; None if it failed."""

    step: StepResult | None


Todo: TypeAlias = Effect | Announce | Heard
