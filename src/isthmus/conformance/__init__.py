"""Proof that an adapter keeps the contract. Names are loaded when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.conformance.conform import conform
    from isthmus.conformance.laws import LAWS
    from isthmus.conformance.replay import replay
    from isthmus.conformance.report import Finding, Report

_HOMES = {
    "Finding": "isthmus.conformance.report",
    "LAWS": "isthmus.conformance.laws",
    "Report": "isthmus.conformance.report",
    "conform": "isthmus.conformance.conform",
    "replay": "isthmus.conformance.replay",
}

__all__ = ["Finding", "LAWS", "Report", "conform", "replay"]  # noqa: RUF022  (plain order)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
