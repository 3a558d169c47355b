"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from isthmus.models.explosion import has_escape_sequence_explosion
    from isthmus.models.internal import (
        internal_message,
        is_ephemeral_message,
        is_internal_message,
        lasting_messages,
        public_messages,
    )
    from isthmus.models.lenient import parse_json_dict
    from isthmus.models.media import Media
    from isthmus.models.messages import provider_messages
    from isthmus.models.neutral import to_neutral
    from isthmus.models.output import OutputSchema, SchemaValidationResult, resolve_output_schema
    from isthmus.models.partials import partial_outputs
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
    from isthmus.models.reading import read_part
    from isthmus.models.repair import ESCAPE_SEQUENCE_RETRY_MESSAGE
    from isthmus.models.strictness import SCHEMA_NORMALIZATION_ERROR, ensure_strict_json_schema
    from isthmus.models.tools import CancellationToken, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool
    from isthmus.models.typed import TypedMessage

_PLACES = {
    "AudioContent": "parts",
    "CallContent": "parts",
    "CancellationToken": "tools",
    "ESCAPE_SEQUENCE_RETRY_MESSAGE": "repair",
    "FileContent": "parts",
    "GenerateContext": "contract",
    "ImageContent": "parts",
    "Media": "media",
    "MessageRole": "enums",
    "ModelContinuation": "enums",
    "ModelTracing": "enums",
    "OtherContent": "parts",
    "OutputSchema": "output",
    "PlanStepState": "enums",
    "PlanStepStatus": "enums",
    "ReasoningPhase": "enums",
    "ResultContent": "parts",
    "SCHEMA_NORMALIZATION_ERROR": "strictness",
    "SchemaValidationResult": "output",
    "SteeringStatus": "enums",
    "TextContent": "parts",
    "ThinkingContent": "parts",
    "Tool": "tools",
    "ToolChoice": "enums",
    "ToolErrorKind": "enums",
    "ToolExecutionContext": "tools",
    "ToolExecutor": "executor",
    "ToolHandler": "tools",
    "ToolResult": "executor",
    "ToolSpec": "contract",
    "Tools": "tools",
    "TypedMessage": "typed",
    "Usage": "events",
    "as_tool": "tools",
    "ensure_strict_json_schema": "strictness",
    "has_escape_sequence_explosion": "explosion",
    "internal_message": "internal",
    "is_ephemeral_message": "internal",
    "is_internal_message": "internal",
    "lasting_messages": "internal",
    "parse_json_dict": "lenient",
    "partial_outputs": "partials",
    "provider_messages": "messages",
    "public_messages": "internal",
    "read_part": "reading",
    "resolve_output_schema": "output",
    "to_neutral": "neutral",
}

__all__ = [
    "ESCAPE_SEQUENCE_RETRY_MESSAGE",
    "SCHEMA_NORMALIZATION_ERROR",
    "AudioContent",
    "CallContent",
    "CancellationToken",
    "FileContent",
    "GenerateContext",
    "ImageContent",
    "Media",
    "MessageRole",
    "ModelContinuation",
    "ModelTracing",
    "OtherContent",
    "OutputSchema",
    "PlanStepState",
    "PlanStepStatus",
    "ReasoningPhase",
    "ResultContent",
    "SchemaValidationResult",
    "SteeringStatus",
    "TextContent",
    "ThinkingContent",
    "Tool",
    "ToolChoice",
    "ToolErrorKind",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolHandler",
    "ToolResult",
    "ToolSpec",
    "Tools",
    "TypedMessage",
    "Usage",
    "as_tool",
    "ensure_strict_json_schema",
    "has_escape_sequence_explosion",
    "internal_message",
    "is_ephemeral_message",
    "is_internal_message",
    "lasting_messages",
    "parse_json_dict",
    "partial_outputs",
    "provider_messages",
    "public_messages",
    "read_part",
    "resolve_output_schema",
    "to_neutral",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
