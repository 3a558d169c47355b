"""An adapter that plays a script: deterministic, offline, for tests and documentation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from inspect import isawaitable

from isthmus.adapters.base import ModelAdapter
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event
from isthmus.models.normalise import to_event
from isthmus.models.script import Step, items_of


class ScriptedAdapter(ModelAdapter):
    """Plays one step a call, in order, and keeps the context of each call in `contexts`.

    A step is a text, a `StepResult` (streamed in pieces), a dict as JSON can write it, a list of events (played as they
    stand, an exception among them raised at its place, a number a wait of so many seconds), an exception (raised before
    any event), or a function of the context that returns, or whose awaited result is, one of these.

    Args:
        steps: the script.
        replies: texts to answer with after the steps; what a configuration file can write.
        id: the adapter's name in a chain.
        window_tokens: the window that it declares, in tokens.
        max_output_tokens: the ceiling that it declares, in tokens.
        supports: what it declares to take.
    """

    provider = "scripted"
    model = "script"
    for_development = True

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        replies: Iterable[str] = (),
        id: str | None = None,
        window_tokens: int | None = None,
        max_output_tokens: int | None = None,
        supports: Iterable[str] = ("tools", "parallel-tools", "images", "documents", "audio", "output-schema"),
    ) -> None:
        self.contexts: list[GenerateContext] = []
        self._steps: tuple[Step, ...] = (*steps, *replies)
        self.id = id or "scripted:script"
        self.window_tokens = window_tokens
        self.max_output_tokens = max_output_tokens
        self.supports = frozenset(supports)

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        """The next step's events.

        Raises:
            InvalidRequestError: the script is over.
            BaseException: what the script says.
        """
        self.contexts.append(ctx)
        turn = len(self.contexts)
        if turn > len(self._steps):
            raise InvalidRequestError(f"{self.id}: call {turn} of a script of {len(self._steps)}: add a step for it")
        step = self._steps[turn - 1]
        while callable(step):
            step = step(ctx)
            if isawaitable(step):
                step = await step
        for item in items_of(step):
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, int | float):
                await asyncio.sleep(item)
            else:
                yield to_event(item)
