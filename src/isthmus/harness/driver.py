"""Drives a run: carries out the loop's effects and hands the events to whoever reads them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from isthmus.errors import CutReason, TierError
from isthmus.harness.beginning import Begun
from isthmus.harness.conversation import Turn
from isthmus.harness.crew import Crew, together
from isthmus.harness.effects import CallModel, Emit, HandOver
from isthmus.harness.handover import hand_over, take_up
from isthmus.harness.observed import started
from isthmus.harness.outcome import raise_failure
from isthmus.harness.recovery import claimed
from isthmus.harness.result import left_by
from isthmus.harness.run import AgentEvent, Run
from isthmus.harness.runevents import RunEvent
from isthmus.harness.state import RunState
from isthmus.models.aside import Aside
from isthmus.models.batches import texts_of
from isthmus.models.events import CallDelta, Text
from isthmus.models.fold import uninvited
from isthmus.models.watchdog import Watchdog, running_task
from isthmus.observability.scope import under

# How a run ends whose reader has gone.
_LEFT = (GeneratorExit, asyncio.CancelledError)


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
    watch.start(loop := asyncio.get_running_loop())
    try:
        async with _Ending(run, kept, watch):
            await _open(run, kept, watch)
            async with model.open_run() as active, run:
                await take_up(run, active)
                while not run.closing and (effect := run.next()) is not None:
                    watch.task = running_task(loop)
                    if not isinstance(effect, CallModel):
                        work = hand_over(run, effect) if isinstance(effect, HandOver) else run.work(effect)
                        if work is not None:
                            try:
                                async for event in work:
                                    yield event
                                    watch.task = running_task(loop)
                            finally:
                                await work.aclose()
                        elif isinstance(effect, Emit):
                            yield effect.event
                        else:
                            await run.attend(effect)
                        for told in run.told():
                            yield told
                        continue
                    if run.log is not None:
                        await run.log.demand()
                    broken: TierError | None = None
                    stream, passage = run.call(run.active, effect)
                    plain, keep = passage.plain, passage.pieces.append
                    try:
                        async for batch in stream.batches():
                            if plain and run.unseen and (texts := texts_of(batch)) is not None:
                                passage.pieces += texts
                                continue
                            for event in batch:
                                if plain and type(event) is Text:
                                    keep(event.text)
                                elif plain and type(event) is CallDelta:
                                    event = passage.preview(event)
                                else:
                                    for shown in passage.take(event) if type(event) is not Aside else run.aside(event):
                                        yield shown
                                    plain = plain or passage.plain
                                    continue
                                if not run.unseen:
                                    yield event
                    except TierError as error:
                        broken = error
                    finally:
                        await stream.aclose()
                    if not run.closing:
                        await run.replied(effect, broken)
            await _leave(run, kept, watch)
    finally:
        for told in run.told():
            yield told
    raise_failure(run.outcome)


async def _open(run: Run, kept: Kept | None, watch: Watchdog) -> None:
    """Wait for the run's turn; say in the journal, in the conversation and to those who attend that it begins.

    Raises:
        JournalError: the journal cannot be written, or another process goes on with the run.
        StateConflictError: another process has taken the decisions.
    """
    if kept is not None:
        await kept.begin(run)
        watch.task = asyncio.current_task()
    started(run.op, run.agent, run_id=run.context.run_id or "")
    back, origin = run.back, run.origin
    turn = kept.turn if kept is not None and back is not None and back.claims else None
    if turn is not None:
        origin.revision += 1
    if run.log is not None:
        await run.log.open(origin.shim_state)
    if turn is not None:
        await turn.commit(claimed(origin))
    if run.crew is not None:
        with under(run.op):
            await run.crew.begin(run.state, None if back is None else back.shims)


async def _leave(run: Run, kept: Kept | None, watch: Watchdog) -> None:
    """Close the models of agents that took over, let the shims end, then commit what the run left."""
    if run.others is not None:
        await run.others.aclose()
    if run.crew is not None:
        with under(run.op):
            together(await run.crew.leave(), None)
    if kept is not None:
        watch.task = asyncio.current_task()
        await kept.end(run)


class _Ending:
    """The block of a run: whatever it ends with, everybody is told, and nothing of it stays open.

    What it ends with is what a block is told. What is being handled somewhere may be the reader's own: one who runs an
    agent because of an error has that one at hand all the time.
    """

    __slots__ = ("_kept", "_run", "_watch")

    def __init__(self, run: Run, kept: Kept | None, watch: Watchdog) -> None:
        self._run, self._kept, self._watch = run, kept, watch

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        failure = error
        if isinstance(error, asyncio.CancelledError):
            failure = None if self._watch.claim() is not None else uninvited(error) or error
        try:
            await self._watch.end()
            await _over(self._run, self._kept, failure)
        except _LEFT:
            self._run.left = True
            raise
        if isinstance(failure, _LEFT):
            self._run.left = True
        elif failure is not None and failure is not error:
            raise failure
        return failure is None


async def _over(run: Run, kept: Kept | None, error: BaseException | None) -> None:
    """Settle what became of a run, let everybody go, and close its journal."""
    run.stop(error)
    run.ending = asyncio.current_task()
    if kept is not None:
        kept.turn.ending = asyncio.current_task()
    if isinstance(error, Exception) or (kept is not None and not kept.has(run)):
        run.give_up(error)
    parted = False
    try:
        if run.others is not None:
            await run.others.aclose()
        if run.crew is not None:
            await _part(run, run.crew, error)
        parted = True
    finally:
        failure = error if parted else sys.exception()
        if isinstance(failure, Exception):
            run.error = failure
        run.ending = None
        if kept is not None:
            kept.turn.leave()
        try:
            if run.log is not None:
                await run.log.close(run.outcome, failed=error is not None)
        finally:
            run.conclude()


async def _part(run: Run, crew: Crew, error: BaseException | None) -> None:
    """Let those who attend the run go, whatever became of it."""
    run.tally()
    outcome = run.outcome
    failed = outcome is None or outcome.outcome == "failed" or outcome.reason == CutReason.ABORTED
    result = None if outcome is None or failed or error is not None else run.ended or run.end(outcome)
    with under(run.op):
        try:
            failures = [*await crew.leave(run.returned), *await crew.end(result, run.state)]
        except asyncio.CancelledError:
            # Whoever was not reached is told all the same.
            await crew.leave(run.returned)
            await crew.end(result, run.state)
            raise
    together(failures, error or (outcome.error if outcome is not None and failed else None))


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

    def has(self, run: Run) -> bool:
        """Whether the conversation has what the run left, or is not to have it."""
        if run.back is not None and (run.back.committed or run.back.apart):
            return True
        return run.ended is not None and self.turn.holds(left_by(run.ended))

    async def end(self, run: Run) -> None:
        """Commit what a run left that returns something; one that failed or was stopped leaves all as it was."""
        if run.outcome is None or run.outcome.outcome == "failed":
            return
        run.tally()
        if run.back is not None and (run.back.committed or run.back.apart):
            run.end(run.outcome, committed=run.back.committed)
            return
        await self.turn.commit(left_by(run.end(run.outcome, committed=True)))
