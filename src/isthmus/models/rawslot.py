"""The hidden place of the frame that an event came from."""

from __future__ import annotations

from typing import Any

from isthmus.wire.frame import Frame


class RawSlot:
    """Holds the undecoded frame beside a struct: no field, so neither equality, repr nor JSON sees it."""

    __slots__ = ("_raw",)

    @property
    def raw(self) -> Frame | None:
        """The frame that this event came from, or None where it was made here."""
        return getattr(self, "_raw", None)


set_raw = RawSlot._raw.__set__  # type: ignore[attr-defined]
"""Gives an event just made the frame that it came from."""


def framed(event: Any, frame: Frame | None) -> Any:
    """The same event, with the frame that it came from as its `raw`."""
    set_raw(event, frame)
    return event
