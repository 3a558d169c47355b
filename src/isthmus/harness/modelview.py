"""The events of a run as the model face shows those of a reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from isthmus.adapters.views import to_model_event, to_response
from isthmus.models.events import EVENT_TYPES, FinishReason, StepResult
from isthmus.models.responses import ModelStreamEvent


async def model_events(
    events: AsyncGenerator[Any, None], replies: Callable[[], Sequence[StepResult]]
) -> AsyncGenerator[ModelStreamEvent, None]:
    """Each event as a `ModelStreamEvent`, and a "completed" one at the end of each reply, several in a run.

    Args:
        events: the events of the run; closed with this.
        replies: the replies that are whole by now.
    """
    told = 0
    async with aclosing(events):
        async for event in events:
            for completed in _completed(replies()[told:]):
                yield completed
            told = len(replies())
            shown = to_model_event(event) if type(event) in EVENT_TYPES else None
            if shown is not None:
                yield shown
        for completed in _completed(replies()[told:]):
            yield completed


def _completed(steps: Sequence[StepResult]) -> Iterator[ModelStreamEvent]:
    for step in steps:
        if step.finish != FinishReason.ERROR_POST:
            yield ModelStreamEvent(kind="completed", response=to_response(step))
