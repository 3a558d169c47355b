"""A real llama.cpp server in the Responses dialect: what no recording can show."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from isthmus.adapters.local import LocalAdapter
from isthmus.adapters.openai_responses import OpenAIResponsesAdapter, ResponsesClient
from isthmus.models import Config
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, CallDelta, Finish, StepResult, Text
from isthmus.models.fold import consume_stream
from isthmus.models.messages import assistant_message, tool_message

pytestmark = pytest.mark.model

WEATHER = ToolSpec(
    name="get_weather",
    description="The weather in a city.",
    parameters_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
QUESTION = {"role": "user", "content": "What is the weather in Rome?"}
ASKED = GenerateContext(messages=(QUESTION,), tools=(WEATHER,), max_output_tokens=60)


@pytest.fixture
async def local() -> AsyncIterator[LocalAdapter]:
    """A running server of the test's own."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=2048) as adapter:
        await adapter.start()
        yield adapter


@pytest.fixture
async def adapter(local: LocalAdapter) -> AsyncIterator[OpenAIResponsesAdapter]:
    """The server through this codec; it closes idle connections after 5 s."""
    (key,) = local.keys.secrets()
    headers = {"connection": "close"}
    async with OpenAIResponsesAdapter(
        model=local.model, base_url=local.base_url, api_key=str(key), headers=headers
    ) as made:
        yield made


async def _reply(adapter: OpenAIResponsesAdapter, ctx: GenerateContext, *, streamed: bool) -> StepResult:
    if not streamed:
        return await adapter.generate(ctx)
    events = [event async for event in adapter.stream(ctx)]
    deltas = "".join(event.arguments_delta for event in events if isinstance(event, CallDelta))
    assert deltas == "".join(event.arguments or "" for event in events if isinstance(event, Call))
    assert isinstance(events[-1], Finish)
    if not deltas:
        assert sum(isinstance(event, Text) for event in events) >= 3

    async def again() -> AsyncIterator[object]:
        for event in events:
            yield event

    return await consume_stream(again())


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_conversation(adapter: OpenAIResponsesAdapter, streamed: bool) -> None:
    """A question leads to one whole call with a city, and its result to an answer in words: whole and streamed."""
    first = await _reply(adapter, ASKED, streamed=streamed)
    assert first.finish == "tool-calls"
    (call,) = first.calls
    assert (call.tool, call.problem) == ("get_weather", None)
    assert isinstance((call.input or {})["city"], str)
    assert call.call_id
    assert first.usage is not None
    messages = (QUESTION, assistant_message(first), tool_message(call.call_id, "Sunny, 24 C", name="get_weather"))
    answered = GenerateContext(messages=messages, tools=(WEATHER,), max_output_tokens=60)
    second = await _reply(adapter, answered, streamed=streamed)
    assert not second.calls
    assert second.text.strip()


async def test_the_client_over_the_sdk_reads_the_same_server(local: LocalAdapter) -> None:
    """The same prompt costs the same number of prompt tokens, through the adapter and through the SDK."""
    (key,) = local.keys.secrets()
    config = Config(api_key=str(key), model=local.model, base_url=local.base_url)
    messages = [{"role": "user", "content": "Say hello."}]
    async with ResponsesClient(config, max_tokens=9) as client:
        reply = await client.get_response(messages)
        streamed = [event async for event in client.stream_response(messages)]
    assert reply.choices[0].message.content
    assert streamed[-1].response is not None
    async with OpenAIResponsesAdapter(model=local.model, base_url=local.base_url, api_key=str(key)) as adapter:
        step = await adapter.generate(GenerateContext(messages=tuple(messages), max_output_tokens=9))
    assert step.usage is not None
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == step.usage.prompt_tokens
