"""A conversation whose runs shims attend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.harness import AgentDescriptor, DefaultAgent, Limits, RunIdentity, RunnerHooks, RunState, Shim
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult


@dataclass
class Attended:
    """A conversation that goes on with each run; what a test wants to know of it lies open.

    Args:
        model: what answers.
        shims: what attends, in this order.
        tools: what the agent brings.
        history: the transcript so far.
        shim_state: what shims kept so far.
        model_args: the agent's request options.
        limits: what ends a run.
    """

    model: Any
    shims: Sequence[Shim]
    tools: Any = ()
    history: Sequence[Mapping[str, Any]] = ()
    shim_state: dict[str, Any] = field(default_factory=dict)
    model_args: dict[str, Any] = field(default_factory=dict)
    limits: Limits | None = None
    results: list[ToolResult] = field(default_factory=list)

    async def say(self, text: str) -> str:
        """Run, and return the answer; only a run that ends by itself is gone on from."""
        made = AgentDescriptor(
            name="a",
            model=self.model,
            instructions="Be brief.",
            tools=self.tools,
            model_args=self.model_args,
            shims=self.shims,
        )
        state = RunState(history=[*self.history, {"role": "user", "content": text}], shim_state=self.shim_state)
        result = await DefaultAgent(descriptor=made, hooks=_Results(self.results), limits=self.limits).run(state)
        self.history = result.run_state.history
        self.shim_state = result.run_state.shim_state
        return result.text


class _Results(RunnerHooks):
    """Keeps what tools gave back."""

    def __init__(self, results: list[ToolResult]) -> None:
        self._results = results

    def on_tool_call_end(self, run: RunIdentity, call: Call, *, result: ToolResult) -> None:
        """Keep it."""
        self._results.append(result)
