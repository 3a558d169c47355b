"""Laws on the faces together: all of them say the same reply."""

from __future__ import annotations

from collections.abc import AsyncIterator

from isthmus.conformance.law import Found, Group, NotJudged
from isthmus.conformance.reading import Reading, shown
from isthmus.conformance.report import WARNING
from isthmus.conformance.seen import Seen

GROUP = Group()
law = GROUP.law

_SHAPES = ("answers", "event-shape", "reply-shape", "finish-present", "finish-once", "call-shape", "text-agrees")
_ENDS = {"other": "stop"}


async def _pairs(seen: Seen) -> list[tuple[Reading, Reading]]:
    """Each reading beside the first one.

    Raises:
        NotJudged: one face alone is written, or the same question gets other answers each time.
    """
    heards = [heard for heard in await seen.usual() if heard.reading is not None and heard.fit]
    readings = [heard.reading for heard in heards if heard.reading is not None]
    if len(readings) < 2:
        raise NotJudged("one face is written: the others are made from it")
    if seen.kept.get("apart"):
        raise NotJudged("no recorded whole reply says what a recorded stream says", "skip")
    for heard in heards:
        again = await seen.again(heard.face)
        if again is None or heard.reading is None or not _alike(again, heard.reading):
            raise NotJudged("the same request is answered differently each time", "skip")
    readings.sort(key=lambda reading: reading.face == "stream_chat")
    return [(readings[0], other) for other in readings[1:]]


def _alike(one: Reading, other: Reading) -> bool:
    return (one.text, one.said, one.finish) == (other.text, other.said, other.finish)


@law(
    "same-text",
    "All faces give the same text for the same request.",
    why="What a user sees streamed and what is stored would be two answers.",
    fix="make the whole reply from the same decoder as the stream, or write one face and inherit the others",
    covers=("F16",),
    after=(*_SHAPES, "characters-whole"),
)
async def _same_text(seen: Seen) -> AsyncIterator[Found]:
    for one, other in await _pairs(seen):
        if one.text.strip() != other.text.strip():
            yield Found(f"{one.face} and {other.face} differ in text", shown(other.text), shown(one.text))


@law(
    "same-calls",
    "All faces give the same tool calls for the same request.",
    why="A call that is lost on one path never runs there.",
    fix="collect calls on the streamed path as on the whole one, or write one face and inherit the others",
    covers=("F16", "F02"),
    after=_SHAPES,
)
async def _same_calls(seen: Seen) -> AsyncIterator[Found]:
    for one, other in await _pairs(seen):
        if other.face != "stream_chat" and one.said != other.said:
            yield Found(f"{one.face} and {other.face} differ in calls", shown(other.said), shown(one.said))


@law(
    "same-finish",
    "All faces give the same finish for the same request.",
    why="A truncation that only one path reports is continued on one path only.",
    fix="map the provider's reason in one place",
    covers=("F12", "F16"),
    after=(*_SHAPES, "calls-stop", "same-calls"),
)
async def _same_finish(seen: Seen) -> AsyncIterator[Found]:
    for one, other in await _pairs(seen):
        if other.face == "stream_chat" or one.finish is None or other.finish is None:
            continue
        mine, theirs = (_ENDS.get(finish, finish) for finish in (one.finish, other.finish))
        if mine != theirs and not (one.calls and other.calls):
            yield Found(f"{one.face} and {other.face} differ in the finish", shown(other.reason), shown(one.reason))


@law(
    "same-usage",
    "All faces that report tokens report the same ones.",
    why="Costs and budgets would depend on the path taken.",
    fix="read the provider's usage in one place, on the streamed path too",
    covers=("F11",),
    after=(*_SHAPES, "same-text", "same-calls"),
)
async def _same_usage(seen: Seen) -> AsyncIterator[Found]:
    for one, other in await _pairs(seen):
        if one.usage is None or other.usage is None:
            continue
        counts = [(usage.prompt_tokens, usage.output_tokens) for usage in (one.usage, other.usage)]
        if counts[0] != counts[1]:
            yield Found(
                f"{one.face} and {other.face} differ in usage", shown(counts[1]), shown(counts[0]), severity=WARNING
            )
