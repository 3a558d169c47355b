"""Rare shapes of replies, written for this library: kept one a line, laid out as the folders that the kit reads."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1] / "recordings" / "rare"
_ASKED = {"method": "POST", "host": "recorded.invalid"}


def rows(adapter: str) -> Iterator[dict[str, Any]]:
    """The rare shapes of an adapter: `name`, `path`, `meta`, `text` or `base64`, and the `result`."""
    for line in (ROOT / f"{adapter}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


@cache
def unpacked(adapter: str) -> Path:
    """A folder of an adapter's rare shapes, for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix=f"isthmus-rare-{adapter}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for row in rows(adapter):
        lay_out(row, folder / row["name"])
    return folder


def body_of(row: Mapping[str, Any]) -> bytes:
    """The bytes of a row."""
    return b64decode(row["base64"]) if "base64" in row else str(row["text"]).encode()


def lay_out(row: Mapping[str, Any], place: Path) -> None:
    """Write a row as a recording."""
    place.mkdir(parents=True)
    asked = {**_ASKED, "path": row["path"], "body": {"stream": True} if row["meta"]["stream"] else {}}
    (place / "request.json").write_text(json.dumps(asked), encoding="utf-8")
    (place / "response.meta.json").write_text(json.dumps(row["meta"]), encoding="utf-8")
    (place / "response.body").write_bytes(body_of(row))
    if row.get("result") is not None:
        (place / "result.json").write_text(json.dumps(row["result"]), encoding="utf-8")


def packed(body: bytes) -> dict[str, str]:
    """Bytes as a row holds them."""
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}


def write(adapter: str, made: Iterable[Mapping[str, Any]]) -> None:
    """Keep rows, one a line."""
    text = "".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n" for row in made)
    (ROOT / f"{adapter}.jsonl").write_text(text, encoding="utf-8")
