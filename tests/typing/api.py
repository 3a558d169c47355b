"""The public forms of the adapter contract, checked by mypy and pyright; nothing here runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypedDict, assert_type

from isthmus import OutputSchema, parse
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
from isthmus.models import (
    ConcurrentRequestLimiter,
    Config,
    Factory,
    ModelStreamEvent,
    PromptSpec,
    PromptTemplate,
    ReasoningPhase,
    get_reasoning_phase,
    get_usage_totals,
    render_instruction_text,
    retry_on_errors,
)
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
    """A model client, which answers with a `ModelResponse` as none else is named."""

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError


class TextClient(Model[str]):
    """A model client with replies of its own, and options by name."""

    async def get_response(
        self,
        messages: Any,
        extra_call_args: Mapping[str, Any] | None = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> str:
        return "x"


class ClientFactory(Factory[ModelResponse]):
    """Makes clients."""

    client = Client


async def models() -> None:
    """What callers of the model face write."""
    client = Client()
    assert_type(await Model.get_response(client, []), ModelResponse)
    assert_type(await TextClient().get_response([], schema=None), str)
    async with client.open_run() as active:
        assert_type(active, Client)
        async for event in active.stream_response([]):
            assert_type(event, ModelStreamEvent)
            assert_type(get_reasoning_phase(event), ReasoningPhase | None)
    response = await client.get_response([])
    assert_type(response.choices[0].message.content, str | None)
    print(response.reasoning_content)
    assert_type(ModelResponse.from_dict(response.to_dict()), ModelResponse)
    totals = get_usage_totals(response)
    if totals is not None:
        assert_type(totals.total_tokens, int)

    @retry_on_errors(max_retries=2)
    async def ask(question: str) -> int:
        return len(question)

    done = await ask("x")
    assert_type(done.result, int)
    assert_type(done.metrics.attempts, int)
    config = Config(api_key="k", model="m", rate_limiter=ConcurrentRequestLimiter(2))
    assert_type(ClientFactory(config).get_model_client(temperature=1), Model[ModelResponse])


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
    assert_type(await parse("x", int), int)
    assert_type(await parse("x", OutputSchema(int)), int)
    assert_type(OutputSchema(int).validate_json("1"), int | None)
    anything = await parse("x", int | None)
    print(anything, await parse("x", {"type": "object"}))
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
