"""Laws over one recorded stream: any split gives the same events, and no cut gives a smaller success."""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.errors import TierError
from isthmus.models.events import Event, StepResult
from isthmus.wire.call import Ended
from support.chat_frames import decode, fold


def _outcome(pieces: Iterable[bytes], ended: Ended) -> list[Event] | tuple[str, str]:
    try:
        return decode(pieces, ended=ended)
    except TierError as error:
        return str(error.error_class), error.message


def split_findings(body: bytes, positions: Iterable[int]) -> list[str]:
    """The positions at which a split in two changes the events; split into single bytes is position -1."""
    expected = _outcome([body], Ended.FRAMED)
    found = []
    for at in positions:
        pieces = [bytes([byte]) for byte in body] if at < 0 else [body[:at], body[at:]]
        seen = _outcome(pieces, Ended.FRAMED)
        if seen != expected:
            found.append(f"split at {at}: {seen!r:.200} instead of {expected!r:.200}")
    return found


def _said(step: StepResult) -> tuple[object, ...]:
    return step.text, step.calls, step.reasoning, step.native, step.finish


def cut_findings(body: bytes, positions: Iterable[int]) -> list[str]:
    """The positions at which a connection that drops gives a success that is smaller than the whole."""
    try:
        expected = _said(fold(decode([body])))
    except TierError:
        expected = ()
    found = []
    for at in positions:
        for ended in (Ended.UNFRAMED, Ended.BROKEN):
            try:
                seen = fold(decode([body[:at]], ended=ended))
            except TierError:
                continue
            if _said(seen) != expected:
                found.append(f"cut at {at} of {len(body)}, {ended}: {seen!r:.300}")
    return found


def frame_ends(body: bytes) -> list[int]:
    """The positions right after each blank line."""
    ends = []
    at = body.find(b"\n\n")
    while at >= 0:
        ends.append(at + 2)
        at = body.find(b"\n\n", at + 1)
    return ends


def sampled(size: int, count: int) -> list[int]:
    """At most `count` positions within `size` bytes, spread by a stride that hits all residues, the ends included."""
    step = max(1, size // count) | 1
    return sorted({*range(0, size, step), max(0, size - 1), size})
