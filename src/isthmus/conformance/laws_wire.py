"""Laws at wire level: recordings of the provider, split, cut and told to the adapter byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from isthmus.conformance.graph import holds, walk
from isthmus.conformance.law import Found, Group, NotJudged
from isthmus.conformance.reading import plain, shown
from isthmus.conformance.reels import Cinema, Reel, Showing
from isthmus.conformance.report import WARNING
from isthmus.conformance.seen import Seen
from isthmus.conformance.subject import CEILING, CannotMake
from isthmus.errors import ErrorClass, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from isthmus.models.fold import classify
from isthmus.models.messages import RESERVED, assistant_message
from isthmus.wire.call import Ended

GROUP = Group()
law = GROUP.law

_OPAQUE = frozenset({"signature", "data", "encrypted_content", "thought_signature", "thoughtSignature", "encrypted"})
_CUTS = 3000
_TRIES = 40
_SPLITS = (1, 7, 4096)
_SMALL = 20_000
_ASKED = GenerateContext(messages=({"role": "user", "content": "Play it."},))
_KINDS = frozenset(ErrorClass)
Outcome = StepResult | TierError


def _cinema(seen: Seen) -> Cinema:
    cinema = seen.kept.get("cinema")
    if cinema is None:
        raise NotJudged("no recordings were given: recordings=folder")
    return cinema  # type: ignore[no-any-return]


async def _play(seen: Seen, showing: Showing, *, whole: bool = False, ctx: GenerateContext = _ASKED) -> Outcome:
    """What the adapter makes of a recording, played in this way."""
    cinema = _cinema(seen)
    cinema.put_on(showing)
    adapter = await seen.subject.make()
    try:
        async with asyncio.timeout(seen.patience):
            step: StepResult = await adapter.generate(ctx) if whole else await adapter.stream(ctx).result()
    except Exception as error:
        return classify(error)
    finally:
        with suppress(TimeoutError):
            await asyncio.wait_for(adapter.aclose(), seen.patience)
    return step if step.error is None else step.error


async def choose(seen: Seen) -> None:
    """Answer ordinary requests with a recording that is a reply, not a failure that came as a success."""
    cinema = _cinema(seen)
    for reel in cinema.candidates()[:_TRIES]:
        with suppress(CannotMake):
            if isinstance(await _play(seen, Showing(reel)), StepResult):
                cinema.best = reel
                break
    cinema.put_on(Showing(cinema.usual()))


def _successes(seen: Seen, *, streamed: bool | None = None) -> list[Reel]:
    found = [
        reel for reel in _cinema(seen).reels if reel.status == 200 and reel.body and streamed in (None, reel.streamed)
    ]
    if not found:
        raise NotJudged("no such recording was given")
    return found


async def _whole(seen: Seen, reel: Reel) -> Outcome:
    """What a recording amounts to when nothing happens to it; played once."""
    kept = seen.kept.setdefault("played", {})
    if reel.place not in kept:
        kept[reel.place] = await _play(seen, Showing(reel))
    return kept[reel.place]  # type: ignore[no-any-return]


async def _replies(seen: Seen) -> AsyncIterator[tuple[Reel, StepResult]]:
    """The recorded successes that are replies, with what each amounts to."""
    for reel in _successes(seen):
        step = await _whole(seen, reel)
        if isinstance(step, StepResult):
            yield reel, step


def _same(one: StepResult, other: StepResult) -> bool:
    names = ("text", "calls", "reasoning", "native", "finish")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _told(outcome: Outcome) -> str:
    if isinstance(outcome, TierError):
        return shown(outcome, 160)
    return shown((outcome.finish, outcome.text[-60:], [call.tool for call in outcome.calls]), 160)


@law(
    "wire-reads",
    "Each recorded success is read: as a reply, or as the failure that it holds.",
    why="A reply that its own provider sent and the adapter cannot read is lost.",
    fix="read what the recording holds; skip what you do not know, and raise what is an error",
    covers=("F04", "F06", "F12"),
    after=("made", "answers"),
)
async def _wire_reads(seen: Seen) -> AsyncIterator[Found]:
    for reel in _successes(seen):
        outcome = await _whole(seen, reel)
        if isinstance(outcome, TierError) and outcome.error_class == ErrorClass.UNCLASSIFIED:
            yield Found(f"{reel.name}: cannot be read", _told(outcome), "a reply")


@law(
    "wire-split",
    "Any split of the bytes gives the same reply.",
    why="The network ends its reads where it likes: inside a line, a character, a number.",
    fix="keep an incomplete line (and an incomplete character) until its rest comes",
    covers=("F06",),
    after=("made", "answers", "wire-reads"),
)
async def _wire_split(seen: Seen) -> AsyncIterator[Found]:
    for reel in _successes(seen, streamed=True):
        expected = await _whole(seen, reel)
        for split in _SPLITS:
            if split == 1 and len(reel.body) > _SMALL:
                continue
            outcome = await _play(seen, Showing(reel, split=split))
            if not _alike(outcome, expected):
                yield Found(
                    f"{reel.name}: in pieces of {split} bytes it is another reply", _told(outcome), _told(expected)
                )
                break


def _alike(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, StepResult) and isinstance(other, StepResult):
        return _same(one, other) and one.usage == other.usage
    if isinstance(one, TierError) and isinstance(other, TierError):
        return one.error_class == other.error_class
    return False


@law(
    "wire-cut",
    "A stream that is cut at any byte is an error, or the whole reply; never a smaller success.",
    why="A connection that drops would pass a part of the answer off as all of it.",
    fix="finish only at the protocol's own end mark; raise where the bytes end without it",
    covers=("F01", "F12"),
    after=("made", "answers", "wire-reads"),
)
async def _wire_cut(seen: Seen) -> AsyncIterator[Found]:
    reels = _successes(seen, streamed=True)
    ways = (Ended.BROKEN, Ended.UNFRAMED)
    each = max(6, min(60, _CUTS // len(reels)))
    for reel in reels:
        expected = await _whole(seen, reel)
        if reel.ended == Ended.BROKEN:
            continue
        wrong = await _smaller(seen, reel, expected, _points(reel.body, each), ways)
        if wrong:
            yield Found(f"{reel.name}: {wrong[0]}", wrong[1], f"an error, or {_told(expected)}")


async def _smaller(
    seen: Seen, reel: Reel, expected: Outcome, points: list[int], ways: tuple[Ended, ...]
) -> tuple[str, str] | None:
    """The first cut that gives a success other than the whole reply."""
    for point in points:
        for ended in ways:
            outcome = await _play(seen, Showing(reel, cut=point, ended=ended))
            smaller = isinstance(outcome, StepResult)
            if smaller and not (isinstance(expected, StepResult) and _same(outcome, expected)):  # type: ignore[arg-type]
                return f"cut at byte {point} of {len(reel.body)} ({ended}) it is a success", _told(outcome)
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
    for reel in _successes(seen):
        expected = await _whole(seen, reel)
        outcome = await _play(seen, Showing(reel), whole=True)
        if not _alike(outcome, expected):
            yield Found(f"{reel.name}: read whole it is another reply", _told(outcome), _told(expected))


@law(
    "wire-status",
    "Each recorded error status is raised, as one class whichever way it was asked for, with its status kept.",
    why="What may be done about a failure is decided by its class.",
    fix="raise on every status outside 2xx before anything is read as a reply; keep the status on the error",
    covers=("F09", "F18"),
    after=("made", "answers"),
)
async def _wire_status(seen: Seen) -> AsyncIterator[Found]:
    reels = [reel for reel in _cinema(seen).reels if not 200 <= reel.status < 300]
    if not reels:
        raise NotJudged("no recording of an error was given")
    for reel in reels:
        streamed, whole = await _play(seen, Showing(reel)), await _play(seen, Showing(reel), whole=True)
        if isinstance(streamed, StepResult) or isinstance(whole, StepResult):
            yield Found(f"{reel.name}: status {reel.status} came as a reply", _told(streamed), "an error")
        elif streamed.error_class != whole.error_class or streamed.error_class not in _KINDS:
            yield Found(f"{reel.name}: two classes", f"{streamed.error_class}, {whole.error_class}", "one class")
        elif streamed.error_class == ErrorClass.UNCLASSIFIED:
            said = f"{reel.name}: status {reel.status} has no class"
            yield Found(said, _told(streamed), "tier_error(class, …)", WARNING)
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
    async for reel, step in _replies(seen):
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
    await _play(seen, Showing(reel), ctx=GenerateContext(messages=(*history, *more)))
    return _cinema(seen).projector.sent[-1].json


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
    async for reel, step in _replies(seen):
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
    cinema = _cinema(seen)
    cinema.put_on(Showing(cinema.usual()))
    declared = seen.subject.declares("max_tokens")
    adapter = await seen.subject.make(**({"max_tokens": CEILING} if declared else {}))
    marked = {"role": "user", "content": "Play it.", RESERVED: {"native": {"dialect": "x", "of": "y", "json": "{}"}}}
    await adapter.stream(GenerateContext(messages=(marked,))).result()
    await adapter.aclose()
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
    for reel in _cinema(seen).reels:
        context, result = reel.beside("context.json"), reel.beside("result.json")
        judged = judged or context is not None or result is not None
        if context is not None:
            await _play(seen, Showing(reel), whole=not reel.streamed, ctx=GenerateContext(**context))
            sent = _cinema(seen).projector.sent[-1].json
            if sent != reel.asked.get("body"):
                yield Found(
                    f"{reel.name}: the request is another", shown(sent, 300), shown(reel.asked.get("body"), 300)
                )
        if result is not None:
            outcome = plain(await _whole(seen, reel))
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
    cinema = _cinema(seen)
    if cinema.through != "transport":
        raise NotJudged("its connections are its own")
    reel = _successes(seen, streamed=True)[0]
    for cut in (None, max(1, len(reel.body) // 2)):
        cinema.put_on(Showing(reel, split=16, cut=cut))
        adapter = await seen.subject.make()
        stream = adapter.stream(_ASKED)
        try:
            async for _ in stream:
                if cut is None:
                    break
        except Exception as error:
            _ = error
        await stream.aclose()
        await asyncio.sleep(0)
        if cinema.projector.open_now:
            yield Found(f"{reel.name}: a connection stays open", str(cinema.projector.open_now), "0")
            return
