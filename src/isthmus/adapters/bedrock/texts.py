"""The replies of models that complete a text by InvokeModel: one table of where each form keeps what it says.

They are read so that recordings of them can be replayed; requests for such models go by Converse.
Source: the model parameters pages of Amazon Bedrock, and 40 recorded replies, 2024-2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.errors import ProtocolError, TransientError
from isthmus.models.events import Event, Finish, FinishReason, Note, NoteCode, Text, Usage, framed
from isthmus.models.finish import finish_of
from isthmus.models.jsontext import loads
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

METRICS = "amazon-bedrock-invocationMetrics"
"""What Bedrock adds to the last chunk of a stream, whosever model it is."""
_GUARDRAIL = "amazon-bedrock-guardrailAction"

# The list that holds the replies, "" where the reply is the document itself; where its text is.
_FORMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("results", ("outputText",)),
    ("outputs", ("text",)),
    ("generations", ("text",)),
    ("completions", ("data", "text")),
    ("", ("outputText",)),
    ("", ("generation",)),
    ("", ("completion",)),
    ("", ("text",)),
)
# Where a reply tells its reason; families mix the names.
_WHYS = (("completionReason",), ("finish_reason",), ("finishReason", "reason"), ("stop_reason",))
_REASONS: Mapping[str, FinishReason] = {
    "finish": FinishReason.STOP,
    "endoftext": FinishReason.STOP,
    "stop_criteria_met": FinishReason.STOP,
    "error_toxic": FinishReason.CONTENT_FILTER,
}
_INPUTS = ("inputTokenCount", "inputTextTokenCount", "prompt_token_count", "prompt_tokens")
_OUTPUTS = (
    "outputTokenCount", "totalOutputTextTokenCount", "tokenCount", "generation_token_count", "completion_tokens",
)  # fmt: skip


class TextsDecoder:
    """Turns the frames of one completed text into events.

    Args:
        whole: whether the reply is one JSON document instead of a stream.
    """

    def __init__(self, *, whole: bool) -> None:
        self.done = False
        self._is_whole = whole
        self._frame: Frame | None = None
        self._over = False
        self._reason: str | None = None
        self._filtered = False
        self._others = False
        self._counts: dict[str, Any] = {}

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            ProtocolError: it is no completed text, or a piece of one.
        """
        self._frame = frame
        value = loads(frame.data)
        if not isinstance(value, dict):
            raise ProtocolError(f"a frame is no JSON object: {_shown(frame)}")
        self._measure(value)
        ends = METRICS in value or self._is_whole
        text, reason = self._said(value)
        if (text is None and not (ends or reason)) or (self._is_whole and text is None):
            raise ProtocolError(f"the reply holds no text: {_shown(frame)}", usage=self._usage())
        self._reason = reason or self._reason
        self._over = self._over or ends or reason is not None
        self.done = self._is_whole
        return [framed(Text(text), frame)] if text else ()

    def close(self, ended: Ended) -> Iterable[Event]:
        """The `Finish`.

        Raises:
            TransientError: the bytes ended before a reason or the stream's metrics came.
        """
        # A guardrail that blocks the prompt leaves neither reason nor metrics.
        if not self._over and not (self._filtered and ended is Ended.FRAMED):
            raise TransientError(f"the reply was cut ({ended}): it ended before a stop reason", usage=self._usage())
        notes = []
        if self._reason is None:
            notes.append(Note(NoteCode.NO_FINISH_REASON, "the reply has no stop reason"))
        if self._others:
            notes.append(Note(NoteCode.EXTRA_CHOICES, "only the first of several texts was taken"))
        usage = self._usage()
        if usage is None:
            notes.append(Note(NoteCode.USAGE_MISSING, "the reply's usage did not arrive"))
        finish = _REASONS.get(str(self._reason).lower()) or finish_of(self._reason)
        finish = FinishReason.CONTENT_FILTER if self._filtered else finish
        return (framed(Finish(str(finish), usage, self._reason, notes=tuple(notes)), self._frame),)

    def _said(self, value: dict[str, Any]) -> tuple[str | None, str | None]:
        """Text and reason of the first reply in a document or chunk."""
        if value.get("index"):
            self._others = True
            return "", None
        for name, text in _FORMS:
            held = value.get(name) if name else value
            if name and isinstance(held, list) and held:
                self._others = self._others or len(held) > 1
                held = held[0]
            found = _at(held, text)
            if isinstance(found, str):
                self._count(held)
                return found, _why(held)
        return None, _why(value)

    def _measure(self, value: dict[str, Any]) -> None:
        self._filtered = self._filtered or value.get(_GUARDRAIL) == "INTERVENED"
        for held in (value, value.get("usage"), value.get(METRICS)):
            self._count(held)

    def _count(self, held: Any) -> None:
        found = {name: held[name] for name in (*_INPUTS, *_OUTPUTS) if name in held} if isinstance(held, dict) else {}
        self._counts.update({name: value for name, value in found.items() if _count(value) is not None})

    def _usage(self) -> Usage | None:
        if not self._counts:
            return None
        sent = next((_count(self._counts[name]) for name in _INPUTS if name in self._counts), None)
        made = next((_count(self._counts[name]) for name in _OUTPUTS if name in self._counts), None)
        return Usage(input_tokens=sent, output_tokens=made, raw=dict(self._counts))


def _at(held: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        held = held.get(name) if isinstance(held, dict) else None
    return held


def _why(held: Any) -> str | None:
    found = (_at(held, path) for path in _WHYS)
    return next((why for why in found if isinstance(why, str)), None)


def _count(value: Any) -> int | None:
    """A count of tokens; some models write it as a decimal number."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value)
    return int(value) if whole else None


def _shown(frame: Frame) -> str:
    return repr(frame.data[:200].decode("utf-8", "replace"))
