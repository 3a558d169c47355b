"""What each record says in the words of the OpenTelemetry conventions for generative AI; no library is needed for it.

One place for all sinks: a span's name and attributes, what may be shown of contents, and what is left out.
Source: the GenAI semantic conventions, as published with opentelemetry-semantic-conventions 0.66b (2026-10).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from isthmus.observability import contents
from isthmus.observability.contents import View
from isthmus.observability.hooks import (
    ChainEvent,
    ChainEventType,
    ModelEnded,
    ModelStarted,
    ModelSteered,
    Record,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

Attributes = dict[str, Any]


class Begun(NamedTuple):
    """What is known when an operation begins: which kind it is, what its span is called, and its attributes.

    What is None is not known; it is left out of what is sent.
    """

    kind: str
    name: str
    attributes: Attributes


class Over(NamedTuple):
    """What is known when it is over; `error` is the class of its failure, `message` what it says, if contents may."""

    attributes: Attributes
    error: str | None = None
    message: str | None = None


@cache
def _provider_names() -> Mapping[str, str]:
    return tomllib.loads(files("isthmus.observability").joinpath("providers.toml").read_text("utf-8"))


def provider_name(name: str) -> str:
    """What the conventions call a provider."""
    return _provider_names().get(name, name)


def begun(record: Record, view: View) -> Begun | None:
    """What a record says of an operation that begins; None if it is of none that does."""
    read = _BEGUN.get(record.type if type(record) is ChainEvent else type(record))
    return None if read is None else read(record, view)


def over(record: Record, view: View) -> Over | None:
    """What a record says of an operation that is over; None if it is of none that is."""
    read = _OVER.get(record.type if type(record) is ChainEvent else type(record))
    return None if read is None else read(record, view)


def _contents(read: Callable[..., Attributes], *given: Any) -> Attributes:
    """What is read; nothing where it cannot be written down, for the rest of the span is worth having."""
    try:
        return read(*given)
    except Exception:
        return {}


def happened(record: Record) -> tuple[str, Attributes] | None:
    """What a record says of something on the way of a chain's call, or of a reply; None for all else."""
    if type(record) is ModelSteered:
        return "isthmus.steering", {"isthmus.status": record.status}
    if type(record) is not ChainEvent or record.type not in _ON_THE_WAY:
        return None
    named = {f"isthmus.{name}": getattr(record, name) for name in ("tier", "origin", "seconds", "reason", "source")}
    return f"isthmus.{record.type}", named


def _turn_began(record: TurnStarted, view: View) -> Begun:
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": record.agent or None,
        "gen_ai.conversation.id": record.run_id or None,
    }
    return Begun("agent", f"invoke_agent {record.agent}".strip(), attributes)


def _turn_over(record: TurnEnded, view: View) -> Over:
    usage = record.usage
    attributes = {
        "gen_ai.conversation.id": record.run_id or None,
        "isthmus.outcome": record.outcome,
        "isthmus.reason": record.reason,
        "isthmus.steps": record.steps,
        "isthmus.tier": record.tier,
        "isthmus.cost": None if record.cost is None else float(record.cost),
        "isthmus.input_tokens": None if usage is None else usage.prompt_tokens,
        "isthmus.output_tokens": None if usage is None else usage.output_tokens,
    }
    failed = record.outcome == "failed"
    return Over(attributes, record.error_class if failed else None, _words(record.op, view) if failed else None)


def _words(op: Any, view: View) -> str | None:
    """What a failure says, if contents may leave."""
    if not view.capture or op is None or op.error is None:
        return None
    return _contents(lambda: {"": view.text("exception.message", str(op.error))}).get("")


def _chain_began(record: ChainEvent, view: View) -> Begun:
    attributes = {
        "isthmus.chain": record.chain,
        "isthmus.step": record.step,
        "gen_ai.conversation.id": record.op.conversation if record.op is not None else None,
    }
    return Begun("chain", f"chain {record.chain}", attributes)


def _chain_over(record: ChainEvent, view: View) -> Over:
    outcome = _ENDS[record.type]
    attributes = {
        "isthmus.outcome": "failed" if record.finish == "error-post" else outcome,
        "isthmus.reason": record.reason,
        "isthmus.tier": record.tier,
        "isthmus.attempts": record.attempts,
        "isthmus.finish": record.finish,
    }
    if outcome in ("ok", "closed") and record.finish != "error-post":
        return Over(attributes)
    error = record.error_class or record.reason or ("exhausted" if outcome == "exhausted" else "stream-error")
    return Over(attributes, error)


def _attempt_began(record: ChainEvent, view: View) -> Begun:
    attributes = {"isthmus.chain": record.chain, "isthmus.tier": record.tier, "isthmus.attempt": record.attempt}
    return Begun("attempt", f"attempt {record.tier}", attributes)


def _attempt_over(record: ChainEvent, view: View) -> Over:
    finish = "error-post" if record.content == "post" else record.finish
    attributes = {
        "isthmus.outcome": _ENDS[record.type],
        "isthmus.finish": finish,
        "isthmus.next": record.next,
        "isthmus.cost": None if record.cost is None else float(record.cost),
        "http.response.status_code": record.status,
    }
    message = None if record.message is None or not view.capture else view.text("exception.message", record.message)
    return Over(attributes, record.error_class, message)


def _model_began(record: ModelStarted, view: View) -> Begun:
    ctx = record.op.said
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider_name(record.provider) or _UNKNOWN,
        "gen_ai.request.model": record.model or None,
        "gen_ai.request.max_tokens": record.max_tokens,
        "gen_ai.request.temperature": record.temperature if ctx.temperature is None else ctx.temperature,
        "gen_ai.request.top_p": ctx.top_p,
        "gen_ai.request.seed": ctx.seed,
        "gen_ai.request.stop_sequences": tuple(ctx.stop) or None,
        "gen_ai.request.stream": record.streamed,
        "gen_ai.output.type": None if ctx.output is None else "json",
        "gen_ai.conversation.id": record.op.conversation,
        "isthmus.effort": ctx.effort or record.effort,
    }
    if ctx.options:
        attributes.update(_contents(_optional, ctx))
    if record.address:
        attributes.update(server(record.address))
    if view.capture:
        attributes.update(_contents(contents.asked, ctx, view))
    return Begun("model", f"chat {record.model}".strip(), attributes)


def _optional(ctx: Any) -> Attributes:
    """What the options of a provider's own say of sampling, by the names in use, where the request says nothing."""
    found: Attributes = {}
    for name, (kind, portable, spellings) in _OPTIONS.items():
        for spelling in spellings:
            value = ctx.options.get(spelling)
            said = portable is not None and getattr(ctx, portable) is not None
            if isinstance(value, int | float) and not isinstance(value, bool) and not said:
                found[name] = kind(value)
    return found


@lru_cache(256)
def server(address: str) -> Attributes:
    """Host and port of a URL; nothing where it has none."""
    try:
        parts = urlsplit(address)
        return {"server.address": parts.hostname, "server.port": parts.port or _PORTS.get(parts.scheme)}
    except ValueError:
        return {}


def _model_over(record: ModelEnded, view: View) -> Over:
    usage = None if record.op.wraps else record.usage
    reason = record.raw_reason or record.finish
    attributes: dict[str, Any] = {
        "gen_ai.response.id": record.reply_id,
        "gen_ai.response.model": record.reply_model,
        "gen_ai.response.finish_reasons": None if reason is None else (str(reason)[:_WORD],),
        "gen_ai.response.time_to_first_chunk": record.first,
        "isthmus.outcome": record.outcome,
        "isthmus.finish": record.finish,
        "http.response.status_code": record.status,
    }
    if usage is not None:
        attributes["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read_tokens
        attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    if view.capture and record.op.answer is not None:
        attributes.update(_contents(contents.replied, record.op.answer, view))
    return Over(attributes, record.error_class, _words(record.op, view))


def _tool_began(record: ToolStarted, view: View) -> Begun:
    attributes = _tool(record.tool, record.call_id, record.op)
    if view.capture:
        attributes.update(_contents(contents.called, record.op.said, view))
    return Begun("tool", f"execute_tool {record.tool}", attributes)


def _tool(tool: str, call_id: str, op: Any) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool or None,
        "gen_ai.tool.call.id": call_id or None,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": None if op is None else op.conversation,
    }


def tool_unrun(record: ToolEnded, view: View) -> Begun:
    """The beginning of a call that came to no handler; a name that nobody gave is the model's own text."""
    known = record.outcome != "unknown-tool" or view.capture
    attributes = _tool(record.tool if known else "", record.call_id, record.op)
    return Begun("tool", f"execute_tool {record.tool}" if known else "execute_tool", attributes)


def _tool_over(record: ToolEnded, view: View) -> Over:
    attributes: Attributes = {"isthmus.outcome": record.outcome}
    if view.capture and record.op is not None and record.op.answer is not None:
        attributes.update(_contents(contents.returned, record.op.answer, view))
    if record.op is not None:
        attributes.update(record.op.facts)
    said = attributes.pop("error.type", None)
    return Over(attributes, None if record.outcome in _FINE else said or record.outcome)


_WORD = 64
# What a provider is called that nobody named: the conventions require a name.
_UNKNOWN = "custom"
# By the name of the attribute: its type, the field of the request that comes before, and the names of the option.
_OPTIONS: Mapping[str, tuple[type, str | None, tuple[str, ...]]] = {
    "gen_ai.request.max_tokens": (
        int,
        "max_output_tokens",
        ("max_tokens", "max_output_tokens", "max_completion_tokens"),
    ),
    "gen_ai.request.temperature": (float, "temperature", ("temperature",)),
    "gen_ai.request.top_p": (float, "top_p", ("top_p",)),
    "gen_ai.request.seed": (int, "seed", ("seed",)),
    "gen_ai.request.top_k": (float, None, ("top_k",)),
    "gen_ai.request.frequency_penalty": (float, None, ("frequency_penalty",)),
    "gen_ai.request.presence_penalty": (float, None, ("presence_penalty",)),
    "gen_ai.request.choice.count": (int, None, ("n",)),
}
_PORTS = {"https": 443, "http": 80}
_FINE = ("ok", "cancelled", "not-executed")
_ENDS: Mapping[str, str] = {
    ChainEventType.CHAIN_FINISHED: "ok",
    ChainEventType.CHAIN_EXHAUSTED: "exhausted",
    ChainEventType.CHAIN_FAILED: "failed",
    ChainEventType.CHAIN_ABORTED: "closed",
    ChainEventType.CHAIN_DEADLINE: "deadline",
    ChainEventType.ATTEMPT_FINISHED: "ok",
    ChainEventType.ATTEMPT_FAILED: "failed",
    ChainEventType.ATTEMPT_CANCELLED: "closed",
}
_ON_THE_WAY = frozenset(
    {
        ChainEventType.TIER_SKIPPED,
        ChainEventType.TIER_FORCED,
        ChainEventType.TIER_FALLBACK,
        ChainEventType.TIER_COOLED,
        ChainEventType.TIER_RECOVERED,
        ChainEventType.RETRY_SCHEDULED,
        ChainEventType.BUDGET_EXCEEDED,
    }
)
_BEGUN: Mapping[Any, Callable[[Any, View], Begun]] = {
    TurnStarted: _turn_began,
    ChainEventType.CHAIN_STARTED: _chain_began,
    ChainEventType.ATTEMPT_STARTED: _attempt_began,
    ModelStarted: _model_began,
    ToolStarted: _tool_began,
}
_OVER: Mapping[Any, Callable[[Any, View], Over]] = {
    TurnEnded: _turn_over,
    ModelEnded: _model_over,
    ToolEnded: _tool_over,
    **{kind: _attempt_over if kind.startswith("attempt.") else _chain_over for kind in _ENDS},
}
