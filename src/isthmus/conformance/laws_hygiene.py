"""Laws on what a call does besides answering: to its caller's data, to the loop, to other calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from isthmus.conformance.graph import CLOSING, state
from isthmus.conformance.law import Found, Group, NotJudged
from isthmus.conformance.reading import shown
from isthmus.conformance.seen import Ask, Given, Heard, Seen, left_over, opened
from isthmus.conformance.subject import inner
from isthmus.conformance.watch import LATE
from isthmus.errors import InvalidRequestError
from isthmus.models.fold import iterate

_OVER = (InvalidRequestError, IndexError, StopIteration, StopAsyncIteration)
GROUP = Group()
law = GROUP.law

_AGAIN = 2
_ENDS = 1.0
_BREATH = 64
_CROWDED = 8
"""How many times as long as alone two calls at once may take on a busy machine, before one counts as hung."""


@law(
    "callers-data",
    "A call leaves the caller's messages, tools and options as they were.",
    why="The caller sends the same lists again: what was added to them is sent twice, or to another provider.",
    fix="copy before you change: [dict(message) for message in messages]",
    covers=("F22",),
    after=("made",),
)
async def _callers_data(seen: Seen) -> AsyncIterator[Found]:
    said: set[str] = set()
    for heard in [*await seen.usual(), *await seen.without_tools()]:
        if heard.changed and heard.face not in said:
            said.add(heard.face)
            yield Found(f"{heard.face}: it changed the caller's {' and '.join(heard.changed)}", expected="unchanged")


@law(
    "loop-free",
    "A call never blocks the event loop.",
    why="While it is blocked, every other call, time-out and cancellation of the process waits.",
    fix="await an async client, or asyncio.to_thread(blocking_call)",
    covers=("F10", "F24"),
)
async def _loop_free(seen: Seen) -> AsyncIterator[Found]:
    for heard in await seen.usual():
        if heard.blocked < LATE:
            continue
        again = [await seen.hear(heard.face, heard.ask) for _ in range(_AGAIN)]
        blocked = min([heard.blocked, *(other.blocked for other in again)])
        if blocked >= LATE:
            seen.kept["blocks"] = True
            yield Found(f"{heard.face}: it blocked the loop", f"{blocked:.2f} s at {heard.where}", "awaits")


@law(
    "cancel",
    "A cancelled call ends at once, by the cancellation itself.",
    why="A stop button, a time-out and a shutdown all cancel; what goes on costs money and shows text nobody wants.",
    fix="let asyncio.CancelledError pass: catch Exception, not BaseException, and re-raise after cleaning up",
    covers=("F10",),
    after=("made", "answers", "finish-present", "loop-free"),
)
async def _cancel(seen: Seen) -> AsyncIterator[Found]:
    tried = False
    for face in seen.faces:
        for wait in await _moments(seen, face):
            seen.turn_to(face)
            heard, task = Heard(face, seen.ask), None
            adapter = await seen.subject.make()
            task = asyncio.ensure_future(_drained(adapter, heard))
            await _pass(wait)
            if task.done():
                _ = task.cancelled() or task.exception()
                break
            tried = True
            task.cancel()
            await asyncio.wait({task}, timeout=_ENDS)
            wrong = _how_ended(task)
            if wrong:
                yield Found(f"{face}: {wrong}", expected="asyncio.CancelledError at once")
                break
    if not tried:
        raise NotJudged("no call ever waits")


async def _moments(seen: Seen, face: str) -> list[float | int]:
    """When to cancel: after so many turns of the loop (int), or so many seconds (float)."""
    usual = next(heard for heard in await seen.usual() if heard.face == face)
    return [1, 3, usual.seconds / 2] if usual.seconds > 0.02 else [1, 3]


async def _pass(wait: float | int) -> None:
    if isinstance(wait, float):
        await asyncio.sleep(wait)
        return
    for _ in range(wait):
        await asyncio.sleep(0)


async def _drained(adapter: Any, heard: Heard) -> None:
    value = opened(adapter, heard.face, given=Given(heard.face, heard.ask))
    if not heard.streams:
        value = await value if hasattr(value, "__await__") else value
        if not (hasattr(value, "__aiter__") or hasattr(value, "__next__")):
            return
    async for item in iterate(value):
        heard.items.append(item)
        if len(heard.items) % _BREATH == 0:
            await asyncio.sleep(0)


def _how_ended(task: asyncio.Task[Any]) -> str:
    if not task.done():
        return "it goes on after it was cancelled"
    if task.cancelled():
        return ""
    error = task.exception()
    return "it swallows the cancellation" if error is None else f"it turns the cancellation into {type(error).__name__}"


@law(
    "early-break",
    "A stream that is left early lets go of everything.",
    why="Each reader that stops early would leave a connection, a lock or a task behind.",
    fix="release in `finally` or `async with` around the yields, and re-raise GeneratorExit",
    covers=("F10",),
    after=("made", "answers", "finish-present", "loop-free"),
)
async def _early_break(seen: Seen) -> AsyncIterator[Found]:
    tried = False
    for heard in [heard for heard in await seen.usual() if heard.streams and len(heard.items) > 1]:
        tried = True
        for count in {1, len(heard.items) - 1}:
            wrong = await _broken_off(seen, heard, count)
            if wrong:
                yield Found(f"{heard.face}: after {count} items: {wrong}", expected="nothing left behind")
                break
    if not tried:
        raise NotJudged("no stream yields more than one item")


async def _broken_off(seen: Seen, heard: Heard, count: int) -> str:
    adapter = await seen.subject.make()
    own = inner(adapter)
    before, tasks = state(own), asyncio.all_tasks()
    seen.turn_to(heard.face)
    source = opened(adapter, heard.face, given=Given(heard.face, heard.ask))
    if hasattr(source, "__await__"):
        source = await seen.within(source, heard.face)
    if not hasattr(source, "aclose"):
        return ""
    await seen.within(_begun(source, count), f"{heard.face}, {count} of its items")
    closing = asyncio.ensure_future(_closed(source))
    await asyncio.wait({closing}, timeout=_ENDS)
    if not closing.done():
        closing.cancel()
        return "closing it does not end"
    if closing.result():
        return closing.result()
    del source
    left = await left_over(tasks)
    if left:
        return f"a task is left: {left[0]}"
    return await _kept(seen, heard, before, state(own)) if seen.subject.fresh else ""


async def _begun(source: Any, count: int) -> None:
    for _ in range(count):
        await anext(source)


async def _closed(source: Any) -> str:
    try:
        await source.aclose()
    except BaseException as error:
        return f"closing it raised {type(error).__name__}: {error}"
    return ""


async def _kept(seen: Seen, heard: Heard, before: dict[str, Any], after: dict[str, Any]) -> str:
    """What a whole call gives back and one that was left early does not."""
    adapter = await seen.subject.make()
    first = state(inner(adapter))
    await seen.hear(heard.face, heard.ask, adapter=adapter)
    whole = state(inner(adapter))
    for place in whole:
        was, full, broken = (kept.get(place, 0) for kept in (first, whole, after))
        changed = place in after and place in before and broken != before[place]
        if full == was and changed:
            return f"{place} is {broken!r}, and was {before[place]!r} before it"
        closing = any(word in place.rpartition(".")[2].lower() for word in CLOSING)
        if full != was and closing and broken == before.get(place, 0):
            return f"{place} is still {broken!r}"
    return ""


@law(
    "tasks",
    "A call leaves no task running.",
    why="What nobody awaits fails in silence, and runs on after its loop should have ended.",
    fix="await what you start, or cancel it in `finally`",
    covers=("F10",),
    after=("made", "answers"),
)
async def _tasks(seen: Seen) -> AsyncIterator[Found]:
    for heard in await seen.usual():
        if heard.tasks:
            yield Found(f"{heard.face}: a task is left running", heard.tasks[0], "none")


@law(
    "concurrent",
    "Calls at the same time, and one after another, share nothing.",
    why="Two users of one adapter would read each other's replies.",
    fix="keep what belongs to one call in local variables, not on self",
    covers=("F22",),
    after=(
        *("made", "answers", "event-shape", "reply-shape", "finish-present", "finish-once", "call-shape", "call-ids"),
        *("text-agrees", "loop-free"),
    ),
)
async def _concurrent(seen: Seen) -> AsyncIterator[Found]:
    asks = [Ask(_told(seen.ask.messages, word), seen.ask.tools) for word in ("one", "two")]
    judged, unjudged = False, "the same requests are answered differently each time, or once only"
    for face in seen.faces:
        expected, error = await _in_turn(seen, face, asks)
        if error is not None and seen.subject.fresh:
            what = f"{face}: the second call of one adapter raised {type(error).__name__}"
            yield Found(what, shown(error), "a reply")
        if expected is None or expected != (await _in_turn(seen, face, asks))[0]:
            continue
        alone = [_gist(await seen.hear(face, ask)) for ask in asks] if seen.subject.fresh else expected
        if _added(expected[1], expected[0], alone[1]):
            judged = True
            yield Found(f"{face}: the second call says the first one's reply too", shown(expected[1]), shown(alone[1]))
            continue
        adapter = await seen.subject.make()
        both = await asyncio.gather(*(seen.hear(face, ask, adapter=adapter, weave=True) for ask in asks))
        late = max((heard.seconds for heard in both if heard.late), default=None)
        longest = max(heard.seconds for heard in seen.heards if heard.face == face and not heard.late)
        if late is not None and late < _CROWDED * longest:
            unjudged = f"a call alone takes up to {longest:.1f} s: more patience would tell"
            continue
        judged = True
        if late is not None:
            what = f"{face}: of two calls at once, one never ends"
            yield Found(what, f"no reply within {late:.1f} s", f"a reply, as alone within {longest:.1f} s")
            continue
        found = [_gist(heard) for heard in both]
        wrong = next((place for place, gist in enumerate(found) if gist != expected[place]), None)
        if wrong is not None:
            said = both[wrong].error if both[wrong].error is not None else found[wrong]
            yield Found(f"{face}: two calls at once mix", shown(said), shown(expected[wrong]))
    if not judged:
        raise NotJudged(unjudged, "skip")


def _told(messages: Any, word: str) -> list[dict[str, Any]]:
    """The transcript with one more word in its last text."""
    said = [dict(message) for message in messages]
    for message in reversed(said):
        if isinstance(message.get("content"), str):
            message["content"] += f" ({word})"
            break
    return said


async def _in_turn(seen: Seen, face: str, asks: list[Ask]) -> tuple[list[Any] | None, BaseException | None]:
    """What one adapter answers to these, one after another, None where it does not answer all; why it failed later."""
    adapter = await seen.subject.make()
    heards = [await seen.hear(face, ask, adapter=adapter) for ask in asks]
    if all(heard.fit for heard in heards):
        return [_gist(heard) for heard in heards], None
    # A script that is over says so in one of these ways.
    failed = heards[-1].error if heards[0].fit else None
    return None, None if isinstance(failed, _OVER) else failed


def _gist(heard: Heard) -> Any:
    reading = heard.reading
    return None if reading is None else (reading.text, reading.said, reading.finish, len(reading.problems))


def _added(second: Any, first: Any, alone: Any) -> bool:
    """Whether a second reply is the first one's and its own."""
    if second == alone or not all((second, first, alone)):
        return False
    more_text = bool(first[0]) and second[0] == first[0] + alone[0]
    more_calls = bool(first[1]) and second[1] == first[1] + alone[1]
    return more_text or more_calls
