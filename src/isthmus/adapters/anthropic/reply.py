"""What a reply of this dialect has said so far: its blocks, the events they give, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from isthmus.adapters.anthropic.blocks import Block, items, native_form, object_text, string
from isthmus.adapters.anthropic.usage import FINISHES, merge_usage, to_usage
from isthmus.errors import ProtocolError
from isthmus.models.events import (
    Call,
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Native,
    Note,
    NoteCode,
    Reasoning,
    Text,
    Usage,
)
from isthmus.models.jsontext import dumps, loads
from isthmus.models.normalise import parse_arguments

DIALECT = "anthropic-messages"

Members = dict[str, msgspec.Raw]

_KNOWN = frozenset({"type", "id", "role", "model", "content", "stop_reason", "usage", "error"})
_EMPTY = (b"null", b"{}", b"[]")


class Reply:
    """Collects a reply block by block; each step returns the events it gives.

    Args:
        names: the tools' own names by the names they were sent under, where these differ.
    """

    dialect: ClassVar[str] = DIALECT
    """Under whose name native blocks are kept."""
    finishes: ClassVar[Mapping[str, FinishReason]] = FINISHES
    """What each stop reason means."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.blocks: dict[int, Block] = {}
        self.writing: Block | None = None
        self.reason: str | None = None
        self.notes: list[Note] = []
        self._names = names
        self._numbers: dict[int, int] = {}
        self._doubtful: Block | None = None
        self._ids: set[str] = set()
        self._usage: dict[str, Any] = {}
        self._final_usage = False
        self._extras: Members = {}

    @property
    def usage(self) -> Usage | None:
        """The tokens known so far."""
        return to_usage(self._usage)

    @property
    def _finish(self) -> FinishReason:
        return self.finishes.get(str(self.reason), FinishReason.OTHER)

    @property
    def is_over(self) -> bool:
        """Whether a stop reason came and no block is open."""
        return self.reason is not None and all(block.closed for block in self.blocks.values())

    def describe(self, found: Members, *, final: bool) -> None:
        """Take what a message says of itself: usage, and what the contract has no word for, e.g. `stop_details`.

        Args:
            found: the members of a message or of a message's delta.
            final: whether its usage is the last word.
        """
        snapshot = loads(found["usage"]) if "usage" in found else None
        merge_usage(self._usage, snapshot)
        self._final_usage = self._final_usage or (final and isinstance(snapshot, Mapping) and bool(snapshot))
        for name, value in found.items():
            if name not in _KNOWN and bytes(value) not in _EMPTY:
                self._extras[name] = value

    def last_open(self) -> int:
        """The index of the newest open block, or -1."""
        return next((index for index in reversed(self.blocks) if not self.blocks[index].closed), -1)

    def open(self, index: int, content: Members) -> list[Event]:
        """A block begins."""
        block = Block(index, content)
        out = self.settle_call()
        self.blocks[index] = block
        if block.kind == "text":
            self.writing = block
        begin = _STARTS.get(block.kind)
        return out if begin is None else out + begin(self, block)

    def extend(self, block: Block, delta: Members) -> list[Event]:
        """A block goes on; a delta of unknown type is merged into it, and a text's text is told."""
        handle = _DELTAS.get(string(delta.get("type"), "a delta's type"))
        if handle is None:
            told = len(block.texts)
            block.take(delta)
            return [Text(text) for text in block.texts[told:]]
        return handle(self, block, delta)

    def shut(self, block: Block) -> list[Event]:
        """A block is whole."""
        block.closed = True
        self.writing = None
        end = _STOPS.get(block.kind)
        if end is None:
            return [Native(self.dialect, block.kind, json=self._form(block))]
        return end(self, block)

    def settle_call(self) -> list[Event]:
        """The call that waited for what comes after it, once that is there."""
        block, self._doubtful = self._doubtful, None
        if block is None:
            return []
        if self._finish is FinishReason.LENGTH:
            return [self._cut(block)]
        return [self._call(block)]

    def end(self) -> list[Event]:
        """The events still due once the reply is over, the `Finish` last."""
        out = self.settle_call() + self._leave_open_blocks()
        out += [Native(self.dialect, name, json=bytes(self._extras[name])) for name in sorted(self._extras)]
        content = self._native_form([self.blocks[index] for index in sorted(self.blocks)])
        native = None if content is None else Native(self.dialect, "message", json=content)
        finish = self._outcome()
        if not self._final_usage:
            self.notes.append(Note(NoteCode.USAGE_MISSING, "the reply's final usage did not arrive"))
        out.append(Finish(finish.value, self.usage, self.reason, native=native, notes=tuple(self.notes)))
        return out

    # The form in which blocks go back.

    def _form(self, block: Block) -> bytes:
        return dumps(block.whole())

    def _partial(self, block: Block) -> bytes:
        return block.partial()

    def _native_form(self, blocks: list[Block]) -> bytes | None:
        return native_form(blocks)

    # How blocks begin.

    def _text_start(self, block: Block) -> list[Event]:
        text = block.text("text")
        out: list[Event] = [Text(text)] if text else []
        cited = block.members.get("citations")
        if cited is not None and bytes(cited) not in _EMPTY:
            out += [Native(self.dialect, "citation", json=bytes(each)) for each in items(cited)]
        return out

    def _thinking_start(self, block: Block) -> list[Event]:
        text = block.text("thinking")
        return [Reasoning(text)] if text else []

    def _call_start(self, block: Block) -> list[Event]:
        self._numbers[block.index] = len(self._numbers)
        if not block.text("name"):
            raise ProtocolError(f"the call in block {block.index} names no tool")
        return [self._preview(block, "")]

    # How they go on.

    def _text_delta(self, block: Block, delta: Members) -> list[Event]:
        piece = string(delta.get("text"), "text_delta.text")
        block.append("text", piece)
        return [Text(piece)] if block.kind == "text" else []

    def _thinking_delta(self, block: Block, delta: Members) -> list[Event]:
        piece = string(delta.get("thinking"), "thinking_delta.thinking")
        block.append("thinking", piece)
        return [Reasoning(piece)] if block.kind == "thinking" else []

    def _signature_delta(self, block: Block, delta: Members) -> list[Event]:
        piece = string(delta.get("signature"), "signature_delta.signature")
        if piece != block.text("signature"):  # a server that repeats it whole does not make it longer
            block.append("signature", piece)
        return []

    def _input_delta(self, block: Block, delta: Members) -> list[Event]:
        piece = string(delta.get("partial_json"), "input_json_delta.partial_json")
        block.arguments.append(piece)
        return [self._preview(block, piece)] if block.kind == "tool_use" and piece else []

    def _citation(self, block: Block, delta: Members) -> list[Event]:
        if "citation" not in delta:
            block.take(delta)
            return []
        block.citations.append(delta["citation"])
        return [Native(self.dialect, "citation", json=bytes(delta["citation"]))]

    # How they end.

    def _text_stop(self, block: Block) -> list[Event]:
        return []

    def _thinking_stop(self, block: Block) -> list[Event]:
        signature = block.text("signature")
        return [Reasoning(signature=signature)] if signature else []

    def _redacted_stop(self, block: Block) -> list[Event]:
        return [Reasoning(encrypted=block.text("data"))]

    def _call_stop(self, block: Block) -> list[Event]:
        out: list[Event] = [] if any(block.arguments) else [self._preview(block, block.call_text)]
        value, _ = parse_arguments(block.call_text)
        if value:
            return [*out, self._call(block)]
        # Empty or broken arguments may be what a limit left of a call: the stop reason, or another block, will tell.
        self._doubtful = block
        return out

    def _preview(self, block: Block, piece: str) -> CallDelta:
        name = block.text("name")
        return CallDelta(self._numbers[block.index], block.text("id") or None, self._names.get(name, name), piece)

    def _call(self, block: Block) -> Call:
        arguments, name = block.call_text, block.text("name")
        value, problem = parse_arguments(arguments)
        tool = self._names.get(name, name)
        if problem is not None:
            self.notes.append(Note(NoteCode.CALL_ARGUMENTS_INVALID, f"{tool}: {problem}"))
        given = block.text("id")
        if not given or given in self._ids:
            seed = f"{block.index}\0{name}\0{arguments}".encode("utf-8", "surrogatepass")
            block.members["id"] = msgspec.Raw(f'"toolu_{sha256(seed).hexdigest()[:20]}"'.encode())
            code = NoteCode.CALL_ID_CHANGED if given else NoteCode.CALL_ID_MADE
            again = f" for the second {given}" if given else ""
            self.notes.append(Note(code, f"{tool}: {block.text('id')}{again}"))
        call_id = block.text("id")
        self._ids.add(call_id)
        return Call(tool, value, call_id, arguments, problem)

    def _cut(self, block: Block) -> Native:
        block.left_out = True
        self.notes.append(Note(NoteCode.CALL_CUT, f"{block.text('name')}: the reply ended inside its arguments"))
        return Native(self.dialect, block.kind, json=self._partial(block))

    def _leave_open_blocks(self) -> list[Event]:
        """What a reply that is over left unfinished: calls go, and a signature that may lack its end."""
        out: list[Event] = []
        for block in self.blocks.values():
            if block.closed or block.kind == "text":
                self._leave_server_call(block)
                continue
            if block.kind == "thinking":
                if block.unsign():
                    detail = f"thinking block {block.index} was not closed: its signature was left out"
                    self.notes.append(Note(NoteCode.NATIVE_DROPPED, detail))
            elif block.arguments or block.kind.endswith("tool_use"):
                out.append(self._cut(block))
            else:
                out.append(Native(self.dialect, block.kind, json=self._form(block)))
        return out

    def _leave_server_call(self, block: Block) -> None:
        """A call to the server's own tool that a limit cut has no result: the API would not take it back."""
        last = block.index == max(self.blocks)
        if last and block.kind.endswith("_tool_use") and object_text(block.call_text) is None:
            block.left_out = True
            self.notes.append(Note(NoteCode.CALL_CUT, f"{block.text('name')}: the reply ended inside its arguments"))

    def _outcome(self) -> FinishReason:
        finish = self._finish
        if self.reason is None:
            self.notes.append(Note(NoteCode.NO_FINISH_REASON, "the reply has no stop reason"))
        if self._ids and finish is not FinishReason.TOOL_CALLS:
            detail = f"{self.reason} became tool-calls: the reply holds whole calls"
            self.notes.append(Note(NoteCode.FINISH_CHANGED, detail))
            return FinishReason.TOOL_CALLS
        if finish is FinishReason.TOOL_CALLS and not self._ids:
            self.notes.append(Note(NoteCode.FINISH_CHANGED, "tool_use became other: the reply holds no whole call"))
            return FinishReason.OTHER
        return finish


_STARTS: Mapping[str, Callable[[Reply, Block], list[Event]]] = {
    "text": Reply._text_start,
    "thinking": Reply._thinking_start,
    "tool_use": Reply._call_start,
}

_DELTAS: Mapping[str, Callable[[Reply, Block, Members], list[Event]]] = {
    "text_delta": Reply._text_delta,
    "thinking_delta": Reply._thinking_delta,
    "signature_delta": Reply._signature_delta,
    "input_json_delta": Reply._input_delta,
    "citations_delta": Reply._citation,
}

_STOPS: Mapping[str, Callable[[Reply, Block], list[Event]]] = {
    "text": Reply._text_stop,
    "thinking": Reply._thinking_stop,
    "redacted_thinking": Reply._redacted_stop,
    "tool_use": Reply._call_stop,
}
