"""Drives a run: carries out the loop's effects and hands the events to whoever reads them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from isthmus.errors import CutReason, TierError
from isthmus.harness.conversation import Turn
from isthmus.harness.effects import CallModel
from isthmus.harness.observed import started
from isthmus.harness.run import AgentEvent, Begun, Run, raise_failure
from isthmus.harness.runevents import RunEvent
from isthmus.harness.state import RunState
from isthmus.models.events import Text
from isthmus.models.stream import Watchdog
from isthmus.observability.scope import under


async def drive(
    run: Run, model: Any, *, watch: Watchdog, kept: Kept | None
) -> AsyncGenerator[AgentEvent | RunEvent, None]:
    """The events of a run, which goes on while they are read.

    Args:
        run: the run.
        model: what has `open_run()`.
        watch: knows the task that waits for a model or for tools.
        kept: the run's tie to a conversation; None where there is none.
    """
    loop = asyncio.get_running_loop()
    watch.start(loop)
    try:
        if kept is not None:
            await kept.begin(run)
            watch.task = asyncio.current_task(loop)
        started(run.op, run.context)
        await _arrive(run)
        async with model.open_run() as active:
            run.active, run.before = active, len(getattr(active, "attempts", ()))
            while not run.closing and (effect := run.next()) is not None:
                watch.task = asyncio.current_task(loop)
                if not isinstance(effect, CallModel):
                    async with aclosing(run.carry_out(effect)) as events:
                        async for event in events:
                            yield event
                            watch.task = asyncio.current_task(loop)
                    continue
                broken: TierError | None = None
                stream, passage = run.call(active, effect)
                plain, keep = passage.plain, passage.pieces.append
                try:
                    async for batch in stream.batches():
                        for event in batch:
                            if plain and type(event) is Text:
                                keep(event.text)
                                yield event
                                continue
                            for shown in passage.take(event):
                                yield shown
                            plain = passage.plain
                except TierError as error:
                    broken = error
                finally:
                    await stream.aclose()
                if not run.closing:
                    await run.replied(effect, broken)
        await _leave(run)
        if kept is not None:
            watch.task = asyncio.current_task(loop)
            await kept.end(run)
    except asyncio.CancelledError:
        if watch.claim() is None:
            raise
    finally:
        watch.stop()
        failure = sys.exception()
        run.stop(failure)
        await _part(run, failure)
        if kept is not None:
            kept.turn.leave()
        run.conclude()
        for told in () if isinstance(failure, GeneratorExit | asyncio.CancelledError) else run.told():
            yield told
    if run.outcome is not None:
        raise_failure(run.outcome)


async def _arrive(run: Run) -> None:
    """Let those who attend the run begin; what they do is part of it."""
    if run.crew is not None:
        with under(run.op):
            await run.crew.begin(run.state)


async def _leave(run: Run) -> None:
    """Let the shims of a run that went well end, before it is committed."""
    if run.crew is not None:
        with under(run.op):
            _together(await run.crew.leave(), None)


async def _part(run: Run, error: BaseException | None) -> None:
    """Let those who attend the run go, whatever became of it."""
    crew = run.crew
    if crew is None:
        return
    outcome = run.outcome
    failed = outcome is None or outcome.outcome == "failed" or outcome.reason == CutReason.ABORTED
    result = None if outcome is None or failed or error is not None else run.ended or run.end(outcome)
    with under(run.op):
        failures = [*await crew.leave(), *await crew.end(result, run.state)]
    _together(failures, error or (outcome.error if outcome is not None and failed else None))


def _together(failures: list[Exception], error: BaseException | None) -> None:
    """Raise what went wrong at the end; where something else went wrong before, it is a note on that."""
    if error is not None:
        for failure in failures:
            error.add_note(f"and at the end of the run: {type(failure).__name__}: {failure}")
    elif failures:
        raise ExceptionGroup("those who attend the run failed at its end", failures)


@dataclass(frozen=True, slots=True)
class Kept:
    """A run's tie to the conversation that it goes on with.

    Args:
        turn: its turn at it.
        start: begins a run from a state.
    """

    turn: Turn
    start: Callable[[RunState], Begun]

    async def begin(self, run: Run) -> None:
        """Wait for the runs before this one, and begin from what they left."""
        before = await self.turn.enter()
        if before is not None:
            run.begin(self.start(before), before)

    async def end(self, run: Run) -> None:
        """Commit what a run left that returns something; one that failed or was stopped leaves all as it was."""
        if run.outcome is None or run.outcome.outcome == "failed":
            return
        run.conclude()
        try:
            await self.turn.commit(run.end(run.outcome, committed=True).run_state)
        finally:
            failure = sys.exception()
            run.error = failure if isinstance(failure, Exception) else None
