"""Laws at wire level: recordings of the provider, split, cut and told to the adapter byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from isthmus.conformance.graph import holds, walk
from isthmus.conformance.law import Found, Group, NotJudged
from isthmus.conformance.playing import (
    ASKED,
    Outcome,
    alike,
    as_whole,
    cinema_of,
    close,
    play,
    raw_events,
    replies,
    same,
    successes,
    told,
)
from isthmus.conformance.readers import read_events
from isthmus.conformance.reading import plain, preview_problems, shown
from isthmus.conformance.reels import Reel, Showing
from isthmus.conformance.report import WARNING
from isthmus.conformance.seen import Seen
from isthmus.conformance.subject import CEILING
from isthmus.errors import ErrorClass, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from isthmus.models.messages import RESERVED, assistant_message
from isthmus.wire.call import Ended

GROUP = Group()
law = GROUP.law

_OPAQUE = frozenset({"signature", "data", "encrypted_content", "thought_signature", "thoughtSignature", "encrypted"})
_CUTS = 3000
_SPLITS = (1, 7, 4096)
_SMALL = 20_000
_KINDS = frozenset(ErrorClass)


@law(
    "wire-reads",
    "Each recorded success is read: as a reply, or as the failure that it holds.",
    why="A reply that its own provider sent and the adapter cannot read is lost.",
    fix="read what the recording holds; skip what you do not know, and raise what is an error",
    covers=("F04", "F06", "F12"),
    after=("made", "answers"),
)
async def _wire_reads(seen: Seen) -> AsyncIterator[Found]:
    for reel in successes(seen):
        outcome = await as_whole(seen, reel)
        # What an adapter read and no class says it raises on purpose, under the provider's own code.
        if isinstance(outcome, TierError) and outcome.error_class == ErrorClass.UNCLASSIFIED and outcome.code is None:
            yield Found(f"{reel.name}: cannot be read", told(outcome), "a reply")


@law(
    "wire-events",
    "Each recorded stream is told in right events, and what is previewed of a call is that call's.",
    why="A shape that only one reply in a hundred has breaks whoever shows the stream.",
    fix="end with one Finish; join the CallDeltas of a call to its arguments, under its id and its name",
    covers=("F01", "F02", "F16"),
    after=("made", "answers", "wire-reads"),
)
async def _wire_events(seen: Seen) -> AsyncIterator[Found]:
    for reel in successes(seen):
        events = await raw_events(seen, reel)
        if events is None:
            continue
        reading = read_events(events)
        for problem in (*reading.problems, *preview_problems(reading)):
            yield Found(f"{reel.name}: {problem.message}", problem.seen, problem.expected)


@law(
    "wire-split",
    "Any split of the bytes gives the same reply.",
    why="The network ends its reads where it likes: inside a line, a character, a number.",
    fix="keep an incomplete line (and an incomplete character) until its rest comes",
    covers=("F06",),
    after=("made", "answers", "wire-reads"),
)
async def _wire_split(seen: Seen) -> AsyncIterator[Found]:
    for reel in successes(seen, streamed=True):
        expected = await as_whole(seen, reel)
        for split in _SPLITS:
            if split == 1 and len(reel.body) > _SMALL:
                continue
            outcome = await play(seen, Showing(reel, split=split))
            if not alike(outcome, expected):
                yield Found(
                    f"{reel.name}: in pieces of {split} bytes it is another reply", told(outcome), told(expected)
                )
                break


@law(
    "wire-cut",
    "A stream that is cut at any byte is an error, or the whole reply; never a smaller success.",
    why="A connection that drops would pass a part of the answer off as all of it.",
    fix="finish only at the protocol's own end mark; raise where the bytes end without it",
    covers=("F01", "F12"),
    after=("made", "answers", "wire-reads"),
)
async def _wire_cut(seen: Seen) -> AsyncIterator[Found]:
    reels = successes(seen, streamed=True)
    ways = (Ended.BROKEN, Ended.UNFRAMED)
    each = max(6, min(60, _CUTS // len(reels)))
    for reel in reels:
        expected = await as_whole(seen, reel)
        if reel.ended == Ended.BROKEN:
            continue
        wrong = await _smaller(seen, reel, expected, _points(reel.body, each), ways)
        if wrong:
            yield Found(f"{reel.name}: {wrong[0]}", wrong[1], f"an error, or {told(expected)}")


async def _smaller(
    seen: Seen, reel: Reel, expected: Outcome, points: list[int], ways: tuple[Ended, ...]
) -> tuple[str, str] | None:
    """The first cut that gives a success other than the whole reply."""
    for point in points:
        for ended in ways:
            outcome = await play(seen, Showing(reel, cut=point, ended=ended))
            smaller = isinstance(outcome, StepResult)
            if smaller and not (isinstance(expected, StepResult) and same(outcome, expected)):  # type: ignore[arg-type]
                return f"cut at byte {point} of {len(reel.body)} ({ended}) it is a success", told(outcome)
    return None


def _points(body: bytes, count: int) -> list[int]:
    """Where to cut: after the last frames, after some others, and at bytes spread over the rest."""
    ends = [place + 1 for place in range(len(body)) if body[place : place + 1] == b"\n"]
    near = [*ends[-8:-1], *ends[:: max(1, 2 * len(ends) // count)]]
    spread = range(1, len(body), max(1, 2 * len(body) // count) | 1)
    return sorted({point for point in (*near, *spread) if 0 < point < len(body)})


@law(
    "wire-whole",
    "A recording read whole and read as a stream is the same reply.",
    why="Two readers of one protocol drift apart.",
    fix="read the whole reply with the stream's own decoder, as one frame",
    covers=("F16",),
    after=("made", "answers", "wire-reads"),
)
async def _wire_whole(seen: Seen) -> AsyncIterator[Found]:
    if cinema_of(seen).has_two_wires:
        raise NotJudged("its provider streams in another form than it answers whole")
    for reel in successes(seen):
        expected = await as_whole(seen, reel)
        outcome = await play(seen, Showing(reel), whole=True)
        if not alike(outcome, expected):
            yield Found(f"{reel.name}: read whole it is another reply", told(outcome), told(expected))


@law(
    "wire-status",
    "Each recorded error status is raised, as one class whichever way it was asked for, with its status kept.",
    why="What may be done about a failure is decided by its class.",
    fix="raise on every status outside 2xx before anything is read as a reply; keep the status on the error",
    covers=("F09", "F18"),
    after=("made", "answers"),
)
async def _wire_status(seen: Seen) -> AsyncIterator[Found]:
    reels = [reel for reel in cinema_of(seen).reels if not 200 <= reel.status < 300]
    if not reels:
        raise NotJudged("no recording of an error was given")
    for reel in reels:
        streamed, whole = await play(seen, Showing(reel)), await play(seen, Showing(reel), whole=True)
        if isinstance(streamed, StepResult) or isinstance(whole, StepResult):
            yield Found(f"{reel.name}: status {reel.status} came as a reply", told(streamed), "an error")
        elif streamed.error_class != whole.error_class or streamed.error_class not in _KINDS:
            yield Found(f"{reel.name}: two classes", f"{streamed.error_class}, {whole.error_class}", "one class")
        elif streamed.error_class == ErrorClass.UNCLASSIFIED:
            said = f"{reel.name}: status {reel.status} has no class"
            yield Found(said, told(streamed), "tier_error(class, …)", WARNING)
        elif streamed.status is not None and streamed.status != reel.status:
            yield Found(f"{reel.name}: another status", str(streamed.status), str(reel.status))


@law(
    "wire-native",
    "What a reply holds that only its provider can read stands in the next request, as it came.",
    why="Signed and encrypted reasoning that is lost or changed fails the next turn.",
    fix="keep the provider's own blocks with the message, and send them back unchanged",
    covers=("F03",),
    after=("made", "answers", "wire-reads"),
)
async def _wire_native(seen: Seen) -> AsyncIterator[Found]:
    judged = False
    async for reel, step in replies(seen):
        opaque = {text for item in step.native for text in _opaque_texts(item.payload)}
        if not opaque:
            continue
        judged = True
        sent = await _next_turn(seen, reel, step)
        there = {item for _, item in walk(sent) if isinstance(item, str)} if sent is not None else set()
        missing = next((text for text in opaque if text not in there and not _inside(text, sent)), None)
        if missing is not None:
            yield Found(f"{reel.name}: its opaque part is not in the next request", shown(sent, 200), shown(missing))
    if not judged:
        raise NotJudged("no recording holds an opaque block")


def _inside(text: str, value: Any) -> bool:
    return json.dumps(text)[1:-1] in json.dumps(value) or text in json.dumps(value, ensure_ascii=False)


def _opaque_texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            # `data` without a type beside it is a medium, which is sent back by its id.
            opaque = key in _OPAQUE and (key != "data" or "type" in value)
            if opaque and isinstance(item, str) and len(item) > 20:
                yield item
            else:
                yield from _opaque_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _opaque_texts(item)


async def _next_turn(seen: Seen, reel: Reel, step: StepResult) -> Any:
    """The request of the turn after a reply, its tools answered."""
    answers = [
        {"role": "tool", "tool_call_id": call.call_id, "content": f"conformance result {place}"}
        for place, call in enumerate(step.calls)
    ]
    history = ({"role": "user", "content": "Play it."}, assistant_message(step), *answers)
    more = () if answers else ({"role": "user", "content": "Go on."},)
    await play(seen, Showing(reel), ctx=GenerateContext(messages=(*history, *more)))
    return cinema_of(seen).projector.sent[-1].json


@law(
    "wire-results",
    "The next request names each call and says what its tool returned.",
    why="A model that is not told asks again, and again.",
    fix="render assistant messages with their calls, and tool messages with their ids",
    covers=("F07", "F14"),
    after=("made", "answers", "wire-reads"),
)
async def _wire_results(seen: Seen) -> AsyncIterator[Found]:
    judged = False
    async for reel, step in replies(seen):
        if not step.calls:
            continue
        judged = True
        sent = await _next_turn(seen, reel, step)
        wanted = [f"conformance result {place}" for place, _ in enumerate(step.calls)]
        lost = next((text for text in wanted if not holds(sent, text) and not _inside(text, sent)), None)
        if lost is not None:
            yield Found(f"{reel.name}: a tool's result is not in the next request", shown(sent, 200), lost)
    if not judged:
        raise NotJudged("no recording holds a call")


@law(
    "wire-request",
    "A request holds the configured ceiling, and neither the key nor this library's bookkeeping in its body.",
    why="What is not sent has no effect; what should not be sent is refused, or read by others.",
    fix="put max_tokens into each body, the key into a header, and nothing else of ours anywhere",
    covers=("F21", "F29"),
    after=("made", "answers"),
)
async def _wire_request(seen: Seen) -> AsyncIterator[Found]:
    cinema = cinema_of(seen)
    cinema.put_on_usual()
    declared = seen.subject.declares("max_tokens")
    adapter = await seen.subject.make(**({"max_tokens": CEILING} if declared else {}))
    marked = {"role": "user", "content": "Play it.", RESERVED: {"native": {"dialect": "x", "of": "y", "json": "{}"}}}
    await seen.within(adapter.stream(GenerateContext(messages=(marked,))).result(), "a stream")
    await close(seen, adapter)
    sent = cinema.projector.sent[-1]
    if declared and not holds(sent.json, CEILING):
        yield Found(f"max_tokens={CEILING} is not in the request", shown(sent.body, 200), str(CEILING))
    if RESERVED.encode() in sent.body:
        yield Found(f"{RESERVED!r} is in the request", shown(sent.body, 200), "no such key")
    if seen.subject.canary in sent.url or seen.subject.canary.encode() in sent.body:
        yield Found("the key is in the request's body or address", expected="the key in a header")


@law(
    "wire-golden",
    "A recording gives the result beside it, and a context beside it the recorded request.",
    why="A request or a reading that changes unseen is found out by its provider, or by nobody.",
    fix="compare request.json and result.json with what there is now; write them anew where the change is meant",
    covers=("F16", "F21", "F14"),
    after=("made", "answers"),
)
async def _wire_golden(seen: Seen) -> AsyncIterator[Found]:
    judged = False
    for reel in cinema_of(seen).reels:
        context, result = reel.beside("context.json"), reel.beside("result.json")
        judged = judged or context is not None or result is not None
        if context is not None:
            await play(seen, Showing(reel), whole=not reel.streamed, ctx=GenerateContext(**context))
            sent = cinema_of(seen).projector.sent[-1].json
            if sent != reel.asked.get("body"):
                yield Found(
                    f"{reel.name}: the request is another", shown(sent, 300), shown(reel.asked.get("body"), 300)
                )
        if result is not None:
            # Where whole replies have a form of their own, they are asked for as such.
            asked_whole = cinema_of(seen).has_two_wires and not reel.streamed
            outcome = plain(await (play(seen, Showing(reel), whole=True) if asked_whole else as_whole(seen, reel)))
            wrong = next((name for name in result if outcome.get(name) != result[name]), None)
            if wrong is not None:
                said = f"{reel.name}: {wrong} is another"
                yield Found(said, shown(outcome.get(wrong), 300), shown(result[wrong], 300))
    if not judged:
        raise NotJudged("no recording has a context.json or a result.json beside it")


@law(
    "wire-releases",
    "A stream that is left early, and one that fails, lets its connection go.",
    why="Connections that stay open run out.",
    fix="hold the connection in `async with` around the yields",
    covers=("F10",),
    after=("made", "answers", "wire-reads"),
)
async def _wire_releases(seen: Seen) -> AsyncIterator[Found]:
    cinema = cinema_of(seen)
    if cinema.through != "transport":
        raise NotJudged("its connections are its own")
    reel = successes(seen, streamed=True)[0]
    for cut in (None, max(1, len(reel.body) // 2)):
        cinema.put_on(Showing(reel, split=16, cut=cut))
        adapter = await seen.subject.make()
        stream = adapter.stream(ASKED)
        try:
            await seen.within(_left(stream, early=cut is None), "a stream")
        except Exception as error:
            _ = error
        await seen.within(stream.aclose(), "a stream's aclose()")
        await asyncio.sleep(0)
        if cinema.projector.open_now:
            yield Found(f"{reel.name}: a connection stays open", str(cinema.projector.open_now), "0")
            return


async def _left(stream: Any, *, early: bool) -> None:
    async for _ in stream:
        if early:
            return
