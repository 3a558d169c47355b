"""Every span, attribute, event and metric that is sent, and what the conventions name that is not; for the docs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import NamedTuple


class Row(NamedTuple):
    """One name that is sent.

    Args:
        name: as it is sent.
        where: the kinds of spans, or the attributes of a metric, that it belongs to.
        meaning: what it says.
        content: whether it is sent only where contents are captured.
    """

    name: str
    where: tuple[str, ...]
    meaning: str
    content: bool = False


_AGENT, _CHAIN, _ATTEMPT, _MODEL, _TOOL = "agent", "chain", "attempt", "model", "tool"
_ALL = (_AGENT, _CHAIN, _ATTEMPT, _MODEL, _TOOL)

SPANS: tuple[Row, ...] = (
    Row("invoke_agent {agent}", (_AGENT,), "one run of an agent"),
    Row("chain {chain}", (_CHAIN,), "one call of a chain, with all its tries; within a run, its step"),
    Row("attempt {tier}", (_ATTEMPT,), "one try of one tier"),
    Row("chat {model}", (_MODEL,), "one request to a model, of kind client; current inside the adapter's code"),
    Row("execute_tool {tool}", (_TOOL,), "one tool call; current inside its handler"),
)
ATTRIBUTES: tuple[Row, ...] = (
    Row("gen_ai.operation.name", (_AGENT, _MODEL, _TOOL), "`invoke_agent`, `chat` or `execute_tool`"),
    Row("gen_ai.agent.name", (_AGENT,), "the agent's name"),
    Row("gen_ai.conversation.id", (_AGENT, _CHAIN, _MODEL, _TOOL), "the run's identity, as tools get it"),
    Row("gen_ai.provider.name", (_MODEL,), "the provider, in the conventions' spelling; `custom` where none is named"),
    Row("gen_ai.request.model", (_MODEL,), "the model that was asked for"),
    Row("gen_ai.request.max_tokens", (_MODEL,), "the ceiling of the reply"),
    Row("gen_ai.request.temperature", (_MODEL,), "as set, by request, options or adapter"),
    Row("gen_ai.request.top_p", (_MODEL,), "as set"),
    Row("gen_ai.request.top_k", (_MODEL,), "as set among the options"),
    Row("gen_ai.request.frequency_penalty", (_MODEL,), "as set among the options"),
    Row("gen_ai.request.presence_penalty", (_MODEL,), "as set among the options"),
    Row("gen_ai.request.choice.count", (_MODEL,), "as set among the options: `n`"),
    Row("gen_ai.request.seed", (_MODEL,), "as set"),
    Row("gen_ai.request.stop_sequences", (_MODEL,), "as set"),
    Row("gen_ai.request.stream", (_MODEL,), "whether the reply was asked for piece by piece"),
    Row("gen_ai.output.type", (_MODEL,), "`json` where a form was asked for"),
    Row("gen_ai.response.id", (_MODEL,), "the provider's id of the reply"),
    Row("gen_ai.response.model", (_MODEL,), "the model that answered, as the provider says"),
    Row("gen_ai.response.finish_reasons", (_MODEL,), "the provider's own word, else the portable one"),
    Row("gen_ai.response.time_to_first_chunk", (_MODEL,), "seconds until the first content of a stream"),
    Row("gen_ai.usage.input_tokens", (_MODEL,), "all tokens of the prompt, cached ones included"),
    Row("gen_ai.usage.output_tokens", (_MODEL,), "all tokens produced, reasoning included"),
    Row("gen_ai.usage.cache_read.input_tokens", (_MODEL,), "of the prompt: read from a cache"),
    Row("gen_ai.usage.cache_creation.input_tokens", (_MODEL,), "of the prompt: written to a cache"),
    Row("gen_ai.usage.reasoning.output_tokens", (_MODEL,), "of the output: spent on reasoning"),
    Row("gen_ai.tool.name", (_TOOL,), "the tool's name; left out where no tool has it, for it is the model's own text"),
    Row("gen_ai.tool.call.id", (_TOOL,), "the call's id"),
    Row("gen_ai.tool.type", (_TOOL,), "`function`"),
    Row("mcp.method.name", (_TOOL,), "`tools/call`, where the tool is an MCP server's"),
    Row("mcp.protocol.version", (_TOOL,), "of the protocol, as agreed with the MCP server"),
    Row("jsonrpc.request.id", (_TOOL,), "the number of the request to the MCP server"),
    Row("rpc.response.status_code", (_TOOL,), "the code of an MCP server's answer that was an error"),
    Row("network.transport", (_TOOL,), "to the MCP server: `pipe` or `tcp`"),
    Row("network.protocol.name", (_TOOL,), "`http`, where the MCP server is reached over it"),
    Row("server.address", (_MODEL, _TOOL), "the host of the adapter's base URL, or of the MCP server's"),
    Row("server.port", (_MODEL, _TOOL), "its port"),
    Row(
        "error.type",
        _ALL,
        "the class of a failure: `transient`, `overflow`, …, `timeout`, or the exception's; of a tool what its "
        "`isthmus.outcome` says, and of a call to an MCP server `tool_error`, or the code of its answer",
    ),
    Row("http.response.status_code", (_ATTEMPT, _MODEL), "the status of a failure"),
    Row("isthmus.outcome", _ALL, "how it ended: `ok`, `error`, `cancelled`, `closed`, `abandoned`, …"),
    Row("isthmus.finish", (_CHAIN, _ATTEMPT, _MODEL), "the portable finish"),
    Row("isthmus.reason", (_AGENT, _CHAIN), "why it was cut or failed"),
    Row("isthmus.steps", (_AGENT,), "model calls of the run"),
    Row("isthmus.step", (_CHAIN,), "which call of its run it is, from 1"),
    Row("isthmus.chain", (_CHAIN, _ATTEMPT), "the chain's id"),
    Row("isthmus.tier", (_AGENT, _CHAIN, _ATTEMPT), "the tier; of a run and a call, the one that served"),
    Row("isthmus.attempt", (_ATTEMPT,), "which try on this tier it is, from 1: above 1 it is a retry"),
    Row("isthmus.attempts", (_CHAIN,), "how many tries were made"),
    Row("isthmus.next", (_ATTEMPT,), "what followed from a failure: `retry`, `fallback`, `rerender`, `stop`, …"),
    Row("isthmus.cost", (_AGENT, _ATTEMPT), "the price, where prices are known"),
    Row(
        "isthmus.input_tokens",
        (_AGENT,),
        "prompts of the run itself; not `gen_ai.usage.*`, which would count twice",
    ),
    Row("isthmus.output_tokens", (_AGENT,), "output of the run itself, without agents that work for it"),
    Row("isthmus.effort", (_MODEL,), "the reasoning effort that was asked for"),
    Row("gen_ai.system_instructions", (_MODEL,), "the instructions", content=True),
    Row("gen_ai.input.messages", (_MODEL,), "the messages sent, the last ones first to fit", content=True),
    Row("gen_ai.output.messages", (_MODEL,), "the reply", content=True),
    Row("gen_ai.tool.definitions", (_MODEL,), "the tools on offer", content=True),
    Row("gen_ai.tool.call.arguments", (_TOOL,), "the arguments", content=True),
    Row("gen_ai.tool.call.result", (_TOOL,), "what the model reads of the result", content=True),
)
EVENTS: tuple[Row, ...] = (
    Row("isthmus.tier.skipped", (_CHAIN,), "a tier was passed over: `isthmus.reason` says why"),
    Row("isthmus.tier.forced", (_CHAIN,), "all tiers are left alone for a while, and one was asked all the same"),
    Row("isthmus.tier.fallback", (_CHAIN,), "from the tier `isthmus.origin` to `isthmus.tier`"),
    Row("isthmus.tier.cooled", (_CHAIN,), "a tier is left alone for `isthmus.seconds`"),
    Row("isthmus.tier.recovered", (_CHAIN,), "it is well again"),
    Row("isthmus.retry.scheduled", (_CHAIN,), "another try in `isthmus.seconds`, by `hint` or by `backoff`"),
    Row("isthmus.budget.exceeded", (_CHAIN,), "the budget is used up"),
    Row("isthmus.steering", (_MODEL,), "what becomes of steered input: `isthmus.status` is `accepted`, `applied`, …"),
    Row("exception", _ALL, "what `record_exception` was given: its type"),
)
METRICS: tuple[Row, ...] = (
    Row(
        "gen_ai.client.operation.duration",
        (
            *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"),
            *("gen_ai.agent.name", "gen_ai.tool.name", "server.address", "server.port", "error.type"),
        ),
        "seconds of a model call, a tool or a run",
    ),
    Row(
        "gen_ai.client.token.usage",
        (
            *("gen_ai.token.type", "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"),
            *("gen_ai.response.model", "server.address", "server.port"),
        ),
        "tokens of a model call; `gen_ai.token.type` is `input` or `output`",
    ),
    Row(
        "gen_ai.client.operation.time_to_first_chunk",
        (
            *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"),
            *("server.address", "server.port"),
        ),
        "seconds until the first content of a stream",
    ),
    Row("isthmus.chain.attempts", ("isthmus.chain", "isthmus.tier", "error.type"), "tries"),
    Row("isthmus.chain.fallbacks", ("isthmus.chain", "isthmus.tier"), "tiers that were given up"),
    Row("isthmus.run.cuts", ("gen_ai.agent.name", "isthmus.reason"), "runs that were cut"),
)
NOT_SENT: Mapping[str, str] = tomllib.loads(files("isthmus.observability").joinpath("unsent.toml").read_text("utf-8"))
"""What the conventions name and nobody here sends, and why."""


def tables() -> str:
    """All of it as tables for the docs."""
    parts = (
        ("span", "kind", SPANS),
        ("attribute", "spans", ATTRIBUTES),
        ("event", "spans", EVENTS),
        ("metric", "attributes", METRICS),
    )
    shown = ["\n".join(_table(name, where, rows)) for name, where, rows in parts]
    left = ["| not sent | why |", "|---|---|", *(f"| `{name}` | {why} |" for name, why in sorted(NOT_SENT.items()))]
    return "\n\n".join([*shown, "\n".join(left)])


def _table(name: str, where: str, rows: Iterable[Row]) -> Iterator[str]:
    yield f"| {name} | {where} | what it says |"
    yield "|---|---|---|"
    for row in rows:
        only = " (only where contents are captured)" if row.content else ""
        places = ", ".join(f"`{each}`" if "." in each else each for each in row.where)
        yield f"| `{row.name}` | {places} | {row.meaning}{only} |"
