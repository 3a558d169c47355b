"""Where a run stands, and what may be said about that without knowing what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from isthmus.harness.ephemeral import places_of
from isthmus.harness.handoffs import Handoff
from isthmus.harness.history import Message, Said, renamed, reply_message, with_id
from isthmus.harness.limits import Limits
from isthmus.harness.outcome import Outcome
from isthmus.harness.pending import Question, held
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Note, NoteCode, StepResult
from isthmus.models.executor import ToolResult
from isthmus.models.internal import lasting_messages
from isthmus.models.messages import tool_message
from isthmus.models.repair import Repair, Verdict
from isthmus.models.spent import Spent
from isthmus.models.tools import Tools

_ANY = 1 << 62
_UNUSED: Mapping[str, int] = MappingProxyType({})


class LoopState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands.

    Args:
        request: what every call has in common; its messages and tools are filled in for each.
        tools: the tools and their policy.
        limits: what ends the run.
        messages: the transcript so far.
        ids: the ids of its calls.
        steps: model calls so far.
        rounds: rounds of tool calls so far.
        continued: how often the open text was continued.
        open_text: a text that is being continued and is not in the transcript yet, as the model wrote it.
        answered: the text of this answer by earlier calls, continued or paused, as it was shown.
        calls: the calls that are being run.
        called: how many calls were handed on to be run.
        earlier: how often a model was called before the run was paused.
        used: how often each tool has run.
        text: the text of the last reply, as it was shown.
        spent: the tokens.
        tier: who served last.
        finish: the last reply's.
        notes: of all replies, and our own.
        staged: whether others prepare each turn.
        repair: how the reply is asked for and judged; None where it is text.
        verdict: what was thought of the last structured reply.
        running: the calls that run while replies go on, until their results are in the transcript.
        continues: how the next reply goes on from the last one, where steered input makes it: "automatic" comes by
            itself, nothing is asked for; "explicit" is asked for with the results of calls.
        required: the calls whose results the next request must bring.
        replied: how many messages there were once the last reply was in the transcript.
        via: the handoffs by which the conversation came to the agent, by their names, the first one first.
    """

    request: GenerateContext
    tools: Tools
    limits: Limits
    messages: tuple[Message, ...]
    ids: frozenset[str] = frozenset()
    steps: int = 0
    rounds: int = 0
    continued: int = 0
    open_text: str = ""
    answered: str = ""
    calls: tuple[Call, ...] = ()
    called: int = 0
    earlier: int = 0
    used: Mapping[str, int] = _UNUSED
    text: str = ""
    spent: Spent = Spent()
    tier: str | None = None
    finish: str | None = None
    notes: tuple[Note, ...] = ()
    staged: bool = False
    repair: Repair | None = None
    verdict: Verdict = Verdict()
    running: tuple[Call, ...] = ()
    continues: str | None = None
    required: tuple[str, ...] = ()
    replied: int = 0
    via: tuple[str, ...] = ()

    def offer(self) -> tuple[tuple[Any, ...], str | None]:
        """The tools that may still be called, and the choice; with none left, "none" is said aloud."""
        policy = self.tools
        if not policy.tools:
            return (), "none" if policy.tool_choice == "none" else None
        limits, left = policy.tool_call_limits, policy.normalized_tools
        if limits:
            left = tuple(tool for tool in left if self.used.get(tool.name, 0) < limits.get(tool.name, _ANY))
        if self.rounds >= policy.max_tool_round_trips or not left:
            return (), "none"
        choice = policy.tool_choice
        named = choice not in ("auto", "required", "none")
        return left, "auto" if named and choice not in {tool.name for tool in left} else choice

    def handoffs(self) -> Mapping[str, Handoff]:
        """The handoffs on offer, by name."""
        if self.rounds >= self.tools.max_tool_round_trips:
            return {}
        return {tool.name: tool for tool in self.tools.normalized_tools if isinstance(tool, Handoff)}

    def policy(self, tools: Tools) -> Tools:
        """The terms on which the calls of a reply run: with no round left, none is there to be run."""
        if self.rounds < tools.max_tool_round_trips:
            return tools
        return replace(tools, tools=(), tool_choice="auto", tool_call_limits=None)

    def answer(self, shown: str) -> str:
        """The text of the answer so far, as the consumer saw it."""
        return self.answered + shown

    def unrepaired(self) -> LoopState:
        """Without the words that would ask for the last reply again."""
        return self if self.repair is None else changed(self, repair=replace(self.repair, feedback=""))

    def committed(self, step: StepResult, said: Said, *, text: str | None = None) -> LoopState:
        """With the reply in the transcript, its calls waiting for their results, and its text as it was shown."""
        calls, ids, notes = step.calls, self.ids, self.notes
        if calls:
            changes = renamed(calls, ids)
            calls = tuple([with_id(call, changes.get(call.call_id or "", call.call_id or "")) for call in calls])
            moved = [Note(NoteCode.CALL_ID_CHANGED, f"{old!r} was taken: now {new!r}") for old, new in changes.items()]
            ids, notes = ids.union([call.call_id or "" for call in calls]), (*notes, *moved)
        message, dropped = reply_message(step, self.open_text + said.written, calls=calls)
        messages = self.messages if message is None else (*self.messages, message)
        if self.running:
            running = {call.call_id for call in self.running}
            calls = tuple(call for call in calls if call.call_id not in running)
        return changed(
            self,
            messages=messages,
            replied=len(messages),
            ids=ids,
            calls=calls,
            notes=(*notes, *dropped),
            text=self.text if text is None else text,
            open_text="",
            answered="",
            continued=0,
        )

    def settled(self, results: Mapping[str, ToolResult], otherwise: str, **changes: Any) -> LoopState:
        """With one result for each waiting call, in their order, and further changes."""
        answers = []
        for call in self.calls:
            call_id = call.call_id or ""
            result = results.get(call_id)
            answers.append(tool_message(call_id, otherwise if result is None else result.content, name=call.tool))
        return changed(self, messages=(*self.messages, *answers), calls=(), **changes)

    def holding(self, run: str, asked: Mapping[str, Question], *, results: Mapping[str, ToolResult]) -> LoopState:
        """With the reply that makes the waiting calls marked, and those results that there are behind it."""
        used = {
            "steps": self.earlier + self.steps,
            "rounds": self.rounds,
            "called": self.called,
            "tools": dict(self.used),
        }
        form = None if self.repair is None else self.repair.schema.response_format()
        about: dict[str, Any] = {"used": used, "left": [list(each) for each in places_of(self.messages)], "form": form}
        outcomes = {name: each.outcome for name, each in results.items()}
        about |= {"via": list(self.via), "outcomes": outcomes}
        marked = held(self.messages[-1], run=run, asked=asked, about=about)
        answers = [
            tool_message(call.call_id or "", results[call.call_id or ""].content, name=call.tool)
            for call in self.calls
            if call.call_id in results
        ]
        return changed(self, messages=(*self.messages[:-1], marked, *answers), calls=())

    def outcome(
        self,
        outcome: str,
        *,
        reason: str | None = None,
        text: str = "",
        error: Exception | None = None,
        detail: str = "",
    ) -> Outcome:
        """How the run ends, from here."""
        return Outcome(
            outcome=outcome,
            reason=None if reason is None else str(reason),
            text=text,
            usage=self.spent.usage,
            usage_missing=self.spent.missing,
            tier=self.tier,
            messages=lasting_messages(self.messages),
            steps=self.steps,
            finish=self.finish,
            notes=self.notes,
            error=error or self.verdict.error,
            detail=detail,
            final_output=text if self.repair is None else self.verdict.value,
        )
