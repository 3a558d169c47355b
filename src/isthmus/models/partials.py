"""The object of a structured reply as it grows."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from isthmus.errors import OutputDefinitionError
from isthmus.models.events import CallDelta, Marker, Text
from isthmus.models.fold import close
from isthmus.models.output import resolve_output_schema
from isthmus.models.reshape import WRAPPED
from isthmus.models.strategy import PREVIEW
from isthmus.wire.partial_json import PartialJson


async def partial_outputs(events: AsyncIterable[Any], schema: Any) -> AsyncIterator[Any]:
    """What is known of a structured reply, each time that there is more of it.

    Yields plain JSON values: only complete members, and strings as far as they have come. They are not checked against
    the schema; the result of the run is. Where a run asks again, the object begins anew.

    Args:
        events: a stream of a model or of a run; closed at the end.
        schema: what was asked for: a type, a JSON Schema or an `OutputSchema`.

    Raises:
        OutputDefinitionError: the schema is plain text, which has no parts.
    """
    form = resolve_output_schema(schema)
    if form is None or form.response_format() is None:
        raise OutputDefinitionError("partial_outputs: plain text has no parts: read the text events themselves")
    reader = _Reader(form.name(), wrapped=getattr(form, "wrapped", False))
    try:
        async for event in events:
            if reader.take(event):
                yield reader.value
    finally:
        await close(events)


class _Reader:
    def __init__(self, name: str, *, wrapped: bool) -> None:
        self._name, self._wrapped = name, wrapped
        self._json = PartialJson()
        self._begun, self._previewed = False, False
        self.value: Any = None
        """What is known."""

    def take(self, event: Any) -> bool:
        """Whether an event brings something new."""
        piece = self._piece(event)
        if not self._begun:
            brace = piece.find("{")
            if brace < 0:
                return False
            piece, self._begun = piece[brace:], True
        changes = self._json.changes
        self._json.feed(piece)
        if self._json.changes == changes:
            return False
        value = self._json.value
        if self._wrapped:
            if WRAPPED not in value:
                return False
            value = value[WRAPPED]
        known, self.value = self.value, value
        return bool(value != known)

    def _piece(self, event: Any) -> str:
        """The next piece of the reply's text; a text that comes after its previews is that of all of them."""
        if isinstance(event, Marker) and event.name == PREVIEW:
            self._previewed = True
            return event.text
        if isinstance(event, CallDelta):
            return event.arguments_delta if event.tool == self._name else ""
        if not isinstance(event, Text):
            if event.type in _ENDS:
                self._anew()
            return ""
        if self._previewed:
            self._anew()
        return event.text

    def _anew(self) -> None:
        self._json = PartialJson()
        self._begun = self._previewed = False


_ENDS = frozenset({"reset", "tool-result"})
