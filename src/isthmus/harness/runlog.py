"""One run's hand on its journal: what is written when, and what becomes of what cannot be written.

What may have an effect waits until all that came before it is written: a model call, and each tool. What is already
done, a reply or a result, fails no run any more: if it cannot be written, it is written with what comes next, or the
run fails before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from isthmus.errors import CutReason
from isthmus.harness.decisions import digest_of
from isthmus.harness.ephemeral import parted
from isthmus.harness.errors import JournalError
from isthmus.harness.history import Said
from isthmus.harness.journal import Journal, Record
from isthmus.harness.outcome import Outcome
from isthmus.harness.pending import Waiting
from isthmus.harness.plainjson import plain_json
from isthmus.harness.reports import Prepared
from isthmus.harness.saving import saved
from isthmus.harness.steps import encoded_result, encoded_step
from isthmus.models.events import Call, StepResult
from isthmus.models.executor import Around, ToolResult

VERSION = 1
_LOG = logging.getLogger("isthmus.harness.journal")


class RunLog:
    """Writes the records of one run.

    Args:
        journal: where.
        run_id: the run.
        opening: the first records, which say how it begins or is taken up.
        place: how many records the run has; None asks the journal.
    """

    def __init__(self, journal: Journal, run_id: str, *, opening: Callable[[], Record], place: int | None) -> None:
        self._journal, self._run_id = journal, run_id
        self._opening, self._place = opening, place
        self._waiting: list[Record] = []
        self._turn = asyncio.Lock()
        self._known: set[str] = set()
        self._prepared: Mapping[str, Any] = {"messages": None}
        self._shims: Mapping[str, Any] = {}
        self._written: dict[str, Any] | None = None
        self._opened = False

    async def open(self, shims: Mapping[str, Any]) -> None:
        """Write how the run begins.

        Args:
            shims: what the shims keep: the run's own dict, which is written where it changes.

        Raises:
            JournalError: it cannot be written, or another process goes on with the run.
        """
        self._shims = shims
        if self._place is None:
            self._place = len(await asyncio.to_thread(self._journal.load, self._run_id))
        self._waiting.append(_plain(self._opening()))
        await self.demand()
        self._opened = True

    async def demand(self) -> None:
        """Write all that is not written yet: something that has an effect comes next.

        Raises:
            JournalError: it cannot be written.
        """
        async with self._turn:
            if not self._waiting:
                return
            batch = tuple(self._waiting)
            write = partial(self._journal.append, self._run_id, self._place or 0, records=batch)
            await saved(write, partial(self._wrote, batch))

    def prepared(self, turn: Prepared, *, changed: bool) -> None:
        """What those who attend the run made of a turn.

        Args:
            turn: the turn.
            changed: whether its transcript is another one.
        """
        about = {
            "messages": list(turn.messages) if changed else None,
            "spent": [None if each is None else each.to_dict() for each in turn.spent],
            "notes": [[str(note.code), note.detail] for note in turn.notes],
        }
        self._prepared = {name: value for name, value in about.items() if value or name == "messages"}

    async def reply(
        self, step: StepResult, said: Said, *, tier: str | None, beside: Mapping[str, Any] | None = None
    ) -> None:
        """A reply is whole.

        Args:
            step: the reply.
            said: its text, without what it repeated.
            tier: who served.
            beside: what came with it that only the model face can say.
        """
        prepared, self._prepared = self._prepared, {"messages": None}
        await self._note(
            kind="reply",
            step=encoded_step(step),
            said=list(said),
            tier=tier,
            **prepared,
            **({"beside": beside} if beside else {}),
        )

    async def starts(self, call: Call) -> None:
        """A tool is to run, once this is written.

        Raises:
            JournalError: it cannot be written.
        """
        self._add(kind="start", call_id=call.call_id or "", digest=digest_of(call.tool, call.input))
        await self.demand()

    async def result(self, result: ToolResult) -> None:
        """A call has its answer."""
        if result.call_id not in self._known:
            self._known.add(result.call_id)
            await self._note(kind="result", result=encoded_result(result))

    async def delivered(self, calls: Sequence[str], *, round: bool) -> None:
        """The results of calls that ran while replies went on are in the transcript.

        Args:
            calls: their ids, in order.
            round: whether that was a round of its own.
        """
        await self._note(kind="delivered", calls=list(calls), round=round)

    def recording(
        self, told: Around | None, shown: Callable[[ToolResult], ToolResult], *, waiting: Mapping[str, Waiting]
    ) -> Around:
        """What writes the result of each tool as soon as it is there, or that the agent that it is waits.

        Args:
            told: what else is around a tool.
            shown: a result as the model reads it.
            waiting: the calls whose agents wait.
        """

        async def recorded(call: Call, ran: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
            result = await (ran() if told is None else told(call, ran))
            waits = waiting.get(result.call_id)
            if waits is None:
                await self.result(shown(result))
            else:
                await self._note(kind="waits", call_id=result.call_id, inner=waits.to_dict())
            return result

        return recorded

    async def handoff(self, tool: str, about: Mapping[str, Any]) -> None:
        """Another agent goes on.

        Args:
            tool: the handoff.
            about: its system text, and the form of its answer.
        """
        await self._note(kind="handoff", tool=tool, **about)

    async def close(self, outcome: Outcome | None, *, failed: bool) -> None:
        """Write how the run ended, and take out what was for it alone; what cannot be written is logged."""
        if not self._opened:
            return
        self._opened = False
        self._add(**_ending(outcome, failed))
        try:
            await self.demand()
            await asyncio.to_thread(self._scrub)
        except JournalError as error:
            _LOG.warning("the end of run %s is not in its journal: %s", self._run_id, error)

    def _scrub(self) -> None:
        records = self._journal.load(self._run_id)
        bare = [scrubbed(record) for record in records]
        if bare != records:
            self._journal.replace(self._run_id, len(records), records=bare)

    async def _note(self, **record: Any) -> None:
        self._add(**record)
        try:
            await self.demand()
        except JournalError as error:
            _LOG.warning("a step of run %s is not in its journal yet: %s", self._run_id, error)

    def _add(self, **record: Any) -> None:
        if self._shims != self._written:
            self._written = record["shims"] = plain_json(self._shims, "shim_state")
        self._waiting.append(_plain(record))

    def _wrote(self, batch: Sequence[Record]) -> None:
        self._place = (self._place or 0) + len(batch)
        del self._waiting[: len(batch)]


def _plain(record: Record) -> Record:
    try:
        return plain_json(record, str(record["kind"]))  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        raise JournalError(f"{error}: a run with a journal is plain JSON") from error


def _ending(outcome: Outcome | None, failed: bool) -> dict[str, Any]:
    if failed or outcome is None or outcome.outcome == "failed" or outcome.reason == CutReason.ABORTED:
        return {"kind": "stopped"}
    kind = "paused" if outcome.reason == CutReason.APPROVAL else "end"
    return {"kind": kind, "outcome": outcome.outcome, "reason": outcome.reason}


def scrubbed(record: Record) -> Record:
    """A record without messages that were for the run alone; of these their places stay."""
    if record.get("kind") == "resumed":
        return {**record, "context": []} if record.get("context") else record
    messages = record.get("messages")
    if not messages:
        return record
    kept, left = parted(messages)
    return {**record, "messages": list(kept), "left": [list(each) for each in left]} if left else record
