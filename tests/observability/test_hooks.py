"""The records that sinks see."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from isthmus.observability import hooks

SOURCE = Path(__file__).resolve().parents[2] / "src" / "isthmus"


def test_a_record_is_frozen_and_says_what_it_has() -> None:
    """`fields` leaves out what is None, and holds the detail."""
    event = hooks.ChainEvent(type="tier.skipped", chain="c", seq=3, tier="a", reason="window", detail={"room": 7})
    assert event.fields == {
        "time": 0.0,
        "run": 0,
        "call": 0,
        "step": 0,
        "seq": 3,
        "tier": "a",
        "reason": "window",
        "room": 7,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.seq = 4  # type: ignore[misc]


def test_every_type_of_a_chain_event_is_one_that_chains_tell_of() -> None:
    """The vocabulary holds no word that nothing in `chain` says."""
    said = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "chain").glob("*.py"))
    for kind in hooks.ChainEventType:
        assert re.search(rf"{re.escape(kind)}\"|\"{kind.split('.')[0]}\.\{{", said), kind
