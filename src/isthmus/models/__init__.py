"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.models.cancellation import CancellationToken
    from isthmus.models.contract import GenerateContext, ToolSpec
    from isthmus.models.enums import (
        MessageRole,
        ModelContinuation,
        ModelTracing,
        PlanStepState,
        PlanStepStatus,
        ReasoningPhase,
        SteeringStatus,
        ToolChoice,
        ToolErrorKind,
    )
    from isthmus.models.events import Usage
    from isthmus.models.executor import ToolExecutor, ToolResult
    from isthmus.models.internal import (
        internal_message,
        is_ephemeral_message,
        is_internal_message,
        lasting_messages,
        public_messages,
    )
    from isthmus.models.media import Media
    from isthmus.models.messages import provider_messages
    from isthmus.models.neutral import to_neutral
    from isthmus.models.outputs import ChatCompletionsOutputAdapter, ToolOutputAdapter
    from isthmus.models.parts import (
        AudioContent,
        CallContent,
        FileContent,
        ImageContent,
        OtherContent,
        ResultContent,
        TextContent,
        ThinkingContent,
    )
    from isthmus.models.promptparts import FilePart, ImagePart, TextPart
    from isthmus.models.prompts import MultiPartPromptTemplate, PromptTemplate, PromptTemplateBase
    from isthmus.models.promptspec import PromptSpec, render_instruction_text
    from isthmus.models.reading import read_part
    from isthmus.models.results import ToolError, ToolFailure, ToolOutcome, tool_outcome
    from isthmus.models.strictness import ensure_strict_json_schema
    from isthmus.models.tools import RunStateView, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool
    from isthmus.models.typed import TypedMessage

_PLACES = {
    "AudioContent": "parts",
    "CallContent": "parts",
    "CancellationToken": "cancellation",
    "ChatCompletionsOutputAdapter": "outputs",
    "FileContent": "parts",
    "FilePart": "promptparts",
    "GenerateContext": "contract",
    "ImageContent": "parts",
    "ImagePart": "promptparts",
    "Media": "media",
    "MessageRole": "enums",
    "ModelContinuation": "enums",
    "ModelTracing": "enums",
    "MultiPartPromptTemplate": "prompts",
    "OtherContent": "parts",
    "PlanStepState": "enums",
    "PlanStepStatus": "enums",
    "PromptSpec": "promptspec",
    "PromptTemplate": "prompts",
    "PromptTemplateBase": "prompts",
    "ReasoningPhase": "enums",
    "ResultContent": "parts",
    "RunStateView": "tools",
    "SteeringStatus": "enums",
    "TextContent": "parts",
    "TextPart": "promptparts",
    "ThinkingContent": "parts",
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
    "TypedMessage": "typed",
    "Usage": "events",
    "as_tool": "tools",
    "ensure_strict_json_schema": "strictness",
    "internal_message": "internal",
    "is_ephemeral_message": "internal",
    "is_internal_message": "internal",
    "lasting_messages": "internal",
    "provider_messages": "messages",
    "public_messages": "internal",
    "read_part": "reading",
    "render_instruction_text": "promptspec",
    "to_neutral": "neutral",
    "tool_outcome": "results",
}

__all__ = [
    "AudioContent",
    "CallContent",
    "CancellationToken",
    "ChatCompletionsOutputAdapter",
    "FileContent",
    "FilePart",
    "GenerateContext",
    "ImageContent",
    "ImagePart",
    "Media",
    "MessageRole",
    "ModelContinuation",
    "ModelTracing",
    "MultiPartPromptTemplate",
    "OtherContent",
    "PlanStepState",
    "PlanStepStatus",
    "PromptSpec",
    "PromptTemplate",
    "PromptTemplateBase",
    "ReasoningPhase",
    "ResultContent",
    "RunStateView",
    "SteeringStatus",
    "TextContent",
    "TextPart",
    "ThinkingContent",
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
    "TypedMessage",
    "Usage",
    "as_tool",
    "ensure_strict_json_schema",
    "internal_message",
    "is_ephemeral_message",
    "is_internal_message",
    "lasting_messages",
    "provider_messages",
    "public_messages",
    "read_part",
    "render_instruction_text",
    "to_neutral",
    "tool_outcome",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
