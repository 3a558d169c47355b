"""Handoffs as a model sees them: tools that are agents, whose call gives the conversation away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from isthmus.harness.history import Message
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.internal import internal_message
from isthmus.models.messages import MessageRole
from isthmus.models.results import ToolError, ToolFailure
from isthmus.models.tools import Tool

ORIGIN = "handoff"
_TAKE_OVER = "The conversation so far was handed over to you. Go on with it from here."
_TASK: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What the other agent is to do, if the conversation does not say."}
    },
}


def tool_name(label: str) -> str:
    """The name of a tool that stands for an agent: in lower case, with "_" for what is no letter or digit."""
    return re.sub(r"[\W_]+", "_", label.lower()).strip("_") or "agent"


class Handoff(Tool):
    """The tool that hands the conversation over to an agent.

    A reply that calls it and nothing else ends the work of the agent that called, and the other one goes on.

    Args:
        agent: the descriptor of the other agent.
    """

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        name = tool_name(agent.name)
        super().__init__(
            name=name,
            description=agent.description or f"Hand the conversation over to {agent.name}, who goes on with it.",
            parameters_schema=_TASK,
            handler=_elsewhere,
            retry_on_timeout=False,
        )

    def accepts(self, call: Call) -> bool:
        """Whether the arguments are right, so that the call can be followed."""
        return call.input is not None and isinstance(call.input.get("task"), str | None)

    def result(self, call: Call) -> ToolResult:
        """The answer to the call."""
        return ToolResult(call.call_id or "", call.tool, f"Handoff accepted by {self.name}. Control transfers now.")

    def briefing(self, call: Call) -> Message:
        """What the other agent is told after the conversation; no word of the user's, so it is marked as internal."""
        task = (call.input or {}).get("task") or ""
        told = task if task.strip() else _TAKE_OVER
        return internal_message({"role": MessageRole.USER.value, "content": told}, origin=ORIGIN)


async def _elsewhere(args: Any) -> ToolFailure:
    """Only where somebody else than a run's loop carries the call out."""
    text = "Error: a handoff is carried out by the run of an agent."
    return ToolFailure(text=text, error=ToolError(text))
