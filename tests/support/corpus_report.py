"""Decodes every recorded reply, checks it against other readings and the laws, and prints the table by provider.

`scripts/corpus` runs it whole; `--quick` takes a sample of the split points. Ends with status 1 when anything is unexplained.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from isthmus.conformance import replay
from isthmus.models.events import StepResult
from isthmus.wire.frame import Frame
from isthmus.wire.sse import SSEParser
from support import anthropic_walk, chat_walk, sdk_reading
from support.corpus import Recording, Row, corpus_root, load, rows
from support.cuts import smaller_successes

APIS = ("openai-chat", "anthropic-messages")
FINISHES = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "tool_use": "tool-calls",
    "content_filter": "content-filter",
    "refusal": "refusal",
    "pause_turn": "pause",
}


@dataclass
class Checked:
    """What was found out about one recording."""

    row: Row
    outcome: str
    read_by: str = ""
    splits: int = 0
    cuts: int = 0
    faults: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)


def check(row: Row, *, quick: bool) -> Checked:
    """Decode one recording and hold it against everything else that is known of it."""
    root = corpus_root()
    assert root is not None
    recording = load(row)
    result = asyncio.run(replay(root / row.path))
    checked = Checked(row, "error" if result.error else "result")
    walked = _walk(row, recording)
    failed = recording.status != 200 or (walked is not None and walked.error)
    if failed != (result.error is not None):
        checked.faults.append(f"expected {'an error' if failed else 'a result'}, got {result.finish}: {result.error}")
    elif result.error is None:
        _compare(row, recording, result, walked, checked)
    if recording.status == 200 and row.stream and recording.body:
        checked.splits = _splits(recording.body, checked, quick=quick)
        checked.cuts, found = smaller_successes(row.api, recording.body, result, quick=quick)
        checked.faults += found
    return checked


def _walk(row: Row, recording: Recording) -> Any:
    if recording.status != 200:
        return None
    if row.api == "openai-chat":
        try:
            return chat_walk.walk(recording.body, stream=row.stream)
        except ValueError:
            return None
    frames = _frames(recording.body) if row.stream else [Frame(recording.body)]
    return anthropic_walk.read(frames)


def _frames(body: bytes) -> list[Frame]:
    parser = SSEParser()
    return [*parser.feed(body), *parser.close()]


def _compare(row: Row, recording: Recording, result: StepResult, walked: Any, checked: Checked) -> None:
    try:
        other = sdk_reading.read(row.api, recording, stream=row.stream)
        checked.read_by = "sdk"
    except sdk_reading.Unreadable as error:
        checked.read_by = f"walk ({error})"
        other = sdk_reading.Reading(
            walked.text, [call[:1] + call[-1:] for call in walked.calls], walked.finish, walked.output
        )
    ours = [(call.tool, call.input) for call in result.calls]
    pairs = {
        "text": (result.text, other.text),
        "calls": (ours, other.calls),
        "finish": (result.finish, _finish(other, ours)),
        "output": (result.usage.output_tokens if result.usage else None, other.output),
    }
    for name, (mine, theirs) in pairs.items():
        if mine != theirs:
            line = f"{name}: ours {mine!r:.90}, {checked.read_by} {theirs!r:.90}"
            walk_agrees = walked is not None and mine == _walked(name, walked, ours)
            (checked.differs if walk_agrees else checked.faults).append(line)


def _walked(name: str, walked: Any, ours: list[Any]) -> Any:
    if name == "calls":
        return [(call[0], call[-1]) for call in walked.calls]
    if name == "finish":
        return _finish(walked, ours)
    return getattr(walked, name)


def _finish(reading: Any, calls: list[Any]) -> str:
    return "tool-calls" if calls else FINISHES.get(reading.finish or "", "other")


def _splits(body: bytes, checked: Checked, *, quick: bool) -> int:
    """Every position of the first 2,000 and 200 random ones beyond give the same frames, which is all a decoder sees."""
    chance = random.Random(checked.row.path)
    near = range(1, min(2000, len(body)))
    points = [*(chance.sample(near, min(40, len(near))) if quick else near)]
    beyond = range(2000, len(body))
    points += chance.sample(beyond, min(5 if quick else 200, len(beyond)))
    whole = _frames(body)
    for point in points:
        parser = SSEParser()
        if [*parser.feed(body[:point]), *parser.feed(body[point:]), *parser.close()] != whole:
            checked.faults.append(f"split at {point} gives other frames")
    return len(points)


def main(arguments: list[str]) -> int:
    """Print the table, what differs with its reason, and every fault."""
    if corpus_root() is None:
        print("no corpus beside the checkout: nothing was checked")
        return 0
    todo = [row for api in APIS for row in rows(api)]
    with ProcessPoolExecutor(2) as pool:
        done = list(pool.map(partial(check, quick="--quick" in arguments), todo, chunksize=8))
    _table(done)
    _differences(done)
    faults = [(c.row.path, fault) for c in done for fault in c.faults]
    for path, fault in faults:
        print(f"FAULT {path}: {fault}")
    print(f"\n{len(done)} recordings, {len(faults)} faults")
    return 1 if faults else 0


def _table(done: list[Checked]) -> None:
    groups: dict[tuple[str, str], list[Checked]] = defaultdict(list)
    for checked in done:
        groups[checked.row.provider, checked.row.api].append(checked)
    head = (
        "provider",
        "api",
        "index",
        "streamed",
        "errors",
        "| results",
        "errors",
        "sdk",
        "walk",
        "differ",
        "splits",
        "cuts",
    )
    print("{:<18}{:<20}{:>7}{:>9}{:>8}  {:>9}{:>8}{:>6}{:>6}{:>8}{:>9}{:>9}".format(*head))
    for (provider, api), items in sorted(groups.items()):
        by = Counter("sdk" if c.read_by == "sdk" else "walk" for c in items if c.read_by)
        cells = (
            len(items),
            sum(c.row.stream for c in items),
            sum(c.row.status != 200 for c in items),
            sum(c.outcome == "result" for c in items),
            sum(c.outcome == "error" for c in items),
            by["sdk"],
            by["walk"],
            sum(bool(c.differs) for c in items),
            sum(c.splits for c in items),
            sum(c.cuts for c in items),
        )
        print("{:<18}{:<20}{:>7}{:>9}{:>8}  {:>9}{:>8}{:>6}{:>6}{:>8}{:>9}{:>9}".format(provider, api, *cells))


def _differences(done: list[Checked]) -> None:
    print("\nWhere the SDK reads otherwise (a plain walk over the JSON agrees with us):")
    for checked in done:
        for line in checked.differs:
            print(f"  {checked.row.path}: {line}")
    print("\nWhere the SDK cannot read the reply:")
    for checked in done:
        if checked.read_by.startswith("walk"):
            print(f"  {checked.row.path}: {checked.read_by[6:-1]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
