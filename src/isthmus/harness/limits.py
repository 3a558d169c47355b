"""What ends a run that does not end by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from isthmus.chain import Budget
from isthmus.models.repair import RETRIES

_LEAST = {"max_steps": 1, "max_turns": 1, "max_continuations": 0, "max_repairs": 0, "max_calls": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What ends a run that does not end by itself.

    Args:
        max_steps: model calls of a run; one more is cut, "budget-steps".
        max_turns: the same as a guard that stands however the steps are budgeted.
        max_continuations: how often a text that was cut at the output limit is continued, for each reply.
        max_repairs: how often a reply that is not of the form asked for is asked for again.
        max_calls: tool calls of a run; of a batch that does not fit none is run, and the run is cut, "budget-calls".

    Raises:
        ValueError: a number that cannot be.
    """

    max_steps: int = 20
    max_turns: int = 128
    max_continuations: int = 3
    max_repairs: int = RETRIES
    max_calls: int | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if name == "max_calls" and value is None:
                continue
            if type(value) is not int or value < least:
                raise ValueError(f"{name}={value!r}: must be a whole number from {least}")

    def within(self, budget: Budget | None) -> Limits:
        """These limits, lowered to the steps and the calls of a chain's budget."""
        if budget is None:
            return self
        steps = self.max_steps if budget.steps is None else min(self.max_steps, budget.steps)
        calls = [each for each in (self.max_calls, budget.calls) if each is not None]
        return replace(self, max_steps=steps, max_calls=min(calls, default=None))
