"""What several calls spent together."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.models.events import Usage

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)


@dataclass(frozen=True, slots=True)
class Spent:
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
            counts = {name: getattr(usage, name) for name in _COUNTS}
            return Spent(Usage(**counts, estimated=usage.estimated), missing)
        summed = {name: _sum(getattr(self.usage, name), getattr(usage, name)) for name in _COUNTS}
        return Spent(Usage(**summed, estimated=self.usage.estimated or usage.estimated), missing)

    def with_those_of(self, other: Spent) -> Spent:
        """With what others spent."""
        both = self if other.usage is None else self.add(other.usage)
        return Spent(both.usage, both.missing or other.missing)


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)
