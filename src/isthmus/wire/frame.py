"""The unit that a framing hands to a decoder: bytes and an event name."""

from __future__ import annotations

from typing import NamedTuple

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of one frame, where its reader is told no other number."""


class Frame(NamedTuple):
    """One message of a stream, undecoded.

    Args:
        data: the payload bytes, as sent.
        event: the event's name, "" where the framing has none.
    """

    data: bytes
    event: str = ""
