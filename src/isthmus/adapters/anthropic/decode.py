"""The frames of this dialect, of a stream and of a whole reply: one decoder, a method a wire event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from isthmus.adapters.anthropic.blocks import Block, items, members, string
from isthmus.adapters.anthropic.reply import DIALECT, Members, Reply
from isthmus.adapters.classify import classify_in_band
from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.events import Event, Native, Note, NoteCode, Text, framed
from isthmus.models.jsontext import loads
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_END = b'{"type":"message_stop"}'
_NO_ERROR = (b"null", b"false", b"{}", b'""')
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text_delta"]
    text: str


class _TextFrame(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["content_block_delta"]
    index: int
    delta: _TextDelta


_decode_text = msgspec.json.Decoder(_TextFrame).decode


class MessagesDecoder:
    """Turns the frames of one Messages reply into events.

    Args:
        whole: whether the reply is one JSON document instead of a stream.
        names: the tools' own names by the names they were sent under, where these differ.
    """

    def __init__(self, *, whole: bool, names: Mapping[str, str] = _NO_NAMES) -> None:
        self.done = False
        self._is_whole = whole
        self._reply = Reply(names)
        self._truncated: Frame | None = None
        self._frame: Frame | None = None

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes; none once the end was seen.

        Raises:
            TierError: the frame is an error, or malformed; carries the usage seen so far.
        """
        block = self._reply.writing
        if block is not None and frame.event != "error":
            try:
                quick = _decode_text(frame.data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                if quick.index == block.index:
                    text = quick.delta.text
                    block.texts.append(text)
                    return (framed(Text(text), frame),)
        if self.done:
            return ()
        self._frame = frame
        try:
            return [framed(event, frame) for event in self._read(frame)]
        except TierError as error:
            error.usage = error.usage or self._reply.usage
            raise
        except (ValueError, RecursionError) as error:
            raise self._broken(f"a frame cannot be read: {error}") from None

    def close(self, ended: Ended) -> Iterable[Event]:
        """The events still due, the `Finish` last.

        Raises:
            TransientError: the bytes ended before the reply did.
            ProtocolError: it is no reply of this dialect.
        """
        if not self.done:
            self._accept_end(ended)
        try:
            return [framed(event, self._frame) for event in self._reply.end()]
        except (ValueError, RecursionError) as error:
            raise self._broken(f"the reply cannot be put together: {error}") from None

    def _accept_end(self, ended: Ended) -> None:
        """Take a framed end for the missing mark where nothing else is missing; else say what is."""
        tail = self._truncated
        if ended is Ended.FRAMED and self._reply.is_over and (tail is None or _is_end_mark(tail)):
            self._reply.notes.append(Note(NoteCode.NO_END_MARK, "the stream ended without message_stop"))
            return
        if self._is_whole and ended is Ended.FRAMED:
            raise self._broken(f"the reply is no message: {_shown(tail or self._frame or Frame(b''))}")
        error = TransientError(f"the reply was cut ({ended}): it ended before message_stop")
        error.usage = self._reply.usage
        raise error

    def _read(self, frame: Frame) -> list[Event]:
        if self._truncated is not None:
            raise self._broken(f"a frame is malformed: {_shown(self._truncated)}")
        if frame.event == "error":
            raise _error(frame.data)
        if frame.data.strip() in (b"", b"[DONE]"):
            return []
        try:
            found = members(frame.data)
        except ValueError as error:
            if not _is_truncated(frame.data):
                raise self._broken(f"a frame is not a JSON object ({error}): {_shown(frame)}") from None
            # The last frame of a cut body looks so: whether it was the last is known later.
            self._truncated = frame
            self._reply.writing = None
            return []
        kind = string(found.get("type"), "a frame's type")
        if kind == "error" or bytes(found.get("error", b"null")) not in _NO_ERROR:
            raise _error(frame.data)
        kind = kind or ("message" if "content" in found else frame.event)
        if not kind:
            raise self._broken(f"a frame has no type: {_shown(frame)}")
        handle = _EVENTS.get(kind)
        return [Native(DIALECT, kind, json=frame.data)] if handle is None else handle(self, found)

    def _broken(self, message: str) -> ProtocolError:
        return ProtocolError(message, usage=self._reply.usage)

    def _message_start(self, found: Members) -> list[Event]:
        if self._reply.blocks or self._reply.reason is not None:
            raise self._broken("message_start came twice: a second reply inside the first")
        return self._head(members(found["message"]), final=False) if "message" in found else []

    def _message(self, found: Members) -> list[Event]:
        if self._reply.blocks or self._reply.reason is not None:
            raise self._broken("a whole message came inside a stream of blocks")
        if "content" not in found:
            raise self._broken("a message has no content")
        out = self._head(found, final=True)
        self._reply.reason = string(found.get("stop_reason"), "stop_reason") or None
        self.done = True
        return out

    def _head(self, message: Members, *, final: bool) -> list[Event]:
        self._reply.describe(message, final=final)
        content = message.get("content")
        if content is None or bytes(content) == b"null":
            return []
        out: list[Event] = []
        for index, value in enumerate(items(content)):
            out += self._reply.open(index, members(value))
            out += self._reply.shut(self._reply.blocks[index])
        return out

    def _block_start(self, found: Members) -> list[Event]:
        index = self._index(found, max(self._reply.blocks, default=-1) + 1)
        if index in self._reply.blocks:
            raise self._broken(f"content_block_start came twice for block {index}")
        if "content_block" not in found:
            raise self._broken(f"content_block_start of block {index} has no content_block")
        return self._reply.open(index, members(found["content_block"]))

    def _block_delta(self, found: Members) -> list[Event]:
        block = self._block(found, "content_block_delta")
        if "delta" not in found:
            raise self._broken(f"content_block_delta of block {block.index} has no delta")
        return self._reply.extend(block, members(found["delta"]))

    def _block_stop(self, found: Members) -> list[Event]:
        return self._reply.shut(self._block(found, "content_block_stop"))

    def _message_delta(self, found: Members) -> list[Event]:
        delta = members(found["delta"]) if "delta" in found else {}
        self._reply.describe({key: value for key, value in found.items() if key != "delta"}, final=True)
        self._reply.describe(delta, final=True)
        self._reply.reason = string(delta.get("stop_reason"), "stop_reason") or self._reply.reason
        return []

    def _message_stop(self, found: Members) -> list[Event]:
        if self._reply.reason is None and not self._reply.blocks:
            raise self._broken("message_stop came without content and without a stop reason")
        self.done = True
        self._reply.writing = None
        return []

    def _ping(self, found: Members) -> list[Event]:
        return []

    def _index(self, found: Members, default: int) -> int:
        value = loads(found["index"]) if "index" in found else None
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._broken(f"a block's index is {value!r}, not a whole number")
        return value

    def _block(self, found: Members, event: str) -> Block:
        index = self._index(found, self._reply.last_open())
        block = self._reply.blocks.get(index)
        if block is None or block.closed:
            raise self._broken(f"{event} for block {index}, which is not open")
        return block


_EVENTS: Mapping[str, Callable[[MessagesDecoder, Members], list[Event]]] = {
    "message_start": MessagesDecoder._message_start,
    "content_block_start": MessagesDecoder._block_start,
    "content_block_delta": MessagesDecoder._block_delta,
    "content_block_stop": MessagesDecoder._block_stop,
    "message_delta": MessagesDecoder._message_delta,
    "message_stop": MessagesDecoder._message_stop,
    "message": MessagesDecoder._message,
    "ping": MessagesDecoder._ping,
}


def _shown(frame: Frame) -> str:
    return repr(frame.data[:200].decode("utf-8", "replace"))


def _error(data: bytes) -> TierError:
    try:
        value = loads(data)
    except (ValueError, RecursionError):
        value = data.decode("utf-8", "replace").strip() or None
    return classify_in_band(value)


def _is_truncated(data: bytes) -> bool:
    """Whether these bytes are a JSON object that stops early, rather than something else."""
    said = ""
    try:
        msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = str(error)
    at = _AT_BYTE.search(said)  # a number that stops early is malformed at the very end
    return "truncated" in said or (at is not None and int(at[1]) >= len(data))


def _is_end_mark(frame: Frame) -> bool:
    """Whether a frame that was cut may have been `message_stop`."""
    start = b"".join(frame.data.split())
    named = frame.event in ("", "message_stop")
    return named and (_END.startswith(start) or start.startswith(_END[:-1]))
