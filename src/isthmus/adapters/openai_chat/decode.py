"""Frames of Chat Completions to events: one decoder for streams and for whole replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from isthmus.adapters.classify import Failure, classify_in_band
from isthmus.adapters.openai_chat.calls import Settled
from isthmus.adapters.openai_chat.merge import exact, hollow, joined, plain, replaced
from isthmus.adapters.openai_chat.reply import DIAGNOSTICS, DIALECT, Choice
from isthmus.adapters.openai_chat.usage import merge_usage, read_usage
from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.events import Event, Finish, FinishReason, Native, Note, NoteCode, Text, Usage, framed, set_raw
from isthmus.models.finish import finish_of, is_unreadable
from isthmus.models.jsontext import dumps
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

_END = b"[DONE]"
_EXCERPT = 200

# Those after which a reply of text alone has nothing to settle, as they are usually written.
_TEXT_FINISHES: dict[str | None, str] = {"stop": FinishReason.STOP.value, "length": FinishReason.LENGTH.value}
# Reasons that say that generation failed, and the status they stand for.
_FAILED: dict[str, int | None] = {"error": None, "network_error": 502, "insufficient_system_resource": 503}

# What wraps every chunk and says nothing about the reply.
_ENVELOPE = frozenset(
    (
        *("choices", "usage", "error", "id", "object", "created", "created_at", "model", "system_fingerprint"),
        *("service_tier", "obfuscation", "p", "padding", "stream_options", "request_id"),
    )
)


class _Delta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: Literal["assistant"] | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class _ChoiceOf(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    index: Literal[0]
    delta: _Delta
    finish_reason: None = None
    logprobs: None = None
    stop_reason: None = None
    token_ids: None = None
    matched_stop: None = None


# In the order that most servers write: the decoder looks for the next field first.
class _Chunk(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    service_tier: Any = None
    system_fingerprint: Any = None
    choices: tuple[_ChoiceOf] = msgspec.field(default_factory=tuple)  # type: ignore[assignment]
    usage: None = None
    obfuscation: Any = None
    p: Any = None


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: Literal["assistant"] | None = None
    refusal: None = None
    annotations: tuple[()] | None = None
    tool_calls: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class _WholeChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    index: Literal[0]
    message: _Message
    finish_reason: str | None = None
    logprobs: None = None
    stop_reason: None = None
    token_ids: None = None
    matched_stop: None = None


class _Whole(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    choices: tuple[_WholeChoice]
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    service_tier: Any = None
    system_fingerprint: Any = None
    usage: msgspec.Raw = msgspec.Raw()


_whole_text: Callable[[bytes], _Whole] = msgspec.json.Decoder(_Whole).decode
_plain_text: Callable[[bytes], _Chunk] = msgspec.json.Decoder(_Chunk).decode
_DECLINED = (msgspec.DecodeError, UnicodeDecodeError, IndexError)


class ChatDecoder:
    """Decodes one reply.

    Args:
        whole: whether the one frame is a whole reply, read from `message` where a stream has `delta`.
        names: the tools' own names by those that they were sent under.
    """

    __slots__ = (
        *("_content", "_fast", "_id", "_last", "_main", "_malformed", "_names", "_others", "_seen_main", "_text_end"),
        *("_top", "_usage", "_whole", "done"),
    )

    def __init__(self, *, whole: bool, names: Mapping[str, str] | None = None) -> None:
        self._names = names
        self.done = False
        self._whole = whole
        self._usage: dict[str, Any] | None = None
        self._last: Frame | None = None
        self._malformed: TierError | None = None
        # The finish of a whole reply that is nothing but text: there is nothing to collect in it.
        self._text_end: Finish | None = None
        if not whole:
            self._collect()
        # The strict path for pieces of plain text, or None where trying it would cost more than it saves.
        self._fast = None if whole else _plain_text

    def _collect(self) -> None:
        self._main = Choice(0, self._names)
        self._content = self._main.content
        self._others: dict[int, Choice] = {}
        self._seen_main = False
        self._id = ""
        self._top: dict[str, Any] = {}

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            TierError: an error frame, classified; "protocol" for one that is malformed. Carries the usage so far.
        """
        fast = self._fast
        if fast is None or frame[1]:
            return self._read(frame)
        try:
            text = fast(frame[0]).choices[0].delta.content
        except _DECLINED:
            return self._read(frame)
        if not text:
            self._seen_main = True
            return ()
        self._content.append(text)
        event = Text(text)
        set_raw(event, frame)
        return (event,)

    def _read(self, frame: Frame) -> Iterable[Event]:
        if self._malformed is not None:
            raise self._malformed
        data = frame.data.strip()
        if data == _END:
            self.done = True
            self._last = self._last or frame
            return ()
        if self._whole:
            said = self._all_text(frame, data)
            if said is not None:
                return said
            self._collect()
        self._last = frame
        try:
            value = exact(data)
        except (ValueError, RecursionError):
            return self._unreadable(frame, data)
        try:
            events = self._take(frame, value)
        except TierError as error:
            error.usage = self._spent()[0]
            raise
        said_text = len(events) == 1 and type(events[0]) is Text
        # After a reason the general path must see whether anything follows it.
        self._fast = _plain_text if said_text and not self._main.reason else None
        return events

    def _all_text(self, frame: Frame, data: bytes) -> Iterable[Event] | None:
        """The one event of a whole reply that is nothing but text; None for any other."""
        try:
            reply = _whole_text(data)
        except _DECLINED:
            return None
        text, reason = reply.choices[0].message.content, reply.choices[0].finish_reason
        usage, odd = read_usage(merge_usage(None, exact(reply.usage)) if reply.usage else None)
        finish = _TEXT_FINISHES.get(reason)
        if not text or finish is None or usage is None:
            return None
        self._last = frame
        self._text_end = framed(Finish(finish, usage, reason, None, None, tuple(odd)), frame)
        return (framed(Text(text), frame),)

    def _unreadable(self, frame: Frame, data: bytes) -> Iterable[Event]:
        """Hold on to the fault: at the end of the bytes it is a cut, before that a breach of protocol."""
        if frame.event == "error":
            error: TierError = Failure(data.decode("utf-8", "replace") or "an error without details").classified()
            error.usage = self._spent()[0]
            raise error
        self._fast = None
        # A blank frame is none, and the end mark may be cut.
        if self._whole or not _END.startswith(data):
            self._malformed = _malformed("malformed JSON", data)
            self._malformed.usage = self._spent()[0]
        return ()

    def _take(self, frame: Frame, value: Any) -> list[Event]:
        if frame.event == "error":
            raise _classified(value)
        if isinstance(value, list) and value and isinstance(value[0], dict) and _has_error(value[0]):
            raise _classified(value[0])
        if not isinstance(value, dict):
            raise _malformed(f"a JSON {type(value).__name__} where an object should be", frame.data)
        if value.get("usage") is not None:
            self._usage = merge_usage(self._usage, value["usage"])
        choices = value.get("choices")
        if _has_error(value) or (choices is None and _is_error(value)):
            raise _classified(value)
        if not self._id and isinstance(value.get("id"), str):
            self._id = value["id"]
        if not value.keys() <= _ENVELOPE:
            for key, item in value.items():
                if key not in _ENVELOPE and item is not None and not hollow(item):
                    self._take_beside(key, item)
        if choices is not None and not isinstance(choices, list):
            raise _malformed("choices must be a list", frame.data)
        if self._whole and not choices:
            raise _malformed("not a chat completion: no choices", frame.data)
        return self._take_choices(frame, choices or ())

    def _take_beside(self, key: str, item: Any) -> None:
        """Keep what stands beside the choices; some servers put the usage into a field of their own."""
        if key.startswith("x_") and isinstance(item, dict) and "usage" in item:
            self._usage = merge_usage(self._usage, item["usage"])
            item = {name: part for name, part in item.items() if name != "usage"}
        if key.startswith("x_") and isinstance(item, dict) and _has_error(item):
            raise _classified({"error": item["error"]})
        beside = self._main.diagnostics if key in DIAGNOSTICS or key.startswith("x_") else self._top
        beside[key] = replaced(beside.get(key), item)

    def _take_choices(self, frame: Frame, choices: Sequence[Any]) -> list[Event]:
        events: list[Event] = []
        for at, choice in enumerate(choices):
            if not isinstance(choice, dict) or (self._whole and not _is_reply(choice)):
                raise _malformed("a choice must be an object with a message", frame.data)
            if _has_error(choice):
                raise _classified(choice)
            reason = choice.get("finish_reason")
            if isinstance(reason, str):
                _check_reason(reason)
            if choice.get("usage") is not None:
                self._usage = merge_usage(self._usage, choice["usage"])
            index = choice.get("index")
            if not isinstance(index, int):
                index = 0 if at and self._whole and _are_one(choices) else at
            if index == 0:
                self._seen_main = True
                events += self._main.read(choice, frame, whole=self._whole)
            else:
                other = self._others.setdefault(index, Choice(index, self._names))
                other.held += other.read(choice, frame, whole=self._whole)
        return events

    def _spent(self) -> tuple[Usage | None, list[Note]]:
        return read_usage(self._usage)

    def close(self, ended: Ended) -> Iterable[Event]:
        """The calls, the native blocks and the one `Finish`.

        Raises:
            TransientError: the bytes ended before the reply did.
            ProtocolError: the last frame is malformed though all bytes arrived.
        """
        if self._text_end is not None:
            return (self._text_end,)
        usage, notes = self._spent()
        try:
            if self._malformed is not None:
                if ended is Ended.FRAMED:
                    raise self._malformed
                raise TransientError("the reply was cut inside a frame")
            return self._closed(ended, usage, notes)
        except TierError as error:
            error.usage = usage
            raise

    def _closed(self, ended: Ended, usage: Usage | None, odd_usage: list[Note]) -> list[Event]:
        main = self._main
        if usage is not None and self.done and not self._others and not self._top and main.is_text:
            finish = _TEXT_FINISHES.get(main.reason)
            if finish is not None:
                return [framed(Finish(finish, usage, main.reason, None, None, tuple(odd_usage)), self._last)]
        if self._others and not (self._seen_main or self._content):
            main = self._others.pop(min(self._others))
        events = [*main.held, *main.finish()]
        reason = FinishReason(finish_of(main.reason)) if main.reason else None
        settled = self._settle(main, reason)
        notes = [*self._complete(ended, main, settled), *main.notes, *settled.notes]
        finish = self._finish(main, reason, settled, notes)
        events += settled.calls
        events += settled.natives
        if main.diagnostics:
            notes.append(Note(NoteCode.METADATA, dumps(joined(main.diagnostics)).decode()))
        natives = [*main.natives(), *self._beside()]
        natives += self._extra_choices(notes)
        events += [framed(native, self._last) for native in natives]
        notes += odd_usage
        if usage is None:
            notes.append(Note(NoteCode.USAGE_MISSING, "the provider did not say how many tokens were spent"))
        own = None if main.is_plain(settled) else Native(DIALECT, "message", main.message(settled))
        events.append(framed(Finish(finish.value, usage, main.reason, None, own, tuple(notes)), self._last))
        return events

    def _settle(self, choice: Choice, reason: FinishReason | None) -> Settled:
        cut = reason in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)
        return choice.calls.settle(cut=cut, doubtful=reason is None, seed=f"{self._id}\0{choice.index}")

    def _complete(self, ended: Ended, main: Choice, settled: Settled) -> list[Note]:
        """What there is to note about the end; an error unless the reply is complete by the protocol's own rules."""
        missing = [] if main.reason else [Note(NoteCode.NO_FINISH_REASON, "the reply has no finish reason")]
        if self._whole:
            return missing
        if self.done and (main.reason or settled.calls or main.has_content):
            return missing
        if self.done:
            raise TransientError("the stream ended with neither content nor finish reason")
        if ended is Ended.FRAMED and all(choice.ended for choice in (main, *self._others.values())):
            return [Note(NoteCode.NO_END_MARK, "the stream ended without [DONE]")]
        seen = f"after finish reason {main.reason!r} and" if main.reason else "without finish reason,"
        raise TransientError(f"the stream was cut: it ended {seen} before its end mark")

    def _finish(self, main: Choice, reason: FinishReason | None, settled: Settled, notes: list[Note]) -> FinishReason:
        finish = reason or FinishReason.OTHER
        if main.refused and finish is not FinishReason.CONTENT_FILTER:
            finish = FinishReason.REFUSAL
        if settled.calls and finish is not FinishReason.TOOL_CALLS:
            notes.append(
                Note(NoteCode.FINISH_CHANGED, f"{main.reason!r} became tool-calls: the reply holds whole calls")
            )
            return FinishReason.TOOL_CALLS
        if finish is FinishReason.TOOL_CALLS and not settled.calls:
            notes.append(Note(NoteCode.FINISH_CHANGED, f"{main.reason!r} became other: the reply holds no whole call"))
            return FinishReason.OTHER
        return finish

    def _beside(self) -> list[Native]:
        return [Native(DIALECT, key, joined(self._top[key])) for key in sorted(self._top) if not hollow(self._top[key])]

    def _extra_choices(self, notes: list[Note]) -> list[Native]:
        """The choices that are not the reply, each as one block."""
        natives = []
        for index in sorted(self._others):
            choice = self._others[index]
            choice.finish()
            settled = self._settle(choice, None)
            natives.append(Native(DIALECT, "choice", choice.rendered(settled)))
        if natives:
            notes.append(Note(NoteCode.EXTRA_CHOICES, f"{len(natives)} more choices are kept as native blocks"))
        return natives


def _malformed(what: str, data: bytes) -> ProtocolError:
    return ProtocolError(f"{what}: {data[:_EXCERPT].decode('utf-8', 'replace')!r}")


def _classified(value: Any) -> TierError:
    error = classify_in_band(plain(value))
    error.body = str(plain(value))[:2000]
    return error


def _is_reply(choice: Mapping[str, Any]) -> bool:
    """Whether an entry of `choices` is one of this dialect; only a filtered one may lack its message."""
    if "message" in choice or "delta" in choice or "text" in choice:
        return True
    return finish_of(str(choice.get("finish_reason"))) == FinishReason.CONTENT_FILTER


def _are_one(choices: Sequence[Any]) -> bool:
    """Whether the entries are parts of one reply: they have no index, and no two of them say the same kind of thing."""
    unlabelled = (choice for choice in choices if isinstance(choice, dict) and choice.get("index") is None)
    messages = [choice["message"] for choice in unlabelled if isinstance(choice.get("message"), dict)]
    said = [key for message in messages for key, value in message.items() if key != "role" and not hollow(value)]
    return len(messages) == len(choices) and len(said) == len(set(said))


def _check_reason(reason: str) -> None:
    """Raise what a finish reason says of a reply that is none."""
    if reason.lower() in _FAILED:
        raise Failure(f"the reply ended with {reason!r}").classified(status=_FAILED[reason.lower()])
    if is_unreadable(reason):
        raise ProtocolError(f"the model's output could not be read: the reply ended with {reason!r}")


def _has_error(value: Mapping[str, Any]) -> bool:
    """Whether an object has an error in it; `false`, zero and an empty one are none."""
    error = value.get("error")
    return bool(error) and not hollow(error)


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether an object without choices is an error object in one of the forms that servers send as a success."""
    if value.get("object") == "error" or value.get("type") == "error" or not hollow(value.get("errors")):
        return True
    says = value.get("detail") or value.get("message")
    return bool(says) and not hollow(says) and not value.get("object")
