"""Frames of `/stream_events` and bodies of `/invoke` to events: the output of the root run is the reply.

A runnable on the server may hold several models, tools and chains, each a run with events of its own. What the root
run streams is shown as it arrives; what its end event holds is the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from isthmus.adapters.chat import peek, usage_of
from isthmus.adapters.classify import Failure, classify_in_band
from isthmus.adapters.langserve.calls import merged, settle
from isthmus.adapters.langserve.payload import DIALECT
from isthmus.adapters.langserve.reply import (
    Answer,
    bare,
    entries,
    is_message,
    kept,
    piece_of,
    read,
    reasonings,
    text_in,
    text_of,
)
from isthmus.adapters.openai_chat.calls import Calls, Settled
from isthmus.adapters.openai_chat.merge import exact, plain
from isthmus.errors import AdapterError, ProtocolError, TierError, TransientError
from isthmus.models.events import Event, Finish, FinishReason, Native, Note, NoteCode, Text, framed
from isthmus.models.finish import finish_of, is_unreadable
from isthmus.models.jsontext import dumps
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

Parse: TypeAlias = Callable[[Any], tuple[Any, Any, Any]]

_EXCERPT = 200
_NOTHING: Any = object()
_MODELS = ("chat_model", "llm")
# What a hook raises on a piece of an output that is no whole one.
_HOOK_FAULTS = (TierError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class LangServeDecoder:
    """Decodes one reply.

    Args:
        whole: whether the one frame is the body of `/invoke`.
        parse: an author's own reading of an output: (text, calls, usage); None where the library's stands.
    """

    def __init__(self, *, whole: bool, parse: Parse | None = None) -> None:
        self.done = False
        self._whole = whole
        self._parse = parse
        self._frame = Frame(b"")
        self._malformed: ProtocolError | None = None
        self._root: str | None = None
        self._began = self._ended = False
        self._output: Any = _NOTHING
        self._model: Any = None
        self._models: dict[str, bool] = {}
        self._tools_ran = False
        self._texts: list[str] = []
        self._held = self._reasoned = False
        self._piece = ""
        self._calls = Calls(DIALECT)
        self._run = ""
        self._named: Mapping[str, Callable[[Frame], Iterable[Event]]] = {
            **dict.fromkeys(("", "data", "message"), self._data),
            "error": self._error,
            "end": self._end,
        }

    def feed(self, frame: Frame) -> Iterable[Event]:
        """The events that this frame completes.

        Raises:
            TierError: an `error` event, classified; "protocol" for a frame that is malformed. Carries the usage so far.
        """
        if self._malformed is not None:
            raise self._malformed
        take = self._named.get(frame.event)
        if take is None or not (frame.data.strip() or frame.event):
            return ()
        try:
            return take(frame)
        except TierError as error:
            error.usage = self._spent()
            raise

    def _error(self, frame: Frame) -> Iterable[Event]:
        try:
            value = exact(frame.data)
        except (ValueError, RecursionError):
            raise Failure(frame.data.decode("utf-8", "replace") or "an error without details").classified() from None
        raise classify_in_band(plain(value))

    def _end(self, frame: Frame) -> Iterable[Event]:
        """The server's own end mark: the end of a stream whose root run was filtered out, nothing more to others."""
        closed = bool(self._models) and not any(self._models.values())
        if self._root is None and self._began and closed:
            self._frame, self.done, self._ended = frame, True, True
            return ()
        raise TransientError("the stream was cut: it ended before the end event of its root run")

    def _data(self, frame: Frame) -> Iterable[Event]:
        if not frame.data.strip():
            return ()
        try:
            value = exact(frame.data)
        except (ValueError, RecursionError):
            # At the end of the bytes it is a cut, before that a breach of protocol.
            self._malformed = _malformed("malformed JSON", frame)
            return ()
        self._frame = frame
        if self._whole:
            return self._body(value)
        name = value.get("event") if isinstance(value, dict) else None
        if not isinstance(name, str):
            if isinstance(value, dict) and value.get("error"):
                raise classify_in_band(plain(value))
            raise _malformed("no event of a run", frame)
        return self._take(name, value)

    def _body(self, value: Any) -> Iterable[Event]:
        """The body of `/invoke`: `output`, or the output itself."""
        held = isinstance(value, dict)
        if held and "output" not in value and value.get("error"):
            raise classify_in_band(plain(value))
        self._output = value["output"] if held and "output" in value else value
        if self._output is value and self._parse is None and read(value).text is None:
            raise ProtocolError(f"the reply holds no output: {dumps(value)[:_EXCERPT].decode('utf-8', 'replace')}")
        self._run = str(peek(peek(value, "metadata"), "run_id") or "")
        self.done = self._ended = True
        return ()

    def _take(self, name: str, value: dict[str, Any]) -> Iterable[Event]:
        run, data = str(value.get("run_id") or ""), value.get("data")
        kind, _, step = name.removeprefix("on_").rpartition("_")
        if not self._began:
            self._began, self._root, self._run = True, _root(run, kind, value), run
        if kind in _MODELS:
            self._models[run] = step != "end"
        if kind in _MODELS and step == "stream":
            self._piece = _text(bare(peek(data, "chunk")))
        if kind == "tool" and step == "start":
            self._tools_ran = True
        if step == "end" and kind in _MODELS:
            self._model, self._tools_ran = peek(data, "output"), False
        if run == self._root and step == "stream":
            return self._chunk(bare(peek(data, "chunk")))
        if run == self._root and step == "end":
            self._output = peek(data, "output")
            self.done = self._ended = True
        return ()

    def _chunk(self, chunk: Any) -> Iterable[Event]:
        """What the root run streams, where it is a piece of the answer: a text, a message's or a completion's piece."""
        if not self._held and not self._may_show(chunk):
            self._held = True
        if self._held:
            return ()
        return [framed(event, self._frame) for event in self._shown(chunk)]

    def _may_show(self, chunk: Any) -> bool:
        known = isinstance(chunk, str) or is_message(chunk) or _is_completion(chunk)
        # Some chains say in each piece all that there is so far: of a dict only what a model has just said is new.
        new = known or (isinstance(chunk, Mapping) and text_in(chunk) in (None, self._piece))
        if self._parse is None or not new:
            return new
        # An author's reading of a piece need not be a piece of his reading: only what is the same is shown early.
        try:
            said = self._parse(chunk)[0] or ""
        except _HOOK_FAULTS:
            said = None
        return bool(said == _text(chunk))

    def _shown(self, chunk: Any) -> Iterator[Event]:
        if is_message(chunk):
            for thought in reasonings(chunk):
                self._reasoned = True
                yield thought
        text = _text(chunk)
        if text:
            self._texts.append(text)
            yield Text(text)
        pieces = chunk.get("tool_call_chunks") if is_message(chunk) else None
        for piece in pieces if isinstance(pieces, list) and self._parse is None else ():
            delta = self._calls.add(piece_of(piece), self._frame, whole=False)
            if delta is not None:
                yield delta

    def _spent(self) -> Any:
        return usage_of({"usage": read(self._model).usage or None})

    def close(self, ended: Ended) -> Iterable[Event]:
        """What was not shown yet: text, calls, native form, and the one `Finish`.

        Raises:
            TransientError: the bytes ended before the root run did.
            ProtocolError: the last frame is malformed though all bytes arrived; the output contradicts what was shown.
        """
        try:
            if not self._ended:
                raise self._cut(ended)
            return [framed(event, self._frame) for event in self._closed()]
        except TierError as error:
            error.usage = error.usage or self._spent()
            raise

    def _cut(self, ended: Ended) -> TierError:
        if self._malformed is not None and ended is Ended.FRAMED:
            return self._malformed
        return TransientError("the stream was cut: it ended before the end event of its root run")

    def _closed(self) -> Iterator[Event]:
        output = self._model if self._output is _NOTHING else self._output
        notes: list[Note] = []
        answer = self._answer(output, notes)
        said = None if self._parse is None else _three(self._parse(output))
        own = None if said is None else said[0] or ""
        if answer.message is not None and not self._reasoned:
            yield from reasonings(answer.message)
        text = self._rest((answer.text or "") if own is None else own)
        if text:
            yield Text(text)
        elif not self._texts and is_unreadable(answer.reason):
            said_why = f"the model's output could not be read: the reply ended with {answer.reason!r}"
            raise ProtocolError(said_why, usage=usage_of({"usage": answer.usage or None}))
        finish = finish_of(answer.reason)
        settled = settle(answer, seed=self._run, streamed=self._calls, frame=self._frame)
        calls, changed = settled.calls, own is not None and own != answer.text
        # A text has no place for calls: those of the model behind it stand.
        if said is not None and (said[1] or not isinstance(output, str)):
            calls = merged(said[1], settled, answer=answer)
            changed = changed or calls != settled.calls
        yield from calls
        yield from settled.natives
        if finish == FinishReason.TOOL_CALLS and not calls:
            notes.append(Note(NoteCode.FINISH_CHANGED, f"{answer.reason!r}: there is no call for the caller"))
            finish = FinishReason.OTHER.value
        usage = usage_of({"usage": (said[2] if said is not None and said[2] else None) or answer.usage or None})
        notes += settled.notes if calls == settled.calls else []
        yield self._finish(finish, answer, usage, _native(answer, settled, changed, notes), notes)

    def _finish(self, finish: str, answer: Answer, usage: Any, native: Native | None, notes: list[Note]) -> Finish:
        if answer.reason is None:
            notes.append(Note(NoteCode.NO_FINISH_REASON, "the output has no finish reason"))
        if usage is None:
            notes.append(Note(NoteCode.USAGE_MISSING, "the server did not say how many tokens were spent"))
        if len(self._models) > 1:
            detail = f"{len(self._models)} models ran on the server: usage and reason are those of the last"
            notes.append(Note(NoteCode.METADATA, detail))
        return Finish(finish, usage, answer.reason, None, native, tuple(dict.fromkeys(notes)))

    def _answer(self, output: Any, notes: list[Note]) -> Answer:
        """The root run's output, completed by what the last model said of its reason and its tokens."""
        answer = read(output)
        last = read(self._model)
        if answer.message is None and last.message is not None and answer.text in (None, last.text):
            # The output is that message's text, or its text as data: the message says more.
            ran = {entry["id"] for entry in entries(last.message)[0]} if self._tools_ran else set()
            return Answer(last.text, last.message, last.reason, last.usage, frozenset(filter(None, ran)))
        if answer.text is None and output is not None:
            answer.text = dumps(output).decode()
            notes.append(Note(NoteCode.UNKNOWN_CONTENT, "the output is data without a text: it is given as JSON"))
        answer.reason = answer.reason or last.reason
        answer.usage = answer.usage or last.usage
        return answer

    def _rest(self, text: str) -> str:
        """What of the final text was not shown yet."""
        shown = "".join(self._texts)
        if not text.startswith(shown):
            raise ProtocolError(
                f"the output's text ({text[:80]!r}) is not what was streamed ({shown[:80]!r}): set stream_events = "
                "false, or let _parse_output keep the text"
            )
        return text[len(shown) :]


def _three(said: Any) -> tuple[Any, Any, Any]:
    if not isinstance(said, tuple | list) or len(said) != 3:
        raise AdapterError(f"_parse_output must return (text, [ToolCall, …], usage), not {said!r:.80}")
    return said[0], said[1], said[2]


def _root(run: str, kind: str, value: Mapping[str, Any]) -> str | None:
    """The root run, which begins first; None where that one was filtered out, or may have been."""
    parents = value.get("parent_ids")
    certain = parents == [] or (parents is None and (kind not in _MODELS or not run))
    return run if certain else None


def _is_completion(chunk: Any) -> bool:
    """Whether it is a piece of an older completion model: a text and what was said of it."""
    return isinstance(chunk, Mapping) and isinstance(chunk.get("text"), str) and "generation_info" in chunk


def _text(chunk: Any) -> str:
    return text_of(chunk) if is_message(chunk) else text_in(chunk) or ""


def _native(answer: Answer, settled: Settled, changed: bool, notes: list[Note]) -> Native | None:
    held = None if answer.message is None else kept(answer.message)
    if held is None:
        return None
    if changed or settled.natives or answer.answered:
        notes.append(Note(NoteCode.NATIVE_DROPPED, "the message says more than the reply that was made of it"))
        return None
    return Native(DIALECT, "message", held)


def _malformed(what: str, frame: Frame) -> ProtocolError:
    return ProtocolError(f"{what}: {frame.data[:_EXCERPT].decode('utf-8', 'replace')!r}")
