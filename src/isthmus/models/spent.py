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
        summed = {
            name: two if one is None else one + (two or 0)
            for name, one, two in zip(_COUNTS, _counts(self.usage), _counts(usage), strict=True)
            if one is not None or two is not None
        }
        estimated = self.usage.estimated or usage.estimated
        return Spent(Usage(**summed, estimated=estimated), missing)

    def with_those_of(self, other: Spent) -> Spent:
        """With what others spent."""
        both = self if other.usage is None else self.add(other.usage)
        return both if both.missing or not other.missing else Spent(both.usage, True)
