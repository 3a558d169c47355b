"""Finds recorded Messages traffic, and cuts a recorded body into frames without the library's own parsers."""

from __future__ import annotations

import csv
import json
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from isthmus.wire.frame import Frame

API = "anthropic-messages"


class Recording(NamedTuple):
    """One recorded exchange."""

    path: str
    provider: str
    status: int
    stream: bool


class Loaded(NamedTuple):
    """What a recording holds."""

    status: int
    headers: dict[str, str]
    body: bytes
    request: dict
    chunk_sizes: list[int] | None


@cache
def root() -> Path | None:
    """The folder of recordings: `ISTHMUS_CORPUS`, else `shared/corpus` beside the checkout or above it."""
    named = os.environ.get("ISTHMUS_CORPUS")
    places = [Path(named)] if named else [up / "shared" / "corpus" for up in Path(__file__).resolve().parents]
    return next((place for place in places if (place / "INDEX.tsv").is_file()), None)


@cache
def rows(folder: str = "") -> tuple[Recording, ...]:
    """The Messages recordings of an index; none where there is no corpus.

    Args:
        folder: "" for recorded traffic, "_authored" for fixtures written by hand upstream.
    """
    base = root()
    if base is None:
        return ()
    with (base / folder / "INDEX.tsv").open(encoding="utf-8") as lines:
        found = [row for row in csv.DictReader(lines, delimiter="\t") if row["api"] == API]
    return tuple(
        Recording(
            f"{folder}/{row['path']}" if folder else row["path"],
            row["provider"],
            int(row["status"]),
            row.get("stream") == "yes",
        )
        for row in found
    )


def need_rows(folder: str = "") -> tuple[Recording, ...]:
    """The same, skipping the test with a reason where there is no corpus."""
    found = rows(folder)
    if not found:
        pytest.skip("no recordings: set ISTHMUS_CORPUS to their folder")
    return found


def load(row: Recording) -> Loaded:
    """The bytes and heads of a recording."""
    base = root()
    assert base is not None
    folder = base / row.path
    meta = json.loads((folder / "response.meta.json").read_text("utf-8"))
    request = json.loads((folder / "request.json").read_text("utf-8"))
    headers = {name.lower(): value for name, value in meta.get("headers", [])}
    body = (folder / "response.body").read_bytes()
    return Loaded(row.status, headers, body, request, meta.get("chunk_sizes"))


def is_document(body: bytes) -> bool:
    """Whether a body is one JSON document rather than a stream."""
    return body.lstrip()[:1] == b"{"


def frames(body: bytes) -> list[Frame]:
    """The frames of a body; what stands after the last blank line is a frame too, if it has data."""
    if is_document(body):
        return [Frame(body)]
    found = []
    for part in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        event, data = "", []
        for line in part.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"event":
                event = value.strip().decode("utf-8", "replace")
            elif name == b"data":
                data.append(value[1:] if value.startswith(b" ") else value)
        if data:
            found.append(Frame(b"\n".join(data), event))
    return found
