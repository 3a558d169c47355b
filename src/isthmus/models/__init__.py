"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.models.contract import GenerateContext, ToolSpec
    from isthmus.models.events import Usage
    from isthmus.models.executor import ToolExecutor, ToolResult
    from isthmus.models.messages import MessageRole, provider_messages
    from isthmus.models.promptparts import FilePart, ImagePart, TextPart
    from isthmus.models.prompts import MultiPartPromptTemplate, PromptTemplate, PromptTemplateBase
    from isthmus.models.promptspec import PromptSpec, render_instruction_text
    from isthmus.models.tools import CancellationToken, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool

_PLACES = {
    "CancellationToken": "tools",
    "FilePart": "promptparts",
    "GenerateContext": "contract",
    "ImagePart": "promptparts",
    "MessageRole": "messages",
    "MultiPartPromptTemplate": "prompts",
    "PromptSpec": "promptspec",
    "PromptTemplate": "prompts",
    "PromptTemplateBase": "prompts",
    "TextPart": "promptparts",
    "Tool": "tools",
    "ToolExecutionContext": "tools",
    "ToolExecutor": "executor",
    "ToolHandler": "tools",
    "ToolResult": "executor",
    "ToolSpec": "contract",
    "Tools": "tools",
    "Usage": "events",
    "as_tool": "tools",
    "provider_messages": "messages",
    "render_instruction_text": "promptspec",
}

__all__ = [
    "CancellationToken",
    "FilePart",
    "GenerateContext",
    "ImagePart",
    "MessageRole",
    "MultiPartPromptTemplate",
    "PromptSpec",
    "PromptTemplate",
    "PromptTemplateBase",
    "TextPart",
    "Tool",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolHandler",
    "ToolResult",
    "ToolSpec",
    "Tools",
    "Usage",
    "as_tool",
    "provider_messages",
    "render_instruction_text",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
