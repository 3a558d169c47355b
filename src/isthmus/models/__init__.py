"""The provider-free language: events, contract, messages, tools. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.errors import ModelBehaviorError, ModelsException, RunErrorDetails
    from isthmus.models.accessors import UsageTotals, get_reasoning_phase, get_usage_totals
    from isthmus.models.adaptive import AdaptiveConcurrencyLimiter
    from isthmus.models.cancellation import CancellationToken
    from isthmus.models.config import Config
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
    from isthmus.models.executor import ToolExecutor, ToolResult
    from isthmus.models.explosion import has_escape_sequence_explosion
    from isthmus.models.extract import (
        ReasoningContent,
        ResponseReasoningItem,
        get_content_or_none,
        get_json_dict_or_none,
        get_reasoning_content_or_none,
        get_search_results_or_none,
        parse_content_filter_block,
    )
    from isthmus.models.internal import (
        internal_message,
        is_ephemeral_message,
        is_internal_message,
        lasting_messages,
        public_messages,
    )
    from isthmus.models.lenient import parse_json_dict
    from isthmus.models.limits import (
        CompositeRateLimiter,
        ConcurrentRequestLimiter,
        RateLimiter,
        SlidingWindowRateLimiter,
        TokenBucketRateLimiter,
    )
    from isthmus.models.media import Media
    from isthmus.models.messages import provider_messages
    from isthmus.models.model import Factory, Model
    from isthmus.models.neutral import to_neutral
    from isthmus.models.output import OutputSchema, SchemaValidationResult, resolve_output_schema
    from isthmus.models.outputs import ChatCompletionsOutputAdapter, ToolOutputAdapter
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
    from isthmus.models.promptparts import FilePart, ImagePart, TextPart
    from isthmus.models.prompts import MultiPartPromptTemplate, PromptTemplate, PromptTemplateBase
    from isthmus.models.promptspec import PromptSpec, render_instruction_text
    from isthmus.models.reading import read_part
    from isthmus.models.repair import ESCAPE_SEQUENCE_RETRY_MESSAGE
    from isthmus.models.responses import (
        Choice,
        ChoiceLogprobs,
        Message,
        ModelResponse,
        ModelStreamEvent,
        ModelStreamEventKind,
        ToolCall,
        ToolCallFunction,
        Usage,
    )
    from isthmus.models.results import ToolError, ToolFailure, ToolOutcome, tool_outcome
    from isthmus.models.retry_errors import (
        DEFAULT_RETRY_STATUS_CODES,
        RetryMetrics,
        RetryResult,
        extract_retry_after,
        is_retryable_by_status_code,
        retry_on_errors,
        wait_with_retry_after,
    )
    from isthmus.models.steering import SteeringInput, SteeringReceipt
    from isthmus.models.strictness import SCHEMA_NORMALIZATION_ERROR, ensure_strict_json_schema
    from isthmus.models.tools import RunStateView, Tool, ToolExecutionContext, ToolHandler, Tools, as_tool
    from isthmus.models.typed import MessageDict, TypedMessage

_PLACES = {
    "AudioContent": "parts",
    "CallContent": "parts",
    "CancellationToken": "cancellation",
    "ChatCompletionsOutputAdapter": "outputs",
    "Choice": "responses",
    "ChoiceLogprobs": "responses",
    "AdaptiveConcurrencyLimiter": "adaptive",
    "CompositeRateLimiter": "limits",
    "ConcurrentRequestLimiter": "limits",
    "Config": "config",
    "DEFAULT_RETRY_STATUS_CODES": "retry_errors",
    "ESCAPE_SEQUENCE_RETRY_MESSAGE": "repair",
    "Factory": "model",
    "FileContent": "parts",
    "FilePart": "promptparts",
    "GenerateContext": "contract",
    "ImageContent": "parts",
    "ImagePart": "promptparts",
    "Media": "media",
    "Message": "responses",
    "MessageDict": "typed",
    "MessageRole": "enums",
    "Model": "model",
    "ModelContinuation": "enums",
    "ModelResponse": "responses",
    "ModelStreamEvent": "responses",
    "ModelStreamEventKind": "responses",
    "ModelTracing": "enums",
    "MultiPartPromptTemplate": "prompts",
    "OtherContent": "parts",
    "OutputSchema": "output",
    "PlanStepState": "enums",
    "PlanStepStatus": "enums",
    "PromptSpec": "promptspec",
    "PromptTemplate": "prompts",
    "PromptTemplateBase": "prompts",
    "RateLimiter": "limits",
    "ReasoningContent": "extract",
    "ReasoningPhase": "enums",
    "ResponseReasoningItem": "extract",
    "ResultContent": "parts",
    "RetryMetrics": "retry_errors",
    "RetryResult": "retry_errors",
    "RunStateView": "tools",
    "SCHEMA_NORMALIZATION_ERROR": "strictness",
    "SchemaValidationResult": "output",
    "SlidingWindowRateLimiter": "limits",
    "SteeringInput": "steering",
    "SteeringReceipt": "steering",
    "SteeringStatus": "enums",
    "TextContent": "parts",
    "TextPart": "promptparts",
    "ThinkingContent": "parts",
    "TokenBucketRateLimiter": "limits",
    "Tool": "tools",
    "ToolCall": "responses",
    "ToolCallFunction": "responses",
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
    "Usage": "responses",
    "UsageTotals": "accessors",
    "as_tool": "tools",
    "ensure_strict_json_schema": "strictness",
    "extract_retry_after": "retry_errors",
    "get_content_or_none": "extract",
    "get_json_dict_or_none": "extract",
    "get_reasoning_content_or_none": "extract",
    "get_reasoning_phase": "accessors",
    "get_search_results_or_none": "extract",
    "get_usage_totals": "accessors",
    "has_escape_sequence_explosion": "explosion",
    "internal_message": "internal",
    "is_ephemeral_message": "internal",
    "is_internal_message": "internal",
    "is_retryable_by_status_code": "retry_errors",
    "lasting_messages": "internal",
    "parse_content_filter_block": "extract",
    "parse_json_dict": "lenient",
    "partial_outputs": "partials",
    "provider_messages": "messages",
    "public_messages": "internal",
    "read_part": "reading",
    "render_instruction_text": "promptspec",
    "resolve_output_schema": "output",
    "retry_on_errors": "retry_errors",
    "to_neutral": "neutral",
    "tool_outcome": "results",
    "wait_with_retry_after": "retry_errors",
}
_ERRORS = (
    "ModelBehaviorError",
    "ModelsException",
    "RunErrorDetails",
)

__all__ = [
    "DEFAULT_RETRY_STATUS_CODES",
    "ESCAPE_SEQUENCE_RETRY_MESSAGE",
    "SCHEMA_NORMALIZATION_ERROR",
    "AdaptiveConcurrencyLimiter",
    "AudioContent",
    "CallContent",
    "CancellationToken",
    "ChatCompletionsOutputAdapter",
    "Choice",
    "ChoiceLogprobs",
    "CompositeRateLimiter",
    "ConcurrentRequestLimiter",
    "Config",
    "Factory",
    "FileContent",
    "FilePart",
    "GenerateContext",
    "ImageContent",
    "ImagePart",
    "Media",
    "Message",
    "MessageDict",
    "MessageRole",
    "Model",
    "ModelBehaviorError",
    "ModelContinuation",
    "ModelResponse",
    "ModelStreamEvent",
    "ModelStreamEventKind",
    "ModelTracing",
    "ModelsException",
    "MultiPartPromptTemplate",
    "OtherContent",
    "OutputSchema",
    "PlanStepState",
    "PlanStepStatus",
    "PromptSpec",
    "PromptTemplate",
    "PromptTemplateBase",
    "RateLimiter",
    "ReasoningContent",
    "ReasoningPhase",
    "ResponseReasoningItem",
    "ResultContent",
    "RetryMetrics",
    "RetryResult",
    "RunErrorDetails",
    "RunStateView",
    "SchemaValidationResult",
    "SlidingWindowRateLimiter",
    "SteeringInput",
    "SteeringReceipt",
    "SteeringStatus",
    "TextContent",
    "TextPart",
    "ThinkingContent",
    "TokenBucketRateLimiter",
    "Tool",
    "ToolCall",
    "ToolCallFunction",
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
    "UsageTotals",
    "as_tool",
    "ensure_strict_json_schema",
    "extract_retry_after",
    "get_content_or_none",
    "get_json_dict_or_none",
    "get_reasoning_content_or_none",
    "get_reasoning_phase",
    "get_search_results_or_none",
    "get_usage_totals",
    "has_escape_sequence_explosion",
    "internal_message",
    "is_ephemeral_message",
    "is_internal_message",
    "is_retryable_by_status_code",
    "lasting_messages",
    "parse_content_filter_block",
    "parse_json_dict",
    "partial_outputs",
    "provider_messages",
    "public_messages",
    "read_part",
    "render_instruction_text",
    "resolve_output_schema",
    "retry_on_errors",
    "to_neutral",
    "tool_outcome",
    "wait_with_retry_after",
]


def __getattr__(name: str) -> Any:
    if name in _ERRORS:
        return getattr(import_module("isthmus.errors"), name)
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
