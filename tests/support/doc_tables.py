"""Writes the tables of the docs that are made from the code: laws, the laws of each class of faults, telemetry."""

from __future__ import annotations

import re
from pathlib import Path

from isthmus.conformance import LAWS
from isthmus.conformance.laws import law_table
from isthmus.observability.catalogue import tables

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main() -> None:
    """Write all tables."""
    _between("conformance.md", "<!-- laws -->\n", law_table())
    _between("telemetry.md", "<!-- telemetry -->\n", tables())
    faults = DOCS / "faults.md"
    faults.write_text(
        re.sub(r"^\| (F\d\d) \|.*$", _row, faults.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8"
    )


def _between(name: str, mark: str, table: str) -> None:
    page = DOCS / name
    head, _, rest = page.read_text(encoding="utf-8").partition(mark)
    page.write_text(f"{head}{mark}{table}\n<!-- end -->{rest.partition('<!-- end -->')[2]}", encoding="utf-8")


def _row(match: re.Match[str]) -> str:
    cells = [cell.strip() for cell in match[0].strip("|").split("|")][:4]
    laws = ", ".join(f"`{law.id}`" for law in LAWS if match[1] in law.covers)
    return f"| {' | '.join(cells)} | {laws} |"


if __name__ == "__main__":
    main()
