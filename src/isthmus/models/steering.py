"""What is sent into a reply under way, and what becomes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

SteeringInput: TypeAlias = str | list[dict[str, Any]]
"""Text, or the provider's own input items."""


@dataclass(slots=True)
class SteeringReceipt:
    """What became of one input so far; a live one changes as the provider's events arrive.

    Args:
        input: what was sent.
        previous_response_id: the reply that it was sent into.
        status: "submitted", "accepted" (queued), "applied" (a successor reply has it), "failed", or "unknown" (the run
            ended before anybody said).
        id: the provider's id of it.
        response_id: with "applied": the successor.
        error: with "failed": the provider's own error.
    """

    input: SteeringInput
    previous_response_id: str
    status: Literal["submitted", "accepted", "applied", "failed", "unknown"] = "submitted"
    id: str | None = None
    response_id: str | None = None
    error: Any = None

    def to_dict(self) -> dict[str, Any]:
        """All fields, on copies."""
        return asdict(self)


@runtime_checkable
class Steerable(Protocol):
    """What `open_run()` of a model, an adapter or a chain gives, as far as steering goes.

    Its streams tell the rest by `Aside` events, each with a `ModelStreamEvent`:

    - `async_tool_call`: a whole call that may be run at once; the reply's own calls will hold it too.
    - `input_messages` of a "completed" event, with `continuation` "automatic": they follow the reply in the history,
      and the next call with that history, neither changed nor longer, reads what the provider says by itself.
    - `continuation` "explicit": the next call must bring the results of `required_tool_call_ids`.
    - `input_messages` of any other event: they stand in the history before what the last request was longer by.
    - `steering`: copies of receipts.
    """

    async def steer(self, steering: SteeringInput, /) -> SteeringReceipt:
        """Send input into the reply under way.

        Raises:
            RuntimeError: there is none, or this model cannot be steered (`NotImplementedError`).
        """
        ...
