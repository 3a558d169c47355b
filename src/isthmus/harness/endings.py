"""How a run ends: its outcome, and the reason that an error gives for it."""

from __future__ import annotations

from typing import Any

from isthmus.errors import ChainExhausted, CutReason, ErrorClass, TierError
from isthmus.harness.effects import Done
from isthmus.harness.following import uncertain
from isthmus.harness.loopstate import LoopState


def end(state: LoopState, outcome: str, **said: Any) -> tuple[LoopState, tuple[Done]]:
    """The run is over; of what still runs beside it nobody will know.

    Args:
        state: where it stands.
        outcome: how it ended.
        said: what else `LoopState.outcome` takes.
    """
    state = uncertain(state) if state.running else state
    return state, (Done(state.outcome(outcome, **said)),)


def failure_reason(error: Exception) -> str:
    """The reason of a run that failed with this."""
    if isinstance(error, ChainExhausted):
        return CutReason.EXHAUSTED
    return str(error.error_class if isinstance(error, TierError) else ErrorClass.UNCLASSIFIED)


def cut_reason(error: BaseException | None) -> CutReason | None:
    """The reason that an error brings along: a chain's own budgets and deadlines end a run as a cut."""
    reason = getattr(error, "reason", None)
    return reason if isinstance(reason, CutReason) else None
