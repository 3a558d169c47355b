"""The handle of a run: its events as they come, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeAlias

from isthmus.harness.beginning import Begun
from isthmus.harness.conversation import Turn
from isthmus.harness.descriptor import Runner
from isthmus.harness.driver import Kept, drive
from isthmus.harness.outcome import Outcome
from isthmus.harness.result import RunResult
from isthmus.harness.run import Run
from isthmus.harness.state import RunState
from isthmus.models.cancellation import CancellationToken
from isthmus.models.steering import Steerable, SteeringInput, SteeringReceipt
from isthmus.models.watchdog import CLOSED, UNTIMED, Watchdog

View: TypeAlias = Callable[[AsyncGenerator[Any, None], Run], AsyncGenerator[Any, None]]

_UNSTEERED = "This run has no active steering channel."


class RunStream:
    """The events of one run, as the caller holds them: those of every step, and a `ToolResult` for every call.

    Iterate it, or use it as a block; leaving the block, or dropping the last reference, stops the run: the model's
    stream is closed, running async tools are cancelled. A run that fails raises its error; one that is cut ends, and
    `outcome` says so. `await`ing it gives the stream itself.

    Args:
        start: begins a run from a state.
        model: what has `open_run()`.
        before: the state to begin from.
        turn: the run's turn at the conversation that it goes on with, and commits to; None where there is none.
        runner: how it is driven.
        view: how the events are shown, of which and of the replies so far; None shows them as they are.
    """

    __slots__ = ("__weakref__", "_events", "_run", "_shown", "_watch")

    def __init__(
        self,
        start: Callable[[RunState], Begun],
        model: Any,
        *,
        before: RunState,
        turn: Turn | None = None,
        runner: Runner | None = None,
        view: View | None = None,
    ) -> None:
        self._run = Run.of(start(before), before, runner=runner)
        self._watch = Watchdog(UNTIMED)
        if turn is not None:
            self._run.turn, turn.watch = turn, self._watch
        self._events = drive(self._run, model, watch=self._watch, kept=None if turn is None else Kept(turn, start))
        self._watch.guard(self._events)
        self._shown = self._events if view is None else view(self._events, self._run)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it goes on."""
        return self._run.outcome

    def __aiter__(self) -> AsyncIterator[Any]:
        # The generator itself, so that a loop takes each event without a call through this object.
        return self._shown

    def __anext__(self) -> Any:
        return self._shown.__anext__()

    def __await__(self) -> Generator[Any, None, RunStream]:
        return self._itself().__await__()

    async def _itself(self) -> RunStream:
        return self

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the run; harmless twice, from a task other than the reader's, and from a tool of the run itself."""
        run, watch = self._run, self._watch
        run.closing = True
        while watch.waiting():
            if run.reading is not None:
                await run.reading.aclose()
            else:
                watch.interrupt(CLOSED)
            if asyncio.current_task() in (watch.task, run.ending):
                return
            await watch.respite()
        await self._events.aclose()
        if self._shown is not self._events:
            await self._shown.aclose()
        run.stop()
        run.conclude()

    async def steer(self, input: SteeringInput) -> SteeringReceipt:
        """Send input into the reply under way; while the agent that is at work hands over, into that of the next one.

        Args:
            input: text, or the provider's own input items: messages of the user.

        Returns:
            A live receipt; its status changes while the run is read.

        Raises:
            RuntimeError: no reply is under way, or the model cannot be steered.
            InvalidRequestError: the input is neither text nor items, or empty.
            Exception: it could not be sent: the connection is closed, and the receipt says "unknown".
        """
        run = self._run
        if run.outcome is not None or not isinstance(run.active, Steerable):
            raise RuntimeError(_UNSTEERED)
        try:
            return await run.active.steer(input)
        except NotImplementedError as error:
            raise RuntimeError(_UNSTEERED) from error

    async def result(self) -> RunResult:
        """Read to the end and return the result; what was already read counts. A cut run returns too.

        Raises:
            TierError: the run failed, without any answer.
        """
        # Of one that is being read elsewhere the events are that reader's.
        events: Any = self._events
        self._run.unseen = not events.ag_running
        async for _ in self._events:
            pass
        return self._run.result()


class RunEventStream(RunStream):
    """The events of one run as `RunEvent`s: the model's, and the steps of the harness around them.

    As `RunStream`, with the events of runs that work for this one among its own.
    """

    __slots__ = ()


@asynccontextmanager
async def closed_by(token: CancellationToken, stream: RunStream) -> AsyncGenerator[None, None]:
    """A block that closes a stream at its end, or as soon as a token is cancelled.

    Args:
        token: one that is cancelled already lets no model be called.
        stream: what may still be unread.
    """
    if token.cancelled:
        await stream.aclose()

    async def watch() -> None:
        await token.wait()
        await stream.aclose()

    watching = asyncio.ensure_future(watch())
    async with stream:
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
