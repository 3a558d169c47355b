"""What is sent into a reply under way."""

from __future__ import annotations

import copy

from isthmus.models.enums import SteeringStatus
from isthmus.models.steering import SteeringReceipt


def test_a_receipt_begins_as_submitted_and_changes() -> None:
    """It is live: status, id, successor and error are set later; a copy keeps what was."""
    receipt = SteeringReceipt("Focus.", "r1")
    assert receipt.to_dict() == {
        "input": "Focus.",
        "previous_response_id": "r1",
        "status": "submitted",
        "id": None,
        "response_id": None,
        "error": None,
    }
    kept = copy.copy(receipt)
    receipt.status, receipt.response_id = SteeringStatus.APPLIED.value, "r2"
    assert (kept.status, receipt.status, receipt.response_id) == ("submitted", "applied", "r2")
