"""The frames of Converse, of a stream and of a whole reply: one decoder, a method a wire event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from isthmus.adapters.anthropic.blocks import items, members, string
from isthmus.adapters.anthropic.reply import Members
from isthmus.adapters.bedrock.reply import DIALECT, ConverseReply
from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.events import Event, Native, Text, framed
from isthmus.models.finish import is_unreadable
from isthmus.models.jsontext import loads
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_BESIDE = frozenset({"amazon-bedrock-invocationMetrics", "amazon-bedrock-guardrailAction"})


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    text: str


class _TextFrame(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    contentBlockIndex: int  # noqa: N815
    delta: _TextDelta
    p: Any = None


_decode_text = msgspec.json.Decoder(_TextFrame).decode


class ConverseDecoder:
    """Turns the frames of one Converse reply into events.

    Args:
        whole: whether the reply is one JSON document instead of a stream.
        names: the tools' own names by the names they were sent under, where these differ.
    """

    def __init__(self, *, whole: bool, names: Mapping[str, str] = _NO_NAMES) -> None:
        self.done = False
        self._is_whole = whole
        self._reply = ConverseReply(names)
        self._over = False
        self._frame: Frame | None = None

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            TierError: the frame is malformed; carries the usage seen so far.
        """
        block = self._reply.writing
        if block is not None and frame.event == "contentBlockDelta":
            try:
                quick = _decode_text(frame.data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                if quick.contentBlockIndex == block.index:
                    block.texts.append(quick.delta.text)
                    return (framed(Text(quick.delta.text), frame),)
        self._frame = frame
        try:
            return [framed(event, frame) for event in self._read(frame)]
        except TierError as error:
            error.usage = error.usage or self._reply.usage
            raise
        except (ValueError, RecursionError) as error:
            raise self._broken(f"a frame cannot be read: {error}: {_shown(frame)}") from None

    def close(self, ended: Ended) -> Iterable[Event]:
        """The events still due, the `Finish` last.

        Raises:
            TransientError: the bytes ended before messageStop.
            ProtocolError: it is no reply of Converse, or the model's own output was malformed.
        """
        if not self._over:
            if self._is_whole and ended is Ended.FRAMED:
                raise self._broken(f"the reply is no message: {_shown(self._frame or Frame(b''))}")
            raise TransientError(f"the reply was cut ({ended}): it ended before messageStop", usage=self._reply.usage)
        if is_unreadable(self._reply.reason):
            raise self._broken(f"the model's output could not be read ({self._reply.reason})")
        return [framed(event, self._frame) for event in self._reply.end()]

    def _broken(self, message: str) -> ProtocolError:
        return ProtocolError(message, usage=self._reply.usage)

    def _read(self, frame: Frame) -> list[Event]:
        found = members(frame.data)
        if frame.event:
            handle = _EVENTS.get(frame.event)
            return [Native(DIALECT, frame.event, json=frame.data)] if handle is None else handle(self, found)
        if "output" in found:
            return self._message(found)
        # InvokeModel puts the event's name into the payload, and what is its own beside it.
        out: list[Event] = []
        beside = {name: value for name, value in found.items() if name not in _EVENTS and name not in _BESIDE}
        self._reply.told(beside)
        for name in [name for name in found if name in _EVENTS]:
            out += _EVENTS[name](self, members(found[name]))
        return out

    def _message(self, found: Members) -> list[Event]:
        message = members(members(found["output"]).get("message", msgspec.Raw(b"{}")))
        if "content" not in message:
            raise self._broken("a message has no content")
        out: list[Event] = []
        for index, value in enumerate(items(message["content"])):
            out += self._reply.whole(index, value)
        self._reply.told(found)
        self._stopped(found)
        return out

    def _message_start(self, found: Members) -> list[Event]:
        if self._reply.blocks or self._over:
            raise self._broken("messageStart came twice: a second reply inside the first")
        return []

    def _block_start(self, found: Members) -> list[Event]:
        index = self._index(found)
        if index in self._reply.blocks:
            raise self._broken(f"contentBlockStart came twice for block {index}")
        start = members(found["start"]) if "start" in found else {}
        out: list[Event] = []
        for kind, given in start.items():
            out += self._reply.start(index, kind, given=given)
        return out

    def _block_delta(self, found: Members) -> list[Event]:
        if self._over:
            raise self._broken("contentBlockDelta came after messageStop")
        index = self._index(found)
        if "delta" not in found:
            raise self._broken(f"contentBlockDelta of block {index} has no delta")
        out: list[Event] = []
        for kind, value in members(found["delta"]).items():
            out += self._reply.add(index, kind, value=value)
        return out

    def _block_stop(self, found: Members) -> list[Event]:
        # A block without any content has neither start nor delta.
        block = self._reply.blocks.get(self._index(found))
        return [] if block is None or block.closed else self._reply.shut(block)

    def _message_stop(self, found: Members) -> list[Event]:
        self._reply.told(found)
        self._stopped(found)
        return self._reply.settle_call()

    def _stopped(self, found: Members) -> None:
        self._reply.reason = string(found.get("stopReason"), "stopReason") or None
        self._over = True
        self._reply.writing = None

    def _metadata(self, found: Members) -> list[Event]:
        self._reply.told(found, over=True)
        self.done = self._over
        return []

    def _index(self, found: Members) -> int:
        value = loads(found["contentBlockIndex"]) if "contentBlockIndex" in found else 0
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._broken(f"a block's index is {value!r}, not a whole number")
        return value


_EVENTS: Mapping[str, Callable[[ConverseDecoder, Members], list[Event]]] = {
    "messageStart": ConverseDecoder._message_start,
    "contentBlockStart": ConverseDecoder._block_start,
    "contentBlockDelta": ConverseDecoder._block_delta,
    "contentBlockStop": ConverseDecoder._block_stop,
    "messageStop": ConverseDecoder._message_stop,
    "metadata": ConverseDecoder._metadata,
}


def _shown(frame: Frame) -> str:
    return repr(frame.data[:200].decode("utf-8", "replace"))
