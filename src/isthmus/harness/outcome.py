"""How a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from isthmus.chain.ledger import Attempt, total_cost
from isthmus.errors import TierError
from isthmus.models.events import Note, Usage
from isthmus.models.internal import public_messages
from isthmus.models.messages import copied


class Outcome(Struct, frozen=True, kw_only=True):
    """The end of a run.

    Args:
        outcome: "completed", "cut" (the model was not done) or "failed" (no answer at all).
        reason: why it was cut (a `CutReason`); of a failure, its error class, or "exhausted"; "handoff" of one that
            handed over.
        text: the text of the last answer as it was shown, a cut one too.
        usage: the tokens of all steps together, with those of agents that worked for the run; what none reported is
            None.
        usage_missing: whether some step did not report its tokens, so that `usage` is less than was spent.
        tier: the id of the tier that served last.
        messages: the transcript, ready for the next run: without the messages that were for this run alone.
        steps: how often a model was called.
        finish: the finish of the last reply; "refusal" of a completed run is a refusal.
        notes: what was renamed, dropped, repaired or made up on the way.
        error: the error behind a failure or a broken reply.
        detail: one sentence for a person, where the reason alone does not say what to do.
        final_output: what the answer holds: the validated value of a structured one, None where there is none; else the
            text.
        attempts: every try of every model call, failed ones too, and those of agents that worked for the run.
    """

    outcome: str
    reason: str | None = None
    text: str = ""
    usage: Usage | None = None
    usage_missing: bool = False
    tier: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    steps: int = 0
    finish: str | None = None
    notes: tuple[Note, ...] = ()
    error: Exception | None = None
    detail: str = ""
    final_output: Any = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def cost(self) -> Decimal | None:
        """What the tries cost together; None where the price of one is unknown, or no prices were given."""
        return total_cost(self.attempts)

    def to_dict(self, *, include_internal: bool = False) -> dict[str, Any]:
        """All fields as plain JSON values.

        Args:
            include_internal: whether the messages hold those that are no part of the public conversation.
        """
        error = self.error
        if error is not None and not isinstance(error, TierError):
            error = TierError(str(error))
        messages = self.messages if include_internal else public_messages(self.messages)
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "text": self.text,
            "usage": None if self.usage is None else self.usage.to_dict(),
            "usage_missing": self.usage_missing,
            "tier": self.tier,
            "messages": [copied(dict(message)) for message in messages],
            "steps": self.steps,
            "finish": self.finish,
            "notes": [{"code": str(note.code), "detail": note.detail} for note in self.notes],
            "error": None if error is None else error.to_dict(),
            "detail": self.detail,
            "attempts": [attempt.to_dict() for attempt in self.attempts],
            "cost": None if self.cost is None else str(self.cost),
        }


def raise_failure(outcome: Outcome | None) -> None:
    """Raise what a run failed with; nothing of one that has not failed, or has not ended."""
    if outcome is not None and outcome.outcome == "failed" and outcome.error is not None:
        raise outcome.error
