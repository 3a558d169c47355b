"""Proof that an adapter keeps the contract. Names are loaded when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.conformance.faults import Fault, faulty, scripted
    from isthmus.conformance.forever import serve_forever
    from isthmus.conformance.judge import conform
    from isthmus.conformance.laws import LAWS, laws_as_json
    from isthmus.conformance.named import maker_of
    from isthmus.conformance.offline import forbid_live_calls
    from isthmus.conformance.playback import replay
    from isthmus.conformance.plays import Play
    from isthmus.conformance.recorder import record, replayed
    from isthmus.conformance.report import Finding, Report
    from isthmus.conformance.server import serve

_HOMES = {
    "Fault": "isthmus.conformance.faults",
    "Finding": "isthmus.conformance.report",
    "LAWS": "isthmus.conformance.laws",
    "Play": "isthmus.conformance.plays",
    "Report": "isthmus.conformance.report",
    "conform": "isthmus.conformance.judge",
    "faulty": "isthmus.conformance.faults",
    "forbid_live_calls": "isthmus.conformance.offline",
    "laws_as_json": "isthmus.conformance.laws",
    "maker_of": "isthmus.conformance.named",
    "record": "isthmus.conformance.recorder",
    "replay": "isthmus.conformance.playback",
    "replayed": "isthmus.conformance.recorder",
    "scripted": "isthmus.conformance.faults",
    "serve": "isthmus.conformance.server",
    "serve_forever": "isthmus.conformance.forever",
}

__all__ = [  # noqa: RUF022  (plain order)
    "Fault",
    "Finding",
    "LAWS",
    "Play",
    "Report",
    "conform",
    "faulty",
    "forbid_live_calls",
    "laws_as_json",
    "maker_of",
    "record",
    "replay",
    "replayed",
    "scripted",
    "serve",
    "serve_forever",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
