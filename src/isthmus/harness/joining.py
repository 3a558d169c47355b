"""Joins a continued answer to what was said before, without saying anything twice and without losing anything.

Pure. What counts as said twice is a judgement: "hel" and "lo" share a letter and must both stand, "the fox jum" and
"jumps over" must not. So a repetition counts only where a speaker would begin to repeat, at the start of a word, and
with four letters or digits of which one is a letter; two are enough where both would stand glued together, as a word
that was cut and is said again whole; and a long one counts anywhere.
"""

from __future__ import annotations

OVERLAP = 400
"""The longest repetition that is looked for, in characters: no more than this is ever held back."""

_FEW, _SOME, _MANY = 2, 4, 12


class Joiner:
    """Takes the pieces of a continuation and hands on what is new in them.

    Args:
        said: what the consumer has seen; "" hands everything on as it comes.
    """

    __slots__ = ("_held", "_tail", "dropped", "open")

    def __init__(self, said: str) -> None:
        self._tail = said[-OVERLAP - 1 :]
        self._held = ""
        self.open = bool(said)
        """Whether the next piece may still be held back."""
        self.dropped = 0
        """How many characters of the continuation were left out."""

    def feed(self, text: str) -> str:
        """What of this piece, and of those held back before it, is new and can be shown."""
        if not self.open:
            return text
        self._held += text
        if len(self._held) <= OVERLAP and self._held in self._tail:
            return ""
        return self.close()

    def close(self) -> str:
        """What is still held back and new: nothing more comes, or it no longer matters what."""
        if not self.open:
            return ""
        self.open = False
        self.dropped = overlap(self._tail, self._held)
        held, self._held = self._held, ""
        return held[self.dropped :]


def overlap(said: str, continuation: str) -> int:
    """How many characters at the start of a continuation repeat the end of what was said."""
    for size in range(min(len(said), len(continuation), OVERLAP), 0, -1):
        if said.endswith(continuation[:size]) and _repeats(continuation[:size], said[-size - 1 : -size]):
            return size
    return 0


def _repeats(shared: str, before: str) -> bool:
    """Whether an overlap, with this character before it, is a repetition rather than chance."""
    if not any(char.isalpha() for char in shared):
        return False
    weight = sum(char.isalnum() for char in shared)
    begins_word = not (before.isalnum() and shared[0].isalnum())
    glued = shared[0].isalnum() and shared[-1].isalnum()
    return weight >= _MANY or (begins_word and weight >= (_FEW if glued else _SOME))
