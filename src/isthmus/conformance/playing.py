"""Plays recordings to an adapter, in one way or another, and says what it made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from isthmus.conformance.law import NotJudged
from isthmus.conformance.reading import shown
from isthmus.conformance.reels import Cinema, Reel, Showing
from isthmus.conformance.seen import Seen
from isthmus.conformance.subject import CannotMake
from isthmus.conformance.watch import Hangs
from isthmus.errors import TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from isthmus.models.fold import classify
from isthmus.models.stream import EventStream

ASKED = GenerateContext(messages=({"role": "user", "content": "Play it."},))
"""What is asked where only the reply matters."""
_TRIES = 40
Outcome = StepResult | TierError


def cinema_of(seen: Seen) -> Cinema:
    """The recordings that were given.

    Raises:
        NotJudged: there are none.
    """
    cinema = seen.kept.get("cinema")
    if cinema is None:
        raise NotJudged("no recordings were given: recordings=folder")
    return cinema  # type: ignore[no-any-return]


async def play(seen: Seen, showing: Showing, *, whole: bool = False, ctx: GenerateContext = ASKED) -> Outcome:
    """What the adapter makes of a recording, played in this way."""
    cinema = cinema_of(seen)
    cinema.put_on(showing)
    adapter = await seen.subject.make()
    try:
        made = _generated(adapter, ctx) if whole else adapter.stream(ctx).result()
        step: StepResult = await seen.within(made, f"{showing.reel.name}, {'whole' if whole else 'streamed'}")
    except Exception as error:
        return classify(error)
    finally:
        await close(seen, adapter)
    return step if step.error is None else step.error


async def _generated(adapter: Any, ctx: GenerateContext) -> Any:
    return await adapter.generate(ctx)


async def close(seen: Seen, adapter: Any) -> None:
    """Close an adapter that was played to, if it can be closed within the patience."""
    with suppress(Hangs):
        await seen.within(adapter.aclose(), "aclose()")


async def choose(seen: Seen) -> None:
    """Answer ordinary requests with a recording that is a reply, not a failure that came as a success."""
    cinema = cinema_of(seen)
    with suppress(CannotMake):
        cinema.best = next((reel for reel, _ in await _read(seen, cinema.candidates(), whole=False)), None)
        if cinema.best is None or isinstance(await play(seen, Showing(cinema.best), whole=True), TierError):
            await _choose_whole(seen)
    cinema.put_on_usual()


async def _choose_whole(seen: Seen) -> None:
    """Answer those who ask for a whole reply with one, where they can't read the stream: if it can be, the same."""
    cinema = cinema_of(seen)
    wholes = [reel for reel in cinema.candidates() if not reel.streamed]
    read = await _read(seen, wholes, whole=True)
    # One that is not read either is still the right question: what it fails with is then told.
    first = next((reel for reel, _ in read), next(iter(wholes), None))
    if first is None or cinema.best is first or isinstance(await play(seen, Showing(first)), StepResult):
        return
    cinema.best_whole = first
    streams = await _read(seen, [reel for reel in cinema.candidates() if reel.streamed], whole=False)
    pairs = ((stream, whole) for stream, one in streams for whole, other in read if same(one, other))
    pair = next(pairs, None)
    seen.kept["apart"] = pair is None
    if pair is not None:
        cinema.best, cinema.best_whole = pair


async def _read(seen: Seen, reels: list[Reel], *, whole: bool) -> list[tuple[Reel, StepResult]]:
    """The first recordings that are read as replies, those with whole calls before the others."""
    found: list[tuple[Reel, StepResult]] = []
    for reel in reels[:_TRIES]:
        step = await play(seen, Showing(reel), whole=whole)
        if isinstance(step, StepResult):
            found.append((reel, step))
    return sorted(found, key=lambda one: not one[1].calls or any(call.problem for call in one[1].calls))


def successes(seen: Seen, *, streamed: bool | None = None) -> list[Reel]:
    """The recordings with status 200 and a body, streams or whole ones only where that is asked.

    Raises:
        NotJudged: there is none.
    """
    found = [
        reel for reel in cinema_of(seen).reels if reel.status == 200 and reel.body and streamed in (None, reel.streamed)
    ]
    if not found:
        raise NotJudged("no such recording was given")
    return found


async def as_whole(seen: Seen, reel: Reel) -> Outcome:
    """What a recording amounts to when nothing happens to it; played once."""
    kept = seen.kept.setdefault("played", {})
    if reel.place not in kept:
        kept[reel.place] = await play(seen, Showing(reel), whole=cinema_of(seen).has_two_wires and not reel.streamed)
    return kept[reel.place]  # type: ignore[no-any-return]


async def replies(seen: Seen) -> AsyncIterator[tuple[Reel, StepResult]]:
    """The recorded successes that are replies, with what each amounts to."""
    for reel in successes(seen):
        step = await as_whole(seen, reel)
        if isinstance(step, StepResult):
            yield reel, step


def same(one: StepResult, other: StepResult) -> bool:
    """Whether two replies say the same; tokens are not compared."""
    names = ("text", "calls", "reasoning", "native", "finish")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def told(outcome: Outcome) -> str:
    """An outcome as a finding shows it."""
    if isinstance(outcome, TierError):
        return shown(outcome, 160)
    return shown((outcome.finish, outcome.text[-60:], [call.tool for call in outcome.calls]), 160)


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes are the same reply, tokens too, or failures of the same class."""
    if isinstance(one, StepResult) and isinstance(other, StepResult):
        return same(one, other) and one.usage == other.usage
    if isinstance(one, TierError) and isinstance(other, TierError):
        return one.error_class == other.error_class
    return False


async def raw_events(seen: Seen, reel: Reel) -> list[Any] | None:
    """What the adapter yields for a recording, event by event; None where it fails, or is none of its streams."""
    cinema = cinema_of(seen)
    if cinema.has_two_wires and not reel.streamed:
        return None
    cinema.put_on(Showing(reel))
    adapter = await seen.subject.make()
    try:
        return await seen.within(_events(adapter), f"{reel.name}, streamed")
    except Exception:
        return None
    finally:
        await close(seen, adapter)


async def _events(adapter: Any) -> list[Any]:
    return [event async for event in EventStream.bare(adapter.stream(ASKED))]
