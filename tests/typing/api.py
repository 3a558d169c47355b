"""The public forms of the adapter contract, checked by mypy and pyright; nothing here runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypedDict, assert_type

from isthmus.adapters.base import (
    ChatResponse,
    ModelAdapter,
    ModelCapabilities,
    ToolCall,
    apply_thinking,
    as_adapter,
    capabilities_from_limits,
    is_output_truncation,
)
from isthmus.models import PromptSpec, PromptTemplate, render_instruction_text
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, StepResult, Text
from isthmus.models.model import Model
from isthmus.models.responses import ModelResponse


class Steps(ModelAdapter):
    """A step-face author."""

    def __init__(self, *, model: str) -> None:
        self.model = model

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        yield Text(ctx.brief)
        yield Finish("stop")


class Chats(ModelAdapter):
    """A chat-face author."""

    id = "chats"
    supports = frozenset({"tools"})

    async def chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> ChatResponse:
        return ChatResponse("x", [ToolCall("1", "t", {})], "tool_use")

    def capabilities(self) -> ModelCapabilities:
        return capabilities_from_limits("m", {"m": {"context_window": 1}})


class Plain:
    """A plain object."""

    def generate(self, ctx: GenerateContext) -> Mapping[str, Any]:
        return {"events": [], "finish": "stop"}


class Client(Model):
    """A model client."""

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError


async def use() -> None:
    """What callers write."""
    ctx = GenerateContext(brief="x")
    async with Steps(model="m") as adapter:
        assert_type(adapter, Steps)
        assert_type(adapter.id, str)
        assert_type(adapter.window_tokens, int | None)
        async for event in adapter.stream(ctx):
            print(event)
    for made in (as_adapter(Plain()), as_adapter(Client())):
        async with made.stream(ctx) as stream:
            step: StepResult = await stream.result()
        print(step.text, await made.generate(ctx), (await made.chat([], [])).text)
    assert_type(is_output_truncation(None), bool)
    assert_type(apply_thinking({}, "low"), dict[str, Any])


class RiskVars(TypedDict):
    """Values of a prompt."""

    tier: str


def prompts() -> None:
    """What authors of prompts write: values are checked against the template's own."""
    made = PromptTemplate[RiskVars, str](system_template="{{ tier }}")
    assert_type(made.render_messages({"tier": "x"}), list[dict[str, Any]])
    values: RiskVars = {"tier": "x"}
    spec = PromptSpec(template=made, values=values)
    assert_type(spec, PromptSpec[RiskVars])
    assert_type(spec.values, RiskVars | None)
    assert_type(render_instruction_text(spec), str)
    PromptSpec[RiskVars](made, {"teir": "x"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(PromptTemplate[RiskVars, str].from_text("x").name, str | None)
