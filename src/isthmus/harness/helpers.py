"""Agents that nobody described: the helpers that a model starts, and the one that it hands the conversation to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from isthmus.harness.agenttool import AgentTool, Errand, lead_of
from isthmus.harness.descriptor import AgentDescriptor
from isthmus.harness.toolconfig import INHERIT_TOOLS, ToolConfig, ToolSet
from isthmus.models.tools import ToolExecutionContext

_HELP = (
    "You were started by another agent to do one task, which is the message that follows. You see nothing else of that "
    "agent's work. Do the task, with tools where they help, and answer with its result alone: your answer goes back to "
    "the agent that started you."
)
_TAKE_OVER = (
    "You take over a conversation from another agent. What was said so far is above; the last message says what you "
    "are to do. Answer the user."
)
_ERRAND: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "pattern": r"^\S+$",
            "description": "One word to call the helper by in records; it does not change what is done.",
        },
        "task": {
            "type": "string",
            "pattern": r"\S",
            "description": "The whole task, with all that must be known for it and what is to be answered: the helper "
            "sees nothing of this conversation.",
        },
    },
    "required": ["name", "task"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper(AgentDescriptor):
    """A helper: it has the shims of the agent that it works for."""

    inherits_shims: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultHandoff(AgentDescriptor):
    """A fresh agent to hand the conversation over to, with the tools, the shims and the model of the one that does.

    Args:
        name: the name of the tool, and of the agent; the other fields are those of a descriptor.
    """

    name: str = "handoff"
    description: str = "Hand the conversation over to a fresh agent, who goes on with it."
    instructions: Any = _TAKE_OVER
    inherits_shims: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class _Starts:
    """The handler of the tool that starts helpers."""

    tool: str
    helper: Helper

    async def __call__(self, args: Any, cancellation_token: Any, context: ToolExecutionContext) -> Any:
        helper = replace(self.helper, name=args["name"])
        errand = Errand(agent=helper, text=args["task"], call_id=context.tool_call_id or "")
        return await lead_of(self.tool, context).send(errand)


class DefaultAgentTool(AgentTool):
    """A tool by which a model starts helpers: fresh agents with a task in words, and the parent's tools and shims.

    Args:
        name: the name that the model calls it by.
        description: what it does and when to use it.
        instructions: the helpers' system text.
        model: what the helpers call; None is the parent's, with its `model_args`.
        model_args: the model's own request options.
        output: the form that their answers must take; None is text.
        tools: the rule for their tools, or the tools alone.
        fields: further fields of a `Tool`.

    Raises:
        ToolDefinitionError: a tool cannot be offered.
    """

    def __init__(
        self,
        *,
        name: str = "agent",
        description: str = "Start a helper that does one task by itself and answers with the result.",
        instructions: str = _HELP,
        model: Any = None,
        model_args: Mapping[str, Any] | None = None,
        output: Any = None,
        tools: ToolConfig | ToolSet | None = INHERIT_TOOLS,
        **fields: Any,
    ) -> None:
        self.instructions, self.model, self.model_args = instructions, model, model_args
        self.output, self.tools = output, tools
        helper = Helper(instructions=instructions, model=model, model_args=model_args or {}, output=output, tools=tools)
        own = {"parameters_schema": _ERRAND, "retry_on_timeout": False, "handler": None, **fields}
        if own["handler"] is None or isinstance(own["handler"], _Starts):
            own["handler"] = _Starts(name, helper)
        super().__init__(name=name, description=description, **own)
