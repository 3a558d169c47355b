"""The unit that a framing hands to a decoder: bytes and an event name."""

from __future__ import annotations

from typing import NamedTuple


class Frame(NamedTuple):
    """One message of a stream, undecoded.

    Args:
        data: the payload bytes, as sent.
        event: the event's name, "" where the framing has none.
    """

    data: bytes
    event: str = ""
