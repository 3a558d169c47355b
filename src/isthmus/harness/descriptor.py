"""What an agent is, apart from what was said to it; and how its runs are driven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from isthmus.errors import TransientError, UnavailableError
from isthmus.harness.agenttool import AgentTool, Calls
from isthmus.harness.handoffs import Handoff, tool_name
from isthmus.harness.shims import Shim, with_tools
from isthmus.harness.toolconfig import INHERIT_TOOLS, ToolConfig, ToolSet, tool_config
from isthmus.models.promptspec import PromptSpec
from isthmus.models.tools import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescriptor:
    """What an agent is; several agents may be made from one.

    Args:
        name: what it is called in records, and the type of its `agent_id`.
        model: an adapter, a chain or a `Model`.
        instructions: the system text; a prompt's is rendered anew when a run begins.
        tools: a `Tools` policy, or the tools alone: `Tool`, `ToolSpec`, annotated functions; where it works for another
            agent these are all that it has. A `ToolConfig` says what it has of that agent's tools besides; unless
            something is said, all of them.
        output: the form that the answer must take: a type, a JSON Schema or an `OutputSchema`; None leaves it to the
            prompts: that of the input first, then that of the instructions; without any, text.
        description: what it is for, in a sentence, for whoever chooses among agents.
        max_output_tokens: ceiling of each reply; None leaves it to the adapter's own.
        model_args: the model's own request options, passed through with every call.
        shims: what extends its runs, in this order.
        handoffs: the agents that it may hand a conversation over to; a list may be added to until an agent is made.

    Raises:
        TypeError: the instructions are neither text nor a prompt; handoffs or shims are no list, or something among
            the shims is none; the model's arguments are no dict.
        ValueError: the name is empty, or the ceiling no whole number from 0.
        ToolDefinitionError: a tool cannot be offered.
    """

    name: str = "agent"
    model: Any = None
    instructions: str | PromptSpec[Any] = ""
    tools: ToolConfig | ToolSet | None = INHERIT_TOOLS
    output: Any = None
    description: str = ""
    max_output_tokens: int | None = None
    model_args: Mapping[str, Any] = field(default_factory=dict)
    shims: Sequence[Shim] = ()
    handoffs: Sequence[AgentDescriptor] = ()

    inherits_shims: ClassVar[bool] = False
    """Whether it has the shims of the agent that it works for besides its own."""

    def __post_init__(self) -> None:
        if not isinstance(self.instructions, str | PromptSpec):
            kind = type(self.instructions).__name__
            raise TypeError(f"instructions must be text or a PromptSpec(template, values), not {kind}")
        name: Any = self.name
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"name={name!r}: must be a text that is not empty")
        if isinstance(self.handoffs, AgentDescriptor) or not hasattr(self.handoffs, "__iter__"):
            raise TypeError(f"handoffs={self.handoffs!r:.60}: must be a list of descriptors, [descriptor] for one")
        shims: Any = self.shims
        if isinstance(shims, Shim) or not hasattr(shims, "__iter__"):
            raise TypeError(f"shims={shims!r:.60}: must be a list of shims, [shim] for one")
        strangers = [each for each in shims if not isinstance(each, Shim)]
        if strangers:
            raise TypeError(f"shims: {strangers[0]!r:.60} is no Shim; give one, made with what it needs")
        if not isinstance(self.model_args, Mapping):
            raise TypeError(f"model_args={self.model_args!r:.60}: must be a dict of request options")
        most: Any = self.max_output_tokens
        if most is not None and (type(most) is not int or most < 0):
            raise ValueError(f"max_output_tokens={most!r:.60}: must be a whole number, or None for the adapter's own")
        if not isinstance(self.tools, ToolConfig | Tools):
            object.__setattr__(self, "tools", tool_config(self.tools).tools or Tools())

    @property
    def policy(self) -> Tools:
        """The tools of its own with their policy."""
        return self.tools_under(None)

    def tools_under(self, parent: Tools | None) -> Tools:
        """The tools that it has, handoffs left out.

        Args:
            parent: what it may have of the agent that it works for; None if there is none.
        """
        return self.tools if isinstance(self.tools, Tools) else tool_config(self.tools).resolved(parent)

    def with_handoffs(self, tools: Tools) -> Tools:
        """Tools, and the handoffs among them.

        Raises:
            TypeError: something else than a descriptor is handed over to.
            ToolDefinitionError: two have one name.
        """
        if not self.handoffs:
            return tools
        handoffs: Sequence[Any] = self.handoffs
        strangers = [each for each in handoffs if not isinstance(each, AgentDescriptor)]
        if strangers:
            raise TypeError(f"agent {self.name!r}: handoffs: {strangers[0]!r:.60} is no AgentDescriptor; give one")
        return with_tools(tools, (*tools.normalized_tools, *map(Handoff, self.handoffs)))

    def as_tool(self, *, name: str | None = None, description: str | None = None, args_model: Any = None) -> AgentTool:
        """The agent as a tool of another one: a fresh run for each call, which goes on with its answer.

        It is told the arguments alone, as JSON, and may have that agent's tools, as its own `tools` say.

        Args:
            name: the name that the model calls it by; None makes one of the agent's.
            description: what it does and when to use it; None takes the descriptor's.
            args_model: a pydantic model of the arguments; None takes none.

        Raises:
            ToolDefinitionError: no such tool can be offered.
        """
        called = tool_name(self.name) if name is None else name
        return AgentTool(
            name=called,
            description=description or self.description or f"Let {self.name} do its work and answer with the result.",
            args_model=args_model,
            handler=Calls(called, self),
            retry_on_timeout=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """How runs are driven.

    Args:
        max_attempts: how often a model call may be made that fails before any content, beside what the model's own
            adapter or chain tries; a model that owns its retries gets one.
        max_turns: model calls of one run; a guard beside the budget of steps.
        agent_max_depth: how deep agents may hand work to agents.
        agent_max_threads: how many agents may work for one run at once.
        is_retryable: whether an error is worth another attempt; None takes those that pass: transient, unavailable.

    Raises:
        ValueError: a number is below 1.
    """

    max_attempts: int = 1
    max_turns: int = 128
    agent_max_depth: int = 4
    agent_max_threads: int = 16
    is_retryable: Callable[[Exception], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("max_attempts", "max_turns", "agent_max_depth", "agent_max_threads"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name}={value!r}: must be a whole number from 1")


def retries_of(runner: Runner | None) -> tuple[int, Callable[[Exception], bool]]:
    """How often a model call may be made anew, and after which errors."""
    return (0, _passes) if runner is None else (runner.max_attempts - 1, runner.is_retryable or _passes)


def _passes(error: Exception) -> bool:
    return isinstance(error, TransientError | UnavailableError)
