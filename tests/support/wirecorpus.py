"""The recorded provider traffic that lies beside the checkout, for tests below the adapters."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

_ABOVE = Path(__file__).resolve().parents
CORPUS = next((place / "shared/corpus" for place in _ABOVE if (place / "shared/corpus").is_dir()), Path("absent"))

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="no recordings beside the checkout")


def rows(**columns: str) -> list[dict[str, str]]:
    """The rows of the index whose columns have these values."""
    with (CORPUS / "INDEX.tsv").open(encoding="utf-8") as index:
        table = list(csv.DictReader(index, delimiter="\t"))
    return [row for row in table if all(row[name] == value for name, value in columns.items())]
