"""What a run returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from isthmus.adapters.views import to_response
from isthmus.chain.ledger import Attempt
from isthmus.errors import CutReason, ModelsException, RunErrorDetails
from isthmus.harness.decisions import ApprovalRequest
from isthmus.harness.outcome import Outcome
from isthmus.harness.pending import pending_in
from isthmus.harness.state import RunState
from isthmus.models.events import FinishReason, StepResult, Usage
from isthmus.models.jsontext import loads
from isthmus.models.responses import ModelResponse
from isthmus.models.results import structured


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run returns.

    Args:
        final_output: the answer: its text, or the validated value where a form was asked for; None where a cut run has
            no such value.
        outcome: how the run ended; a cut run returns too.
        replies: the models' replies, as the steps that they are.
        before: the conversation that the run began from.
        committed: whether the agent's conversation goes on from here.
    """

    final_output: Any
    outcome: Outcome
    replies: tuple[StepResult, ...] = field(default=(), repr=False)
    before: RunState = field(default_factory=RunState, repr=False)
    committed: bool = False

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.outcome.text

    @property
    def finish(self) -> FinishReason | None:
        """How the last reply ended, a refusal, withheld content and a pause among the ways; None without a reply."""
        return None if self.outcome.finish is None else FinishReason(self.outcome.finish)

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The transcript: the `history` of the next run."""
        return self.outcome.messages

    @cached_property
    def responses(self) -> tuple[ModelResponse, ...]:
        """The models' replies of this run as the model face shows them; one that broke off is not among them."""
        return tuple(to_response(step) for step in self.replies if step.finish != FinishReason.ERROR_POST)

    @property
    def turn_count(self) -> int:
        """How often a model was called in this run."""
        return self.outcome.steps

    @property
    def run_state(self) -> RunState:
        """The conversation as the run left it, to go on from; each look gives one of its own."""
        return self._left.copy()

    @cached_property
    def _left(self) -> RunState:
        return self.before.after(self.outcome, self.responses, committed=self.committed)

    @cached_property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The calls that wait for a decision, where the outcome is cut, "approval"."""
        found = pending_in(self.outcome.messages) if self.outcome.reason == CutReason.APPROVAL else None
        return () if found is None else found.requests

    @property
    def usage(self) -> Usage | None:
        """The tokens of all steps together."""
        return self.outcome.usage

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every try of every model call, failed ones too."""
        return self.outcome.attempts

    def to_dict(self, *, include_internal: bool = False) -> dict[str, Any]:
        """The outcome as plain JSON values, with the answer under `final_output`.

        Args:
            include_internal: whether the messages hold those that are no part of the public conversation.
        """
        return {
            "final_output": plain_answer(self.final_output),
            **self.outcome.to_dict(include_internal=include_internal),
        }


def left_by(result: RunResult) -> RunState:
    """The conversation as a run left it, shared with its result: not to be changed."""
    return result._left


def say_how_far(outcome: Outcome, replies: tuple[StepResult, ...]) -> None:
    """Enter in the error behind a failed run the last reply that it had had."""
    if outcome.outcome == "failed" and isinstance(outcome.error, ModelsException):
        outcome.error.run_data = RunErrorDetails(to_response(replies[-1]) if replies else None)


def plain_answer(value: Any) -> Any:
    """An answer as plain JSON values, as the form writes it that it was read by: models, dates, sets, enums, too.

    Raises:
        TypeError: it has no JSON form.
    """
    if value is None or type(value) in (str, int, bool, float):
        return value
    try:
        return loads(structured(value))
    except ValueError as error:
        raise TypeError(f"final_output: {type(value).__name__} has no JSON form: {error}") from error
