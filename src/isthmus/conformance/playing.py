"""Plays recordings to an adapter, in one way or another, and says what it made of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from isthmus.conformance.law import NotJudged
from isthmus.conformance.reading import shown
from isthmus.conformance.reels import Cinema, Reel, Showing
from isthmus.conformance.seen import Seen
from isthmus.conformance.subject import CannotMake
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
    cinema = cinema_of(seen)
    for reel in cinema.candidates()[:_TRIES]:
        with suppress(CannotMake):
            if isinstance(await play(seen, Showing(reel)), StepResult):
                cinema.best = reel
                break
    cinema.put_on(Showing(cinema.usual()))


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
        kept[reel.place] = await play(seen, Showing(reel))
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
    """What the adapter yields for a recording, event by event; None where it fails."""
    cinema_of(seen).put_on(Showing(reel))
    adapter = await seen.subject.make()
    try:
        async with asyncio.timeout(seen.patience):
            return [event async for event in EventStream.bare(adapter.stream(ASKED))]
    except Exception:
        return None
    finally:
        with suppress(TimeoutError):
            await asyncio.wait_for(adapter.aclose(), seen.patience)
