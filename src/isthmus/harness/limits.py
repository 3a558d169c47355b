"""What ends a run that does not end by itself."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.models.repair import RETRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What ends a run that does not end by itself.

    Args:
        max_steps: model calls of a run; one more is cut, "budget-steps".
        max_turns: the same as a guard that stands however the steps are budgeted.
        max_continuations: how often a text that was cut at the output limit is continued, for each reply.
        max_repairs: how often a reply that is not of the form asked for is asked for again.

    Raises:
        ValueError: a number that cannot be.
    """

    max_steps: int = 20
    max_turns: int = 128
    max_continuations: int = 3
    max_repairs: int = RETRIES

    def __post_init__(self) -> None:
        for name, least in (("max_steps", 1), ("max_turns", 1), ("max_continuations", 0), ("max_repairs", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name}={value!r}: must be a whole number from {least}")
