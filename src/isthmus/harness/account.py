"""What a run spent: by itself, and by those who worked for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from isthmus.chain.ledger import Attempt
from isthmus.harness.outcome import Outcome
from isthmus.models.spent import Spent


class Account(Struct):
    """The tries of one run, and the tokens of agents that worked for it.

    Args:
        tries: all tries.
        own: those of the run itself.
        helped: the tokens of the others.
        seen: how many tries of what is called now are known.
    """

    tries: tuple[Attempt, ...] = ()
    own: tuple[Attempt, ...] = ()
    helped: Spent = Spent()
    seen: int = 0

    def opens(self, active: Any) -> None:
        """Something else is called from now on; what it tried before is known."""
        self.seen = active.tries

    def collect(self, active: Any, helpers: Iterable[Outcome]) -> None:
        """Enter the tries that were made, and what those spent who have worked for the run."""
        tries = getattr(active, "attempts", ())
        made, self.seen = tries[self.seen :], len(tries)
        self.tries, self.own = (*self.tries, *made), (*self.own, *made)
        for outcome in helpers:
            self.tries = (*self.tries, *outcome.attempts)
            self.helped = self.helped.with_those_of(Spent(outcome.usage, outcome.usage_missing))
