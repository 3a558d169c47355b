"""The reply and the events of the model face: Chat Completions shapes, without any SDK.

Source of the shapes: the Chat Completions API reference, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from os import urandom
from typing import Any, Literal, Self, TypeAlias

import msgspec

from isthmus.errors import ProtocolError
from isthmus.models.eventjson import JsonEvent
from isthmus.models.events import StepResult
from isthmus.models.jsontext import loads
from isthmus.models.steering import SteeringReceipt
from isthmus.wire.frame import Frame

Kind: TypeAlias = Literal["text_delta", "tool_call_arguments_delta", "reasoning", "completed", "error", "provider"]


class ModelStreamEventKind(StrEnum):
    """What a `ModelStreamEvent` is; the strings themselves are valid too."""

    TEXT_DELTA = "text_delta"
    TOOL_CALL_ARGUMENTS_DELTA = "tool_call_arguments_delta"
    REASONING = "reasoning"
    COMPLETED = "completed"
    ERROR = "error"
    PROVIDER = "provider"


class _StepSlot:
    """Holds the `StepResult` that a response shows: no field, so neither equality, repr nor JSON sees it."""

    __slots__ = ("_step",)
    _step: StepResult


class _Open(msgspec.Struct, _StepSlot, kw_only=True):
    """A shape that keeps what it has no field for, and lets it be read like a field."""

    model_extra: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name != "model_extra" and name in self.model_extra:
            return self.model_extra[name]
        raise AttributeError(f"{type(self).__name__} has neither a field nor an extra {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists in the shape of Chat Completions: what is not None, extras beside the fields."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "model_extra"}
        kept = {name: _plain(value) for name, value in fields.items() if value is not None or name == "content"}
        return kept | {name: _plain(value) for name, value in self.model_extra.items() if name not in fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The same from plain dicts; a key without a field becomes an extra, at any depth.

        Args:
            data: what `to_dict` made, or a Chat Completions object from anywhere.

        Raises:
            ProtocolError: a field is missing or of the wrong type; names its place.
        """
        try:
            return msgspec.convert(_opened(cls, data), cls)
        except msgspec.ValidationError as error:
            raise ProtocolError(f"this is no {cls.__name__} in the shape of Chat Completions: {error}") from None


class ToolCallFunction(_Open):
    """The function of a tool call; `arguments` is the JSON text that the model wrote."""

    name: str
    arguments: str = "{}"


class ToolCall(_Open):
    """One tool call of a message."""

    id: str
    function: ToolCallFunction
    type: str = "function"


class Message(_Open, kw_only=True):
    """What the model said: text, tool calls, or why it refused. Its `to_dict` is the entry for the history.

    Args:
        role: "assistant".
        content: the text, or None.
        tool_calls: the calls, or None.
        refusal: why it refused, or None.
        model_extra: what has no field; the reply's native form under `_isthmus`, where it has one.
    """

    role: str = "assistant"
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None


class ChoiceLogprobs(_Open, kw_only=True):
    """The log probabilities of a choice, token by token, as the provider sends them."""

    content: list[dict[str, Any]] | None = None
    refusal: list[dict[str, Any]] | None = None


class Choice(_Open, kw_only=True):
    """One answer, and why it ended: "stop", "tool_calls", "length" or "content_filter"; None where nobody said."""

    message: Message
    finish_reason: str | None = "stop"
    index: int = 0
    logprobs: ChoiceLogprobs | None = None


class PromptTokensDetails(_Open, kw_only=True):
    """Of the prompt: how many tokens were read from a cache, and how many written to one."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionTokensDetails(_Open, kw_only=True):
    """Of the output: how many tokens were spent on reasoning."""

    reasoning_tokens: int | None = None


class Usage(_Open, kw_only=True):
    """Tokens spent; `prompt_tokens` holds cached ones too, `completion_tokens` reasoning too.

    Args:
        prompt_tokens: all tokens of the prompt.
        completion_tokens: all tokens produced.
        total_tokens: both.
        prompt_tokens_details: what became of the prompt's tokens.
        completion_tokens_details: what the output's tokens were spent on.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


def _made_id() -> str:
    return f"isthmus-{urandom(12).hex()}"


class ModelResponse(_Open, kw_only=True):
    """One reply of the model face, in the shape of a Chat Completions object.

    What has no field is read like one: `response.reasoning_content`, `response.citations`.

    Args:
        id: unique; made here where the provider's own is not known.
        model: the model that was asked for.
        choices: the answers; this library reads the first.
        usage: tokens spent, or None where the provider did not say.
        created: when it was made, in seconds since 1970.
        object: "chat.completion".
        model_extra: what has no field. Of ours: `reasoning_content`, `raw_reason`, `finish` (where `finish_reason` has
            no word for it), `notes`, and `native`: the provider's own blocks as provider, type and JSON text.
    """

    id: str = msgspec.field(default_factory=_made_id)
    model: str = ""
    choices: list[Choice]
    usage: Usage | None = None
    created: int | None = None
    object: str = "chat.completion"

    @property
    def step(self) -> StepResult | None:
        """The reply that this response was made from, or None where an author made it."""
        return getattr(self, "_step", None)

    def __getattr__(self, name: str) -> Any:
        # A provider's own block that came once is read by its name, e.g. `search_results`.
        if not name.startswith("_") and name not in self.model_extra:
            blocks = [block["json"] for block in self.model_extra.get("native", ()) if block.get("type") == name]
            if len(blocks) == 1:
                return loads(blocks[0])
        return super().__getattr__(name)


class ModelStreamEvent(msgspec.Struct, JsonEvent, kw_only=True):
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
        continuation: with "completed": who goes on, "automatic" or "explicit", where the reply is not the last.
        async_tool_call: a whole call that may run while the reply goes on.
        required_tool_call_ids: the calls whose results an explicit continuation must bring.
        input_messages: messages that joined the transcript with the continuation.
        steering: copies of the receipts that this event is about.
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
    continuation: Literal["automatic", "explicit"] | None = None
    async_tool_call: ToolCall | None = None
    required_tool_call_ids: tuple[str, ...] = ()
    input_messages: list[dict[str, Any]] | None = None
    steering: list[SteeringReceipt] | None = None

    def to_trace_dict(self, include_raw: bool = False) -> dict[str, Any]:
        """The event as plain JSON values for a trace: what is None is left out, what has no JSON form is its text.

        Args:
            include_raw: whether the provider's own event stands in it too.
        """
        values = {name: getattr(self, name) for name in self.__struct_fields__ if include_raw or name != "raw"}
        return {name: _traced(value) for name, value in values.items() if value is not None and value != ()}


_PARTS: Mapping[type, Mapping[str, type[_Open]]] = {
    ModelResponse: {"choices": Choice, "usage": Usage},
    Choice: {"message": Message, "logprobs": ChoiceLogprobs},
    Message: {"tool_calls": ToolCall},
    ToolCall: {"function": ToolCallFunction},
    Usage: {
        "prompt_tokens_details": PromptTokensDetails,
        "completion_tokens_details": CompletionTokensDetails,
    },
}


def _opened(kind: type[_Open], data: Any) -> Any:
    """The data with every key that has no field moved to `model_extra`, at any depth."""
    if not isinstance(data, Mapping):
        return data
    parts, fields = _PARTS.get(kind, {}), set(kind.__struct_fields__) - {"model_extra"}
    # A reason that is not there must not become the default, which is one.
    known: dict[str, Any] = {"finish_reason": None} if kind is Choice else {}
    for name in fields & set(data):
        value, part = data[name], parts.get(name)
        if part is not None and isinstance(value, list | tuple):
            known[name] = [_opened(part, item) for item in value]
        else:
            known[name] = value if part is None else _opened(part, value)
    extra = {name: _plain(value) for name, value in data.items() if name not in fields}
    return {**known, "model_extra": extra}


def _plain(value: Any) -> Any:
    """The value with its own dicts, lists and shapes made anew as plain ones; anything else as it is."""
    if isinstance(value, _Open):
        return value.to_dict()
    if type(value) is dict:
        return {name: _plain(item) for name, item in value.items()}
    if type(value) is list:
        return [_plain(item) for item in value]
    return value


def _traced(value: Any) -> Any:
    if isinstance(value, Frame):
        return {"event": value.event, "data": value.data.decode("utf-8", "replace")}
    if isinstance(value, BaseException):
        return {"type": type(value).__name__, "message": str(value)}
    if isinstance(value, _Open):
        return _traced(value.to_dict())
    if isinstance(value, Mapping):
        return {str(name): _traced(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_traced(item) for item in value]
    if isinstance(value, SteeringReceipt):
        return _traced(value.to_dict())
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and value - value == 0):
        return value
    return str(value)
