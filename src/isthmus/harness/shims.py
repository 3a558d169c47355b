"""What extends an agent without being one: a shim attends each run, adds tools and context, and keeps state of its own.

The order of a turn: every shim's `prepare_turn`, then what they excluded is taken out and the budgets are applied, then
every shim's `transform_messages`, then `on_llm_start`, the model, `on_llm_end`, then every shim's `on_model_response`,
and, where the model makes calls, its `review_calls`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from isthmus.harness.errors import ToolNameCollisionError
from isthmus.harness.items import check_item
from isthmus.harness.runnerhooks import RunIdentity, RunnerHooks
from isthmus.models.contract import ToolSpec
from isthmus.models.events import Call, Note, Usage
from isthmus.models.messages import MessageRole
from isthmus.models.responses import ModelResponse
from isthmus.models.tools import Tool, Tools

Message: TypeAlias = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class TurnState:
    """The run as a shim finds it.

    Args:
        run: which run it is.
        history: the transcript so far; changed through the `PreparedTurn` alone.
        shim_state: what shims keep, by their keys: the run's own dict, written in place, plain JSON values.
        turn_count: which turn of the run this is, from 1; 0 before the first.
        instructions: the system text of the agent.
        model: what the run calls, with `stream(ctx)` and `generate(ctx)`, its `window_tokens` and `max_output_tokens`.
    """

    run: RunIdentity
    history: Sequence[Message]
    shim_state: dict[str, Any]
    turn_count: int = 0
    instructions: str = ""
    model: Any = None

    @property
    def task_id(self) -> str:
        """The run's identity."""
        return self.run.task_id


@dataclass(slots=True, kw_only=True)
class PreparedTurn:
    """What the next model call is to be made of; shims change it, one after another.

    Instructions, tools and model arguments hold for this turn alone; what is added to the history stays.

    Args:
        run_state: the run.
        tools: the tools and their policy.
        model_args: the model's own request options.
        transient_state: what the shims of this run tell one another; never stored.
        spent: the tokens of model calls that a shim made for this turn; None of one that reported none.
        notes: what shims changed, for the run's notes.
        repeated: whether the turn was prepared before the run stopped, and its calls wait: what a shim does to its
            tools counts, and nothing else.
    """

    run_state: TurnState
    tools: Tools
    model_args: dict[str, Any] = field(default_factory=dict)
    transient_state: dict[str, Any] = field(default_factory=dict)
    system_instruction: str = ""
    excluded: frozenset[str] = frozenset()
    spent: list[Usage | None] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    repeated: bool = False

    def add_tools(self, tools: Iterable[ToolSpec | Callable[..., Any]], *, require_unique_names: bool = False) -> None:
        """Offer these tools, too; of two with one name the first stays.

        Args:
            tools: tools or annotated functions.
            require_unique_names: whether a name that is taken is an error.

        Raises:
            ToolNameCollisionError: a name is taken; nothing was added.
            ToolDefinitionError: one cannot be offered.
        """
        names = {tool.name for tool in self.tools.normalized_tools}
        new: list[ToolSpec] = []
        for tool in (each if isinstance(each, ToolSpec) else Tool.from_function(each) for each in tools):
            if tool.name not in names:
                names.add(tool.name)
                new.append(tool)
            elif require_unique_names:
                raise ToolNameCollisionError(f"there is a tool {tool.name!r} already: rename one of the two")
        if new:
            self.tools = with_tools(self.tools, (*self.tools.normalized_tools, *new))

    def exclude_tools(self, *names: str) -> None:
        """Withhold these tools in this turn, also from whoever adds them later."""
        self.excluded = self.excluded.union(names)

    def set_system_instruction(self, text: str) -> None:
        """Send this system text in this turn."""
        self.system_instruction = text

    def append_system_instruction(self, text: str) -> None:
        """Send this after the system text in this turn."""
        self.system_instruction = f"{self.system_instruction}\n\n{text}" if self.system_instruction else text

    def append_history_item(self, item: str | Message) -> None:
        """Put a message at the end of the transcript, for good; a text is one of the user's.

        Raises:
            InvalidRequestError: it is no message.
        """
        self.append_history_items([item])

    def append_history_items(self, items: Iterable[str | Message]) -> None:
        """Put messages at the end of the transcript, for good; all or none.

        Raises:
            TypeError: it is one text or one message, and no sequence of them.
            InvalidRequestError: one is no message; names its place.
        """
        self.replace_history((*self.run_state.history, *_several(items)))

    def replace_history(self, items: Iterable[str | Message]) -> None:
        """Put this in place of the transcript, for good.

        Raises:
            TypeError: it is one text or one message, and no sequence of them.
            InvalidRequestError: one is no message; names its place.
        """
        made = tuple(_message(item) for item in _several(items))
        known = {id(message) for message in self.run_state.history}
        for place, message in enumerate(made):
            if id(message) not in known:
                check_item(message, f"history[{place}]")
        self.run_state.history = made


def _several(items: Iterable[str | Message]) -> Iterable[str | Message]:
    if isinstance(items, str | bytes | Mapping):
        raise TypeError(f"items: must be a sequence of messages, not {type(items).__name__}; put it into a list")
    return items


def _message(item: str | Message) -> Message:
    return {"role": MessageRole.USER.value, "content": item} if isinstance(item, str) else item


def with_tools(policy: Tools, tools: tuple[ToolSpec, ...]) -> Tools:
    """A policy over other tools; a choice or a limit of a tool that is gone goes with it."""
    names = {tool.name for tool in tools}
    limits = {name: most for name, most in (policy.tool_call_limits or {}).items() if name in names}
    known = policy.tool_choice in ("auto", "required", "none", *names)
    choice = policy.tool_choice if known else "auto"
    return Tools(
        tools=tools,
        tool_choice="none" if not tools else choice,
        parallel_tool_calls=policy.parallel_tool_calls,
        tool_call_timeout=policy.tool_call_timeout,
        tool_call_max_retries=policy.tool_call_max_retries,
        tool_call_limits=limits or None,
        max_tool_round_trips=policy.max_tool_round_trips,
    )


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a shim says of a call that the model makes.

    Args:
        verdict: "run"; "ask" a person first; "refuse" it.
        reason: why: the person reads it, or, of a refusal, the model.

    Raises:
        ValueError: the verdict is none of these.
    """

    verdict: str
    reason: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in RULINGS:
            raise ValueError(f"{self.verdict!r:.40} is no ruling: it must be one of {', '.join(RULINGS)}")


RULINGS = ("run", "ask", "refuse")
"""What may be said of a call, the strictest last."""


class BoundShim:
    """What attends one run, and may keep what it needs meanwhile in attributes; override what is wanted.

    `on_run_end` comes once for every `on_run_start` that began, whatever happened; later shims end first.
    """

    inherit_tools: bool = False
    """Whether agents that work for this one get the tools that this adds."""

    runner_hooks: RunnerHooks | None = None
    """What is told of the run, after the application's own hooks."""

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """The run begins."""

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        """A model is to be called: change what it is sent."""

    async def transform_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The transcript as this call sends it; what is stored stays as it is."""
        return messages

    async def on_model_response(self, turn: PreparedTurn, response: ModelResponse) -> None:
        """A model has answered; its tools have not run yet."""

    async def review_calls(self, turn: PreparedTurn, calls: Sequence[Call]) -> Mapping[str, Ruling]:
        """What is to become of the calls of a reply, by their ids, before any runs; one that is not named runs."""
        return {}

    async def on_run_end(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """The run is over, or failed, or was stopped."""


class Shim(ABC):
    """An extension of an agent: its `bind` makes what attends one run.

    One shim may serve many agents and many runs at once, so that what belongs to a run is kept in the bound one, and
    what outlasts it in the run's `shim_state`, under a key that begins with the shim's name.
    """

    name: str = ""

    @abstractmethod
    async def bind(self, run: RunIdentity) -> BoundShim:
        """What attends this run."""

    async def aclose(self) -> None:  # noqa: B027 - most shims share nothing
        """Let go of what is shared by all runs; the agent does so when it is closed."""


class DelegatingBoundShim(BoundShim):
    """Passes everything on to another one; override what is to differ.

    Args:
        inner: the other one.
    """

    def __init__(self, inner: BoundShim) -> None:
        self.inner = inner
        self.inherit_tools = inner.inherit_tools
        self.runner_hooks = inner.runner_hooks

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """The inner one's."""
        await self.inner.on_run_start(state, transient_state)

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        """The inner one's."""
        await self.inner.prepare_turn(turn)

    async def transform_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The inner one's."""
        return await self.inner.transform_messages(messages)

    async def on_model_response(self, turn: PreparedTurn, response: ModelResponse) -> None:
        """The inner one's."""
        await self.inner.on_model_response(turn, response)

    async def review_calls(self, turn: PreparedTurn, calls: Sequence[Call]) -> Mapping[str, Ruling]:
        """The inner one's."""
        return await self.inner.review_calls(turn, calls)

    async def on_run_end(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """The inner one's."""
        await self.inner.on_run_end(state, transient_state)


class DelegatingShim(Shim):
    """Passes everything on to another shim; override `wrap` to attend its runs differently.

    Args:
        inner: the other one.
    """

    def __init__(self, inner: Shim) -> None:
        self.inner = inner
        self.name = inner.name

    def wrap(self, bound: BoundShim) -> BoundShim:
        """What attends the run in place of the inner shim's own."""
        return bound

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What `wrap` makes of the inner shim's own."""
        return self.wrap(await self.inner.bind(run))

    async def aclose(self) -> None:
        """The inner one's."""
        await self.inner.aclose()
