"""The neutral history as Converse's system blocks and turns: the Messages dialect's order, in Converse's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from isthmus.adapters.anthropic.blocks import items, members
from isthmus.adapters.anthropic.parts import block_of, blocks_of
from isthmus.adapters.anthropic.reply import DIALECT as MESSAGES
from isthmus.adapters.anthropic.turns import Transcript
from isthmus.adapters.bedrock.names import SCHEMAS, wire_id
from isthmus.adapters.bedrock.parts import media_block, own_block
from isthmus.adapters.bedrock.points import cache_point
from isthmus.adapters.bedrock.reply import DIALECT
from isthmus.errors import InvalidRequestError
from isthmus.models.events import NoteCode
from isthmus.models.jsontext import loads
from isthmus.models.messages import native_of, without_reserved
from isthmus.models.reading import read_part, read_result

_READY = "converse"
"""The type of a block that is in Converse's words already, under `block`."""


class ConverseTranscript(Transcript):
    """A history as Converse is told it; see `isthmus.adapters.anthropic.turns.Transcript`.

    Args:
        brief: the instructions, in front of the history's own.
        takes_messages: whether the model behind it takes back what it signed in the Messages dialect.
    """

    dialect: ClassVar[str] = DIALECT
    schemas: ClassVar[str] = SCHEMAS

    def __init__(self, brief: str, *, takes_messages: bool = False) -> None:
        super().__init__(brief)
        self._takes_messages = takes_messages

    def converse(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """The system blocks and the turns, in Converse's words.

        Raises:
            InvalidRequestError: Converse has no words for it; names it.
        """
        if not self.turns:
            raise InvalidRequestError("messages: nothing to send; this API needs at least one message with content")
        if self.turns[0]["role"] != "user":
            raise InvalidRequestError(
                f"messages: this API's conversations begin with the user, not with the {self.turns[0]['role']}: "
                "put a user message in front"
            )
        turns = [{"role": turn["role"], "content": self._said(turn["content"])} for turn in self.turns]
        return self._said(self.system), turns

    def _legal_id(self, given: str) -> str:
        return wire_id(given)

    def _blocks(self, content: Any, place: str) -> list[Any]:
        if isinstance(content, Mapping):
            content = [content]
        if not isinstance(content, list | tuple):
            return blocks_of(content, place, notes=self.notes)
        out: list[Any] = []
        for number, part in enumerate(content):
            out += self._part(part, f"{place}.content[{number}]")
        return out

    def _part(self, part: Any, place: str) -> list[Any]:
        ready = own_block(part)
        if isinstance(part, Mapping) and part.keys() == {"text"}:
            # A text as Converse writes it: a block without a type.
            part = {"type": "text", **part}
        if ready is None and isinstance(part, Mapping):
            if part.get("type") == "tool_result" and not isinstance(part.get("content"), str | None):
                part = {**part, "content": self._result(part["content"], place)}
                return [without_reserved(part)]
            ready = media_block(read_part(part), place, notes=self.notes)
        if ready is None:
            block = block_of(part, place, notes=self.notes)
            return [block] if block else []
        mark = part.get("cache_control")
        point = [{"type": _READY, "block": cache_point(mark.get("ttl"))}] if isinstance(mark, Mapping) else []
        return [{"type": _READY, "block": ready}, *point]

    def _result(self, content: Any, place: str) -> Any:
        read = read_result(content)
        if isinstance(content, list | tuple) and any(own_block(item) for item in content):
            return self._blocks(content, place)
        if not isinstance(read, str):
            return self._blocks([part.to_dict() for part in read], place)
        if not isinstance(content, str):
            self._note(f"{place}: a tool result was written as JSON text")
        return read

    def _held(self, message: Mapping[str, Any], place: str) -> list[Any] | None:
        native = native_of(message, MESSAGES)[0] if self._takes_messages else None
        blocks = _messages_blocks(native.json) if native is not None else None
        if blocks is None:
            return super()._held(message, place)
        self._begin_calls()
        for block in blocks:
            if block["type"] == "tool_use":
                self._called(block["id"], block["name"])
        return blocks

    def _native(self, content: bytes, place: str) -> list[Any] | None:
        """The blocks of a native form verbatim, save those that the API does not take back."""
        try:
            blocks = items(content)
            seen = [members(block) for block in blocks]
        except ValueError as error:
            self._note(f"{place}: the native form cannot be read: {error}", NoteCode.NATIVE_STALE)
            return None
        self._begin_calls()
        kept: list[Any] = []
        for number, (block, found) in enumerate(zip(blocks, seen, strict=True)):
            if "text" in found and not str(loads(found["text"])).strip():
                self._note(f"{place}: an empty text block of the reply was left out")
                continue
            if number == len(blocks) - 1 and _is_unsigned(found):
                # Cut before its signature, or of a model that does not take its reasoning back.
                self._note(f"{place}: reasoning without a signature at the end was left out")
                continue
            if "toolUse" in found:
                call = loads(found["toolUse"])
                if call.get("type") in (None, "tool_use"):
                    self._called(call.get("toolUseId"), str(call.get("name")))
            kept.append(block)
        return kept

    # Blocks in Converse's words.

    def _said(self, blocks: list[Any]) -> list[Any]:
        out: list[Any] = []
        for block in blocks:
            if isinstance(block, msgspec.Raw):
                out.append(block)
                continue
            say = _WORDS.get(block["type"])
            if say is None:
                raise InvalidRequestError(f"messages: this API takes no block of type {block['type']!r}: leave it out")
            out += say(self, block)
            mark = block.get("cache_control")
            if isinstance(mark, Mapping):
                out.append(cache_point(mark.get("ttl")))
        return out

    def _say_text(self, block: Mapping[str, Any]) -> list[Any]:
        return [{"text": block["text"]}]

    def _say_ready(self, block: Mapping[str, Any]) -> list[Any]:
        return [block["block"]]

    def _say_call(self, block: Mapping[str, Any]) -> list[Any]:
        return [{"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}]

    def _say_result(self, block: Mapping[str, Any]) -> list[Any]:
        content = block.get("content") or []
        said = [{"text": content}] if isinstance(content, str) else self._said(list(content))
        # A result holds no cache points: they stand behind it.
        points = [each for each in said if "cachePoint" in each]
        held = [each for each in said if "cachePoint" not in each]
        status = {"status": "error"} if block.get("is_error") else {}
        return [{"toolResult": {"toolUseId": block["tool_use_id"], "content": held, **status}}, *points]

    def _say_thinking(self, block: Mapping[str, Any]) -> list[Any]:
        signature = block.get("signature")
        signed = {"signature": signature} if signature else {}
        return [{"reasoningContent": {"reasoningText": {"text": block.get("thinking", ""), **signed}}}]

    def _say_redacted(self, block: Mapping[str, Any]) -> list[Any]:
        return [{"reasoningContent": {"redactedContent": block.get("data", "")}}]


def _messages_blocks(content: bytes) -> list[dict[str, Any]] | None:
    """The blocks of a native form of Messages, arguments verbatim; None where Converse has no words for one of them."""
    try:
        found = [members(block) for block in items(content)]
    except ValueError:
        return None
    blocks: list[dict[str, Any]] = [
        {name: value if name == "input" else loads(value) for name, value in block.items() if bytes(value) != b"null"}
        for block in found
    ]
    blocks = [block for block in blocks if block.get("text") is None or str(block["text"]).strip()]
    known = all(block.keys() <= _MEMBERS.get(str(block.get("type")), frozenset()) for block in blocks)
    return blocks if known else None


_MEMBERS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
}


def _is_unsigned(found: Mapping[str, msgspec.Raw]) -> bool:
    reasoning = loads(found.get("reasoningContent", b"null"))
    return isinstance(reasoning, dict) and not (reasoning.get("reasoningText") or {"signature": 1}).get("signature")


_WORDS: Mapping[str, Callable[[ConverseTranscript, Mapping[str, Any]], list[Any]]] = {
    "text": ConverseTranscript._say_text,
    _READY: ConverseTranscript._say_ready,
    "tool_use": ConverseTranscript._say_call,
    "tool_result": ConverseTranscript._say_result,
    "thinking": ConverseTranscript._say_thinking,
    "redacted_thinking": ConverseTranscript._say_redacted,
}
