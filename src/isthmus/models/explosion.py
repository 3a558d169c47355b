"""Replies that ran away into endless escapes, which no validation need look at."""

from __future__ import annotations

import re
import unicodedata

_REPEATED = re.compile(r"(\\u[0-9a-fA-F]{4})\1{19}")
_RUN = 20
_NON_ASCII = re.compile(rf"[^\x00-\x7f]{{{_RUN},}}")


def has_escape_sequence_explosion(text: str | None) -> bool:
    """Whether a text holds the same `\\uXXXX` escape, or combining characters, 20 times or more in a row.

    Args:
        text: the text of a reply as the model wrote it.
    """
    if not text:
        return False
    if _REPEATED.search(text):
        return True
    return any(_combines(run[0]) for run in _NON_ASCII.finditer(text))


def _combines(text: str) -> bool:
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run == _RUN:
            return True
    return False
