"""A Converse reply while it arrives: the blocks of the Messages dialect in other words, kept in Converse's own form."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from isthmus.adapters.anthropic.blocks import Block, items, members, string
from isthmus.adapters.anthropic.reply import Members, Reply
from isthmus.adapters.anthropic.usage import merge_usage
from isthmus.errors import ProtocolError
from isthmus.models.events import Event, FinishReason, Note, NoteCode, Usage
from isthmus.models.jsontext import Raw, dumps, loads

DIALECT = "bedrock-converse"

FINISHES: Mapping[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "guardrail_intervened": FinishReason.CONTENT_FILTER,
    "content_filtered": FinishReason.CONTENT_FILTER,
}
"""Stop reasons of Converse, 2026-11; any other is "other", its own word kept."""

_CALL = ("tool_use", "server_tool_use")
_PLAIN_CALL = frozenset({"toolUseId", "name"})
# What wraps a reply and says nothing about it; `p` is padding.
_ENVELOPE = frozenset({"output", "stopReason", "usage", "metrics", "p"})
_BESIDE_USAGE = frozenset({"trace", "performanceConfig", "serviceTier", "amazon-bedrock-trace"})
_EMPTY = (b"null", b"{}", b"[]")


def to_usage(raw: Mapping[str, Any]) -> Usage | None:
    """The disjoint buckets of a TokenUsage, whose `inputTokens` is uncached already; None where there was none.

    Source: Converse and 100 recorded replies, 2024-2026; InvokeModel spells the cache's fields with "Count".
    """
    if not raw:
        return None
    details = raw.get("cacheDetails")
    hour = [each for each in details or () if isinstance(each, Mapping) and each.get("ttl") == "1h"]
    return Usage(
        input_tokens=_count(raw.get("inputTokens")),
        output_tokens=_count(raw.get("outputTokens")),
        cache_read_tokens=_count(raw.get("cacheReadInputTokens", raw.get("cacheReadInputTokenCount"))),
        cache_write_tokens=_count(raw.get("cacheWriteInputTokens", raw.get("cacheWriteInputTokenCount"))),
        cache_write_1h_tokens=sum(_count(each.get("inputTokens")) or 0 for each in hour) if details else None,
        raw=dict(raw),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class ConverseReply(Reply):
    """Collects a Converse reply; see `isthmus.adapters.anthropic.reply.Reply`."""

    dialect: ClassVar[str] = DIALECT
    finishes: ClassVar[Mapping[str, FinishReason]] = FINISHES

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._came: dict[int, msgspec.Raw] = {}
        self._parts: dict[int, dict[str, Any]] = {}

    @property
    def usage(self) -> Usage | None:
        """The tokens known so far."""
        return to_usage(self._usage)

    def told(self, found: Members, *, over: bool = False) -> None:
        """Take what a reply says of itself: usage, and what the contract has no word for.

        What comes after the end mark is told as notes, so that no cut can make the reply another one.
        """
        snapshot = loads(found["usage"]) if "usage" in found else None
        merge_usage(self._usage, snapshot)
        self._final_usage = self._final_usage or (isinstance(snapshot, Mapping) and bool(snapshot))
        for name, value in found.items():
            if name in _ENVELOPE or bytes(value) in _EMPTY:
                continue
            if over or name in _BESIDE_USAGE:
                self.notes.append(Note(NoteCode.METADATA, dumps({name: value}).decode()))
            else:
                self._extras[name] = value

    # Blocks, by Converse's words.

    def start(self, index: int, kind: str, *, given: msgspec.Raw) -> list[Event]:
        """A block begins that says what it is."""
        if kind != "toolUse":
            self._parts[index] = dict(members(given))
            return self.open(index, {"type": Raw(dumps(kind))})
        tool = members(given)
        own = string(tool.get("type"), "toolUse.type") or "tool_use"
        self._parts[index] = {name: value for name, value in tool.items() if name != "input"}
        call = {"id": tool.get("toolUseId", Raw(b"null")), "name": tool.get("name", Raw(b"null"))}
        return self.open(index, {"type": Raw(dumps(own if own in _CALL else "server_tool_use")), **call})

    def add(self, index: int, kind: str, *, value: msgspec.Raw) -> list[Event]:
        """A block goes on; one of text or reasoning begins with its first piece."""
        handle = _PIECES.get(kind)
        if handle is not None:
            return handle(self, index, value)
        out = [] if index in self.blocks else self.start(index, kind, given=Raw(b"{}"))
        if self._open_block(index, kind).kind != kind:
            raise ProtocolError(f"a {kind} piece for block {index}, which is {self.blocks[index].kind}")
        _merge(self._parts[index], value)
        return out

    def whole(self, index: int, given: msgspec.Raw) -> list[Event]:
        """A block that is complete; it goes back exactly as it came."""
        found = members(given)
        kind = next((name for name in found if name != "p"), "")
        if not kind:
            raise ProtocolError(f"content block {index} is empty")
        read = _WHOLE.get(kind)
        out = self.start(index, kind, given=found[kind]) if read is None else read(self, index, found[kind])
        self._came[index] = given
        return [*out, *self.shut(self.blocks[index])]

    def _open_block(self, index: int, kind: str) -> Block:
        block = self.blocks[index]
        if block.closed:
            raise ProtocolError(f"a {kind} piece for block {index}, which has ended")
        return block

    def _begun(self, index: int, kind: str) -> tuple[list[Event], Block]:
        """The open block of a kind, begun where there is none yet."""
        out = [] if index in self.blocks else self.open(index, {"type": Raw(dumps(kind))})
        block = self._open_block(index, kind)
        if block.kind != kind:
            raise ProtocolError(f"a {kind} piece for block {index}, which is {block.kind}")
        return out, block

    def _text(self, index: int, value: msgspec.Raw) -> list[Event]:
        out, block = self._begun(index, "text")
        return [*out, *self._text_delta(block, {"text": value})]

    def _cited(self, index: int, value: msgspec.Raw) -> list[Event]:
        out, block = self._begun(index, "text")
        return [*out, *self._citation(block, {"citation": value})]

    def _reasoned(self, index: int, value: msgspec.Raw) -> list[Event]:
        out: list[Event] = []
        for name, piece in members(value).items():
            if name == "redactedContent":
                begun, block = self._begun(index, "redacted_thinking")
                _append_blob(block, string(piece, name))
                out += begun
                continue
            begun, block = self._begun(index, "thinking")
            said = {"text": "thinking"}.get(name, name)
            step = self._signature_delta if name == "signature" else self._thinking_delta
            out += [*begun, *step(block, {said: piece})]
        return out

    def _input(self, index: int, value: msgspec.Raw) -> list[Event]:
        if index not in self.blocks:
            raise ProtocolError(f"a piece of a call for block {index}, which has not begun")
        block = self._open_block(index, "toolUse")
        if block.kind not in _CALL:
            raise ProtocolError(f"a piece of a call for block {index}, which is {block.kind}")
        given = members(value).get("input", Raw(b'""'))
        text = given if bytes(given)[:1] == b'"' else Raw(dumps(bytes(given).decode()))
        return self._input_delta(block, {"partial_json": text})

    # Whole blocks, as the pieces that would have made them.

    def _whole_text(self, index: int, value: msgspec.Raw) -> list[Event]:
        return self._text(index, value)

    def _whole_citations(self, index: int, value: msgspec.Raw) -> list[Event]:
        found = members(value)
        out, _ = self._begun(index, "text")
        for part in items(found.get("content", Raw(b"[]"))):
            out += self._text(index, members(part).get("text", Raw(b'""')))
        for cited in items(found.get("citations", Raw(b"[]"))):
            out += self._cited(index, cited)
        return out

    def _whole_reasoning(self, index: int, value: msgspec.Raw) -> list[Event]:
        found = members(value)
        out, _ = ([], None) if "redactedContent" in found else self._begun(index, "thinking")
        return [*out, *self._reasoned(index, found.get("reasoningText", value))]

    def _whole_call(self, index: int, value: msgspec.Raw) -> list[Event]:
        out = self.start(index, "toolUse", given=value)
        given = members(value).get("input", Raw(b"{}"))
        self.blocks[index].members["input"] = given
        return out

    # The form in which they go back.

    def _form(self, block: Block) -> bytes:
        came = self._came.get(block.index)
        renamed = block.kind in _CALL and block.members["id"] is not self._parts[block.index].get("toolUseId")
        if came is not None and not renamed:
            return bytes(came)
        return dumps(_FORMS.get(block.kind, _as_it_came)(block, self._parts))

    def _partial(self, block: Block) -> bytes:
        return dumps({"toolUse": {**self._parts[block.index], "input": "".join(block.arguments)}})

    def _native_form(self, blocks: list[Block]) -> bytes | None:
        kept = [block for block in blocks if not block.left_out]
        kinds = [block.kind for block in kept]
        texts = kinds.count("text")
        neutral = texts <= 1 and kinds[:texts] == ["text"] * texts and all(map(self._is_plain, kept))
        if neutral and all(block.text("text") for block in kept[:texts]):
            return None
        return dumps([Raw(self._form(block)) for block in kept])

    def _is_plain(self, block: Block) -> bool:
        """Whether a text or a call says all there is in it."""
        if block.kind == "text":
            return not block.citations
        return block.kind == "tool_use" and self._parts[block.index].keys() <= _PLAIN_CALL


def _append_blob(block: Block, piece: str) -> None:
    held = block.text("data")
    if held and piece:
        # Two pieces of base64 do not make one.
        piece = b64encode(b64decode(held) + b64decode(piece)).decode()
    block.members["data"] = Raw(dumps(piece or held))


def _merge(parts: dict[str, Any], value: msgspec.Raw) -> None:
    """Take a piece of a block of unknown kind: a list lengthens its content, members replace those there are."""
    if bytes(value)[:1] == b"[":
        parts["content"] = [*parts.get("content", ()), *items(value)]
    else:
        parts.update(members(value))


def _text_form(block: Block, parts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    text = block.text("text")
    if not block.citations:
        return {"text": text}
    said = {"content": [{"text": text}]} if text else {}
    return {"citationsContent": {**said, "citations": block.citations}}


def _thinking_form(block: Block, parts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    signature = block.text("signature")
    signed = {"signature": signature} if signature else {}
    return {"reasoningContent": {"reasoningText": {"text": block.text("thinking"), **signed}}}


def _redacted_form(block: Block, parts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    return {"reasoningContent": {"redactedContent": block.text("data")}}


def _call_form(block: Block, parts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    made = {**parts[block.index], "toolUseId": block.members["id"]}
    return {"toolUse": {**made, "input": block.whole()["input"]}}


def _as_it_came(block: Block, parts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    return {block.kind: parts[block.index]}


_FORMS: Mapping[str, Callable[[Block, Mapping[int, Mapping[str, Any]]], dict[str, Any]]] = {
    "text": _text_form,
    "thinking": _thinking_form,
    "redacted_thinking": _redacted_form,
    **dict.fromkeys(_CALL, _call_form),
}
_PIECES: Mapping[str, Callable[[ConverseReply, int, msgspec.Raw], list[Event]]] = {
    "text": ConverseReply._text,
    "citation": ConverseReply._cited,
    "reasoningContent": ConverseReply._reasoned,
    "toolUse": ConverseReply._input,
}
_WHOLE: Mapping[str, Callable[[ConverseReply, int, msgspec.Raw], list[Event]]] = {
    "text": ConverseReply._whole_text,
    "citationsContent": ConverseReply._whole_citations,
    "reasoningContent": ConverseReply._whole_reasoning,
    "toolUse": ConverseReply._whole_call,
}
