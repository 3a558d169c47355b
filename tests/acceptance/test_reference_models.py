"""What is fixed about the models layer as tables: names, enum values, defaults and texts."""

from __future__ import annotations

import inspect
from enum import Enum, StrEnum
from typing import Any

import msgspec
import pytest

import isthmus.models as door
from isthmus.models import run

NAMES = [
    "AdaptiveConcurrencyLimiter",
    "ESCAPE_SEQUENCE_RETRY_MESSAGE",
    "SCHEMA_NORMALIZATION_ERROR",
    "DEFAULT_RETRY_STATUS_CODES",
    "MessageRole",
    "ToolChoice",
    "ToolErrorKind",
    "PlanStepState",
    "SteeringStatus",
    "ModelContinuation",
    "ModelStreamEventKind",
    "ModelTracing",
    "ReasoningPhase",
    "Config",
    "Factory",
    "Model",
    "MessageDict",
    "Tools",
    "Tool",
    "ToolSpec",
    "ToolHandler",
    "as_tool",
    "ToolExecutionContext",
    "RunStateView",
    "ToolExecutor",
    "ToolError",
    "ToolFailure",
    "PlanStepStatus",
    "ToolOutputAdapter",
    "ChatCompletionsOutputAdapter",
    "OutputSchema",
    "SchemaValidationResult",
    "resolve_output_schema",
    "ensure_strict_json_schema",
    "PromptTemplateBase",
    "PromptTemplate",
    "MultiPartPromptTemplate",
    "PromptSpec",
    "TextPart",
    "FilePart",
    "ImagePart",
    "render_instruction_text",
    "ModelStreamEvent",
    "SteeringInput",
    "SteeringReceipt",
    "UsageTotals",
    "get_reasoning_phase",
    "get_usage_totals",
    "ModelResponse",
    "Message",
    "Choice",
    "ChoiceLogprobs",
    "ToolCall",
    "ToolCallFunction",
    "Usage",
    "RateLimiter",
    "SlidingWindowRateLimiter",
    "ConcurrentRequestLimiter",
    "TokenBucketRateLimiter",
    "CompositeRateLimiter",
    "RetryMetrics",
    "RetryResult",
    "retry_on_errors",
    "extract_retry_after",
    "wait_with_retry_after",
    "is_retryable_by_status_code",
    "parse_json_dict",
    "get_content_or_none",
    "get_json_dict_or_none",
    "get_reasoning_content_or_none",
    "get_search_results_or_none",
    "ReasoningContent",
    "ResponseReasoningItem",
    "has_escape_sequence_explosion",
    "parse_content_filter_block",
    "ModelsException",
    "ModelBehaviorError",
    "RunErrorDetails",
    "internal_message",
    "is_internal_message",
    "is_ephemeral_message",
    "provider_messages",
    "tool_outcome",
    "CancellationToken",
]

ENUMS: dict[str, dict[str, Any]] = {
    **{
        name: {value.upper(): value for value in values.split()}
        for name, values in {
            "MessageRole": "system developer user assistant tool",
            "ToolChoice": "auto required none",
            "ToolErrorKind": "error timeout cancelled nonzero_exit",
            "PlanStepState": "pending in_progress completed",
            "SteeringStatus": "submitted accepted applied failed unknown",
            "ModelContinuation": "automatic explicit",
            "ModelStreamEventKind": "text_delta tool_call_arguments_delta reasoning completed error provider",
            "ReasoningPhase": "commentary final_answer",
        }.items()
    },
    "ModelTracing": {"DISABLED": 0, "ENABLED": 1, "ENABLED_WITHOUT_DATA": 2},
}

NOTHING = ("extra_call_args", "schema", "tools", "cancellation_token", "parent_span")
EVENT = [
    "raw",
    "provider_event_type",
    "item_index",
    "item_type",
    "text",
    "tool_call_id",
    "tool_call_index",
    "arguments_delta",
    "reasoning",
    "reasoning_signature",
    "response",
    "error",
    "continuation",
    "async_tool_call",
    "input_messages",
    "steering",
]
DEFAULTS: list[tuple[str, dict[str, Any]]] = [
    ("internal_message", {"ephemeral": False}),
    ("is_internal_message", {"origin": None}),
    ("is_ephemeral_message", {"origin": None}),
    ("PromptTemplate", {"output_schema": None, "system_template": None, "user_template": None}),
    ("MultiPartPromptTemplate", {"output_schema": None, "system_parts": (), "user_parts": ()}),
    ("PromptSpec", {"values": None}),
    ("ImagePart", {"detail": "high"}),
    ("OutputSchema", {"strict_json_schema": True}),
    ("OutputSchema.validate_json", {"strict": False}),
    ("OutputSchema.validate_response_with_retry", {"enforce_structured_output": True, "strict": False}),
    ("ToolSpec", {"parameters_schema": None, "strict": None}),
    ("Tool", {"parameters_schema": None, "strict": None, "formatter": None, "retry_on_timeout": True}),
    (
        "Tools",
        {
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "tool_call_timeout": None,
            "tool_call_max_retries": 3,
            "tool_call_limits": None,
            "max_tool_round_trips": 10,
        },
    ),
    ("ToolExecutionContext", {"run_id": None, "agent_name": None, "tool_call_id": None, "run_state": None}),
    ("ToolExecutor", {"adapter": None}),
    ("ToolError", {"kind": None}),
    (
        "Config",
        {
            "max_retries": 3,
            "timeout": 600,
            **dict.fromkeys(("organization", "base_url", "default_headers", "rate_limiter")),
            **dict.fromkeys(("vertex_project_id", "vertex_location")),
            "enforce_structured_output": False,
            "tracing": door.ModelTracing.DISABLED,
            "schema_validation_retries": 3,
        },
    ),
    ("Model.get_response", dict.fromkeys(NOTHING)),
    ("Model.stream_response", dict.fromkeys(NOTHING)),
    ("ModelStreamEvent", {**dict.fromkeys(EVENT), "required_tool_call_ids": ()}),
    ("ModelStreamEvent.to_trace_dict", {"include_raw": False}),
    ("SteeringReceipt", {"status": "submitted", "id": None, "response_id": None, "error": None}),
    ("TokenBucketRateLimiter", {"window_seconds": 60}),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_at_the_door(name: str) -> None:
    """Each public name of the models layer is exported by `isthmus.models`."""
    assert name in door.__all__
    assert getattr(door, name) is not None


def test_the_names_of_a_run_are_at_their_door() -> None:
    """`isthmus.models.run` offers its three names, and no name that it only imports."""
    assert {"RunContext", "DefaultRunContext", "TraceCtxManager"} <= set(run.__all__)
    assert {getattr(run, name).__module__ for name in run.__all__} == {"isthmus.models.run"}


@pytest.mark.parametrize("name", ENUMS)
def test_every_enum_has_its_values(name: str) -> None:
    """Names and values are those of the table and no others; all but `ModelTracing` are strings."""
    enum: type[Enum] = getattr(door, name)
    assert {member.name: member.value for member in enum} == ENUMS[name]
    assert issubclass(enum, StrEnum) == (name != "ModelTracing")


@pytest.mark.parametrize(("name", "defaults"), DEFAULTS, ids=[name for name, _ in DEFAULTS])
def test_every_default(name: str, defaults: dict[str, Any]) -> None:
    """A call or constructor has the parameters of the table, with its defaults."""
    thing: Any = door
    for part in name.split("."):
        thing = getattr(thing, part)
    if isinstance(thing, type) and issubclass(thing, msgspec.Struct):
        found = {field.name: field.default for field in msgspec.structs.fields(thing)}
    else:
        found = {one.name: one.default for one in inspect.signature(thing).parameters.values()}
    assert {each: found.get(each, "missing") for each in defaults} == defaults


def test_the_other_defaults() -> None:
    """Attributes of a model, the statuses that are tried again, and the default of a counter."""
    assert (door.Model.requires_streaming, door.Model.handles_retries) == (False, False)
    assert list(door.DEFAULT_RETRY_STATUS_CODES) == [429, 500, 502, 503, 504, 529]
    assert inspect.signature(run.DefaultRunContext.increment).parameters["default"].default == 0
    assert dict(door.ToolExecutionContext().metadata) == {}


def test_the_fixed_texts() -> None:
    """Texts that programs may look for: a tool without a docstring, blocked content, the feedback of validation."""

    def look(place: str) -> str:
        return place

    assert door.as_tool(look).description == "Execute `look`."
    assert door.parse_content_filter_block({"blocked": True}) == "response blocked by content filter: unspecified"
    results = {"hate": {"filtered": True, "severity": "high"}, "self_harm": {"filtered": False}}
    hate = {"blocked": True, "source_type": "prompt", "content_filter_results": results}
    assert door.parse_content_filter_block(hate) == "prompt blocked by content filter: hate=high"
    assert "escape" in door.ESCAPE_SEQUENCE_RETRY_MESSAGE.lower()
    assert "schema" in door.SCHEMA_NORMALIZATION_ERROR.lower()
    assert door.ModelTracing.ENABLED.include_data()
    assert not door.ModelTracing.ENABLED_WITHOUT_DATA.include_data()
    assert door.ModelTracing.DISABLED.is_disabled()
