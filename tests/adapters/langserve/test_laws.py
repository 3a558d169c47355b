"""The adapter held to the laws that every adapter is held to, over our recordings."""

from __future__ import annotations

from isthmus.adapters.langserve import LangServeAdapter
from isthmus.conformance import conform
from support.langserve_peer import RECORDINGS


async def test_it_keeps_every_law() -> None:
    """No law is broken, and those at wire level are judged, golden request and opaque blocks included."""
    report = await conform(LangServeAdapter, recordings=RECORDINGS)
    assert report.ok, report.findings
    assert {standing.status for standing in report.laws if standing.id.startswith("wire-")} == {"pass"}
