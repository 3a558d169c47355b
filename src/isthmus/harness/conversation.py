"""The conversation of one agent: its runs one after another, each on a copy, each committed whole or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from os import urandom
from threading import RLock
from typing import Any
from weakref import ref

from isthmus.harness.errors import StateConflictError
from isthmus.harness.saving import saved
from isthmus.harness.snapshot import AgentId, AgentSnapshot
from isthmus.harness.state import RunState
from isthmus.harness.stores import StateStore
from isthmus.models.events import Call
from isthmus.models.executor import Around, ToolResult
from isthmus.models.watchdog import Watchdog

_LOG = logging.getLogger("isthmus.harness")


class Queue:
    """Lets one in at a time, in the order in which they came; in several event loops and threads, too."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        # The garbage collector, which may come by at any time, lets go of those who wait.
        self._lock = RLock()
        self.busy = False

    async def enter(self) -> None:
        """Wait for those who came before."""
        with self._lock:
            if not self.busy:
                self.busy = True
                return
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
        entered = False
        try:
            await place
            entered = True
        finally:
            if not entered:
                self._give_up(place)

    def _give_up(self, place: asyncio.Future[None]) -> None:
        with self._lock:
            waits = place in self._waiting
            if waits:
                self._waiting.remove(place)
        if not waits:
            # It was this one's turn by then.
            self.leave()

    def leave(self) -> None:
        """Let the next one in."""
        while True:
            with self._lock:
                if not self._waiting:
                    self.busy = False
                    return
                place = self._waiting.popleft()
            # In a loop that is closed nobody waits any more.
            with suppress(RuntimeError):
                place.get_loop().call_soon_threadsafe(_let_in, place)
                return


def _let_in(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)


class Conversation:
    """What an agent keeps between its runs.

    Args:
        agent_id: whose conversation it is.
        state: how it stands, its own from now on, with nothing ephemeral in it.
        store: where it is kept; None keeps it in the agent alone.
        stored: the revision that the store holds; None if it is empty.
    """

    def __init__(
        self, agent_id: AgentId, state: RunState, *, store: StateStore | None = None, stored: int | None = None
    ) -> None:
        self.agent_id = agent_id
        self.state = state
        self.queue = Queue()
        self.turn: Turn | None = None
        """The turn of the run that is under way."""
        self._store = store
        self._stored = stored

    def snapshot(self) -> AgentSnapshot:
        """The conversation as it was committed last.

        Raises:
            SnapshotError: something in it has no plain JSON form.
        """
        return AgentSnapshot.capture(self.state, agent_id=self.agent_id)

    def reset(self) -> None:
        """Begin anew, in the store too.

        Raises:
            RuntimeError: a run is under way.
            StateConflictError: somebody else has changed the store.
        """
        if self.queue.busy:
            raise RuntimeError("the agent is running: reset it when its runs have ended")
        if self._store is not None:
            self._store.delete(expected_revision=self._stored)
        self._stored = None
        self.state = RunState()

    async def commit(self, state: RunState) -> None:
        """Make this state the one that the next run begins from, once it is stored.

        Whoever is cancelled meanwhile waits for the store all the same, so that both hold the same afterwards.

        Raises:
            SnapshotError: something in it has no plain JSON form.
            StateConflictError: somebody else has changed the store.
        """
        if self._store is None:
            self.state = state
            return
        snapshot = AgentSnapshot.capture(state, agent_id=self.agent_id)
        await saved(partial(self._save, self._store, snapshot), partial(self._keep, state))

    def _save(self, store: StateStore, snapshot: AgentSnapshot) -> None:
        try:
            store.save(snapshot, expected_revision=self._stored)
        except StateConflictError:
            raise
        except Exception as error:
            # A connection may be lost behind the change; the next run would be in conflict with what this one saved.
            if not _holds(store, snapshot):
                raise
            _LOG.warning("%s: the store raised %s, but has saved the run", self.agent_id, type(error).__name__)

    def _keep(self, state: RunState) -> None:
        self.state, self._stored = state, state.revision


@dataclass(frozen=True, slots=True)
class _Inside:
    """A handler that is being called; held weakly, since a timer of the loop may keep its context for minutes.

    Args:
        turn: the turn of the run that calls it; None of a run that keeps no conversation.
        task: where.
        outer: the handler inside of which that run is.
    """

    turn: Callable[[], Turn | None]
    task: Callable[[], asyncio.Task[Any] | None]
    outer: _Inside | None


_INSIDE: ContextVar[_Inside | None] = ContextVar("isthmus_inside", default=None)


def _holds(store: StateStore, snapshot: AgentSnapshot) -> bool:
    """Whether a store holds exactly this; not where it cannot say."""
    with suppress(Exception):
        return store.load() == snapshot
    return False


class Turn:
    """One run's turn at a conversation.

    Args:
        conversation: whose turn it is.
        given: the state to begin from, in place of the conversation's own.
        resumes: whether a run goes on that the conversation may know, so that its identity counts.
    """

    def __init__(self, conversation: Conversation, given: RunState | None = None, *, resumes: bool = False) -> None:
        self._conversation = conversation
        self._given = given
        self._resumes = resumes
        self._in = False
        self._seen: RunState | None = None
        self.watch: Watchdog | None = None
        """What knows the task that waits for the run."""
        self.ending: asyncio.Task[Any] | None = None
        """The task in which the run ends."""

    async def enter(self) -> RunState | None:
        """Wait for the runs before this one, and give a copy of what they left; None if nothing has changed.

        Raises:
            RuntimeError: the run before this one waits for whoever wants to begin this one.
        """
        before = self._conversation.turn
        if before is not None and before._waits_for_us():
            raise RuntimeError(
                "a tool, a hook or a shim of a run must not run the agent that it serves, as both would wait for ever: "
                "fork() the agent, or run it when that run has ended"
            )
        await self._conversation.queue.enter()
        self._in = True
        self._conversation.turn = self
        return None if self._seen is self._conversation.state else self.before()

    def _waits_for_us(self) -> bool:
        """Whether the run whose turn this is cannot go on before the code that asks does."""
        task, watch = asyncio.current_task(), self.watch
        if watch is not None and watch.waiting() and task is (watch.task or self.ending):
            return True
        inside = _INSIDE.get()
        if inside is None or not _is_waited_for(inside.task(), task):
            return False
        while inside is not None and inside.turn() is not self:
            inside = inside.outer
        return inside is not None

    def before(self) -> RunState:
        """A copy of what the run would begin from now; revisions are counted by the conversation, whatever is given."""
        self._seen = self._conversation.state
        state = (self._given or self._conversation.state).copy()
        state.revision = self._conversation.state.revision
        if self._given is None and not self._resumes:
            state.task_id = None
        return state

    async def commit(self, state: RunState) -> None:
        """Make this the state that the next run begins from."""
        await self._conversation.commit(state)

    def holds(self, state: RunState) -> bool:
        """Whether the next run begins from this very state."""
        return self._conversation.state is state

    def leave(self) -> None:
        """Let the next run in."""
        self.watch = self.ending = None
        if self._in:
            self._in = False
            self._conversation.turn = None
            self._conversation.queue.leave()


def knows_where(turn: Turn | None, told: Around | None) -> Around | None:
    """What calls a handler so that it knows inside of which run it is; None where it need not.

    Args:
        turn: the turn of the run that calls it.
        told: what else is done around it.
    """
    if turn is None and _INSIDE.get() is None:
        return told

    async def around(call: Call, ran: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        known = _Inside(_nothing if turn is None else ref(turn), ref(asyncio.current_task()), _INSIDE.get())
        token = _INSIDE.set(known)
        try:
            return await (ran() if told is None else told(call, ran))
        finally:
            # A run that was dropped ends in another context.
            with suppress(ValueError):
                _INSIDE.reset(token)

    return around


def _nothing() -> None:
    return None


def _is_waited_for(handler: asyncio.Task[Any] | None, task: asyncio.Task[Any] | None) -> bool:
    """Whether a handler waits for this task: it is its own, or one of a loop that a thread of its own runs to its end.

    For another task of the same loop it need not wait, as for one that is to begin when the run has ended.
    """
    if handler is None or task is None:
        return False
    return handler is task or handler.get_loop() is not task.get_loop()


def opened(
    name: str,
    *,
    agent_id: AgentId | None,
    run_state: RunState | None,
    snapshot: AgentSnapshot | None,
    store: StateStore | None,
) -> Conversation:
    """The conversation that an agent begins with.

    Args:
        name: the agent's, which is the type of an id that is made up.
        agent_id: who the agent is; None takes the id that was kept, or makes one up.
        run_state: the state to begin with.
        snapshot: the snapshot to begin with.
        store: the store to begin with, and to keep the conversation in.

    Raises:
        ValueError: more than one of them was given, or what was kept is another agent's.
        SnapshotError: what is in the store cannot be read.
    """
    given = {"run_state": run_state, "snapshot": snapshot, "state_path or state_store": store}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)}: an agent begins from one of them; give the others to another agent")
    kept = store.load() if store is not None else snapshot
    if kept is not None and agent_id is not None and kept.agent_id != agent_id:
        raise ValueError(f"agent_id={str(agent_id)!r}: the conversation is that of {str(kept.agent_id)!r}")
    known = agent_id or (kept.agent_id if kept is not None else AgentId(name, urandom(16).hex()))
    before = kept.to_run_state() if kept is not None else run_state
    state = RunState() if before is None else before.lasting()
    return Conversation(known, state, store=store, stored=None if store is None or kept is None else kept.revision)
