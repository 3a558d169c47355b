"""The reply and the events of the model face: Chat Completions shapes, without any SDK.

Source of the shapes: the Chat Completions API reference, 2026-11.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from isthmus.models.events import StepResult

Kind: TypeAlias = Literal["text_delta", "tool_call_arguments_delta", "reasoning", "completed", "error", "provider"]


class ModelStreamEventKind(StrEnum):
    """What a `ModelStreamEvent` is; the strings themselves are valid too."""

    TEXT_DELTA = "text_delta"
    TOOL_CALL_ARGUMENTS_DELTA = "tool_call_arguments_delta"
    REASONING = "reasoning"
    COMPLETED = "completed"
    ERROR = "error"
    PROVIDER = "provider"


class ToolCallFunction(msgspec.Struct):
    """The function of a tool call; `arguments` is the JSON text that the model wrote."""

    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct):
    """One tool call of a message."""

    id: str
    function: ToolCallFunction
    type: str = "function"


class Message(msgspec.Struct, kw_only=True):
    """What the model said: text, tool calls, or why it refused."""

    role: str = "assistant"
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None


class Choice(msgspec.Struct, kw_only=True):
    """One answer, and why it ended: "stop", "tool_calls", "length" or "content_filter"."""

    message: Message
    finish_reason: str = "stop"
    index: int = 0


class Usage(msgspec.Struct, kw_only=True):
    """Tokens spent; `prompt_tokens` holds cached ones too, `completion_tokens` reasoning too.

    Args:
        prompt_tokens: all tokens of the prompt.
        completion_tokens: all tokens produced.
        total_tokens: both.
        prompt_tokens_details: of the prompt: `cached_tokens`, `cache_write_tokens`.
        completion_tokens_details: of the output: `reasoning_tokens`.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


class _StepSlot:
    """Holds the `StepResult` that a response shows: no field, so neither equality, repr nor JSON sees it."""

    __slots__ = ("_step",)
    _step: StepResult

    @property
    def step(self) -> StepResult | None:
        """The reply that this response was made from, or None where an author made it."""
        return getattr(self, "_step", None)


class ModelResponse(msgspec.Struct, _StepSlot, kw_only=True):
    """One reply of the model face.

    Args:
        id: unique; made here where the provider's own is not known.
        model: the model that was asked for.
        choices: the answers; this library reads the first.
        usage: tokens spent, or None where the provider did not say.
        model_extra: what has no field, e.g. `reasoning_content`, `raw_reason`, `notes`.
    """

    object: ClassVar[str] = "chat.completion"
    id: str
    model: str = ""
    choices: list[Choice]
    usage: Usage | None = None
    model_extra: dict[str, Any] = {}


class ModelStreamEvent(msgspec.Struct, kw_only=True):
    """One event of the model face.

    Args:
        kind: one of `ModelStreamEventKind`.
        raw: the provider's own event: its undecoded frame, where there was one.
        provider_event_type: what the provider, or this library, calls it.
        item_index: which output item it belongs to.
        item_type: what that item is.
        text: with "text_delta": the next piece of the text.
        tool_call_id: id of the call that is being written, as far as known.
        tool_call_index: which call of the reply, from 0.
        arguments_delta: the next characters of its arguments.
        reasoning: with "reasoning": the next piece of it.
        reasoning_signature: its signature or encrypted payload.
        response: with "completed": the whole reply.
        error: with "error": the classified failure, which is raised next.
    """

    kind: Kind
    raw: Any = None
    provider_event_type: str | None = None
    item_index: int | None = None
    item_type: str | None = None
    text: str | None = None
    tool_call_id: str | None = None
    tool_call_index: int | None = None
    arguments_delta: str | None = None
    reasoning: str | None = None
    reasoning_signature: str | None = None
    response: ModelResponse | None = None
    error: BaseException | None = None
