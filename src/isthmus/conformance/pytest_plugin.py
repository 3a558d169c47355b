"""The laws as tests: `pytest --conform REF`, and one line in a package's own tests.

    from isthmus.conformance.pytest_plugin import laws_test

    test_my_adapter = laws_test(MyAdapter)

Loaded by each run of pytest where this library is installed, so that it loads the kit only when it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus import conformance


class LawBroken(Exception):
    """The adapter breaks a law; the message is what was found."""


class _Judged:
    """One run of the kit, made when the first law is asked for."""

    def __init__(self, adapter: Any, options: dict[str, Any]) -> None:
        self.adapter = adapter
        self.options = options
        self._report: Any = None

    def report(self) -> Any:
        """The report; made once."""
        if self._report is None:
            self._report = asyncio.run(conformance.conform(self.adapter, **self.options))
        return self._report

    def hold(self, law: str) -> None:
        """Pass, skip or raise as the law stands.

        Raises:
            LawBroken: it is broken.
        """
        report = self.report()
        broken = [found for found in report.findings if found.law == law and found.severity == "error"]
        if broken:
            raise LawBroken("\n".join(_told(found) for found in broken))
        standing = next(each for each in report.laws if each.id == law)
        if standing.status in ("skip", "n/a"):
            pytest.skip(f"{standing.status}: {standing.reason}")


def _told(found: Any) -> str:
    return (
        f"{found.law}: {found.message}\n  seen:     {found.seen}\n  expected: {found.expected}\n  fix:      {found.fix}"
    )


def laws_test(adapter: Any, **options: Any) -> Callable[[str], None]:
    """A test function with one case a law.

    Args:
        adapter: what `isthmus.conformance.conform` judges: a class, a factory, an adapter.
        options: its other arguments: tools, messages, scenarios, recordings, …
    """
    judged = _Judged(adapter, options)

    @pytest.mark.parametrize("law", [law.id for law in conformance.LAWS])
    def test_law(law: str) -> None:
        """The adapter keeps the law."""
        judged.hold(law)

    return test_law


class LawItem(pytest.Item):
    """One law, and the adapter that is held to it."""

    judged: _Judged

    def runtest(self) -> None:
        """Hold the adapter to the law."""
        self.judged.hold(self.name.rpartition("[")[2].rstrip("]"))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """What was found, without a traceback through the kit."""
        return str(excinfo.value) if isinstance(excinfo.value, LawBroken) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where and what it is."""
        return self.path, None, self.name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--conform` and its recordings."""
    group = parser.getgroup("conform", "conformance of a model adapter")
    group.addoption("--conform", action="append", default=[], metavar="REF", help="Hold this adapter to every law.")
    group.addoption("--conform-recordings", metavar="DIR", help="Recordings of its provider, for the laws of the wire.")


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add one test a law for each adapter that was named."""
    recordings = session.config.getoption("--conform-recordings")
    for ref in session.config.getoption("--conform"):
        try:
            judged = _Judged(conformance.maker_of(ref), {"recordings": recordings})
        except ValueError as error:
            raise pytest.UsageError(f"--conform: {error}") from None
        for law in conformance.LAWS:
            item = LawItem.from_parent(session, name=f"{ref}[{law.id}]")
            item.judged = judged
            items.append(item)
