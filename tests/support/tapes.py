"""Replies for mutation testing: recordings, and many that differ from one in one place, with what they are read as."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.corpus import Row, corpus_root, rows
from support.shapes import seeds

LONGEST = 60_000
SHORT = 9000
_STRANGE = (
    b"data: {not json",
    b'data: {"error": {"message": "overloaded", "code": 529}}',
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}',
    b"data: [1, 2]",
    b'data: {"choices": []}',
    b": comment",
    b"data: [DONE]",
    b'event: ping\ndata: {"type": "ping"}',
)
_VALUES: tuple[Any, ...] = (None, -1, 0, 7, 2.5, "", "x", True, [], {}, ["x"], {"type": "x"}, 10**20, "stop", "length")
_GONE = object()


class Take(NamedTuple):
    """One reply, and what the unchanged decoder makes of it."""

    body: str
    headers: Mapping[str, str]
    ended: str
    streamed: bool
    expected: Mapping[str, Any]


def chosen(api: str, count: int, chance: random.Random) -> list[Row]:
    """Recordings of an API, varied by their tags."""
    root = corpus_root()
    if root is None:
        raise SystemExit("no recorded provider traffic beside the checkout (ISTHMUS_CORPUS names its folder)")
    found: list[Row] = []
    seen: Counter[str] = Counter()
    usable = [row for row in rows(api) if (root / row.path / "response.body").stat().st_size < LONGEST]
    for row in sorted(usable, key=lambda row: chance.random()):
        marks = [f"{row.stream}{tag}" for tag in (*row.tags, str(row.status), row.provider)]
        if len(found) < count and any(seen[mark] < 3 for mark in marks):
            seen.update(marks)
            found.append(row)
    return found


def written(found: list[Row], folder: Path) -> None:
    """Recordings as a folder for the kit."""
    root = corpus_root()
    assert root is not None
    for place, row in enumerate(found):
        shutil.copytree(root / row.path, folder / f"{place:03}")


def takes(found: list[Row], provider: str, chance: random.Random, *, each: int) -> list[Take]:
    """The successes among recordings, and as many changed forms of each, with what they are read as.

    Args:
        found: the recordings.
        provider: whose adapter reads them.
        chance: what is changed.
        each: changed forms of each recording.
    """
    root = corpus_root()
    assert root is not None
    made: list[tuple[bytes, dict[str, str], str, bool]] = []
    for row in found:
        if row.status != 200:
            continue
        meta = json.loads((root / row.path / "response.meta.json").read_text(encoding="utf-8"))
        headers = {str(name).lower(): str(value) for name, value in meta.get("headers") or ()}
        headers.pop("content-length", None)
        body = (root / row.path / "response.body").read_bytes()
        made.append((body, headers, str(meta.get("ended") or "framed"), row.stream))
        if len(body) < SHORT:
            for changed in _changed(body, chance, each):
                made.append((changed, headers, chance.choice(("framed", "framed", "unframed", "broken")), row.stream))
        if row.stream:
            made += [(other, headers, "framed", True) for other in _moved(body, chance)]
    for body in seeds(provider):
        stream = body.startswith(b"data:")
        kind = {"content-type": "text/event-stream" if stream else "application/json"}
        made += [
            (other, kind, "framed", stream)
            for other in (body, *_changed(body, chance, (6 if len(body) > 400 else 1) * each))
        ]
    return _read(made, provider)


def _read(made: list[tuple[bytes, dict[str, str], str, bool]], provider: str) -> list[Take]:
    """With what they are read as; in a process of its own, so that this one has no decoder loaded."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            found = [asyncio.run(outcome(provider, Take(body.decode("latin-1"), *rest, {}))) for body, *rest in made]
            with os.fdopen(theirs, "w", encoding="utf-8") as pipe:
                json.dump(found, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as pipe:
        found = json.load(pipe)
    os.wait()
    return [Take(body.decode("latin-1"), *rest, said) for (body, *rest), said in zip(made, found, strict=True)]


async def outcome(provider: str, take: Take) -> dict[str, Any]:
    """What a reply is read as: as the kit compares it with a `result.json`."""
    from isthmus.conformance.reading import plain
    from isthmus.wire.call import Ended
    from support.fuzzing import adapter_of, heard

    body = take.body.encode("latin-1")
    adapter = adapter_of(provider, [body], ended=Ended(take.ended))
    adapter.transport.headers = take.headers
    said: dict[str, Any] = json.loads(json.dumps(plain(await heard(adapter, whole=not take.streamed)), default=str))
    return said


def _moved(body: bytes, chance: random.Random) -> Iterator[bytes]:
    """A stream with an event left out, doubled, moved, strange, cut, or all after it gone."""
    events = body.split(b"\n\n")
    if len(events) < 3:
        return
    for number in range(8):
        at, other = chance.randrange(len(events) - 1), chance.randrange(len(events) - 1)
        yield b"\n\n".join(
            (
                [*events[:at], *events[at + 1 :]],
                [*events[:at], events[at], *events[at:]],
                [*events[: at + 1], b""],
                [*events[:at], chance.choice(_STRANGE), *events[at:]],
                [*events[:at], events[other], *events[at:]],
                [*events[:-3], b""],
                [*events[:at], events[at][: len(events[at]) // 2]],
                [*events[:-2], b""],
            )[number]
        )


def _changed(body: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """The body with one value of its JSON changed: each kind of place has the same chance."""
    documents = [json.loads(line) for line, _ in _lines(body)]
    places: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
    for number, document in enumerate(documents):
        for path in _paths(document):
            shape = "/".join("*" if isinstance(step, int) else step for step in path)
            places.setdefault(shape, []).append((number, path))
    shapes = sorted(places)
    for turn in range(count if shapes else 0):
        # Each shape has its turn before any has a second one.
        if turn % len(shapes) == 0:
            chance.shuffle(shapes)
        number, path = chance.choice(places[shapes[turn % len(shapes)]])
        value = chance.choice((_GONE, *_VALUES))
        yield _with(body, number, _put(documents[number], path, value))


def _lines(body: bytes) -> Iterator[tuple[bytes, int]]:
    """The JSON objects in a body, each with the number of its line; all of it is one where it is a document."""
    if body.lstrip()[:1] == b"{":
        try:
            json.loads(body)
        except ValueError:
            return
        yield body, -1
        return
    for number, line in enumerate(body.split(b"\n")):
        text = line.removeprefix(b"data:").strip()
        if line.startswith(b"data:") and text[:1] == b"{":
            try:
                json.loads(text)
            except ValueError:
                continue
            yield text, number


def _with(body: bytes, number: int, document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    _, line = [*_lines(body)][number]
    if line < 0:
        return text
    lines = body.split(b"\n")
    lines[line] = b"data: " + text
    return b"\n".join(lines)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    if value is _GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = copy.deepcopy(value)
    return changed
