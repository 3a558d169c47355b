"""Keys that do not show themselves, and text with the keys taken out. Rank 0: standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"

_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|ghp|hf)[-_][A-Za-z0-9_\-*]{6,}|(?i:bearer)\s+[A-Za-z0-9._~+/\-]{8,}=*"
)


class Secret(str):
    """A string whose repr hides it; everything else about it is the string, so that it can be sent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (HIDDEN,)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with each secret, and anything shaped like a key, replaced.

    Args:
        text: what is about to reach an error, a log or a file.
        secrets: the keys in use; those shorter than 4 characters are passed over.
    """
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, HIDDEN)
    return _KEY_LIKE.sub(HIDDEN, text)
