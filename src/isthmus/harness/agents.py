"""Agents: a model, instructions and tools, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias
from uuid import uuid4

from isthmus.chain import of
from isthmus.harness.driver import RunStream
from isthmus.harness.limits import Limits
from isthmus.harness.loop import start
from isthmus.harness.outcome import RunResult
from isthmus.harness.view import LiveRunView
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.messages import MessageRole, check_form
from isthmus.models.output import resolve_output_schema
from isthmus.models.promptspec import PromptSpec, render_instruction_text, render_user_messages
from isthmus.models.tools import ToolExecutionContext, Tools

Message: TypeAlias = Mapping[str, Any]
Item: TypeAlias = Message | PromptSpec[Any]
RunInput: TypeAlias = str | Item | Sequence[Item]


class DefaultAgent:
    """Answers with a model, running the tools that the model asks for, until it is done.

    Holds no conversation: give each run the `messages` of the last as its `history`.

    Args:
        model: an adapter or a chain.
        instructions: the system text; a prompt's is rendered anew when a run begins.
        tools: a `Tools` policy, or the tools alone: `Tool`, `ToolSpec`, annotated functions.
        name: what the agent is called in records.
        max_output_tokens: ceiling of each reply; None leaves it to the adapter's own.
        output: the form that the answer must take: a type, a JSON Schema or an `OutputSchema`; None leaves it to the
            prompts: that of the input first, then that of the instructions; without any, text.
        limits: what ends a run that does not end by itself; a chain's own budget lowers them.
        owns_model: whether `aclose` closes the model.

    Raises:
        TypeError: the instructions are neither text nor a prompt.
        ToolDefinitionError: a tool cannot be offered.
        OutputDefinitionError: no such form can be asked for.
        InvalidRequestError: there are tools, and a tier of the model does not support them; names it.
    """

    def __init__(
        self,
        *,
        model: Any,
        instructions: str | PromptSpec[Any] = "",
        tools: Tools | Sequence[ToolSpec | Callable[..., Any]] = (),
        name: str = "agent",
        max_output_tokens: int | None = None,
        output: Any = None,
        limits: Limits | None = None,
        owns_model: bool = False,
    ) -> None:
        self.model = model
        self.name = name
        self.tools = tools if isinstance(tools, Tools) else Tools(tools)
        if not isinstance(instructions, str | PromptSpec):
            kind = type(instructions).__name__
            raise TypeError(f"instructions must be text or a PromptSpec(template, values), not {kind}")
        self._instructions = instructions
        form = resolve_output_schema(output)
        self._request = GenerateContext(max_output_tokens=max_output_tokens, output=form)
        self._chain = of(model)
        self._limits = (limits or Limits()).within(self._chain.budget)
        self._owns_model = owns_model
        if self.tools.tools:
            self._chain.check({"tools"})

    def __repr__(self) -> str:
        return f"DefaultAgent(name={self.name!r}, model={self._chain.id!r})"

    def run_stream(self, input: RunInput, history: Sequence[Item] = ()) -> RunStream:
        """Run, and hand out the events as they happen.

        Args:
            input: what to answer: text, a message, a prompt, or several of these.
            history: the transcript before it, as an earlier run left it; never changed.

        Raises:
            TypeError: the input is neither text nor messages, the history no messages.
            InvalidRequestError: a message is none; names its place.
            PromptError: a prompt cannot be rendered, or has no message for its place.
        """
        items = _input(input)
        messages = (*_messages(_history(history), "history"), *_messages(items, "input"))
        begun = start(
            messages,
            self._rendered(items),
            tools=self.tools,
            limits=self._limits,
            supports=self._chain.supports,
        )
        run_id = uuid4().hex
        context = ToolExecutionContext(run_id=run_id, agent_name=self.name, run_state=LiveRunView(run_id, {}))
        return RunStream(begun, self._chain, context=context)

    def _rendered(self, items: Sequence[Item]) -> GenerateContext:
        """What the calls of a run have in common: the instructions as they are now, and the form of the answer."""
        given, output = self._instructions, self._request.output
        if output is None:
            prompts = [item for item in (*reversed(items), given) if isinstance(item, PromptSpec)]
            # A form without a `response_format` is text, and leaves the choice to the next prompt.
            forms = (each.template.output_schema for each in prompts if each.template.response_format() is not None)
            output = next(forms, None)
        brief = given if isinstance(given, str) else render_instruction_text(given)
        return replace(self._request, brief=brief, output=output)

    async def run(self, input: RunInput, history: Sequence[Item] = ()) -> RunResult:
        """Run to the end. A run that is cut returns what there is; its `outcome` says why.

        Args:
            input: what to answer: text, a message, a prompt, or several of these.
            history: the transcript before it, as an earlier run left it; never changed.

        Raises:
            TypeError: the input is neither text nor messages.
            PromptError: a prompt cannot be rendered, or has no message for its place.
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


def _history(history: Sequence[Item]) -> tuple[Item, ...]:
    if isinstance(history, str | bytes | Mapping | PromptSpec) or not hasattr(history, "__iter__"):
        raise TypeError(f"history must be a sequence of messages, not {type(history).__name__}")
    return tuple(history)


def _input(input: RunInput) -> tuple[Item, ...]:
    if isinstance(input, str):
        return ({"role": MessageRole.USER.value, "content": input},)
    if isinstance(input, Mapping | PromptSpec):
        return (input,)
    items = tuple(input) if hasattr(input, "__iter__") else ()
    if hasattr(input, "__iter__") and all(isinstance(item, Mapping | PromptSpec) for item in items):
        return items
    raise TypeError(f"input must be text, a message, a prompt or a sequence of these, not {type(input).__name__}")


def _messages(items: Sequence[Item], where: str) -> Iterator[Message]:
    """The messages of items: of a prompt its user messages."""
    for place, item in enumerate(items):
        if isinstance(item, PromptSpec):
            yield from render_user_messages(item)
        else:
            check_form(item, f"{where}[{place}]")
            yield item
