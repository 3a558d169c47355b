"""Changed forms of recordings: one value, one event or the end of each, to look for what no recording shows yet."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_EACH = 40
_VALUES: tuple[Any, ...] = (None, -1, 0, 7, 2.5, "", "x", True, [], {}, ["x"], {"type": "x"}, 10**20, "stop", "length")
_GONE = object()


class Variant(NamedTuple):
    """One changed recording.

    Args:
        name: what was changed.
        body: its bytes.
        meta: what `response.meta.json` says.
        asked: what `request.json` says.
    """

    name: str
    body: bytes
    meta: Mapping[str, Any]
    asked: Mapping[str, Any]


def variants(folder: Path) -> list[Variant]:
    """The changed forms of the recordings in a folder, the same ones each time."""
    found: list[Variant] = []
    for place in sorted(path.parent for path in folder.rglob("response.meta.json")):
        meta = json.loads((place / "response.meta.json").read_text(encoding="utf-8"))
        body, request = (place / "response.body").read_bytes(), place / "request.json"
        asked = json.loads(request.read_text(encoding="utf-8")) if request.is_file() else {}
        if meta.get("status") != 200 or meta.get("parser"):
            continue
        chance = random.Random(place.name)
        made = [*_changed(body, chance, _EACH), *(_moved(body, chance) if meta.get("stream") else ())]
        found += [Variant(f"{place.name}-{what}", other, meta, asked) for what, other in made]
        found += [Variant(f"{place.name}-{end}", body, {**meta, "ended": end}, asked) for end in ("unframed", "broken")]
    return found


def write(variant: Variant, place: Path, result: Any) -> None:
    """A changed form as a recording."""
    place.mkdir(parents=True)
    meta = {key: value for key, value in variant.meta.items() if key not in ("chunk_sizes", "chunk_times")}
    (place / "name").write_text(variant.name)
    (place / "request.json").write_text(json.dumps(variant.asked, indent=1) + "\n", encoding="utf-8")
    (place / "response.meta.json").write_text(json.dumps(meta) + "\n", encoding="utf-8")
    (place / "response.body").write_bytes(variant.body)
    (place / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _moved(body: bytes, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """A stream with an event left out, doubled or moved, or all after it gone."""
    events = body.split(b"\n\n")
    if len(events) < 3:
        return
    for number in range(4):
        at, other = chance.randrange(len(events) - 1), chance.randrange(len(events) - 1)
        kinds = {
            f"without-{at}": [*events[:at], *events[at + 1 :]],
            f"twice-{at}": [*events[:at], events[at], *events[at:]],
            f"moved-{other}-to-{at}": [*events[:at], events[other], *events[at:]],
            f"until-{at}": [*events[: at + 1], b""],
        }
        for name, changed in kinds.items():
            yield f"{name}-{number}", b"\n\n".join(changed)


def _changed(body: bytes, chance: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """The body with one value of its JSON changed: each kind of place has its turn before any has a second one."""
    documents = [json.loads(line) for line, _ in _lines(body)]
    places: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
    for number, document in enumerate(documents):
        for path in _paths(document):
            shape = "/".join("*" if isinstance(step, int) else step for step in path)
            places.setdefault(shape, []).append((number, path))
    shapes = sorted(places)
    for turn in range(max(count, 2 * len(shapes)) if shapes else 0):
        if turn % len(shapes) == 0:
            chance.shuffle(shapes)
        number, path = chance.choice(places[shapes[turn % len(shapes)]])
        value = chance.choice((_GONE, *_VALUES))
        told = "gone" if value is _GONE else json.dumps(value)
        yield f"{shapes[turn % len(shapes)]}={told}", _with(body, number, _put(documents[number], path, value))


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
