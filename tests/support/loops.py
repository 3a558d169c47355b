"""Recorded conversations as tool loops: each next request, built from our own decoded turn, beside the recorded one."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

from isthmus.conformance import replay
from isthmus.models.contract import GenerateContext
from isthmus.models.messages import assistant_message
from support.corpus import corpus_root

Item = dict[str, Any]


class Dialect(NamedTuple):
    """How the requests of one API are read.

    Args:
        provider: whose adapter reads its replies.
        adapter: what says its requests, by the recording's provider and a body.
        items: the transcript of a body.
        ours: whether an item is the model's own turn, or of it.
        neutral: items as messages that our adapter takes.
        gist: an item in the one spelling that all clients' spellings amount to.
        label: what tells items apart that stand at one place; its first member names them in a report.
        context: what of a body else is given to our adapter.
        beside: what of a body is compared beside the transcript.
    """

    provider: str
    adapter: Callable[[str, Item], Any]
    items: Callable[[Item], list[Item]]
    ours: Callable[[Item], bool]
    neutral: Callable[[list[Item]], Iterable[Item]]
    gist: Callable[[Item], Item]
    label: Callable[[Item], tuple[Any, ...]]
    context: Callable[[Item], dict[str, Any]]
    beside: Callable[[Item], Item]


class Call(NamedTuple):
    """One recorded call: its folder, whose it is, and the body of its request."""

    path: str
    provider: str
    body: Item


class Compared(NamedTuple):
    """How often each field path differs, the calls that begin a conversation anew, and how many go on with one."""

    found: dict[str, int]
    anew: set[str]
    turns: int


@cache
def sequences(*apis: str) -> tuple[tuple[Call, ...], ...]:
    """The calls of each source file, in recorded order; none where there is no corpus."""
    root = corpus_root()
    if root is None:
        return ()
    groups: dict[tuple[str, str], list[tuple[int, Call]]] = defaultdict(list)
    with (root / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["sequence"] and row["api"] in apis:
                body = json.loads((root / row["path"] / "request.json").read_text("utf-8")).get("body")
                if isinstance(body, dict):
                    call = Call(row["path"], row["provider"], body)
                    groups[row["source_repo"], row["source_path"]].append((int(row["interaction_index"]), call))
    return tuple(tuple(call for _, call in sorted(group)) for group in groups.values())


def compare(dialect: Dialect, *apis: str) -> Compared:
    """All recorded turns of these APIs: our next request beside the recorded one."""
    found: Counter[str] = Counter()
    anew, turns = set(), 0
    for sequence in sequences(*apis):
        for place, after in enumerate(sequence[1:], start=1):
            before = next((call for call in reversed(sequence[:place]) if goes_on(dialect, call, after)), None)
            if before is None:
                anew.add(after.path)
            else:
                turns += 1
                found.update(differences(dialect, rebuilt(dialect, before, after), after.body))
    return Compared(dict(found), anew, turns)


def goes_on(dialect: Dialect, earlier: Call, later: Call) -> bool:
    """Whether the later request repeats the earlier one's transcript and goes on with a turn of the model."""
    before, after = dialect.items(earlier.body), dialect.items(later.body)
    head = [dialect.gist(item) for item in after[: len(before)]] == [dialect.gist(item) for item in before]
    return head and len(after) > len(before) and dialect.ours(after[len(before)])


def rebuilt(dialect: Dialect, earlier: Call, later: Call) -> Item:
    """The body that we would have sent: the recorded transcript, our own decoded turn, what was said after it."""
    root = corpus_root()
    assert root is not None
    before, after = dialect.items(earlier.body), dialect.items(later.body)
    said = list(takewhile(dialect.ours, after[len(before) :]))
    rest = after[len(before) + len(said) :]
    turn = assistant_message(replay(root / earlier.path, adapter=dialect.provider))
    messages = (*dialect.neutral(before), turn, *dialect.neutral(rest))
    ctx = GenerateContext(messages=messages, **dialect.context(later.body))
    codec = dialect.adapter(later.provider, later.body).codec
    return json.loads(codec.encode(ctx, stream=False).call.body)


def differences(dialect: Dialect, ours: Item, theirs: Item) -> Iterator[str]:
    """The field paths at which two bodies differ, with how."""
    mine, other = ([dialect.gist(item) for item in dialect.items(body)] for body in (ours, theirs))
    place = 0
    for item in mine:
        there = other[place] if place < len(other) else None
        if there is None or dialect.label(item) != dialect.label(there):
            yield f"{dialect.label(item)[0]}: only ours"
            continue
        place += 1
        yield from _differ(item, there, str(dialect.label(item)[0]))
    for item in other[place:]:
        yield f"{dialect.label(item)[0]}: only theirs"
    yield from _differ(dialect.beside(ours), dialect.beside(theirs), "")


def _differ(ours: Any, theirs: Any, place: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from _differ(ours.get(key), theirs.get(key), f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _differ(one, other, f"{place}[]")
    elif ours != theirs:
        how = "only ours" if theirs is None else "only theirs" if ours is None else "other"
        yield f"{place}: {how}"


def read_json(text: Any) -> Any:
    """A JSON text as its value; what is none as it is."""
    try:
        return json.loads(text or "{}") if isinstance(text, str) else text
    except ValueError:
        return text


def present(item: Item) -> Item:
    """The members that are not null."""
    return {key: value for key, value in item.items() if value is not None}


def joined(content: Any, kinds: tuple[str, ...] = ("text",)) -> Any:
    """The text of parts that are all text; other content as it is."""
    if isinstance(content, list) and all(part.get("type") in kinds for part in content):
        return "".join(part["text"] for part in content)
    return content
