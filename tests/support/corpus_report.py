"""Decodes every recorded reply, checks it against other readings and the laws, and prints the table by provider.

`scripts/corpus` runs it whole; `--quick` takes a sample of the split points. Ends with status 1 on any fault.
"""

from __future__ import annotations

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
from support import anthropic_walk, bedrock_reading, chat_walk, langserve_walk, responses_walk, sdk_reading
from support.corpus import Recording, Row, corpus_root, load, rows
from support.corpus_reasons import reason_for
from support.cuts import PROVIDERS, parser, smaller_successes

APIS = (
    "openai-chat",
    "anthropic-messages",
    "openai-responses",
    "bedrock-converse",
    "bedrock-converse-stream",
    "bedrock-invoke",
    "bedrock-invoke-stream",
    "langserve-invoke",
    "langserve-stream_events",
)
FINISHES = {
    "stop": "stop",
    "completed": "stop",
    "max_output_tokens": "length",
    "eos": "stop",
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
    "guardrail_intervened": "content-filter",
    "complete": "stop",
    "endoftext": "stop",
    "finish": "stop",
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
    result = replay(root / row.path, adapter=PROVIDERS.get(row.api))
    checked = Checked(row, "error" if result.error else "result")
    walked = _walk(row, recording)
    failed = recording.status != 200 or walked is None or walked[1]
    if failed != (result.error is not None):
        checked.faults.append(f"expected {'an error' if failed else 'a result'}, got {result.finish}: {result.error}")
    elif result.error is None and walked is not None:
        _compare(row, recording, result, walked[0], checked)
    if recording.status == 200 and row.stream and recording.body:
        checked.splits = _splits(row.api, recording.body, checked, quick=quick)
        checked.cuts, found = smaller_successes(row.api, recording.body, result, quick=quick)
        checked.faults += found
    return checked


def _walk(row: Row, recording: Recording) -> tuple[sdk_reading.Reading, bool] | None:
    """The plain reading of a success, and whether it holds an error; None where it is no JSON."""
    if recording.status != 200:
        return None
    try:
        if row.api.startswith("langserve-"):
            read = langserve_walk.walk(recording.body, stream=row.stream)
            return sdk_reading.Reading(*read[:4]), read.error
        if row.api == "openai-chat":
            said = chat_walk.walk(recording.body, stream=row.stream)
            return sdk_reading.Reading(said.text, said.calls, said.finish, said.output), said.error
        if row.api == "openai-responses":
            reply = responses_walk.walk(recording.body, stream=row.stream)
            return sdk_reading.Reading(reply.text, reply.calls, reply.finish, reply.output), reply.error
        if row.api.startswith("bedrock"):
            held = bedrock_reading.read(bedrock_reading.documents(recording.body, stream=row.stream))
            return sdk_reading.Reading(held.text, held.calls, held.finish, held.output), False
        plain = anthropic_walk.walk(_frames(row.api, recording.body) if row.stream else [Frame(recording.body)])
    except (ValueError, LookupError):
        return None
    calls = [(name, value) for name, _, value in plain.calls]
    return sdk_reading.Reading(plain.text, calls, plain.stop_reason, plain.output_tokens), False


def _frames(api: str, body: bytes) -> list[Frame]:
    reader = parser(api)
    return [*reader.feed(body), *reader.close()]


def _compare(row: Row, recording: Recording, result: StepResult, walked: sdk_reading.Reading, checked: Checked) -> None:
    ours = sdk_reading.Reading(
        result.text,
        [(call.tool, call.input) for call in result.calls],
        result.finish,
        result.usage.output_tokens if result.usage else None,
    )
    try:
        other = sdk_reading.read(row.api, recording, stream=row.stream)
        checked.read_by = "sdk"
    except sdk_reading.Unreadable as error:
        checked.read_by, other = f"walk ({error})", walked
    for name in ours._fields:
        mine, theirs, plain = (_field(reading, name, ours) for reading in (ours, other, walked))
        if mine != theirs:
            line = f"{name}: ours {mine!r:.90}, {checked.read_by} {theirs!r:.90}"
            if mine != plain:
                # A reason for where the SDK errs is none for where the plain walk disagrees too.
                line += f", walk {plain!r:.90}"
            known = mine == plain and reason_for(row.path, line) is not None
            (checked.differs if known else checked.faults).append(line)


def _field(reading: sdk_reading.Reading, name: str, ours: sdk_reading.Reading) -> Any:
    if name != "finish" or reading is ours:
        return getattr(reading, name)
    return "tool-calls" if reading.calls else FINISHES.get((reading.finish or "").lower(), "other")


def _splits(api: str, body: bytes, checked: Checked, *, quick: bool) -> int:
    """All splits of the first 2,000 bytes and 200 random ones beyond give the same frames, all that a decoder sees."""
    chance = random.Random(checked.row.path)
    near = range(1, min(2000, len(body)))
    points = [*(chance.sample(near, min(40, len(near))) if quick else near)]
    beyond = range(2000, len(body))
    points += chance.sample(beyond, min(5 if quick else 200, len(beyond)))
    whole = _frames(api, body)
    for point in points:
        reader = parser(api)
        if [*reader.feed(body[:point]), *reader.feed(body[point:]), *reader.close()] != whole:
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
    faults = [(c.row.path, fault) for c in done for fault in c.faults if reason_for(c.row.path, fault) is None]
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
    print("\nWhat differs from another reading, or from the whole reply when cut, by reason:")
    found: dict[str, list[str]] = defaultdict(list)
    for checked in done:
        for line in [*checked.differs, *checked.faults]:
            found[reason_for(checked.row.path, line) or ""].append(f"{checked.row.path}: {line}")
    for reason, lines in sorted(found.items()):
        if reason:
            print("\n".join([f"- {reason}:", *(f"    {line}" for line in lines)]))
    print("\nWhere the SDK cannot read the reply:")
    for checked in done:
        if checked.read_by.startswith("walk"):
            print(f"  {checked.row.path}: {checked.read_by[6:-1]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
