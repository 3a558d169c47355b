"""What an agent knows between two runs: plain values, each holder with a copy of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.harness.decisions import ApprovalRequest
from isthmus.harness.errors import SnapshotError
from isthmus.harness.items import as_item, check_item
from isthmus.harness.outcome import Outcome
from isthmus.harness.pending import pending_in
from isthmus.harness.plainjson import own_copy, plain_json
from isthmus.harness.replies import Replies
from isthmus.models.internal import lasting_messages
from isthmus.models.messages import without_reserved
from isthmus.models.promptspec import PromptSpec
from isthmus.models.responses import ModelResponse


@dataclass(slots=True)
class RunState:
    """A conversation as a run finds it and leaves it; what it is made of is copied.

    Args:
        instructions: the system text; None leaves it to the agent. A state that a run left holds the text that was
            sent.
        history: the transcript; prompts in it are rendered when a run begins. In a state that a run left nothing is
            ephemeral.
        responses: all replies of the models so far, as `ModelResponse.to_dict()` gives them; their native forms hang
            in the history.
        shim_state: what shims keep, by their keys; plain JSON values once it is stored.
        turn_count: how often a model was called, in all runs; the limit of turns counts one run.
        revision: how often the conversation was committed.
        task_id: the identity of the run, which tools get as `run_id`; None gives each run one of its own.

    Raises:
        TypeError: a field is of another type.
        InvalidRequestError: an entry of the history is no message; names its place.
        ValueError: a number is negative.
    """

    instructions: str | PromptSpec[Any] | None = None
    history: Sequence[Any] = ()
    responses: Sequence[Mapping[str, Any]] = ()
    shim_state: dict[str, Any] = field(default_factory=dict)
    turn_count: int = 0
    revision: int = 0
    task_id: str | None = None

    def __post_init__(self) -> None:
        if self.instructions is not None and not isinstance(self.instructions, (str, PromptSpec)):
            kind = type(self.instructions).__name__
            raise TypeError(f"RunState.instructions: must be text, a PromptSpec or None, not {kind}")
        if not isinstance(self.shim_state, (dict, Mapping)):
            raise TypeError(f"RunState.shim_state: must be a dict, not {type(self.shim_state).__name__}")
        for name, value in (("turn_count", self.turn_count), ("revision", self.revision)):
            if type(value) is not int or value < 0:
                raise ValueError(f"RunState.{name}={value!r}: must be a whole number from 0")
        if type(self.history) is not tuple or self.history:
            self.history = tuple(_own(_items(self.history, "history"), "RunState.history"))
        self.responses = Replies(_items(self.responses, "responses"))
        self.shim_state = {key: own_copy(value) for key, value in self.shim_state.items()}

    def copy(self) -> RunState:
        """The same state, sharing nothing that could change."""
        return RunState(**{name: getattr(self, name) for name in self.__dataclass_fields__})

    def lasting(self) -> RunState:
        """A copy without the messages that were for one run alone."""
        state = self.copy()
        state.history = lasting_messages(state.history)
        return state

    def after(self, outcome: Outcome, responses: Iterable[ModelResponse], *, committed: bool) -> RunState:
        """The state that a run leaves which began with this one.

        Args:
            outcome: how it ended.
            responses: the models' replies; their native forms stay with the history.
            committed: whether it becomes the conversation's.
        """
        said = [without_reserved(response.to_dict()) for response in responses]
        return RunState(
            self.instructions,
            outcome.messages,
            Replies(self.responses) + said,
            self.shim_state,
            self.turn_count + outcome.steps,
            self.revision + committed,
            self.task_id,
        )

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The calls that wait for a decision.

        Raises:
            ApprovalError: the history goes on behind them, or they were changed.
        """
        found = pending_in([item for item in self.history if not isinstance(item, PromptSpec)])
        return () if found is None else found.requests

    def to_dict(self) -> dict[str, Any]:
        """The lasting part as plain JSON values.

        Raises:
            SnapshotError: a value has no JSON form, or a prompt was not rendered yet; names the place.
        """
        if isinstance(self.instructions, PromptSpec):
            raise SnapshotError("instructions: a prompt has no JSON form: run it, or give its text")
        fields = {
            "instructions": self.instructions,
            "history": lasting_messages(self.history),
            "responses": list(self.responses),
            "shim_state": self.shim_state,
            "turn_count": self.turn_count,
            "task_id": self.task_id,
        }
        try:
            return {name: plain_json(value, name) for name, value in fields.items()}
        except (TypeError, ValueError) as error:
            raise SnapshotError(f"{error}: a state is plain JSON") from error


def _items(given: Any, name: str) -> Iterable[Any]:
    if isinstance(given, (tuple, list, Replies)):
        return given
    if isinstance(given, str | bytes | Mapping | PromptSpec) or not isinstance(given, Iterable):
        raise TypeError(f"RunState.{name}: must be a sequence, not {type(given).__name__}")
    return given


def _own(items: Iterable[Any], where: str) -> Iterable[Any]:
    for place, item in enumerate(items):
        said = as_item(item)
        if isinstance(said, PromptSpec):
            yield said
        else:
            check_item(said, f"{where}[{place}]")
            yield own_copy(said)
