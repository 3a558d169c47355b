"""Goes again through the recorded steps of a run, doing nothing: the same machine gives the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace as changed

from isthmus.harness.agenttool import AgentTool
from isthmus.harness.asides import continued_of
from isthmus.harness.decisions import Decision, checked, digest_of
from isthmus.harness.docket import Docket
from isthmus.harness.effects import CallModel, Collect, Effect, HandOver, PrepareTurn, RunTools
from isthmus.harness.ephemeral import rejoined
from isthmus.harness.errors import JournalError
from isthmus.harness.following import answered, entered, joined, uncertain
from isthmus.harness.history import Said, with_id
from isthmus.harness.journal import Record
from isthmus.harness.loop import advance, asked_again, handed_over, not_handed_over
from isthmus.harness.loopstate import LoopState
from isthmus.harness.pending import Waiting, shared_out
from isthmus.harness.reports import Collected, Prepared, Replied, Report, ToolsRan
from isthmus.harness.steps import decoded_result, decoded_step
from isthmus.models.events import Call, Note, StepResult, Usage
from isthmus.models.spent import Spent

Message: TypeAlias = Mapping[str, Any]


class Replay:
    """The machine, going again through what it went through.

    Args:
        state: where it begins.
        effects: what it wants done first.
        docket: what is known of the calls that it begins with.
        context: the run's ephemeral messages, where they were given again.
        maker: what makes the runs of the agent that has the conversation.
    """

    def __init__(
        self, state: LoopState, effects: Sequence[Effect], *, docket: Docket, context: Sequence[Message], maker: Any
    ) -> None:
        self.state, self.effects = state, effects
        self.maker, self.watched = maker, False
        self.results = dict(docket.results)
        self.decisions = dict(docket.decisions)
        self.waiting = dict(docket.waiting)
        self.started: set[str] = set()
        self.replies: list[StepResult] = []
        self.shims: Mapping[str, Any] | None = None
        self._context = context

    def take(self, place: int, record: Record) -> None:
        """One record.

        Raises:
            JournalError: it is not known, or does not follow from the others.
        """
        kind = str(record.get("kind"))
        taking = _TAKING.get(kind)
        if taking is None:
            raise JournalError(
                f"record {place} is of the kind {kind!r:.40}, which is not known here: use a later version"
            )
        try:
            taking(self, record)
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise JournalError(f"record {place}, {kind!r}, is not what it must be: {error!r}") from error
        self.shims = record.get("shims", self.shims)

    def settle(self) -> None:
        """End a round of which all is known."""
        calls = self._open()
        if calls and all(call.call_id in self.results for call in calls):
            self._advance(ToolsRan(tuple(self.results.pop(call.call_id or "") for call in calls)))
            self.started -= {call.call_id or "" for call in calls}

    def reply(self, record: Record) -> None:
        """A model replied."""
        self.settle()
        if any(isinstance(effect, PrepareTurn) for effect in self.effects):
            given, request = record["messages"], self.state.request
            messages = self.state.messages
            if given is not None:
                messages, _ = rejoined(given, record.get("left", ()), context=self._context)
            self._advance(
                Prepared(
                    messages,
                    self.state.tools,
                    request.brief,
                    request.options,
                    spent=tuple(None if each is None else Usage(**each) for each in record.get("spent", ())),
                    notes=tuple(Note(*each) for each in record.get("notes", ())),
                )
            )
        if not any(isinstance(effect, CallModel) for effect in self.effects):
            raise JournalError("a reply where none was due: the agent's limits are lower now, or records are mixed")
        step, beside = decoded_step(record["step"]), record.get("beside") or {}
        self.state = joined(self.state, beside.get("joined", ()))
        began = dict(beside.get("began", ()))
        for call in step.calls:
            if call.call_id in began:
                self.state = entered(self.state, with_id(call, began[call.call_id]))
        self._advance(Replied(step, Said(*record["said"]), record["tier"], continued_of(beside)))
        self.replies.append(step)

    def delivered(self, record: Record) -> None:
        """Results of calls that ran while replies went on came into the transcript."""
        self.settle()
        if not any(isinstance(effect, Collect) for effect in self.effects):
            raise JournalError("results where none were due: the records are mixed")
        self._advance(Collected(tuple(self.results.pop(each) for each in record["calls"]), round=record["round"]))

    def let_go(self) -> None:
        """Give up what ran while replies went on: results that were recorded are delivered, the rest is unknown."""
        state = self.state if self.state.continues is None else changed(self.state, continues=None)
        running = {call.call_id or "" for call in state.running}
        if running:
            state = uncertain(answered(state, [self.results[each] for each in running if each in self.results]))
            self.started -= running
        waits = self.effects and isinstance(self.effects[0], PrepareTurn | RunTools)
        if running and not waits:
            state, self.effects = asked_again(state)
        self.state = state

    def start(self, record: Record) -> None:
        """A tool was to run; a decision holds for one start."""
        self._stays()
        self.started.add(record["call_id"])
        self.decisions.pop(record["call_id"], None)
        self.waiting.pop(record["call_id"], None)

    def result(self, record: Record) -> None:
        """A call was answered."""
        self._stays()
        result = decoded_result(record["result"])
        self.results[result.call_id] = result
        if any(isinstance(tool, AgentTool) and tool.name == result.tool for tool in self.state.tools.normalized_tools):
            # What the agent spent is in no record.
            self.state = changed(self.state, spent=Spent(self.state.spent.usage, True))
        self.started.discard(result.call_id)

    def waits(self, record: Record) -> None:
        """An agent waits that works for the run."""
        self.started.discard(record["call_id"])
        self.waiting[record["call_id"]] = Waiting(**record["inner"])

    def resumed(self, record: Record) -> None:
        """The run was taken up, with decisions of the calls that were open."""
        open_calls = {
            call.call_id or "": digest_of(call.tool, call.input)
            for call in self._open()
            if call.call_id not in self.results
        }
        open_calls = {name: digest for name, digest in open_calls.items() if name not in self.waiting}
        given, self.waiting = shared_out([Decision(**each) for each in record["decisions"]], self.waiting)
        self.decisions.update(checked(given, record["run"], digests=open_calls))

    def handoff(self, record: Record) -> None:
        """Another agent took over."""
        effect = next((each for each in self.effects if isinstance(each, HandOver)), None)
        if effect is None:
            raise JournalError(f"a handoff to {record['tool']!r} where none was due: the agent has no such handoff now")
        self.maker = self.maker.successor(effect.to.agent)
        stands = handed_over(self.state, effect)
        self.state, self.effects = self.maker.goes_on(stands, record, watched=self.watched)

    def nothing(self, record: Record) -> None:
        """Where the run stopped before."""

    def _stays(self) -> None:
        """A call that looks like a handoff was answered like any other: a shim withheld it, or had to wait."""
        if any(isinstance(effect, HandOver) for effect in self.effects):
            self.state, self.effects = not_handed_over(self.state)

    def _open(self) -> tuple[Call, ...]:
        return next((effect.calls for effect in self.effects if isinstance(effect, RunTools)), ())

    def _advance(self, report: Report) -> None:
        self.state, self.effects = advance(self.state, report)


_TAKING: Mapping[str, Callable[[Replay, Record], None]] = {
    "reply": Replay.reply,
    "start": Replay.start,
    "result": Replay.result,
    "resumed": Replay.resumed,
    "waits": Replay.waits,
    "handoff": Replay.handoff,
    "paused": Replay.nothing,
    "stopped": Replay.nothing,
    "delivered": Replay.delivered,
    "end": Replay.nothing,
}
