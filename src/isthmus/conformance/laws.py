"""All laws, in the order in which they are judged: what others build on comes first."""

from __future__ import annotations

import json

from isthmus.conformance import (
    laws_calls,
    laws_faces,
    laws_hygiene,
    laws_maker,
    laws_scenario,
    laws_shape,
    laws_turn,
    laws_wire,
)
from isthmus.conformance.law import Law

_ORDER = (laws_shape, laws_calls, laws_faces, laws_hygiene, laws_turn, laws_maker, laws_scenario, laws_wire)

LAWS: tuple[Law, ...] = tuple(law for module in _ORDER for law in module.GROUP.laws)
"""Every law, in the order in which they are judged."""

_SHOWN = ("id", "claim", "why", "fix", "covers", "after")


def laws_as_json() -> str:
    """The laws as JSON text."""
    return json.dumps([{name: getattr(law, name) for name in _SHOWN} for law in LAWS], indent=2)


def law_table() -> str:
    """The laws as the rows of a table in Markdown: id, claim, fault classes."""
    rows = [f"| `{law.id}` | {law.claim} | {', '.join(law.covers)} |" for law in LAWS]
    return "\n".join(["| law | a right adapter | faults |", "|---|---|---|", *rows])
