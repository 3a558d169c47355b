"""What the model face shows and the other faces have no word for."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from isthmus.models.rawslot import RawSlot


class Aside(msgspec.Struct, RawSlot, frozen=True, tag_field="type", tag="aside"):
    """A side event that carries an event of the model face through streams of the step face, as it is.

    It is made of a "provider" event, of a "completed" one that says how the reply is continued, and of what an "error"
    one says of steered input. Leaving it out changes no text, call, finish or usage.

    Args:
        event: a `ModelStreamEvent`.
    """

    type: ClassVar[str] = "aside"
    event: Any

    def to_dict(self) -> dict[str, Any]:
        """The event as plain JSON values, without the provider's own form of it."""
        return self.event.to_trace_dict()  # type: ignore[no-any-return]
