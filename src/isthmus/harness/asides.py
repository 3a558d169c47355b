"""What a run does about what only the model face can say: calls that run while a reply goes on, and steered input.

Source of the rules for such calls: a call runs at most once for each id, and its result goes back with a later turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from msgspec.structs import replace as changed

from isthmus.errors import ModelBehaviorError
from isthmus.harness.docket import Docket, planned
from isthmus.harness.effects import Collect
from isthmus.harness.following import begun, joined, left_out, terms
from isthmus.harness.history import fresh_id, with_id
from isthmus.harness.outcome import Outcome
from isthmus.harness.reports import Collected
from isthmus.harness.rounds import Worked, around, beside, starting, tell
from isthmus.harness.runevents import RunEvent
from isthmus.harness.sent import Sent
from isthmus.models.events import Call, FinishReason, StepResult
from isthmus.models.executor import ToolExecutor, ToolResult
from isthmus.models.outputs import call_of
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.tools import Tools


class Attended(Worked, Protocol):
    """The run, as far as it is needed here."""

    sent: Sent | None
    outcome: Outcome | None


class Asides:
    """What a run has under way beside its replies; made when there is something.

    Args:
        run: the run.
    """

    def __init__(self, run: Attended) -> None:
        self._run = run
        # Every call by the provider's id, and those of the reply that is being read.
        self._known: dict[str, Call] = {}
        self._fresh: dict[str, Call] = {}
        self._tasks: dict[str, asyncio.Task[ToolResult | None]] = {}
        self._ready: deque[asyncio.Task[ToolResult | None]] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self.continued: ModelStreamEvent | None = None
        """How the reply that is being read goes on, once its end said so."""
        self._joined: list[dict[str, Any]] = []
        self._reviews: list[asyncio.Future[None]] = []

    def begin(self) -> frozenset[str]:
        """A reply begins; the calls of earlier ones, which it may repeat."""
        self._fresh, self.continued, self._joined, self._reviews = {}, None, [], []
        return frozenset(self._known)

    def take(self, event: ModelStreamEvent) -> None:
        """Act on an event of the reply that is being read.

        Raises:
            ModelBehaviorError: a call may not be made, or was made before with other arguments.
        """
        run = self._run
        if event.async_tool_call is not None:
            self._dispatch(call_of(event.async_tool_call, "async_tool_call"))
        if event.kind == "completed":
            self.continued = event
        elif event.input_messages:
            if run.sent is not None:
                run.sent = run.sent.joined(event.input_messages, state=run.state)
            run.state = joined(run.state, event.input_messages)
            self._joined += event.input_messages

    def _dispatch(self, call: Call) -> None:
        given = call.call_id or ""
        known = self._known.get(given)
        if known is not None:
            if (known.tool, _arguments(known)) != (call.tool, _arguments(call)):
                raise ModelBehaviorError("Repeated call ID changed its arguments.")
            return
        run = self._run
        if given in run.state.ids:
            call = with_id(call, fresh_id(given, run.state.ids))
        used = run.state.used
        run.state = begun(run.state, call)
        self._known[given] = self._fresh[given] = call
        reviewed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reviews.append(reviewed)
        task = asyncio.create_task(self._work(call, terms(run.state), used=used, reviewed=reviewed))
        self._tasks[call.call_id or ""] = task
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[ToolResult | None]) -> None:
        self._ready.append(task)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def _work(
        self, call: Call, tools: Tools, *, used: Mapping[str, int], reviewed: asyncio.Future[None]
    ) -> ToolResult | None:
        """The result of a call; None where it waits for a decision, and so with the ordinary ones of its reply."""
        run = self._run
        try:
            rulings = {} if run.crew is None else await run.crew.review([call])
            plan = planned([call], Docket(), rulings=rulings)
            if plan.asked:
                run.state = left_out(run.state, call)
                del self._tasks[call.call_id or ""]
                return None
        finally:
            if not reviewed.done():
                reviewed.set_result(None)
        for known in plan.answered.values():
            await tell(run, call, result=known)
            return known
        results = ToolExecutor(around=around(run, None, early=True)).results(
            [call], tools=tools, context=run.context, used=used, on_tool_start=starting(run)
        )
        async with aclosing(results):
            result = await anext(results)
        await tell(run, call, result=result)
        return result

    async def replied(self, step: StepResult) -> tuple[StepResult, ModelStreamEvent | None]:
        """The same as `reply`, once it is clear which of its calls run at once."""
        for reviewed in self._reviews:
            await reviewed
        return self.reply(step)

    def recorded(self, continued: ModelStreamEvent | None) -> dict[str, Any]:
        """What a journal must have of the reply beside itself; `continued_of` reads how it goes on."""
        running = {call.call_id for call in self._run.state.running}
        began = [[given, call.call_id] for given, call in self._fresh.items() if call.call_id in running]
        goes_on = None
        if continued is not None:
            required = list(continued.required_tool_call_ids)
            goes_on = {"how": continued.continuation, "inputs": continued.input_messages, "required": required}
        said = {"began": began, "joined": self._joined, "continued": goes_on}
        return {name: value for name, value in said.items() if value}

    def reply(self, step: StepResult) -> tuple[StepResult, ModelStreamEvent | None]:
        """The reply with each call once, and what continues it.

        One that broke has the calls that run too: they were made, whatever became of the rest.
        """
        repeated = self._known.keys() - self._fresh.keys()
        events = tuple(e for e in step.events if not (isinstance(e, Call) and e.call_id in repeated))
        broken = step.finish == FinishReason.ERROR_POST
        if broken:
            said = {event.call_id for event in events if isinstance(event, Call)}
            events += tuple(call for given, call in self._fresh.items() if given not in said)
        if events != step.events:
            # With nothing but repetitions there is nothing to run, and the reply stands as the answer that it is.
            over = step.finish == FinishReason.TOOL_CALLS and not any(isinstance(event, Call) for event in events)
            step = changed(step, events=events, finish=FinishReason.STOP if over else step.finish)
        return step, None if broken else self.continued

    async def collect(self, effect: Collect) -> AsyncGenerator[ToolResult | RunEvent, None]:
        """The results that are ready, in the order in which they came, once those that are waited for are there.

        Raises:
            Exception: whatever a hook raised that was told of a call.
        """
        run, results = self._run, self._results(effect)
        async with aclosing(beside(run, results)) as events:
            async for item in events:
                if isinstance(item, ToolResult):
                    run.results = (*run.results, item)
                yield item
        if run.log is not None:
            await run.log.delivered([result.call_id for result in run.results], round=effect.first)
        run.report(Collected(run.results, round=effect.first))
        if run.crew is not None:
            run.crew.at("tool_round_end", run.state)

    async def _results(self, effect: Collect) -> AsyncGenerator[ToolResult, None]:
        needed = {self._known[given].call_id if given in self._known else given for given in effect.needed}
        left, waits = needed & self._tasks.keys(), effect.first
        while True:
            while self._ready:
                result = self._ready.popleft().result()
                if result is None:
                    continue
                del self._tasks[result.call_id]
                left.discard(result.call_id)
                waits = False
                yield result
            if not left and not waits:
                return
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived

    async def end(self, error: BaseException | None) -> None:
        """Stop the calls that still run and wait for them; the error that ends the run says which these were."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            outcome = self._run.outcome
            failure = error or (None if outcome is None else outcome.error)
            if failure is not None:
                failure.add_note(f"asynchronous calls whose results were not delivered: {', '.join(tasks)}")


def continued_of(beside: Mapping[str, Any]) -> ModelStreamEvent | None:
    """How a reply goes on, as a journal has it."""
    said = beside.get("continued")
    if said is None:
        return None
    return ModelStreamEvent(
        kind="completed",
        continuation=said["how"],
        input_messages=said["inputs"],
        required_tool_call_ids=tuple(said["required"]),
    )


def _arguments(call: Call) -> Any:
    return call.arguments if call.input is None else call.input
