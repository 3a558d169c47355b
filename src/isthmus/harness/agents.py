"""Agents: a model, instructions and tools, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeAlias
from uuid import uuid4

from isthmus.chain import of
from isthmus.harness.driver import RunStream
from isthmus.harness.limits import Limits
from isthmus.harness.loop import start
from isthmus.harness.outcome import RunResult
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.messages import MessageRole, check_form
from isthmus.models.output import resolve_output_schema
from isthmus.models.tools import ToolExecutionContext, Tools

Message: TypeAlias = Mapping[str, Any]
RunInput: TypeAlias = str | Message | Sequence[Message]


class DefaultAgent:
    """Answers with a model, running the tools that the model asks for, until it is done.

    Holds no conversation: give each run the `messages` of the last as its `history`.

    Args:
        model: an adapter or a chain.
        instructions: the system text.
        tools: a `Tools` policy, or the tools alone: `Tool`, `ToolSpec`, annotated functions.
        name: what the agent is called in records.
        max_output_tokens: ceiling of each reply; None leaves it to the adapter's own.
        output: the form that the answer must take: a type, a JSON Schema or an `OutputSchema`; None for text.
        limits: what ends a run that does not end by itself.
        owns_model: whether `aclose` closes the model.

    Raises:
        ToolDefinitionError: a tool cannot be offered.
        OutputDefinitionError: no such form can be asked for.
        InvalidRequestError: there are tools, and a tier of the model does not support them; names it.
    """

    def __init__(
        self,
        *,
        model: Any,
        instructions: str = "",
        tools: Tools | Sequence[ToolSpec | Callable[..., Any]] = (),
        name: str = "agent",
        max_output_tokens: int | None = None,
        output: Any = None,
        limits: Limits | None = None,
        owns_model: bool = False,
    ) -> None:
        self.model = model
        self.name = name
        self.tools = tools if isinstance(tools, Tools) else Tools(tuple(tools))
        self._limits = limits or Limits()
        form = resolve_output_schema(output)
        self._request = GenerateContext(brief=instructions, max_output_tokens=max_output_tokens, output=form)
        self._chain = of(model)
        self._owns_model = owns_model
        if self.tools.tools:
            self._chain.check({"tools"})

    def __repr__(self) -> str:
        return f"DefaultAgent(name={self.name!r}, model={self._chain.id!r})"

    def run_stream(self, input: RunInput, history: Sequence[Message] = ()) -> RunStream:
        """Run, and hand out the events as they happen.

        Args:
            input: what to answer: text, a message, or several.
            history: the transcript before it, as an earlier run left it; never changed.

        Raises:
            TypeError: the input is neither text nor messages, the history no messages.
            InvalidRequestError: a message is none; names its place.
        """
        begun = start(
            (*_history(history), *_messages(input)),
            self._request,
            tools=self.tools,
            limits=self._limits,
            supports=self._chain.supports,
        )
        context = ToolExecutionContext(run_id=uuid4().hex, agent_name=self.name)
        return RunStream(begun, self._chain, context=context)

    async def run(self, input: RunInput, history: Sequence[Message] = ()) -> RunResult:
        """Run to the end. A run that is cut returns what there is; its `outcome` says why.

        Args:
            input: what to answer: text, a message, or several.
            history: the transcript before it, as an earlier run left it; never changed.

        Raises:
            TypeError: the input is neither text nor messages.
            TierError: the run failed, without any answer.
        """
        async with self.run_stream(input, history) as stream:
            return await stream.result()

    async def aclose(self) -> None:
        """Close the model, if it is this agent's own."""
        if self._owns_model:
            await self._chain.aclose()

    async def __aenter__(self) -> DefaultAgent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _history(history: Sequence[Message]) -> tuple[Message, ...]:
    if isinstance(history, str | bytes | Mapping) or not hasattr(history, "__iter__"):
        raise TypeError(f"history must be a sequence of messages, not {type(history).__name__}")
    messages = tuple(history)
    for place, message in enumerate(messages):
        check_form(message, f"history[{place}]")
    return messages


def _messages(input: RunInput) -> tuple[Message, ...]:
    if isinstance(input, str):
        return ({"role": MessageRole.USER.value, "content": input},)
    if isinstance(input, Mapping):
        return (input,)
    with suppress(TypeError):
        messages = tuple(input)
        if all(isinstance(message, Mapping) for message in messages):
            for place, message in enumerate(messages):
                check_form(message, f"input[{place}]")
            return messages
    raise TypeError(f"input must be text, a message or a sequence of messages, not {type(input).__name__}")
