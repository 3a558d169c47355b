"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.models.contract import GenerateContext, ToolSpec
    from isthmus.models.events import Usage
    from isthmus.models.executor import ToolExecutor, ToolResult
    from isthmus.models.explosion import has_escape_sequence_explosion
    from isthmus.models.lenient import parse_json_dict
    from isthmus.models.messages import MessageRole, provider_messages
    from isthmus.models.output import OutputSchema, SchemaValidationResult, resolve_output_schema
    from isthmus.models.partials import partial_outputs
    from isthmus.models.repair import ESCAPE_SEQUENCE_RETRY_MESSAGE
    from isthmus.models.strictness import SCHEMA_NORMALIZATION_ERROR, ensure_strict_json_schema
    from isthmus.models.tools import CancellationToken, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool

_PLACES = {
    "CancellationToken": "tools",
    "ESCAPE_SEQUENCE_RETRY_MESSAGE": "repair",
    "GenerateContext": "contract",
    "MessageRole": "messages",
    "OutputSchema": "output",
    "SCHEMA_NORMALIZATION_ERROR": "strictness",
    "SchemaValidationResult": "output",
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
    "has_escape_sequence_explosion": "explosion",
    "parse_json_dict": "lenient",
    "partial_outputs": "partials",
    "provider_messages": "messages",
    "resolve_output_schema": "output",
}

__all__ = [
    "ESCAPE_SEQUENCE_RETRY_MESSAGE",
    "SCHEMA_NORMALIZATION_ERROR",
    "CancellationToken",
    "GenerateContext",
    "MessageRole",
    "OutputSchema",
    "SchemaValidationResult",
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
    "has_escape_sequence_explosion",
    "parse_json_dict",
    "partial_outputs",
    "provider_messages",
    "resolve_output_schema",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
