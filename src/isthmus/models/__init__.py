"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.models.cancellation import CancellationToken
    from isthmus.models.contract import GenerateContext, ToolSpec
    from isthmus.models.enums import ToolChoice, ToolErrorKind
    from isthmus.models.events import Usage
    from isthmus.models.executor import ToolExecutor, ToolResult
    from isthmus.models.messages import MessageRole, provider_messages
    from isthmus.models.outputs import ChatCompletionsOutputAdapter, ToolOutputAdapter
    from isthmus.models.results import ToolError, ToolFailure, ToolOutcome, tool_outcome
    from isthmus.models.tools import RunStateView, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool

_PLACES = {
    "CancellationToken": "cancellation",
    "ChatCompletionsOutputAdapter": "outputs",
    "GenerateContext": "contract",
    "MessageRole": "messages",
    "RunStateView": "tools",
    "Tool": "tools",
    "ToolChoice": "enums",
    "ToolError": "results",
    "ToolErrorKind": "enums",
    "ToolExecutionContext": "tools",
    "ToolExecutor": "executor",
    "ToolFailure": "results",
    "ToolHandler": "tools",
    "ToolOutcome": "results",
    "ToolOutputAdapter": "outputs",
    "ToolResult": "executor",
    "ToolSpec": "contract",
    "Tools": "tools",
    "Usage": "events",
    "as_tool": "tools",
    "provider_messages": "messages",
    "tool_outcome": "results",
}

__all__ = [
    "CancellationToken",
    "ChatCompletionsOutputAdapter",
    "GenerateContext",
    "MessageRole",
    "RunStateView",
    "Tool",
    "ToolChoice",
    "ToolError",
    "ToolErrorKind",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolFailure",
    "ToolHandler",
    "ToolOutcome",
    "ToolOutputAdapter",
    "ToolResult",
    "ToolSpec",
    "Tools",
    "Usage",
    "as_tool",
    "provider_messages",
    "tool_outcome",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
