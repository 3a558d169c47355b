"""Agents as tools: what a model calls like any tool, and the run carries out as a run of another agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from isthmus.models.jsontext import dumps
from isthmus.models.tools import Tool, ToolExecutionContext

if TYPE_CHECKING:
    from isthmus.harness.limits import Limits
    from isthmus.harness.runnerhooks import RunnerHooks


WAITING = "waiting"
"""The outcome of a call whose agent waits for a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What another agent is to do.

    Args:
        agent: its descriptor; a helper's is made for the errand.
        text: all that it is told.
        limits: of its run; None takes those of the run that it works for.
        hooks: told of its run after those of the run that it works for.
        itself: the tool by which it is called, which it does not inherit.
        call_id: the call.
    """

    agent: Any
    text: str
    limits: Limits | None = None
    hooks: Sequence[RunnerHooks] = ()
    itself: str | None = None
    call_id: str = ""


@runtime_checkable
class Leads(Protocol):
    """An agent at work, for whom others may work."""

    async def send(self, errand: Errand) -> Any:
        """What came of it: the other agent's answer, or a `ToolFailure`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(ToolExecutionContext):
    """The context of a call inside a run.

    Args:
        lead: the agent that runs.
    """

    lead: Leads | None = None

    def __repr__(self) -> str:
        return f"RunContext(run_id={self.run_id!r}, agent_name={self.agent_name!r}, tool_call_id={self.tool_call_id!r})"


def lead_of(name: str, context: ToolExecutionContext | None) -> Leads:
    """The agent for which a tool is called.

    Raises:
        RuntimeError: it was called outside of a run.
    """
    lead = getattr(context, "lead", None)
    if not isinstance(lead, Leads):
        raise RuntimeError(f"{name}: an agent as a tool runs for another agent: give it to one in tools=[…]")
    return lead


class AgentTool(Tool):
    """A tool that is an agent; made by `AgentDescriptor.as_tool` and `DefaultAgent.as_tool`."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The handler of a tool that is this agent."""

    name: str
    agent: Any
    limits: Limits | None = None
    hooks: Sequence[RunnerHooks] = ()

    async def __call__(self, args: Any, cancellation_token: Any, context: ToolExecutionContext) -> Any:
        """Send the agent with the arguments as JSON."""
        dump = getattr(args, "model_dump_json", None)
        text = dump() if callable(dump) else dumps(args).decode()
        call_id = context.tool_call_id or ""
        errand = Errand(
            agent=self.agent, text=text, limits=self.limits, hooks=self.hooks, itself=self.name, call_id=call_id
        )
        return await lead_of(self.name, context).send(errand)
