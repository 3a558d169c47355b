"""The events of a run as the model face shows those of a reply, and as one stream with the steps of the harness."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from isthmus.adapters.views import to_model_event, to_response
from isthmus.harness.run import Run
from isthmus.harness.runevents import RunEvent, RunEventKind
from isthmus.models.aside import Aside
from isthmus.models.events import EVENT_TYPES, FinishReason, StepResult
from isthmus.models.responses import ModelStreamEvent


async def model_events(events: AsyncGenerator[Any, None], run: Run) -> AsyncGenerator[ModelStreamEvent, None]:
    """Each event as a `ModelStreamEvent`, and a "completed" one at the end of each reply, several in a run.

    Args:
        events: the events of the run; closed with this.
        run: the run, with the replies that are whole by now.
    """
    async with aclosing(_shown(events, run)) as shown:
        async for event in shown:
            if isinstance(event, ModelStreamEvent):
                yield event


async def run_events(events: AsyncGenerator[Any, None], run: Run) -> AsyncGenerator[RunEvent, None]:
    """Each event as a `RunEvent`: those of the models inside one of the kind "model_stream".

    Args:
        events: the events of the run; closed with this.
        run: the run.
    """
    async with aclosing(_shown(events, run)) as shown:
        async for event in shown:
            if isinstance(event, RunEvent):
                yield event
            elif run.crew is not None:
                yield run.crew.event(RunEventKind.MODEL_STREAM, model_event=event)


async def _shown(events: AsyncGenerator[Any, None], run: Run) -> AsyncGenerator[ModelStreamEvent | RunEvent, None]:
    told = 0
    async with aclosing(events):
        async for event in events:
            if told < len(run.replies):
                for completed in _completed(run.replies[told:]):
                    yield completed
                told = len(run.replies)
            shown = to_model_event(event) if type(event) in EVENT_TYPES else event
            if type(event) is Aside and event.event.kind == "completed":
                # The provider's own word, with what continues the reply, stands for ours.
                told += 1
            if isinstance(shown, ModelStreamEvent | RunEvent):
                yield shown
        for completed in _completed(run.replies[told:]):
            yield completed


def _completed(steps: Sequence[StepResult]) -> Iterator[ModelStreamEvent]:
    for step in steps:
        if step.finish != FinishReason.ERROR_POST:
            yield ModelStreamEvent(kind="completed", response=to_response(step))
