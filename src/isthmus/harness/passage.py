"""What one model call becomes on its way to the consumer."""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.harness.effects import CallModel
from isthmus.harness.history import fresh_id, with_id
from isthmus.harness.joining import Joiner
from isthmus.models.events import Call, CallDelta, Event, Finish, StepResult, Text, framed
from isthmus.models.strategy import Draft


class Passage:
    """What one model call becomes on its way to the consumer: text joined to what was said, taken ids replaced.

    Args:
        call: the call.
    """

    __slots__ = ("_asked", "_changes", "_draft", "_joiner", "_taken")

    def __init__(self, call: CallModel) -> None:
        self._joiner = Joiner(call.said)
        self._asked = call.asked
        self._draft = None if call.asked is None else Draft(call.asked.tool)
        self._taken = set(call.taken)
        self._changes: dict[str, str] = {}

    @property
    def plain(self) -> bool:
        """Whether text passes as it is from now on."""
        return not self._joiner.open and self._draft is None

    def take(self, event: Event) -> Iterator[Event]:
        """What the consumer sees of an event; nothing of a finish."""
        if self._draft is None:
            yield from self._pass(event)
            return
        for shown in self._draft.take(event):
            yield from self._pass(shown)

    def read(self, step: StepResult) -> StepResult:
        """The reply as it was asked for."""
        return step if self._asked is None else self._asked.read(step)

    def _pass(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Text):
            new = self._joiner.feed(event.text)
            if new:
                yield Text(new)
        elif isinstance(event, Call):
            yield from self.rest()
            yield self._call(event)
        elif isinstance(event, CallDelta):
            yield self._preview(event)
        elif not isinstance(event, Finish):
            yield event

    def rest(self) -> Iterator[Event]:
        """The text that is still held back."""
        held = self._joiner.close()
        if held:
            yield Text(held)

    def shown(self, step: StepResult) -> str:
        """The reply's text without what it repeated."""
        self._joiner.close()
        return step.text[self._joiner.dropped :]

    def _call(self, call: Call) -> Call:
        call_id = call.call_id or ""
        if call_id in self._taken:
            self._changes[call_id] = call_id = fresh_id(call_id, self._taken)
            call = with_id(call, call_id)
        self._taken.add(call_id)
        return call

    def _preview(self, delta: CallDelta) -> CallDelta:
        if delta.call_id is None or delta.call_id not in self._taken:
            return delta
        call_id = self._changes.get(delta.call_id) or fresh_id(delta.call_id, self._taken)
        moved = CallDelta(delta.index, call_id, delta.tool, delta.arguments_delta)
        return framed(moved, delta.raw)  # type: ignore[no-any-return]
