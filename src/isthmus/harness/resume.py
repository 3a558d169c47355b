"""Taking up a run that stopped: where it stands, and what is decided of the calls that it stopped at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.harness.decisions import Decision
from isthmus.harness.docket import Uncertain, check_policy
from isthmus.harness.ephemeral import check_context


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What takes the place of an input where a run is to go on: `run`, `run_stream` and `run_events` take it.

    Args:
        run_id: the run, in the agent's journal; None takes the calls that wait at the end of the conversation.
        decisions: one for each call that waits.
        context: the run's ephemeral messages, which are kept nowhere while it is stopped; in their order.
        uncertain: of a run in a journal, what becomes of a call that began and whose result was not recorded: "ask" a
            person, "rerun" it, "fail": the model reads that its outcome is unknown; or a function of the call.

    Raises:
        TypeError: the run or the decisions are none.
        ValueError: a message of the context is not ephemeral, or the policy is none.
    """

    run_id: str | None = None
    decisions: Sequence[Decision] = ()
    context: Sequence[Mapping[str, Any]] = ()
    uncertain: Uncertain = "ask"

    def __post_init__(self) -> None:
        if self.run_id is not None and not isinstance(self.run_id, str):
            raise TypeError(f"run_id must be text, not {type(self.run_id).__name__}")
        if isinstance(self.decisions, Decision) or not all(isinstance(each, Decision) for each in self.decisions):
            raise TypeError("decisions must be a sequence of Decisions, as request.approve() makes them")
        check_policy(self.uncertain)
        object.__setattr__(self, "decisions", tuple(self.decisions))
        object.__setattr__(self, "context", check_context(self.context))
