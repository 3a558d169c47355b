"""Agents: a model, instructions and tools, ready to run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace as changed

from isthmus.harness.agenttool import AgentTool, Calls
from isthmus.harness.conversation import Conversation, Turn, opened
from isthmus.harness.decisions import Decision
from isthmus.harness.delegation import check_handoffs
from isthmus.harness.descriptor import AgentDescriptor, Runner
from isthmus.harness.docket import Uncertain
from isthmus.harness.given import check_given, told_of_runs
from isthmus.harness.inputs import Item, RunInput, history_items, input_items, messages_of
from isthmus.harness.journal import Journal
from isthmus.harness.limits import Limits
from isthmus.harness.markdown import read_descriptor
from isthmus.harness.modelview import model_events, run_events
from isthmus.harness.recipe import Order, Recipe
from isthmus.harness.result import RunResult
from isthmus.harness.resume import Resume
from isthmus.harness.runnerhooks import RunnerHooks
from isthmus.harness.runstream import RunEventStream, RunStream, closed_by
from isthmus.harness.snapshot import AgentId, AgentSnapshot, as_agent_id
from isthmus.harness.state import RunState
from isthmus.harness.stores import JsonFileStateStore, StateStore
from isthmus.harness.toolconfig import ToolConfig, ToolSet
from isthmus.models.cancellation import CancellationToken
from isthmus.models.promptspec import PromptSpec


class DefaultAgent:
    """Answers with a model, running the tools that the model asks for, until it is done.

    An agent made from a descriptor, or from what was kept, keeps its conversation; one made from keywords alone keeps
    none: give each of its runs the `messages` of the last as `history`.

    Runs of an agent that keeps its conversation follow one another in the order in which they were first read. Each
    works on a copy; what it returns is committed, a cut answer too, and a run that fails, is cancelled or is closed
    early leaves the conversation as it was. Streams of an agent made from a descriptor show each event as a
    `ModelStreamEvent`.

    Args:
        descriptor: what the agent is; a subclass may have it as an attribute. In its place, by keyword: `model`,
            `instructions`, `tools`, `name`, `max_output_tokens` and `output`, as `AgentDescriptor` has them.
        limits: what ends a run that does not end by itself; a chain's own budget lowers them.
        owns_model: whether `aclose` closes the model.
        runner: how runs are driven; its `max_turns` is one of the limits.
        hooks: what is told of its runs, one or several in this order.
        agent_id: who the agent is: an `AgentId` or a dict of `type` and `key`; None takes the one that was kept, or
            makes one up.
        run_state: the conversation to begin with.
        snapshot: the conversation to begin with, as it was stored.
        state_path: a file of JSON that the conversation is kept in.
        state_store: a store that the conversation is kept in; it is read at once, and written in a thread.
        journal: where the steps of its runs are kept while they happen, so that `resume` goes on after a crash.

    Raises:
        TypeError: there is no model; something is not of the kind that it must be.
        ValueError: a descriptor was given and its parts too, or more than one conversation, or one of another agent.
        SnapshotError: what was kept cannot be read.
        ToolDefinitionError: a tool cannot be offered.
        OutputDefinitionError: no such form can be asked for.
        InvalidRequestError: a tier of the model does not support tools, which there are, or has no room for them and
            the instructions; names it.
    """

    descriptor: AgentDescriptor | None = None

    def __init__(
        self,
        *,
        descriptor: AgentDescriptor | None = None,
        model: Any = None,
        instructions: str | PromptSpec[Any] = "",
        tools: ToolConfig | ToolSet | None = (),
        name: str | None = None,
        max_output_tokens: int | None = None,
        output: Any = None,
        limits: Limits | None = None,
        owns_model: bool = False,
        runner: Runner | None = None,
        hooks: RunnerHooks | Sequence[RunnerHooks] = (),
        agent_id: AgentId | Mapping[str, str] | None = None,
        run_state: RunState | None = None,
        snapshot: AgentSnapshot | None = None,
        state_path: str | os.PathLike[str] | None = None,
        state_store: StateStore | None = None,
        journal: Journal | None = None,
    ) -> None:
        parts = {
            "model": model,
            "instructions": instructions,
            "tools": tools,
            "name": name,
            "max_output_tokens": max_output_tokens,
            "output": output,
        }
        given = descriptor or type(self).descriptor
        check_given(descriptor=given, limits=limits, runner=runner, run_state=run_state, snapshot=snapshot)
        check_given(state_store=state_store, journal=journal)
        made = _described(given, parts)
        self.descriptor = made
        self.model = made.model
        self.name = made.name
        self._recipe = Recipe(made, limits=limits, runner=runner, hooks=told_of_runs(hooks), journal=journal)
        check_handoffs(self._recipe)
        self.tools = self._recipe.tools
        self._owns_model = owns_model
        if state_path is not None and state_store is not None:
            raise ValueError("state_path and state_store: an agent is kept in one place; give one of them")
        store = state_store if state_path is None else JsonFileStateStore(state_path)
        identity = None if agent_id is None else as_agent_id(agent_id)
        self._conversation: Conversation | None = None
        self._shows_model_events = given is not None
        if given is not None or any(each is not None for each in (identity, run_state, snapshot, store)):
            self._conversation = opened(
                made.name, agent_id=identity, run_state=run_state, snapshot=snapshot, store=store
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, model={self._recipe.chain.id!r})"

    @classmethod
    def from_markdown(cls, path: str | os.PathLike[str], *, model: Any, **settings: Any) -> Self:
        """An agent that stands in a file: `name:` and `description:` between two lines `---`, then the instructions.

        Args:
            path: the file, in UTF-8.
            model: an adapter, a chain or a `Model`.
            settings: `tools`, `output`, `max_output_tokens`, `model_args`, `shims` and `handoffs` are the descriptor's;
                the rest is the agent's.

        Raises:
            AgentFileError: the file is no such description; names place and line.
            OSError: it cannot be read.
        """
        own = {key: settings.pop(key) for key in _DESCRIBED if key in settings}
        return cls(descriptor=read_descriptor(path, model=model, **own), **settings)

    @property
    def agent_id(self) -> AgentId | None:
        """Who the agent is; None if it keeps no conversation."""
        return None if self._conversation is None else self._conversation.agent_id

    @property
    def run_state(self) -> RunState | None:
        """A copy of the conversation as it was committed last; None if the agent keeps none."""
        return None if self._conversation is None else self._conversation.state.copy()

    def snapshot(self) -> AgentSnapshot:
        """The conversation as it was committed last, to be stored elsewhere.

        Raises:
            RuntimeError: the agent keeps no conversation.
            SnapshotError: something in it has no plain JSON form.
        """
        return self._kept().snapshot()

    def reset(self) -> None:
        """Forget the conversation, in the store too.

        Raises:
            RuntimeError: a run is under way, or the agent keeps no conversation.
            StateConflictError: somebody else has changed the store.
        """
        self._kept().reset()

    def _kept(self) -> Conversation:
        if self._conversation is None:
            raise RuntimeError("the agent keeps no conversation: make it from a descriptor, DefaultAgent(descriptor=…)")
        return self._conversation

    def run_stream(
        self, input: RunInput, history: Sequence[Item] = (), *, metadata: Mapping[str, Any] | None = None
    ) -> RunStream:
        """Run, and hand out the events as they happen.

        Args:
            input: what to answer: text, a message, a prompt, or several of these; or a `RunState` to go on from, which
                takes the place of the agent's conversation.
            history: the transcript before it, as an earlier run left it; never changed.
            metadata: what tools find in their context.

        Raises:
            TypeError: the input is neither text nor messages, the history no messages.
            ValueError: a history was given to an agent that keeps its conversation.
            InvalidRequestError: a message is none; names its place.
            PromptError: a prompt cannot be rendered, or has no message for its place.
        """
        return self._stream(self._order(input, metadata), *self._entry(input, history))

    def run_events(
        self, input: RunInput, history: Sequence[Item] = (), *, metadata: Mapping[str, Any] | None = None
    ) -> RunEventStream:
        """Run, and hand out what happens as `RunEvent`s: the models' events, and the steps around them.

        Args:
            input: as for `run_stream`, and so are the next two.
            history: the same.
            metadata: the same.

        Raises:
            TypeError: as for `run_stream`, and so are the next three.
            ValueError: the same.
            InvalidRequestError: the same.
            PromptError: the same.
        """
        state, turn = self._entry(input, history)
        begin = partial(self._recipe.begin, order=self._order(input, metadata, watched=True))
        return RunEventStream(
            begin, self._recipe.chain, before=state, turn=turn, runner=self._recipe.runner, view=run_events
        )

    def _entry(self, input: RunInput, history: Sequence[Item]) -> tuple[RunState, Turn | None]:
        """Where a run begins, and its turn at the conversation."""
        given = input if isinstance(input, RunState) else None
        none = type(history) is tuple and not history
        before = () if none else tuple(messages_of(history_items(history), "history"))
        if before and (self._conversation is not None or given is not None):
            raise ValueError("history: there is a conversation already; run(RunState(history=…)) takes its place")
        if self._conversation is not None:
            turn = Turn(self._conversation, given, resumes=isinstance(input, Resume))
            return turn.before(), turn
        if given is not None:
            return given.copy(), None
        state = RunState()
        # What is not kept need not be copied.
        state.history = before
        return state, None

    def _order(self, input: RunInput, metadata: Mapping[str, Any] | None, *, watched: bool = False) -> Order:
        check_given(metadata=metadata)
        return Order(
            items=input_items(input),
            told=isinstance(input, RunState),
            metadata=dict(metadata or {}),
            watched=watched,
            resume=input if isinstance(input, Resume) else None,
            kept=self._conversation is not None,
        )

    def _stream(self, order: Order, state: RunState, turn: Turn | None) -> RunStream:
        return RunStream(
            partial(self._recipe.begin, order=order),
            self._recipe.chain,
            before=state,
            turn=turn,
            runner=self._recipe.runner,
            view=model_events if self._shows_model_events else None,
        )

    async def run(
        self,
        input: RunInput,
        history: Sequence[Item] = (),
        *,
        metadata: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> RunResult:
        """Run to the end. A run that is cut returns what there is; its `outcome` says why.

        Args:
            input: what to answer: text, a message, a prompt, or several of these; or a `RunState` to go on from, which
                takes the place of the agent's conversation.
            history: the transcript before it, as an earlier run left it; never changed.
            metadata: what tools find in their context.
            cancellation_token: stops the run from any thread, as closing a stream does: the result is cut, its reason
                "aborted", and the conversation stays as it was.

        Raises:
            TypeError: the input is neither text nor messages.
            ValueError: a history was given to an agent that keeps its conversation.
            PromptError: a prompt cannot be rendered, or has no message for its place.
            TierError: the run failed, without any answer.
            StateConflictError: somebody else has changed the store; the conversation is as it was.
        """
        check_given(cancellation_token=cancellation_token)
        stream = self.run_stream(input, history, metadata=metadata)
        async with stream if cancellation_token is None else closed_by(cancellation_token, stream):
            return await stream.result()

    async def resume(
        self,
        run_id: str | None = None,
        history: Sequence[Item] = (),
        *,
        decisions: Sequence[Decision] = (),
        context: Sequence[Mapping[str, Any]] = (),
        uncertain: Uncertain = "ask",
        metadata: Mapping[str, Any] | None = None,
    ) -> RunResult:
        """Go on with a run that stopped: for a decision, or because its process did. What was done is not done again.

        The same as `run(Resume(…))`; so do `run_stream` and `run_events`.

        Args:
            run_id: the run, in the agent's journal; None takes the calls that wait at the end of the conversation.
            history: of an agent that keeps no conversation, the transcript whose calls wait.
            decisions: as for `Resume`, and so are the next two.
            context: the same.
            uncertain: the same.
            metadata: what tools find in their context.

        Raises:
            ApprovalError: nothing waits, or a decision is missing, or of another run, call or arguments.
            JournalError: there is no such run, the journal cannot be used, or another process goes on with it.
            StateConflictError: the conversation has moved on, or another process has taken the decisions.
            TierError: the run failed, without any answer.
        """
        given = Resume(run_id=run_id, decisions=decisions, context=context, uncertain=uncertain)
        return await self.run(given, history, metadata=metadata)

    def rewind(self, run_id: str, *, step: int | None = None) -> RunState:
        """The conversation as it stood in a run, from the journal: `fork` and `run` take it.

        Args:
            run_id: the run, of those that began or were resumed with decisions in this agent's journal.
            step: after how many replies and their tools, from 0; None is as far as the run came.

        Raises:
            JournalError: there is no such run.
            ValueError: the run has fewer replies.
        """
        return self._recipe.rewound(run_id, step)

    async def fork(self, input: RunInput, *, metadata: Mapping[str, Any] | None = None) -> RunResult:
        """Run on a copy of the conversation, under an identity of its own, beside all other runs; commit nothing.

        Args:
            input: as for `run`.
            metadata: what tools find in their context.

        Raises:
            ValueError: a run is to be taken up: that changes the conversation.
            TierError: the run failed, without any answer.
        """
        if isinstance(input, Resume):
            raise ValueError(
                "fork: a run is taken up where it stopped, once: resume it; agent.rewind() gives a state to fork"
            )
        given = input if isinstance(input, RunState) else None
        state = (given or self.run_state or RunState()).copy()
        state.task_id = None
        async with self._stream(changed(self._order(input, metadata), apart=True), state, None) as stream:
            return await stream.result()

    def as_tool(self, *, name: str | None = None, description: str | None = None, args_model: Any = None) -> AgentTool:
        """The agent as a tool of another one: a conversation of its own for each call, under its limits and hooks.

        Args:
            name: as for `AgentDescriptor.as_tool`, and so are the next two.
            description: the same.
            args_model: the same.

        Raises:
            ToolDefinitionError: no such tool can be offered.
        """
        recipe = self._recipe
        tool = recipe.made.as_tool(name=name, description=description, args_model=args_model)
        return tool.replace(handler=Calls(tool.name, recipe.made, recipe.given, recipe.hooks))

    async def aclose(self) -> None:
        """Close the shims, and the model if it is this agent's own."""
        for shim in self._recipe.made.shims:
            await shim.aclose()
        if self._owns_model:
            await self._recipe.chain.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_DESCRIBED = ("tools", "output", "max_output_tokens", "model_args", "shims", "handoffs")
_UNSAID: Mapping[str, Any] = {"instructions": "", "tools": ()}


def _described(given: AgentDescriptor | None, parts: Mapping[str, Any]) -> AgentDescriptor:
    """What the agent is: as it was described, or as its parts say."""
    said = {key: value for key, value in parts.items() if value is not _UNSAID.get(key) and value != _UNSAID.get(key)}
    if given is not None and said:
        raise ValueError(f"{', '.join(said)}: the descriptor says what the agent is; give it there")
    made = AgentDescriptor(**said) if given is None else given
    if made.model is None:
        raise TypeError("an agent needs a model: an adapter, a chain or a Model")
    return made
