"""What one model call becomes on its way to the consumer, and what it leaves for the transcript."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from isthmus.harness.effects import CallModel
from isthmus.harness.history import Said, fresh_id, with_id
from isthmus.harness.joining import Joiner
from isthmus.models.events import Call, CallDelta, Event, Finish, Marker, StepResult, Text, framed
from isthmus.models.strategy import Draft

_JOINED = Joiner("")
"""What nothing was said before needs no other: it is never open, and so never changes."""


class Passage:
    """Joins the text of one model call to what was said, and replaces call ids that are taken.

    What is repeated is judged by the text as the model wrote it, markers and all: it wrote on from that. So a marker in
    a repetition is not promoted again, and what is left of one that the repetition cuts through is text.

    Args:
        call: the call.
        known: ids of calls that earlier replies of the run have, and which this one only repeats.
    """

    __slots__ = (
        "_asked",
        "_changes",
        "_draft",
        "_held",
        "_joiner",
        "_known",
        "_marked",
        "_repeated",
        "_taken",
        "pieces",
    )

    def __init__(self, call: CallModel, known: Collection[str] = ()) -> None:
        self._joiner = Joiner(call.said) if call.said else _JOINED
        self._held: list[Text | Marker] = []
        self._repeated = 0
        self._marked = False
        self._asked = call.asked
        self._draft = None if call.asked is None else Draft(call.asked.tool)
        self._taken = set(call.taken)
        self._known = known
        self._changes: dict[str, str] = {}
        self.pieces: list[str | Marker] = []
        """What was shown so far: texts, and the markers between them."""

    @property
    def plain(self) -> bool:
        """Whether text passes as it is from now on, to the end; who lets it enters it in `pieces`."""
        return not self._joiner.open and self._draft is None

    def take(self, event: Event) -> Iterable[Event]:
        """What the consumer sees of an event, of which he may leave the rest; nothing of a finish."""
        if type(event) is Finish:
            return ()
        if self._draft is None:
            return self._pass(event)
        return (shown for drafted in self._draft.take(event) for shown in self._pass(drafted))

    def read(self, step: StepResult) -> StepResult:
        """The reply as it was asked for."""
        return step if self._asked is None else self._asked.read(step)

    def _pass(self, event: Event) -> Iterable[Event]:
        if isinstance(event, CallDelta):
            return (self.preview(event),)
        if isinstance(event, Text) or (isinstance(event, Marker) and self._draft is None):
            self._held.append(event)
            if self._joiner.open:
                self._joiner.feed(event.text)
                self._repeated = self._joiner.dropped
            return () if self._joiner.open else self._release()
        if isinstance(event, Call):
            due = () if event.call_id in self._known else (self._call(event),)
            return chain(rest, due) if (rest := self.rest()) else due
        return (event,)

    def rest(self) -> Iterable[Event]:
        """What is still held back."""
        if self._joiner.open:
            self._joiner.close()
            self._repeated = self._joiner.dropped
        return self._release() if self._held else ()

    def _release(self) -> Iterator[Event]:
        """What is held back and new."""
        held, self._held = self._held, []
        for event in held:
            new = event.text[self._repeated :]
            self._repeated -= len(event.text) - len(new)
            if not new:
                continue
            shown = event if len(new) == len(event.text) else Text(new)
            self._marked = self._marked or not isinstance(shown, Text)
            self.pieces.append(shown.text if isinstance(shown, Text) else shown)
            yield shown

    def said(self, step: StepResult, *, whole: bool) -> Said:
        """What the reply said, without what it repeated.

        Args:
            step: the reply.
            whole: whether it came to its end, so that it has what was held back as well.
        """
        if self._asked is not None:
            return Said(step.text, step.text)
        for _ in self.rest():
            pass
        if self._marked:
            shown = "".join([piece for piece in self.pieces if isinstance(piece, str)])
        else:
            shown = "".join(self.pieces)  # type: ignore[arg-type]
        if whole:
            return Said(shown, step.text[self._joiner.dropped :])
        return Said(shown, "".join([piece if isinstance(piece, str) else piece.text for piece in self.pieces]))

    def _call(self, call: Call) -> Call:
        call_id = call.call_id or ""
        if call_id in self._taken:
            self._changes[call_id] = call_id = fresh_id(call_id, self._taken)
            call = with_id(call, call_id)
        self._taken.add(call_id)
        return call

    def preview(self, delta: CallDelta) -> CallDelta:
        """A piece of a call under the id that the call gets."""
        if delta.call_id is None or delta.call_id not in self._taken:
            return delta
        call_id = self._changes.get(delta.call_id) or fresh_id(delta.call_id, self._taken)
        moved = CallDelta(delta.index, call_id, delta.tool, delta.arguments_delta)
        return framed(moved, delta.raw)  # type: ignore[no-any-return]
