"""What a conformance run found: findings, the standing of each law, and how both are shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

ERROR = "error"
WARNING = "warning"
PASS, FAIL, SKIP, NA = "pass", "fail", "skip", "n/a"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a law.

    Args:
        law: the law's id.
        severity: "error": the adapter is wrong; "warning": it works, and its author should know.
        message: the place, the value and what is wrong with it.
        seen: what was observed.
        expected: what a right adapter shows there.
        fix: how to mend it.
    """

    law: str
    severity: str
    message: str
    seen: str = ""
    expected: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one law stands.

    Args:
        id: the law's id.
        status: "pass", "fail", "skip" (could not be judged) or "n/a" (does not apply to this adapter).
        reason: why it was skipped or does not apply.
    """

    id: str
    status: str
    reason: str = ""


@dataclass(slots=True)
class Report:
    """The outcome of one conformance run.

    Args:
        adapter: what was judged, by name.
        findings: every violation, in the order of the laws.
        laws: how each law stands.
        seconds: how long it took.
    """

    adapter: str
    findings: list[Finding] = field(default_factory=list)
    laws: list[Standing] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity == ERROR for finding in self.findings)

    @property
    def errors(self) -> list[Finding]:
        """The findings that make the adapter wrong."""
        return [finding for finding in self.findings if finding.severity == ERROR]

    def standing(self, law: str) -> str:
        """The status of one law; "n/a" for one that this run did not know."""
        return next((each.status for each in self.laws if each.id == law), NA)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "adapter": self.adapter,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "findings": [asdict(finding) for finding in self.findings],
            "laws": [asdict(each) for each in self.laws],
        }

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def table(self, *, every: bool = False) -> str:
        """The report for a person: the findings with their remedies, then a line of counts.

        Args:
            every: list each law with its status first.
        """
        lines = [*_standings(self.laws)] if every else []
        for found in self.findings:
            lines.append(f"{found.severity}: {found.law}: {found.message}")
            for name in ("seen", "expected", "fix"):
                value = getattr(found, name)
                if value:
                    lines.append(f"    {name + ':':<10}{value}")
        counts = Counter(each.status for each in self.laws)
        said = ", ".join(f"{counts[status]} {status}" for status in (PASS, FAIL, SKIP, NA) if counts[status])
        verdict = "conforms" if self.ok else "does not conform"
        lines.append(f"{self.adapter} {verdict}: {said} ({self.seconds:.1f} s)")
        return "\n".join(lines)

    def annotations(self, file: str = "") -> str:
        """The findings as workflow commands that a code host shows beside a change.

        Args:
            file: the adapter's source file, as the repository names it.
        """
        place = f"file={_property(file)}," if file else ""
        return "\n".join(
            f"::{found.severity} {place}title={_property('conformance: ' + found.law)}::{_data(_told(found))}"
            for found in self.findings
        )


def _told(found: Finding) -> str:
    parts = (
        found.message,
        f"seen: {found.seen}" if found.seen else "",
        f"expected: {found.expected}" if found.expected else "",
        found.fix,
    )
    return "\n".join(part for part in parts if part)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _standings(laws: Iterable[Standing]) -> Iterable[str]:
    for each in laws:
        yield f"{each.status:<5} {each.id}" + (f"  ({each.reason})" if each.reason else "")
