"""The adapter held to the laws that every adapter is held to, over our recordings."""

from __future__ import annotations

from typing import Any

from isthmus.adapters.langserve import LangServeAdapter
from isthmus.conformance import conform
from support.langserve_peer import RECORDINGS
from support.own_reading import OwnReading
from support.rare import unpacked


async def test_it_keeps_every_law() -> None:
    """No law is broken, and those at wire level are judged, golden request and opaque blocks included."""
    report = await conform(LangServeAdapter, recordings=RECORDINGS)
    assert report.ok, report.findings
    assert {standing.status for standing in report.laws if standing.id.startswith("wire-")} == {"pass"}


async def test_an_adapter_with_a_reading_of_its_own_keeps_every_law() -> None:
    """F16: an author's `_parse_output` decides text, calls and tokens, and breaks nothing by what it leaves alone."""

    def adapter(*, transport: Any, api_key: str = "", max_tokens: int = 100) -> Any:
        return OwnReading(model="m", transport=transport, api_key=api_key, max_tokens=max_tokens)

    report = await conform(adapter, recordings=unpacked("langserve-own"))
    assert not [found for found in report.errors if found.law.startswith("wire-")], report.table()
    assert report.standing("wire-golden") == report.standing("wire-events") == "pass"
