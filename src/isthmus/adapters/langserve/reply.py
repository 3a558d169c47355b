"""What a runnable's output says: the message, text, calls, reason and tokens in it, whatever it is wrapped in.

Source: langchain-core 0.3.86 and 1.8.3 behind langserve 0.3.1 and 0.3.3, recorded 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.adapters.openai_chat.merge import hollow, plain
from isthmus.models.events import Reasoning
from isthmus.models.jsontext import as_it_came

_AI = frozenset({"ai", "AIMessageChunk", "assistant", "AIMessage"})
_REASONS = ("stop_reason", "stopReason", "finish_reason", "done_reason")
# Where chains, agents and models of one prompt put their text, the most telling first.
_TEXTS = ("output", "answer", "result", "response", "text", "content")
_HOLDERS = ("messages", "message", "output")
_KEPT = ("content", "additional_kwargs", "tool_calls", "invalid_tool_calls", "id", "name")
_PLAIN_BLOCK = frozenset({"type", "text", "index", "id"})
_TEXT_BLOCKS = ("text", "output_text")


@dataclass
class Answer:
    """One output, read.

    Args:
        text: its text; None where it has none that could be told.
        message: the assistant's message in it, if there is one.
        reason: why the model stopped, in its own word.
        usage: the tokens in the spelling of the faces, `raw` the server's own; empty where not said.
        answered: the ids of calls that the server has run itself.
    """

    text: str | None = None
    message: Mapping[str, Any] | None = None
    reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()


def read(output: Any) -> Answer:
    """An output of any form: a message, several, a chain's dict, older `generations`, or text; never fails."""
    output = bare(output)
    message = message_in(output)
    holder: Any = message
    if message is None:
        holder = _generation(output) or output
    reason, usage = _reason(holder) or _reason(_generation(output)), _usage(holder) or _usage_beside(output)
    if message is None:
        return Answer(text_in(holder), None, reason, usage)
    return Answer(text_of(message), message, reason, usage, _answered(output))


def bare(value: Any) -> Any:
    """The value without LangChain's envelope of a constructor and its arguments."""
    if isinstance(value, Mapping) and value.get("type") == "constructor" and isinstance(value.get("kwargs"), Mapping):
        names = value.get("id")
        return {"type": names[-1] if isinstance(names, list) and names else None, **value["kwargs"]}
    return value


def is_message(value: Any) -> bool:
    """Whether a value is an assistant's message, or a piece of one."""
    held = isinstance(value, Mapping) and "content" in value
    return held and (value.get("role") or value.get("type")) in (None, *_AI)


def message_in(value: Any) -> Mapping[str, Any] | None:
    """The assistant's message in an output: the last one where there are several."""
    value = bare(value)
    if isinstance(value, list):
        return next((found for item in reversed(value) if (found := message_in(item)) is not None), None)
    if not isinstance(value, Mapping):
        return None
    if is_message(value):
        return value
    generation = _generation(value)
    holders = [value.get(key) for key in _HOLDERS if isinstance(value.get(key), Mapping | list)]
    held = [generation.get("message") if generation else None, *holders]
    return next((found for item in held if (found := message_in(item)) is not None), None)


def _generation(value: Any) -> Mapping[str, Any] | None:
    """The first candidate of an older result: `generations`, one list a prompt."""
    found = value.get("generations") if isinstance(value, Mapping) else None
    while isinstance(found, list) and found:
        found = found[0]
    found = bare(found)
    return found if isinstance(found, Mapping) else None


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message: its content, or the text blocks in it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(_block_texts(content)) if isinstance(content, list) else ""


def _block_texts(blocks: Iterable[Any]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            yield block
        elif isinstance(block, Mapping) and block.get("type") in _TEXT_BLOCKS and isinstance(block.get("text"), str):
            yield block["text"]


def text_in(value: Any) -> str | None:
    """The text that is an output, or stands in a chain's dict under one of the usual names; None where none does."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return None
    found = (value.get(key) for key in _TEXTS)
    return next((item for item in found if isinstance(item, str)), None)


def reasonings(message: Mapping[str, Any]) -> Iterator[Reasoning]:
    """The reasoning in a message: blocks of each spelling in use, and the field of older integrations."""
    beside = message.get("additional_kwargs")
    said = beside.get("reasoning_content") if isinstance(beside, Mapping) else None
    if isinstance(said, str) and said:
        yield Reasoning(said)
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        found = _reasoning(block) if isinstance(block, Mapping) else None
        if found is not None:
            yield found


def _reasoning(block: Mapping[str, Any]) -> Reasoning | None:
    kind = block.get("type")
    if kind == "redacted_thinking":
        return Reasoning(encrypted=_str(block.get("data")))
    if kind == "reasoning_content":
        inner = block.get("reasoning_content")
        block = inner if isinstance(inner, Mapping) else {}
    elif kind not in ("thinking", "reasoning"):
        return None
    text = next((block[key] for key in ("thinking", "reasoning", "text") if isinstance(block.get(key), str)), "")
    summary = block.get("summary")
    if not text and isinstance(summary, list):
        text = "".join(str(item.get("text") or "") for item in summary if isinstance(item, Mapping))
    signature = _str(block.get("signature"))
    return Reasoning(text, signature=signature) if text or signature else None


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _reason(message: Any) -> str | None:
    """Why the model stopped: from the response's metadata, what came beside the message, or the message itself."""
    if not isinstance(message, Mapping):
        return None
    places = (message.get(key) for key in ("response_metadata", "generation_info", "additional_kwargs"))
    held = [place for place in (*places, message) if isinstance(place, Mapping)]
    return next((place[key] for place in held for key in _REASONS if _str(place.get(key))), None)


def _usage(message: Any) -> dict[str, Any]:
    """The tokens of a message, in disjoint buckets; LangChain's `input_tokens` is the sum of all of them."""
    said = message.get("usage_metadata") if isinstance(message, Mapping) else None
    if not isinstance(said, Mapping):
        return _older_usage(message)
    said = plain(said)
    into, out = (said.get(f"{way}_token_details") or {} for way in ("input", "output"))
    longer, stated = _count(into.get("ephemeral_1h_input_tokens")), _count(into.get("cache_creation"))
    parts = _count(into.get("ephemeral_5m_input_tokens")) or 0, longer or 0
    # One integration says zero beside the parts.
    read, write = _count(into.get("cache_read")), stated or sum(parts) or stated
    total = _count(said.get("input_tokens"))
    cached = (read or 0) + (write or 0)
    # Some integrations count the cached tokens apart after all.
    fresh = total if total is None or total < cached else total - cached
    reasoning = _count(out.get("reasoning"))
    found = {
        "input_tokens": fresh,
        "output_tokens": _count(said.get("output_tokens")),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_creation": None if longer is None else {"ephemeral_1h_input_tokens": longer},
        "output_tokens_details": None if reasoning is None else {"reasoning_tokens": reasoning},
    }
    usage = {name: count for name, count in found.items() if count is not None}
    return {**usage, "raw": said} if usage else {}


def _older_usage(message: Any) -> dict[str, Any]:
    """What integrations put into the response's metadata before messages had a place for it."""
    held = message.get("response_metadata") if isinstance(message, Mapping) else None
    said = (held.get("token_usage") or held.get("usage")) if isinstance(held, Mapping) else None
    return dict(plain(said)) if isinstance(said, Mapping) else {}


def _usage_beside(output: Any) -> dict[str, Any]:
    """What an older result says of its tokens: in `llm_output`, beside the generations."""
    told = output.get("llm_output") if isinstance(output, Mapping) else None
    return _older_usage({"response_metadata": told})


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _answered(output: Any) -> frozenset[str]:
    """The ids of the calls that have their results among the messages of an output."""
    listed = output.get("messages") if isinstance(output, Mapping) else output
    items = [bare(item) for item in listed] if isinstance(listed, list) else []
    ids = (item.get("tool_call_id") for item in items if isinstance(item, Mapping))
    return frozenset(call_id for call_id in ids if isinstance(call_id, str))


def entries(message: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The calls of a message as (entries of a Chat Completions message, whether their arguments are as written).

    `tool_calls` holds arguments that LangChain has parsed, and completed where they were cut: the text is preferred.
    """
    pieces = _dicts(message.get("tool_call_chunks"))
    if pieces:
        return [piece_of(piece) for piece in pieces], True
    sound, broken = _dicts(message.get("tool_calls")), _dicts(message.get("invalid_tool_calls"))
    beside = message.get("additional_kwargs")
    written = _dicts(beside.get("tool_calls")) if isinstance(beside, Mapping) else []
    if written and len(written) == len(sound) + len(broken):
        return [dict(entry) for entry in written], True
    made = [_entry(call, call.get("args", call.get("arguments"))) for call in (*sound, *broken)]
    return made, not sound


def piece_of(piece: Mapping[str, Any]) -> dict[str, Any]:
    """A `tool_call_chunk` as Chat Completions has it."""
    return {"index": piece.get("index"), **_entry(piece, piece.get("args"))}


def _entry(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) or arguments is None else as_it_came(arguments)
    return {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": text}}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _is_plain(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return isinstance(block, str)
    return block.get("type") in _TEXT_BLOCKS and _PLAIN_BLOCK.issuperset(block)


def kept(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message as it goes back to the server; None where role, text and calls say all that it says."""
    content, beside = message.get("content"), message.get("additional_kwargs") or {}
    blocks = content if isinstance(content, list) else []
    rest = {key: value for key, value in beside.items() if key not in ("tool_calls", "function_call")}
    if all(map(_is_plain, blocks)) and all(hollow(value) for value in rest.values()):
        return None
    return {"type": "ai", **{key: message[key] for key in _KEPT if message.get(key) is not None}}
