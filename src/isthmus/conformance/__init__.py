"""Proof that an adapter keeps the contract. Names are loaded when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.conformance.faults import Fault, faulty, scripted
    from isthmus.conformance.offline import forbid_live_calls
    from isthmus.conformance.plays import Play
    from isthmus.conformance.recorder import record, replayed
    from isthmus.conformance.replay import replay
    from isthmus.conformance.server import serve

_HOMES = {
    "Fault": "isthmus.conformance.faults",
    "Play": "isthmus.conformance.plays",
    "faulty": "isthmus.conformance.faults",
    "forbid_live_calls": "isthmus.conformance.offline",
    "record": "isthmus.conformance.recorder",
    "replay": "isthmus.conformance.replay",
    "replayed": "isthmus.conformance.recorder",
    "scripted": "isthmus.conformance.faults",
    "serve": "isthmus.conformance.server",
}

__all__ = ["Fault", "Play", "faulty", "forbid_live_calls", "record", "replay", "replayed", "scripted", "serve"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
