"""All laws, in the order in which they are judged: what others build on comes first."""

from __future__ import annotations

from isthmus.conformance import (
    laws_calls,
    laws_faces,
    laws_hygiene,
    laws_maker,
    laws_scenario,
    laws_shape,
    laws_turn,
)
from isthmus.conformance.law import Law

_ORDER = (laws_shape, laws_calls, laws_faces, laws_hygiene, laws_turn, laws_maker, laws_scenario)

LAWS: tuple[Law, ...] = tuple(law for module in _ORDER for law in module.GROUP.laws)
"""Every law, in the order in which they are judged."""
