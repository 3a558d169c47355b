"""The recorded provider traffic beside the checkout: where it is, and its rows."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

REASON = "the recorded provider traffic is not beside the checkout (ISTHMUS_CORPUS names its folder)"


class Row(NamedTuple):
    """One recording of the index."""

    path: str
    provider: str
    api: str
    stream: bool
    status: int
    tags: frozenset[str]
    fidelity: str


class Recording(NamedTuple):
    """One recorded reply, and the request that it answers."""

    status: int
    headers: dict[str, str]
    body: bytes
    request: dict[str, Any]
    chunk_sizes: list[int]


@cache
def corpus_root() -> Path | None:
    """The folder that holds INDEX.tsv: ISTHMUS_CORPUS, or the nearest `shared/corpus` or `corpus` above this file."""
    named = os.environ.get("ISTHMUS_CORPUS")
    places = [Path(named)] if named else []
    for parent in Path(__file__).resolve().parents:
        places += [parent / "shared" / "corpus", parent / "corpus"]
    return next((place for place in places if (place / "INDEX.tsv").is_file()), None)


@cache
def _all() -> tuple[Row, ...]:
    root = corpus_root()
    if root is None:
        return ()
    with (root / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Row(
                row["path"],
                row["provider"],
                row["api"],
                row["stream"] == "yes",
                int(row["status"]),
                frozenset(row["tags"].split(",")),
                row["fidelity"],
            )
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if row["status"].isdigit()
        )


def rows(api: str) -> list[Row]:
    """The recordings of one API, in the order of the index; none where there is no corpus."""
    return [row for row in _all() if row.api == api]


def load(row: Row) -> Recording:
    """The reply and the request of a row; header names in lower case."""
    root = corpus_root()
    assert root is not None, REASON
    folder = root / row.path
    meta = json.loads((folder / "response.meta.json").read_text(encoding="utf-8"))
    request_file = folder / "request.json"
    request = json.loads(request_file.read_text(encoding="utf-8")) if request_file.is_file() else {}
    headers = {name.lower(): value for name, value in meta.get("headers") or ()}
    body = (folder / "response.body").read_bytes()
    return Recording(meta["status"], headers, body, request, list(meta.get("chunk_sizes") or ()))


def recordings(api: str, *, stream: bool | None = None, status: int | None = None) -> Iterator[tuple[Row, Recording]]:
    """The loaded recordings of one API, filtered."""
    for row in rows(api):
        if stream in (None, row.stream) and status in (None, row.status):
            yield row, load(row)
