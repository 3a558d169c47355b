"""Failures put into an adapter on purpose, on every face; and an adapter that plays a script."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeAlias

from isthmus.adapters.base import ModelAdapter, as_adapter
from isthmus.adapters.registry import load_adapter
from isthmus.conformance.around import Around
from isthmus.errors import ConfigError, ErrorClass, tier_error
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, StepResult, Text
from isthmus.models.fold import Fold, close, folded, iterate
from isthmus.models.normalise import to_event
from isthmus.models.script import Step, items_of

Events: TypeAlias = AsyncIterator[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that an adapter does wrong; made by one of its builders.

    It strikes once `after` events, or so many `characters` of text, have gone out: at the latest before the finish.

    Args:
        act: what it does to the rest of the reply, once its place is reached.
        name: what a person calls it.
        after: how many events go out first, of whatever kind; 0 strikes before the model is called.
        characters: how many characters of text go out first, instead of `after`; a text is cut there.
    """

    act: Callable[[Events], Events]
    name: str
    after: int = 0
    characters: int | None = None

    @classmethod
    def fail(cls, error: BaseException | str, *, after: int = 0, characters: int | None = None) -> Fault:
        """Raises an error: an exception, or the name of an error class, e.g. "transient"."""
        failure = tier_error(error, f"deliberate failure: {error}") if isinstance(error, str) else error

        async def act(rest: Events) -> Events:
            # Each raise adds to an exception's traceback, and callers hang what had arrived on it.
            raise copy.copy(failure)
            yield

        return cls(act=act, name=f"fail with {failure!r}", after=after, characters=characters)

    @classmethod
    def cut(cls, *, after: int = 0, characters: int | None = None) -> Fault:
        """Just ends: no finish, no error."""

        async def act(rest: Events) -> Events:
            return
            yield

        return cls(act=act, name="cut", after=after, characters=characters)

    @classmethod
    def stall(cls, *, after: int = 0, characters: int | None = None) -> Fault:
        """Says nothing more and never ends."""

        async def act(rest: Events) -> Events:
            await asyncio.get_running_loop().create_future()
            yield

        return cls(act=act, name="stall", after=after, characters=characters)

    @classmethod
    def delay(cls, seconds: float, *, after: int = 0, each: bool = False) -> Fault:
        """Waits, once or before each event from there on, and is right otherwise."""

        async def act(rest: Events) -> Events:
            await asyncio.sleep(seconds)
            async for event in rest:
                yield event
                if each:
                    await asyncio.sleep(seconds)

        return cls(act=act, name=f"delay of {seconds:g} s", after=after)

    @classmethod
    def inject(cls, event: Any = None, *, after: int = 0, characters: int | None = None) -> Fault:
        """Hands out something that does not belong there; absent: an object that is no event at all."""
        injected = object() if event is None else event

        async def act(rest: Events) -> Events:
            yield injected
            async for item in rest:
                yield item

        return cls(act=act, name=f"inject {injected!r:.60}", after=after, characters=characters)

    @classmethod
    def wrong_type(cls, *, after: int = 0) -> Fault:
        """Hands out an event of the right type with a field of a wrong one."""
        return replace(cls.inject(Text(5), after=after), name="event of a wrong type")  # type: ignore[arg-type]

    @classmethod
    def no_finish(cls) -> Fault:
        """Lacks the finish, and nothing else."""

        async def act(rest: Events) -> Events:
            async for event in rest:
                if not isinstance(event, Finish):
                    yield event

        return cls(act=act, name="no finish")

    @classmethod
    def two_finishes(cls) -> Fault:
        """Ends twice."""

        async def act(rest: Events) -> Events:
            async for event in rest:
                yield event
                if isinstance(event, Finish):
                    yield event

        return cls(act=act, name="two finishes")

    @classmethod
    def split(cls, size: int = 1) -> Fault:
        """Hands out texts in pieces of `size` characters, and is right otherwise."""

        async def act(rest: Events) -> Events:
            async for event in rest:
                if isinstance(event, Text):
                    for at in range(0, len(event.text), size):
                        yield Text(event.text[at : at + size])
                else:
                    yield event

        return cls(act=act, name=f"texts in pieces of {size}")

    def __repr__(self) -> str:
        place = f"after {self.after} events" if self.characters is None else f"after {self.characters} characters"
        return f"Fault({self.name}, {place})"


Cause: TypeAlias = Fault | BaseException | str | None
Plan: TypeAlias = Cause | Sequence[Cause] | Mapping[int, Cause] | Callable[[int], Cause]


def at_random(cause: Cause, *, chance: float, seed: int) -> Callable[[int], Cause]:
    """A plan in which each call fails with a probability, the same calls for the same seed.

    Args:
        cause: what happens to those that fail.
        chance: from 0.0 (none) to 1.0 (all).
        seed: which calls they are, whatever the order in which they run.
    """
    return lambda call: cause if random.Random(f"{seed}:{call}").random() < chance else None


def faulty(adapter: Any, plan: Plan) -> FaultyAdapter:
    """An adapter that goes wrong as planned, and is the given one otherwise, on every face.

    Args:
        adapter: any adapter, tier or chain.
        plan: what happens at each call, counted from 1 over streams and whole replies: one fault for all of them; a
            list for the first ones, in turn (None: nothing); a dict from the number of a call to its fault; or a
            function of that number. A fault is a `Fault`, an exception, or the name of an error class: the latter two
            strike before content.

    Raises:
        ConfigError: the plan names no error class.
    """
    return FaultyAdapter(as_adapter(adapter), plan)


def scripted(steps: Iterable[Step], **settings: Any) -> Any:
    """An adapter that plays one step a call, in order, and keeps the context of each call in `contexts`.

    A call beyond the last step fails as "invalid", and says so.

    Args:
        steps: each a text; a dict of "text", "reasoning", "calls", "finish", "usage", "error" and "delay"; a
            `StepResult`; a list of events in which a number waits and an exception is raised; an exception; or a
            function of the context that gives one of these.
        settings: of `isthmus.adapters.scripted.ScriptedAdapter`, e.g. `id` and `window_tokens`.
    """
    return load_adapter("scripted", steps=tuple(steps), **settings)


class FaultyAdapter(Around):
    """What `faulty` returns.

    Attributes:
        struck: the calls that went wrong, as (number, fault).
    """

    def __init__(self, inner: ModelAdapter, plan: Plan) -> None:
        super().__init__(inner)
        self.struck: list[tuple[int, Fault]] = []
        self._plan = _planned(plan)
        self._numbers = count(1)

    def _next(self) -> Fault | None:
        number = next(self._numbers)
        fault = _fault(self._plan(number))
        if fault is not None:
            self.struck.append((number, fault))
        return fault

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        """The adapter's events, with what the plan has for this call."""
        fault = self._next()
        events = _stream(self.inner, ctx)
        if fault is not None:
            events = _struck(events, fault)
        try:
            async for event in events:
                yield event
        finally:
            await close(events)

    async def generate(self, ctx: GenerateContext) -> StepResult:
        """The adapter's whole reply, with what the plan has for this call."""
        fault = self._next()
        if fault is None:
            return await _whole(self.inner, ctx)
        return await folded(_all, _struck(_unfolded(self.inner, ctx), fault))


def _fault(cause: Cause) -> Fault | None:
    return cause if cause is None or isinstance(cause, Fault) else Fault.fail(cause)


def _planned(plan: Plan) -> Callable[[int], Cause]:
    if plan is None or isinstance(plan, Fault | BaseException | str):
        cause = _checked(plan)
        return lambda _: cause
    if isinstance(plan, Mapping):
        table = {number: _checked(cause) for number, cause in plan.items()}
        return lambda number: table.get(number)
    if callable(plan):
        return plan
    causes = [_checked(cause) for cause in plan]
    return lambda number: causes[number - 1] if number <= len(causes) else None


def _checked(cause: Cause) -> Cause:
    if isinstance(cause, str) and cause not in tuple(ErrorClass):
        raise ConfigError(f"{cause!r} is no error class: use one of {', '.join(ErrorClass)}, or a Fault", where="plan")
    return cause


async def _stream(adapter: ModelAdapter, ctx: GenerateContext) -> AsyncGenerator[Any, None]:
    source = iterate(adapter.stream(ctx))
    try:
        async for event in source:
            yield event
    finally:
        await close(source)


async def _whole(adapter: ModelAdapter, ctx: GenerateContext) -> StepResult:
    result: StepResult = await adapter.generate(ctx)
    return result


async def _unfolded(adapter: ModelAdapter, ctx: GenerateContext) -> AsyncGenerator[Any, None]:
    """A whole reply as the events that fold into it; nothing is asked for before the first is."""
    for item in items_of(await _whole(adapter, ctx)):
        if isinstance(item, BaseException):
            raise item
        yield item


async def _all(fold: Fold, events: Events) -> None:
    """Fold all there is: unlike a reader that stops at the finish, it sees what comes after."""
    try:
        async for event in events:
            fold.add(to_event(event))
    finally:
        await close(events)


async def _struck(events: AsyncGenerator[Any, None], fault: Fault) -> AsyncGenerator[Any, None]:
    """The events up to the place of the fault, and from there on what it makes of them."""
    rest: list[Any] = []
    left = fault.after if fault.characters is None else fault.characters
    try:
        while left > 0:
            event = await anext(events, None)
            if event is None or isinstance(event, Finish):
                rest = [] if event is None else [event]
                break
            text = event.text if isinstance(event, Text) else ""
            if fault.characters is not None and len(text) > left:
                event, rest = Text(text[:left]), [Text(text[left:])]
            left -= 1 if fault.characters is None else len(text)
            yield event
        acted = fault.act(_joined(rest, events))
        try:
            async for event in acted:
                yield event
        finally:
            await close(acted)
    finally:
        await events.aclose()


async def _joined(first: list[Any], events: Events) -> Events:
    for event in first:
        yield event
    async for event in events:
        yield event
