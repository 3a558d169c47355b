"""An adapter that plays a script: deterministic, offline, for tests and documentation."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias

from isthmus.adapters.base import ModelAdapter
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import CallDelta, Event, Finish, Native, Reasoning, StepResult, Text
from isthmus.models.normalise import to_event, to_step_result

Step: TypeAlias = (
    str | StepResult | Mapping[str, Any] | Sequence[Any] | BaseException | Callable[[GenerateContext], Any]
)


class ScriptedAdapter(ModelAdapter):
    """Plays one step a call, in order, and keeps the context of each call in `contexts`.

    A step is a text, a `StepResult` (streamed in pieces), a list of events (played as they stand, an exception among
    them raised at its place), an exception (raised before any event), or a function of the context that returns, or
    whose awaited result is, one of these.

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
        for item in _items(step):
            if isinstance(item, BaseException):
                raise item
            yield to_event(item)


def _items(step: Any) -> Iterable[Any]:
    if isinstance(step, BaseException):
        return (step,)
    if isinstance(step, str):
        step = StepResult(events=(Text(step),))
    if isinstance(step, StepResult | Mapping):
        return _played(to_step_result(step))
    return step if isinstance(step, Iterable) else (step,)


def _played(step: StepResult) -> Iterator[Event | BaseException]:
    """The events that fold into this result; one that failed raises its error after its content."""
    if step.reasoning:
        yield Reasoning(step.reasoning)
    yield from (item for item in step.native if item is not step.message)
    index = 0
    for event in step.events:
        if isinstance(event, Text):
            yield from (Text(piece) for piece in _pieces(event.text))
            continue
        yield CallDelta(index, event.call_id, event.tool, event.arguments or "")
        yield event
        index += 1
    if step.error is not None:
        yield step.error
        return
    native: Native | None = step.message
    yield Finish(step.finish, usage=step.usage, raw_reason=step.raw_reason, native=native, notes=step.notes)


def _pieces(text: str) -> list[str]:
    """A text cut before its words, the way that models stream."""
    return re.findall(r"\s*\S+|\s+\Z", text)
