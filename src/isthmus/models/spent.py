"""What several calls spent together."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct

from isthmus.models.events import Usage

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)
_counts = attrgetter(*_COUNTS)


class Spent(Struct, frozen=True):
    """Tokens added up over several calls.

    Args:
        usage: the sum of what was reported, or None.
        missing: whether a step reported nothing, or not its input or output.
    """

    usage: Usage | None = None
    missing: bool = False

    def add(self, usage: Usage | None) -> Spent:
        """With one more step."""
        if usage is None:
            return Spent(self.usage, True)
        missing = self.missing or usage.input_tokens is None or usage.output_tokens is None
        counts: tuple[int | None, ...] = _counts(usage)
        if self.usage is None:
            return Spent(_usage(counts, usage.estimated), missing)
        before: tuple[int | None, ...] = _counts(self.usage)
        summed = [two if one is None else one + (two or 0) for one, two in zip(before, counts, strict=True)]
        return Spent(_usage(summed, self.usage.estimated or usage.estimated), missing)

    def with_those_of(self, other: Spent) -> Spent:
        """With what others spent."""
        both = self if other.usage is None else self.add(other.usage)
        return both if both.missing or not other.missing else Spent(both.usage, True)


def _usage(counts: Iterable[int | None], estimated: bool) -> Usage:
    return Usage(**dict(zip(_COUNTS, counts, strict=True)), estimated=estimated)
