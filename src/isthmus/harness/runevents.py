"""What happens in a run, as one stream of events: the model's, and the steps of the harness around it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace as changed

from isthmus.chain.ledger import Attempt
from isthmus.harness.result import plain_answer
from isthmus.models.eventjson import JsonEvent
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.inturn import Closable
from isthmus.models.responses import ModelResponse, ModelStreamEvent

_Item = TypeVar("_Item")
_MOST = 256


class RunEventKind(StrEnum):
    """What a `RunEvent` is; the strings themselves are valid too."""

    MODEL_STREAM = "model_stream"
    AGENT_START = "agent_start"
    AGENT_END = "agent_end"
    LLM_START = "llm_start"
    LLM_END = "llm_end"
    TOOL_START = "tool_start"
    TOOL_END = "tool_end"
    TOOL_APPROVAL = "tool_approval"
    HANDOFF_START = "handoff_start"
    HANDOFF_END = "handoff_end"
    STATE_SNAPSHOT = "state_snapshot"
    PLAN_UPDATED = "plan_updated"


class StateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How the run stands at a boundary.

    Args:
        boundary: where: before the first turn, when a turn is prepared, after its tools, or at the end.
        turn_count: model calls of the run so far.
        history_length: messages of the transcript.
        response_count: replies of the run so far.
        shim_state: a copy of what the shims keep.
    """

    boundary: Literal["run_start", "turn_prepared", "tool_round_end", "run_end"]
    turn_count: int
    history_length: int
    response_count: int
    shim_state: Mapping[str, Any]


class RunEvent(msgspec.Struct, JsonEvent, frozen=True, kw_only=True):
    """One event of a run, or of a run that works for it.

    Args:
        kind: one of `RunEventKind`.
        agent: the name of the agent that it is about.
        task_id: that agent's run.
        parent_task_id: the run that handed the work over; None at the root.
        depth: how many agents stand above this one.
        model_event: with "model_stream": the model's event.
        messages: with "llm_start": the transcript that is sent.
        response: with "llm_end": the reply; None if there was none.
        attempts: with "llm_end": every try of the call, of whichever tier, with what followed from it.
        call: with "tool_start", "tool_end" and "tool_approval": the call.
        result: with "tool_end": its answer.
        is_delegation: with "tool_start" and "tool_end": whether the tool is an agent.
        state: with "state_snapshot": how the run stands.
        output: with "agent_end": the answer; None if there was none.
        detail: with "plan_updated": the plan; with "handoff_start" and "handoff_end": who hands over to whom; with
            "tool_approval": the request.
    """

    kind: str
    agent: str
    task_id: str
    parent_task_id: str | None = None
    depth: int = 0
    model_event: ModelStreamEvent | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    response: ModelResponse | None = None
    attempts: Sequence[Attempt] | None = None
    call: Call | None = None
    result: ToolResult | None = None
    is_delegation: bool = False
    state: StateSnapshot | None = None
    output: Any = None
    detail: Mapping[str, Any] | None = None

    def to_dict(self, *, include_internal: bool = False) -> dict[str, Any]:
        """As every event says itself; an answer of a given form as the form writes it."""
        typed = self.output is not None and type(self.output) is not str
        told = changed(self, output=plain_answer(self.output)) if typed else self
        return JsonEvent.to_dict(told, include_internal=include_internal)

    @property
    def is_root(self) -> bool:
        """Whether it is about the run itself, not about one that works for it."""
        return self.parent_task_id is None


class Mailbox:
    """Events on their way to the reader: who adds too many waits until they were read."""

    def __init__(self) -> None:
        self._events: deque[RunEvent] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    def put(self, event: RunEvent) -> None:
        """Add an event of the run itself; there are few of these at a time."""
        self._events.append(event)
        _wake(self._arrived)

    async def forward(self, event: RunEvent) -> None:
        """Add an event of another run, when there is room."""
        while len(self._events) >= _MOST:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place
        self.put(event)

    def take(self) -> tuple[RunEvent, ...]:
        """All that is there."""
        events = tuple(self._events)
        self._events.clear()
        while self._waiting:
            _wake(self._waiting.popleft())
        return events

    async def beside(self, source: Closable[_Item]) -> AsyncGenerator[_Item | RunEvent, None]:
        """The items of a source, and in between each event as it comes; closing it closes the source."""
        step: asyncio.Future[_Item] | None = None
        try:
            while True:
                step = asyncio.ensure_future(anext(source))
                while not step.done():
                    for event in self.take():
                        yield event
                    if not step.done() and not self._events:
                        self._arrived = asyncio.get_running_loop().create_future()
                        await asyncio.wait((step, self._arrived), return_when=asyncio.FIRST_COMPLETED)
                for event in self.take():
                    yield event
                try:
                    item = step.result()
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if step is not None and step.done():
                # Looked at, so that the loop does not report an error that nobody asks for any more.
                _ = step.cancelled() or step.exception()
            elif step is not None:
                step.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await step
            await source.aclose()


def _wake(place: asyncio.Future[None] | None) -> None:
    if place is not None and not place.done():
        place.set_result(None)
