"""Which dialect a reply of Bedrock is in: Converse's events, or InvokeModel's chunks with the model's own inside.

What a reply is decides how it is read, not what was asked for.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from isthmus.adapters.anthropic.decode import MessagesDecoder
from isthmus.adapters.bedrock.decode import ConverseDecoder
from isthmus.adapters.bedrock.failures import failed
from isthmus.adapters.bedrock.texts import METRICS, TextsDecoder
from isthmus.adapters.codec import Decoder
from isthmus.adapters.openai_chat.decode import ChatDecoder
from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.events import Event
from isthmus.models.jsontext import dumps, fields, loads
from isthmus.wire.call import Ended
from isthmus.wire.eventstream import FAILED
from isthmus.wire.frame import Frame

_CHUNK = "chunk"
_METRICS = METRICS.encode()
_STOP_REASON = b'"stop_reason"'
_NULL = b"null"
_COUNTS = {"prompt_tokens": "inputTokenCount", "completion_tokens": "outputTokenCount"}


class _Chunk(msgspec.Struct):
    bytes: str


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


class BedrockDecoder:
    """Turns the frames of one reply into events.

    Args:
        whole: whether the reply is one JSON document instead of a stream.
        names: the tools' own names by the names they were sent under, where these differ.
    """

    def __init__(self, *, whole: bool, names: Mapping[str, str]) -> None:
        self.done = False
        self._is_whole, self._names = whole, names
        self._inner: Decoder | None = None

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            TierError: the frame is an exception, or malformed.
        """
        if frame.event == _CHUNK:
            frame = _unwrapped(frame)
        if frame.event[:1] == FAILED:
            raise self._failed(frame)
        inner = self._inner
        if inner is None:
            inner = self._inner = self._chosen(frame)
        if isinstance(inner, ChatDecoder) and (_METRICS in frame.data or _STOP_REASON in frame.data):
            frame = Frame(dumps(_as_chat(fields(frame.data))))
        events = inner.feed(frame)
        self.done = inner.done
        return events

    def close(self, ended: Ended) -> Iterable[Event]:
        """The events still due, the `Finish` last.

        Raises:
            TierError: the reply is not complete.
        """
        if self._inner is None:
            raise TransientError(f"the reply was cut ({ended}): nothing came")
        return self._inner.close(ended)

    def _failed(self, frame: Frame) -> TierError:
        """What an exception stands for, with the tokens known so far, which a cut would be told with."""
        error = failed(frame)
        try:
            self.close(Ended.BROKEN)
        except TierError as cut:
            error.usage = cut.usage
        return error

    def _chosen(self, frame: Frame) -> Decoder:
        """The decoder of the dialect that a reply begins in."""
        whole = self._is_whole
        if frame.event:
            return ConverseDecoder(whole=whole, names=self._names)
        try:
            value = loads(frame.data)
        except (ValueError, RecursionError):
            value = None
        found: Mapping[str, Any] = value if isinstance(value, dict) else {}
        if not _COMPLETED.isdisjoint(found):
            return TextsDecoder(whole=whole)
        if "choices" in found:
            return ChatDecoder(whole=whole, names=self._names)
        if not _CONVERSES.isdisjoint(found):
            return ConverseDecoder(whole=whole, names=self._names)
        return MessagesDecoder(whole=whole, names=self._names)


def _as_chat(found: dict[str, Any]) -> dict[str, Any]:
    """A chat completion that tells its tokens and its reasons as it does; pages of Amazon Bedrock, 2026-11."""
    metrics = loads(found.pop(METRICS, b"null"))
    if isinstance(metrics, dict) and "usage" not in found:
        found["usage"] = {name: metrics.get(key) for name, key in _COUNTS.items()}
    with suppress(msgspec.DecodeError, UnicodeDecodeError, KeyError):
        found["choices"] = [_with_reason(choice) for choice in _decode_choices(found["choices"])]
    return found


def _with_reason(choice: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    told = [choice[name] for name in ("finish_reason", "stop_reason") if bytes(choice.get(name, _NULL)) != _NULL]
    return {**choice, "finish_reason": told[0]} if told else choice


def _unwrapped(frame: Frame) -> Frame:
    try:
        return Frame(b64decode(_decode_chunk(frame.data).bytes, validate=True))
    except (msgspec.DecodeError, UnicodeDecodeError, BadBase64) as error:
        raise ProtocolError(f"a chunk cannot be unwrapped: {error}: {frame.data[:200]!r}") from None


_COMPLETED = frozenset(
    {"outputText", "results", "outputs", "generation", "generations", "completion", "completions", "text"}
)
_CONVERSES = frozenset({"output", "messageStart", "contentBlockStart", "contentBlockDelta"})
