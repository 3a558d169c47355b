"""One choice of a reply: what its deltas, or its one message, amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, ClassVar

from isthmus.adapters.openai_chat.calls import Calls, Settled
from isthmus.adapters.openai_chat.merge import (
    REASONED,
    hollow,
    joined,
    merge,
    merge_details,
    merge_part,
    replaced,
    shown,
    signature_of,
    text_in,
)
from isthmus.errors import ProtocolError
from isthmus.models.events import Event, Native, Note, NoteCode, Reasoning, Text, framed
from isthmus.models.jsontext import dumps
from isthmus.wire.frame import Frame

DIALECT = "openai-chat"

# Parts of a choice that are read elsewhere, or that repeat the delta token by token.
_CHOICE_READ = frozenset(("index", "delta", "message", "finish_reason", "text", "error", "usage"))
# Padding, and labels that belong to one chunk.
_CHATTER = frozenset(("index", "token_id", "padding", "obfuscation"))
# What servers say of their own work rather than of the reply: it is noted, and no block that must survive.
DIAGNOSTICS = frozenset(
    (
        *("timings", "time_info", "latency_checkpoint", "cost", "copilot_usage", "metrics", "provider"),
        *("model_id", "model_version", "system", "seed", "native_finish_reason", "matched_stop", "stop_reason"),
    )
)
_CONTINUED = frozenset(("logprobs", "token_ids"))
_REASONINGS = frozenset(("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks"))


class Choice:
    """Collects one choice; a whole message is read by the same methods as a delta."""

    __slots__ = (
        *("_around", "_fields", "_frame", "_out", "_parts", "_reasoned", "_refusals", "_role", "_snapshot", "_whole"),
        *("calls", "content", "diagnostics", "ended", "held", "index", "notes", "reason"),
    )

    # Of the entry that is being read: its frame, whether it is a message, whether its reasoning was told, its events.
    _frame: Frame
    _whole: bool
    _reasoned: bool
    _out: list[Event]

    def __init__(self, index: int, names: Mapping[str, str] | None = None) -> None:
        self.index = index
        self.reason: str | None = None
        self.ended = False
        self.diagnostics: dict[str, Any] = {}
        self.calls = Calls(DIALECT, names)
        self.content: list[Any] = []
        self.notes: list[Note] = []
        self.held: list[Event] = []
        # Whether anything in the content is no text.
        self._parts = False
        self._refusals: list[str] = []
        self._role = "assistant"
        self._fields: dict[str, Any] = {}
        self._around: dict[str, Any] = {}
        self._snapshot: Mapping[str, Any] | None = None

    @property
    def refused(self) -> bool:
        """Whether the model refused in so many words."""
        return bool(self._refusals)

    @property
    def has_content(self) -> bool:
        """Whether anything was said, a refusal included."""
        return bool(self.content or self._refusals)

    def read(self, choice: Mapping[str, Any], frame: Frame, *, whole: bool) -> list[Event]:
        """The events in one entry of `choices`.

        Raises:
            ProtocolError: a field that matters has a form that makes no sense.
        """
        self._frame, self._out = frame, []
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            self.reason = reason
        for key, value in choice.items():
            if value is None or key in _CHOICE_READ or hollow(value):
                continue
            if key in DIAGNOSTICS:
                self.diagnostics[key] = value
            else:
                join = merge if key in _CONTINUED else replaced
                self._around[key] = join(self._around.get(key), value)
        body, is_message = self._body(choice, whole)
        self._read_body(body, whole=is_message)
        if reason or self._out:
            self.ended = bool(reason)
        return self._out

    def _body(self, choice: Mapping[str, Any], whole: bool) -> tuple[Mapping[str, Any], bool]:
        """The delta or the message, and whether it is a message.

        Some servers send both: a stream's deltas then come with the message so far, a whole reply with an empty delta.
        What only the message says is told at the end.
        """
        delta, message = choice.get("delta"), choice.get("message")
        if message is None and type(delta) is dict:
            return delta, False
        for said in (delta, message):
            if said is not None and not isinstance(said, Mapping):
                raise ProtocolError(f"choices: a message must be an object, not {shown(said)}")
        if delta is not None:
            self._snapshot = message
            return delta, False
        if message is None:
            return {"content": choice.get("text")}, whole
        return self._rest(message) if self.reason and not whole else message, True

    def _rest(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What a closing message says beyond the deltas before it."""
        said = "".join([item if isinstance(item, str) else _part_text(item) for item in self.content])
        so_far = {"content": said, "refusal": "".join(self._refusals), **joined(self._fields)}
        rest = dict(message)
        for key, value in message.items():
            old = so_far.get(key)
            if isinstance(value, str) and isinstance(old, str) and value.startswith(old):
                rest[key] = value[len(old) :]
            elif value == old:
                del rest[key]
        return rest

    def _read_body(self, body: Mapping[str, Any], *, whole: bool) -> None:
        self._whole, self._reasoned = whole, False
        fields = self._FIELDS
        if body.get("refusal"):
            # A refusal's words come after the content's, however the members are ordered.
            body = {key: body[key] for key in sorted(body, key="refusal".__eq__)}
        for key, value in body.items():
            if value is not None:
                handle = fields.get(key)
                if handle is None:
                    self._other(key, value)
                else:
                    handle(self, key, value)

    def _skip(self, key: str, value: Any) -> None:
        pass

    def _role_of(self, key: str, value: Any) -> None:
        self._role = value if isinstance(value, str) and value else self._role

    def _content_of(self, key: str, value: Any) -> None:
        if isinstance(value, str):
            self._say(value)
        elif isinstance(value, list):
            for part in value:
                self._part(part)
        else:
            self.notes.append(
                Note(NoteCode.UNKNOWN_CONTENT, f"content came as {type(value).__name__}; its JSON is the text")
            )
            self._say(dumps(value).decode())

    def _say(self, text: str) -> None:
        if text:
            self.content.append(text)
            self._emit(Text(text))

    def _part(self, part: Any) -> None:
        if isinstance(part, str):
            self._say(part)
        elif not isinstance(part, dict):
            raise ProtocolError(f"content: a part must be an object, not {shown(part)}")
        elif set(part) == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
            self._say(part["text"])
        elif part.get("type") == "refusal":
            self._refusal(part["type"], part.get("refusal"))
        else:
            self._odd_part(part)

    def _odd_part(self, part: dict[str, Any]) -> None:
        text = text_in(part)
        if str(part.get("type")) in REASONED:
            signature = signature_of(part)
            if text or signature:
                self._emit(Reasoning(text, signature=signature))
        elif part.get("type") == "text" and text:
            self._emit(Text(text))
        self._parts = True
        if self._whole:
            self.content.append(part)
        else:
            merge_part(self.content, part)

    def _refusal(self, key: str, value: Any) -> None:
        if isinstance(value, str) and value:
            self._refusals.append(value)
            self._emit(Text(value))

    def _tool_calls(self, key: str, value: Any) -> None:
        # A closing message repeats the calls of the deltas before it.
        whole = self._whole and not self.calls
        for item in value if isinstance(value, list) else [] if hollow(value) else [value]:
            preview = self.calls.add(item, self._frame, whole=whole)
            if preview is not None:
                self._out.append(preview)

    def _function_call(self, key: str, value: Any) -> None:
        self._tool_calls(key, [{"index": key, "function": value}])

    def _reasoning(self, key: str, value: Any) -> None:
        self._reason(text_in(value))
        self._fields[key] = merge(self._fields.get(key), value)

    def _reason(self, text: str) -> None:
        """Say the reasoning once, however many fields of one delta repeat it."""
        if text and not self._reasoned:
            self._reasoned = True
            self._emit(Reasoning(text))

    def _details(self, key: str, value: Any) -> None:
        if not isinstance(value, list):
            self._reasoning(key, value)
            return
        self._reason(text_in(value))
        for item in value:
            held = item if isinstance(item, Mapping) else {}
            signature, encrypted = _word(held.get("signature")), _word(held.get("data"))
            if signature or encrypted:
                self._emit(Reasoning("", None, signature, encrypted))
        if self._whole:
            self._fields[key] = value
        else:
            self._fields[key] = merge_details(self._fields.get(key), value)

    def _other(self, key: str, value: Any) -> None:
        self._fields[key] = merge(self._fields.get(key), value, key=key)

    def _emit(self, event: Event) -> None:
        self._out.append(framed(event, self._frame))

    _FIELDS: ClassVar[dict[str, Callable[[Choice, str, Any], None]]] = {
        "role": _role_of,
        "content": _content_of,
        "refusal": _refusal,
        "tool_calls": _tool_calls,
        "function_call": _function_call,
        "reasoning_content": _reasoning,
        "reasoning": _reasoning,
        "reasoning_details": _details,
        "thinking_blocks": _details,
        "thinking": _reasoning,
        **dict.fromkeys(_CHATTER, _skip),
    }

    def finish(self) -> list[Event]:
        """What is still to be said at the end: what only the message that came beside the deltas says."""
        self._out = []
        if self._snapshot is not None:
            said = {key for key, value in self._fields.items() if joined(value)}
            if said & _REASONINGS:
                said |= _REASONINGS
            said |= {"content"} if self.content else set()
            said |= {"refusal"} if self._refusals else set()
            said |= {"tool_calls", "function_call"} if self.calls else set()
            rest = {key: value for key, value in self._snapshot.items() if key not in said and not hollow(value)}
            self._read_body(rest, whole=True)
        return self._out

    @property
    def is_text(self) -> bool:
        """Whether nothing but text has come, and nothing beside it."""
        beside = self._fields or self._around or self._refusals or self.diagnostics or self._snapshot is not None
        if beside or self.calls or self.held or self.notes or self._role != "assistant":
            return False
        return not self._parts

    def is_plain(self, settled: Settled) -> bool:
        """Whether the neutral form says all that this choice's message says."""
        if not settled.plain or self._parts or self._refusals or self._role != "assistant":
            return False
        return not self._fields or all(map(hollow, joined(self._fields).values()))

    def message(self, settled: Settled) -> dict[str, Any]:
        """The message of this choice as it must be sent back, unknown fields and all."""
        content: Any = _grouped(self.content) if self._parts else "".join(self.content) or None
        message: dict[str, Any] = {"role": self._role, "content": content}
        if self._refusals:
            message["refusal"] = "".join(self._refusals)
        if settled.sent:
            message["tool_calls"] = settled.wire
        message.update({key: value for key, value in joined(self._fields).items() if not hollow(value)})
        audio = message.get("audio")
        if isinstance(audio, Mapping) and audio.get("id"):
            message["audio"] = {"id": audio["id"]}
        return message

    def natives(self) -> list[Native]:
        """What came beside the message and is worth keeping, by name."""
        if not (self._around or self._fields):
            return []
        held = {key: joined(value) for key, value in self._around.items()}
        audio = joined(self._fields.get("audio"))
        if not hollow(audio):
            held["audio"] = audio
        return [Native(DIALECT, key, held[key]) for key in sorted(held)]

    def rendered(self, settled: Settled) -> dict[str, Any]:
        """The whole choice, for one that is not the reply."""
        around = {key: joined(value) for key, value in self._around.items()}
        return {"index": self.index, "message": self.message(settled), "finish_reason": self.reason, **around}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _part_text(part: Mapping[str, Any]) -> str:
    return text_in(part) if part.get("type") == "text" else ""


def _grouped(content: list[Any]) -> list[Any]:
    """Content parts, with the texts between them as text parts."""
    parts: list[Any] = []
    for is_text, items in groupby(content, key=lambda item: isinstance(item, str)):
        if is_text:
            parts.append({"type": "text", "text": "".join(items)})
        else:
            parts += map(joined, items)
    return parts
