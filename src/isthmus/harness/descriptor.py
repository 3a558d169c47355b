"""What an agent is, apart from what was said to it; and how its runs are driven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.harness.shims import Shim
from isthmus.models.contract import ToolSpec
from isthmus.models.promptspec import PromptSpec
from isthmus.models.tools import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescriptor:
    """What an agent is; several agents may be made from one.

    Args:
        name: what it is called in records, and the type of its `agent_id`.
        model: an adapter, a chain or a `Model`.
        instructions: the system text; a prompt's is rendered anew when a run begins.
        tools: a `Tools` policy, or the tools alone: `Tool`, `ToolSpec`, annotated functions.
        output: the form that the answer must take: a type, a JSON Schema or an `OutputSchema`; None leaves it to the
            prompts: that of the input first, then that of the instructions; without any, text.
        description: what it is for, in a sentence, for whoever chooses among agents.
        max_output_tokens: ceiling of each reply; None leaves it to the adapter's own.
        model_args: the model's own request options, passed through with every call.
        shims: what extends its runs, in this order.

    Raises:
        TypeError: the instructions are neither text nor a prompt.
        ValueError: the name is empty.
        ToolDefinitionError: a tool cannot be offered.
    """

    name: str = "agent"
    model: Any = None
    instructions: str | PromptSpec[Any] = ""
    tools: Tools | Sequence[ToolSpec | Callable[..., Any]] = ()
    output: Any = None
    description: str = ""
    max_output_tokens: int | None = None
    model_args: Mapping[str, Any] = field(default_factory=dict)
    shims: Sequence[Shim] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.instructions, str | PromptSpec):
            kind = type(self.instructions).__name__
            raise TypeError(f"instructions must be text or a PromptSpec(template, values), not {kind}")
        name: Any = self.name
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"name={name!r}: must be a text that is not empty")
        object.__setattr__(self, "tools", self.policy)

    @property
    def policy(self) -> Tools:
        """The tools with their policy."""
        return self.tools if isinstance(self.tools, Tools) else Tools(self.tools)


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
