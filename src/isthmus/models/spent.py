"""What several calls spent together."""

from __future__ import annotations

from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace as changed

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
        if self.usage is None:
            return Spent(changed(usage, raw=None), missing)
        counts: tuple[int | None, ...] = _counts(usage)
        before: tuple[int | None, ...] = _counts(self.usage)
        summed = [two if one is None else one + (two or 0) for one, two in zip(before, counts, strict=True)]
        estimated = self.usage.estimated or usage.estimated
        return Spent(Usage(**dict(zip(_COUNTS, summed, strict=True)), estimated=estimated), missing)

    def with_those_of(self, other: Spent) -> Spent:
        """With what others spent."""
        both = self if other.usage is None else self.add(other.usage)
        return both if both.missing or not other.missing else Spent(both.usage, True)
