"""What is sent into a reply under way, and what becomes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

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
