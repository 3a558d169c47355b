"""Brings a run back to where it stopped: from a transcript whose calls wait, or step by step from its journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from isthmus.adapters.views import to_response
from isthmus.harness.decisions import Decision
from isthmus.harness.docket import Docket
from isthmus.harness.effects import Done, Emit
from isthmus.harness.ephemeral import rejoined
from isthmus.harness.errors import ApprovalError, JournalError, StateConflictError
from isthmus.harness.history import NOT_EXECUTED, UNKNOWN
from isthmus.harness.journal import Journal, Record
from isthmus.harness.loop import Next
from isthmus.harness.pending import Pending, pending_in, unheld
from isthmus.harness.replay import Replay
from isthmus.harness.resume import Resume
from isthmus.harness.runlog import VERSION
from isthmus.harness.state import RunState
from isthmus.models.events import Note, StepResult
from isthmus.models.executor import ToolResult

Message: TypeAlias = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Comeback:
    """A run that is taken up again.

    Args:
        messages: what it begins with, up to calls that wait.
        docket: what is known of the calls that it stopped at.
        given: the decisions, of all calls that waited.
        pending: the calls that wait behind the messages.
        tail: the calls that wait, as they stand in the transcript, and the results behind them.
        notes: what is missing.
        context: the ephemeral messages that were given again.
        records: the steps to go again, without doing anything.
        opening: what the journal is to say of it.
        place: how many records the journal has; None leaves the count to it.
        brief: the system text that it began with; None takes the agent's.
        form: the form of its answer, as it is asked for.
        claims: whether decisions are used up, so that the conversation must say so before anything runs.
        ended: how the run ended; empty if it did not.
        committed: whether the conversation has what the run left.
        apart: whether it is a fork, so that it never gets there.
        replies: what the models replied so far.
        shims: what the shims kept when it stopped; None leaves what the state has.
        over: the system text and the form of the agent that has the conversation, where it is not the first one.
        maker: what makes the runs of that agent.
        first: what makes the runs of the first one, where it is not the same.
        watched: whether somebody reads the run's events.
    """

    messages: tuple[Message, ...]
    docket: Docket = field(default_factory=Docket)
    given: Sequence[Decision] = ()
    pending: Pending | None = None
    tail: tuple[Message, ...] = ()
    notes: tuple[Note, ...] = ()
    context: Sequence[Message] = ()
    records: Sequence[Record] = ()
    opening: Callable[[], Record] | None = None
    place: int | None = None
    brief: str | None = None
    form: Any = None
    claims: bool = False
    ended: str = ""
    committed: bool = False
    apart: bool = False
    replies: tuple[StepResult, ...] = ()
    shims: Mapping[str, Any] | None = None
    over: Record | None = None
    maker: Any = None
    first: Any = None
    watched: bool = False

    def again(self, first: Next, maker: Any) -> Next:
        """The machine where the run stopped.

        Args:
            first: the machine where the run begins, or began to wait.
            maker: what makes the runs of the agent that had the conversation then.

        Raises:
            JournalError: the records do not follow from one another.
            ApprovalError: a decision is of another call, or of other arguments.
        """
        state, effects = first
        state = changed(state, notes=(*state.notes, *self.notes))
        steps = Replay(state, effects, docket=self.docket, context=self.context, maker=maker)
        steps.watched = self.watched
        for place, record in enumerate(self.records):
            steps.take(place, record)
        steps.settle()
        steps.let_go()
        self.docket = replace(
            self.docket,
            results=steps.results,
            decisions=steps.decisions,
            waiting=steps.waiting,
            started=frozenset(steps.started),
        )
        self.replies, self.shims, self.maker = tuple(steps.replies), steps.shims, steps.maker
        effects = tuple(effect for effect in steps.effects if not isinstance(effect, Emit))
        if self.ended and not any(isinstance(effect, Done) for effect in effects):
            # It was cut in the middle of a reply, or before one, and what there was of that was handed out.
            raise JournalError(f"the run has ended ({self.ended}): agent.rewind(run_id) gives a state to fork from")
        return steps.state, effects


def from_conversation(resume: Resume, state: RunState, *, found: Pending | None) -> Comeback:
    """A run whose calls wait at the end of the conversation.

    Raises:
        ApprovalError: nothing waits, or the decisions are not of what waits.
    """
    if found is None:
        raise ApprovalError("no call waits for a decision here: it was decided before, or never asked about")
    decisions, waiting = found.decided(resume.decisions)
    before, notes = rejoined(found.before, found.left, context=resume.context)
    state.task_id = found.run
    return Comeback(
        messages=before,
        docket=Docket(results=found.results, decisions=decisions, waiting=waiting),
        given=resume.decisions,
        pending=found,
        tail=tuple(state.history[len(found.before) :]),
        notes=notes,
        claims=True,
    )


def from_journal(resume: Resume, state: RunState, *, journal: Journal | None, agent: str, kept: bool) -> Comeback:
    """A run as its journal has it; the state becomes what it began from.

    Args:
        resume: which run.
        state: the conversation.
        journal: where the run is.
        agent: whose run it must be.
        kept: whether the conversation is kept, so that it must be the one that the run began from.

    Raises:
        JournalError: there is no journal, or no such run in it, or it is another agent's.
        StateConflictError: the conversation has moved on.
    """
    run_id = resume.run_id or ""
    records, place = segment(_there(journal), run_id)
    begun, rest = records[0], records[1:]
    if begun["agent"] != agent:
        raise JournalError(f"run {run_id!r} is one of agent {begun['agent']!r}, not of {agent!r}")
    apart = begun.get("apart") is True
    committed = kept and not apart and _moved_on(state, begun["origin"]["revision"], run_id)
    context = [message for each in rest if each.get("kind") == "resumed" for message in each.get("context", ())]
    context += resume.context
    messages, notes = rejoined(begun["messages"], begun.get("left", ()), context=context)
    _become(state, begun, run_id)
    found = pending_in(messages)
    earlier = [Decision(**each) for each in begun["decisions"]]
    decided, waiting = ({}, {}) if found is None else found.decided(earlier)
    last = rest[-1] if rest else {}
    ended = f"{last.get('outcome')}, {last.get('reason')}" if last.get("kind") == "end" else ""
    opening = {
        "kind": "resumed",
        "run": run_id,
        "decisions": [each.to_dict() for each in resume.decisions],
        "context": [dict(each) for each in resume.context],
    }
    return Comeback(
        messages=messages if found is None else found.before,
        docket=Docket(
            results={} if found is None else found.results,
            decisions=decided,
            waiting=waiting,
            uncertain=resume.uncertain,
        ),
        pending=found,
        notes=notes,
        context=context,
        records=[*rest, opening],
        opening=None if ended else lambda: opening,
        place=place,
        brief=begun["brief"],
        form=begun.get("form"),
        over=begun.get("over"),
        ended=ended,
        committed=committed,
        apart=apart,
    )


def segment(journal: Journal, run_id: str) -> tuple[list[Record], int]:
    """The records of a run since it was begun last, and how many it has in all.

    Raises:
        JournalError: there is no such run, or it was written by a later version.
    """
    records = list(journal.load(run_id))
    begins = [place for place, record in enumerate(records) if record.get("kind") == "begun"]
    if not begins:
        raise JournalError(f"there is no run {run_id!r} in {journal!r}")
    begun = records[begins[-1]]
    if begun.get("v") != VERSION:
        raise JournalError(
            f"run {run_id!r} was written in version {begun.get('v')!r:.40}, and only {VERSION} is known here: "
            "resume it with the version of this library that wrote it, or a later one"
        )
    missing = [name for name in _BEGUN if name not in begun]
    if missing:
        raise JournalError(f"run {run_id!r}: {missing[0]} is missing in its first record")
    return records[begins[-1] :], len(records)


def _become(state: RunState, begun: Record, run_id: str) -> None:
    origin = begun["origin"]
    state.history = tuple(begun["messages"])
    state.responses = tuple(origin["responses"])
    state.shim_state = dict(origin["shim_state"])
    state.turn_count = origin["turn_count"]
    state.revision = origin["revision"]
    state.task_id = run_id


def _moved_on(state: RunState, revision: int, run_id: str) -> bool:
    """Whether the conversation is past the run because it has what the run left."""
    if state.revision == revision:
        return False
    if state.revision == revision + 1 and state.task_id == run_id:
        return True
    raise StateConflictError(
        f"run {run_id!r} began at revision {revision}, and the conversation is at {state.revision}: "
        "agent.rewind(run_id) gives a state to fork from",
        expected=revision,
        held=state.revision,
    )


def begun_record(state: RunState, *, agent: str, messages: Sequence[Message], brief: str, **about: Any) -> Record:
    """How a run begins.

    Args:
        state: what it begins from.
        agent: whose run it is.
        messages: its transcript, with what is to be answered.
        brief: the system text.
        about: `form`, what the answer is to look like; `apart`, whether it is a fork; `decisions` of calls that wait at
            the end of the transcript; `over`, text and form of the agent that waited, where it had taken over.
    """
    decisions = about.pop("decisions", ())
    return {
        "kind": "begun",
        "v": VERSION,
        "agent": agent,
        "messages": messages,
        "brief": brief,
        "origin": {
            "responses": list(state.responses),
            "shim_state": state.shim_state,
            "turn_count": state.turn_count,
            "revision": state.revision,
        },
        "decisions": [each.to_dict() for each in decisions],
        **about,
    }


def claimed(state: RunState) -> RunState:
    """The conversation once its waiting calls are decided: from now on nobody can decide them again."""
    own = state.copy()
    own.history = tuple(unheld(message) for message in own.history)
    return own


def rewound(
    journal: Journal | None,
    run_id: str,
    *,
    step: int | None,
    first: Callable[[Sequence[Message], Pending | None], tuple[Next, Any]],
) -> RunState:
    """The conversation as it stood in a run after so many replies, with the results of their calls.

    Args:
        journal: where the run is.
        run_id: the run.
        step: how many replies; None is as far as it came.
        first: begins the machine, and says what makes the runs of the agent that had the conversation.

    Raises:
        JournalError: there is no such run.
        ValueError: it has fewer replies.
    """
    records, _ = segment(_there(journal), run_id)
    begun, rest = records[0], records[1:]
    replies = [place for place, record in enumerate(rest) if record.get("kind") == "reply"]
    if step is not None and not 0 <= step <= len(replies):
        raise ValueError(f"step={step}: run {run_id!r} has {len(replies)} replies")
    end = None if step is None or step == len(replies) else replies[step]
    found = pending_in(begun["messages"])
    messages = tuple(begun["messages"]) if found is None else found.before
    results = {} if found is None else found.results
    back = Comeback(messages=messages, docket=Docket(results=results), pending=found, records=rest[:end])
    machine, _ = back.again(*first(messages, found))
    unknown = {
        call.call_id or "": ToolResult(call.call_id or "", call.tool, UNKNOWN, "unknown")
        for call in machine.calls
        if call.call_id in back.docket.started
    }
    machine = machine.settled({**unknown, **back.docket.results}, NOT_EXECUTED)
    state = RunState()
    _become(state, begun, run_id)
    state.instructions = begun["brief"]
    left = state.after(machine.outcome("cut"), map(to_response, back.replies), committed=False)
    left.task_id = None
    left.shim_state = dict(left.shim_state if back.shims is None else back.shims)
    return left


def _there(journal: Journal | None) -> Journal:
    if journal is None:
        raise JournalError("the agent keeps no journal: DefaultAgent(…, journal=SqliteJournal(path))")
    return journal


_BEGUN = ("agent", "messages", "brief", "origin", "decisions")
