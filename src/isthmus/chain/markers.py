"""Takes delimited constructs out of a reply's text as it streams, and hands them on as typed events.

What goes out depends on the text alone, never on how it was cut into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec

from isthmus.chain.seams import Markers, Tell
from isthmus.errors import ConfigError
from isthmus.models.events import Call, Event, Finish, FinishReason, Marker, Note, NoteCode, Text, framed, tried
from isthmus.wire.frame import Frame

Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerForm:
    """One kind of marker; made by `define_marker`."""

    name: str
    open: str
    close: str
    parse: Parse
    max_chars: int


def define_marker(name: str, open: str, close: str, *, parse: Parse | None = None, max_chars: int = 8192) -> MarkerForm:
    """A construct in a reply's text that is taken out and promoted to a `Marker` event where it stood.

    Args:
        name: the `name` of its events.
        open: how it begins.
        close: how it ends; the first one ends it, so markers do not nest.
        parse: makes the event's `value` of what stands between the two; absent: the text itself. Where it raises, the
            whole marker is text after all.
        max_chars: the longest that it may be, delimiters included; a longer one is text.

    Raises:
        ConfigError: an empty name or delimiter, or a limit with no room for anything.
    """
    where = f"marker {name!r}"
    given: tuple[tuple[str, Any], ...] = (("name", name), ("open", open), ("close", close))
    for key, value in given:
        if not isinstance(value, str) or not value:
            raise ConfigError(f"must be a text that is not empty, not {value!r}", where=where, key=key)
    if parse is not None and not callable(parse):
        raise ConfigError(f"must be callable, not {type(parse).__name__}", where=where, key="parse")
    least = len(open) + len(close)
    if type(max_chars) is not int or max_chars < least:
        raise ConfigError(f"must be a whole number from {least}, not {max_chars!r}", where=where, key="max_chars")
    return MarkerForm(name=name, open=open, close=close, parse=parse or str, max_chars=max_chars)


def draining(forms: Iterable[MarkerForm], where: str) -> Markers | None:
    """What makes the drain of each call; None where there are no markers.

    Args:
        forms: the markers.
        where: whose they are, for errors.

    Raises:
        ConfigError: one is none, or two have the same name or the same beginning.
    """
    forms = tuple(forms)
    for form in forms:
        if not isinstance(form, MarkerForm):
            raise ConfigError(f"must hold what define_marker gives, not {form!r}", where=where, key="markers")
    for key in ("name", "open"):
        values = [getattr(form, key) for form in forms]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise ConfigError(f"two markers have the same {key}, {twice!r}", where=where, key="markers")
    if not forms:
        return None
    scan = _Openers(forms)
    return lambda tell: MarkerDrain(scan, tell)


def promote(text: str, markers: Sequence[MarkerForm]) -> tuple[str, tuple[Marker, ...]]:
    """A whole text without its markers, and these; the same ones as a stream of that text gives.

    Raises:
        ConfigError: see `draining`.
    """
    make = draining(markers, "promote")
    if make is None:
        return text, ()
    drain = make(lambda kind, fields: None)
    events = [*drain.take(Text(text)), *drain.take(Finish("stop"))]
    shown = "".join([event.text for event in events if isinstance(event, Text)])
    return shown, tuple([event for event in events if isinstance(event, Marker)])


class _Openers:
    """Finds where a marker begins, or may begin once more text is there."""

    __slots__ = ("forms", "starts", "waits", "whole")

    def __init__(self, forms: Sequence[MarkerForm]) -> None:
        self.forms = {form.open: form for form in forms}
        # The longest first, so that the first that fits is the longest.
        openers = sorted(self.forms, key=len, reverse=True)
        self.starts = {opener[:size] for opener in openers for size in range(1, len(opener))}
        whole = [re.escape(opener) for opener in openers]
        # At the end of the text what may become an opener goes first: the longer one would win.
        parts = [re.escape(start) + r"\Z" for start in sorted(self.starts)]
        self.waits = re.compile("|".join([*parts, *whole]))
        self.whole = re.compile("|".join(whole))


class _Open(NamedTuple):
    """A marker that has begun and not ended; `seen` is how much of what is held has been looked through for its end."""

    form: MarkerForm
    seen: int


class MarkerDrain:
    """The drain of one call.

    Args:
        openers: the markers.
        tell: tells the listeners.
    """

    __slots__ = ("_changed", "_held", "_open", "_openers", "_said", "_search", "_tell")

    def __init__(self, openers: _Openers, tell: Tell) -> None:
        self._openers = openers
        self._search = openers.waits.search
        self._tell = tell
        self._held = ""
        self._open: _Open | None = None
        self._said: list[Text | Call] = []
        self._changed = False

    def passes(self, events: Sequence[Event], texts: Sequence[str]) -> bool:
        """Take texts that came together, if nothing in them concerns a marker and all go out as they are."""
        if self._held or self._search("".join(texts)) is not None:
            return False
        self._said += cast("Sequence[Text]", events)
        return True

    def take(self, event: Event) -> Iterable[Event]:
        """What goes out for an event that came in; text that may belong to a marker waits."""
        if isinstance(event, Text):
            if not event.text:
                return ()
            self._said.append(event)
            if not self._held and self._search(event.text) is None:
                return (event,)
            return _events(self._text(event.text), event.raw)
        if isinstance(event, Finish):
            return self._finish(event)
        if isinstance(event, Call | Marker):
            flushed = _events(self._text("", final=True), event.raw)
            if isinstance(event, Call):
                self._said.append(event)
            return (*flushed, event)
        return (event,)

    def _finish(self, end: Finish) -> Iterable[Event]:
        notes: tuple[Note, ...] = ()
        if end.finish == FinishReason.ERROR_POST:
            pieces: list[str | Marker] = []
            if self._open is not None:
                name = self._open.form.name
                self._report("discarded", name, self._held)
                notes = (Note(NoteCode.MARKER_DISCARDED, f"marker {name!r} was cut and held back: {self._held}"),)
                self._changed = True
            elif self._held:
                pieces.append(self._held)
            self._held, self._open = "", None
        else:
            pieces = list(self._text("", final=True))
        if not self._changed:
            return (*_events(pieces, end.raw), end)
        said = msgspec.structs.replace(end, content=end.content or _joined(self._said), notes=(*end.notes, *notes))
        return (*_events(pieces, end.raw), tried(framed(said, end.raw), end.attempts))

    def _text(self, text: str, *, final: bool = False) -> Iterator[str | Marker]:
        """The text and the markers that are decided; with `final`, all of it is."""
        buffer, at, opened = self._held + text, 0, self._open
        while True:
            if opened is None:
                found = (self._openers.whole if final else self._openers.waits).search(buffer, at)
                if found is None:
                    yield buffer[at:]
                    at = len(buffer)
                    break
                yield buffer[at : found.start()]
                at = found.start()
                if not final and found.end() == len(buffer) and found[0] in self._openers.starts:
                    break
                form = self._openers.forms[found[0]]
                opened = _Open(form, len(form.open))
            ended, opened = self._close(buffer, at, opened, final=final)
            if ended is not None:
                yield ended
                at += len(ended.text if isinstance(ended, Marker) else ended)
            elif opened is not None:
                break
        self._held, self._open = buffer[at:], opened

    def _close(self, buffer: str, at: int, opened: _Open, *, final: bool) -> tuple[str | Marker | None, _Open | None]:
        """What the marker that begins at a place comes to, or the marker itself where that is still open."""
        form, limit = opened.form, at + opened.form.max_chars
        place = buffer.find(form.close, at + opened.seen, limit)
        if place >= 0:
            return self._promoted(form, buffer[at : place + len(form.close)]), None
        if len(buffer) >= limit:
            self._report("overflow", form.name, buffer[at:limit])
        elif final:
            self._report("unclosed", form.name, buffer[at:])
        else:
            return None, _Open(form, max(len(form.open), len(buffer) - at - len(form.close) + 1))
        return buffer[at], None

    def _promoted(self, form: MarkerForm, raw: str) -> str | Marker:
        inner = raw[len(form.open) : len(raw) - len(form.close)]
        try:
            value = form.parse(inner)
        except Exception as error:
            self._report("invalid", form.name, raw, error=type(error).__name__)
            return raw
        self._changed = True
        self._report("promoted", form.name, raw)
        return Marker(form.name, value, raw)

    def _report(self, what: str, name: str, raw: str, **more: Any) -> None:
        # What was said stays out of it: listeners get no text.
        self._tell(f"marker.{what}", {"marker": name, "chars": len(raw), **more})


def _events(pieces: Iterable[str | Marker], frame: Frame | None) -> list[Event]:
    """The pieces as events that came from this frame; texts that touch are one."""
    made: list[Event] = []
    texts: list[str] = []

    def flush() -> None:
        if texts:
            made.append(framed(Text("".join(texts)), frame))
            texts.clear()

    for piece in pieces:
        if isinstance(piece, Marker):
            flush()
            made.append(framed(piece, frame))
        elif piece:
            texts.append(piece)
    flush()
    return made


def _joined(said: Iterable[Text | Call]) -> tuple[Text | Call, ...]:
    """The content as a result holds it: texts that touch are one."""
    made: list[Text | Call] = []
    texts: list[str] = []
    for event in (*said, None):
        if isinstance(event, Text):
            texts.append(event.text)
            continue
        if texts:
            made.append(Text("".join(texts)))
            texts.clear()
        if event is not None:
            made.append(event)
    return tuple(made)
