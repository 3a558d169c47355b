"""What an application, or a shim, is told of a run as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.harness.result import RunResult
    from isthmus.models.events import Call
    from isthmus.models.executor import ToolResult
    from isthmus.models.responses import ModelResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Which agent runs, and for whom.

    Args:
        agent: the agent's name.
        task_id: the run's identity, the `run_id` that tools get.
        parent_task_id: the run that handed the work over; None at the root.
        depth: how many agents stand above this one: 0 at the root.
        metadata: what the application gave along.
    """

    agent: str
    task_id: str
    parent_task_id: str | None = None
    depth: int = 0
    metadata: Mapping[str, Any]

    @property
    def is_root(self) -> bool:
        """Whether nobody handed this work over."""
        return self.parent_task_id is None


class RunnerHooks:
    """What an application is told of a run; override what is wanted, sync or async. A hook that raises fails the run.

    Each start has one end, whatever happens between them; an end without a result says None.
    """

    def on_agent_start(self, run: RunIdentity) -> Any:
        """An agent begins."""

    def on_agent_end(self, run: RunIdentity, result: RunResult | None) -> Any:
        """An agent is done; None if it failed or was stopped."""

    def on_llm_start(self, run: RunIdentity, messages: list[dict[str, Any]]) -> Any:
        """A model is about to be called.

        Args:
            run: whose call it is.
            messages: the transcript that it is sent, internal messages and their marks included; a change to this list
                holds for this call.
        """

    def on_llm_end(self, run: RunIdentity, response: ModelResponse | None) -> Any:
        """A model has answered; None if the call failed or was stopped."""

    def on_tool_call_start(self, run: RunIdentity, call: Call) -> Any:
        """A tool is about to run."""

    def on_tool_call_end(self, run: RunIdentity, call: Call, *, result: ToolResult) -> Any:
        """A call is answered, by its tool or in its place; one that never began has no start."""
