"""What an agent at work is to the run that it works in, and what makes its runs, as far as others need to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from isthmus.chain import Chain
from isthmus.harness.beginning import Begun
from isthmus.harness.descriptor import AgentDescriptor, Runner
from isthmus.harness.limits import Limits
from isthmus.harness.loopstate import LoopState
from isthmus.harness.runnerhooks import RunnerHooks
from isthmus.harness.state import RunState
from isthmus.models.tools import Tools


class Makes(Protocol):
    """What makes the runs of an agent."""

    made: AgentDescriptor
    chain: Chain
    tools: Tools
    runner: Runner

    @property
    def patience(self) -> Runner:
        """How many agents may work for a run, and how deep."""
        ...

    def member(
        self, agent: AgentDescriptor, tools: Tools, *, limits: Limits | None = None, hooks: Sequence[RunnerHooks] = ()
    ) -> Makes:
        """What makes the runs of another agent beside or after this one's."""
        ...

    def begin(self, state: RunState, order: Any) -> Begun:
        """The first step of a run."""
        ...

    def take_over(self, stands: LoopState, state: RunState, *, order: Any) -> Begun:
        """The next step of a run that was another agent's."""
        ...


class Gives(Protocol):
    """An agent at work that may give the run away."""

    @property
    def model(self) -> Any:
        """Its model."""
        ...

    def successor(self, agent: AgentDescriptor) -> Makes:
        """What makes the runs of an agent that takes over."""
        ...

    def take_over(self, recipe: Makes, stands: LoopState, *, state: RunState) -> Begun:
        """The next step of the run, which is that agent's now."""
        ...
