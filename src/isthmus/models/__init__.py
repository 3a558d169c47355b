"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.models.contract import GenerateContext, ToolSpec
    from isthmus.models.events import Usage
    from isthmus.models.executor import ToolExecutor, ToolResult
    from isthmus.models.messages import MessageRole, provider_messages
    from isthmus.models.strictness import ensure_strict_json_schema
    from isthmus.models.tools import CancellationToken, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool

_PLACES = {
    "CancellationToken": "tools",
    "GenerateContext": "contract",
    "MessageRole": "messages",
    "Tool": "tools",
    "ToolExecutionContext": "tools",
    "ToolExecutor": "executor",
    "ToolHandler": "tools",
    "ToolResult": "executor",
    "ToolSpec": "contract",
    "Tools": "tools",
    "Usage": "events",
    "as_tool": "tools",
    "ensure_strict_json_schema": "strictness",
    "provider_messages": "messages",
}

__all__ = [
    "CancellationToken",
    "GenerateContext",
    "MessageRole",
    "Tool",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolHandler",
    "ToolResult",
    "ToolSpec",
    "Tools",
    "Usage",
    "as_tool",
    "ensure_strict_json_schema",
    "provider_messages",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
