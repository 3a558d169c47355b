"""One real llama.cpp server, spoken to in two dialects: what no recording can show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from isthmus import OutputSchema, parse
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.local import LocalAdapter
from isthmus.harness import DefaultAgent
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, CallDelta, Event, Finish, StepResult, Text
from isthmus.models.fold import consume_stream
from isthmus.models.messages import assistant_message, tool_message
from isthmus.models.partials import partial_outputs
from isthmus.models.repair import answered, repairing

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


def in_messages(local: LocalAdapter) -> AnthropicAdapter:
    """An adapter of the other dialect for the same server, which closes idle connections after 5 s."""
    (key,) = local.keys.secrets()
    root = local.base_url.removesuffix("/v1")
    headers = {"connection": "close"}
    return AnthropicAdapter(model=local.model, base_url=root, api_key=str(key), max_tokens=60, headers=headers)


@pytest.fixture(params=["chat", "messages"])
async def adapter(request: pytest.FixtureRequest, local: LocalAdapter) -> AsyncIterator[ModelAdapter]:
    """The server in either dialect."""
    if request.param == "chat":
        yield local
        return
    async with in_messages(local) as messages:
        yield messages


async def reply(adapter: ModelAdapter, ctx: GenerateContext, *, streamed: bool) -> tuple[StepResult, list[Event]]:
    """A reply, and the events that it came as if it was streamed."""
    if not streamed:
        return await adapter.generate(ctx), []
    events = [event async for event in adapter.stream(ctx)]

    async def again() -> AsyncIterator[Any]:
        for event in events:
            yield event

    return await consume_stream(again()), events


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_conversation_in_either_dialect(adapter: ModelAdapter, streamed: bool):
    """A question leads to one whole call with a city, and its result to an answer in words: whole and streamed."""
    first, events = await reply(adapter, ASKED, streamed=streamed)
    assert first.finish == "tool-calls"
    (call,) = first.calls
    assert call.tool == "get_weather"
    assert call.problem is None
    assert isinstance(call.input, dict)
    assert isinstance(call.input["city"], str)
    assert call.call_id
    assert first.usage is not None
    if streamed:
        deltas = [event.arguments_delta for event in events if isinstance(event, CallDelta)]
        assert "".join(deltas) == call.arguments
        assert sum(isinstance(event, Call) for event in events) == 1
        assert isinstance(events[-1], Finish)

    messages = (QUESTION, assistant_message(first), tool_message(call.call_id, "Sunny, 24 C", name="get_weather"))
    answered = GenerateContext(messages=messages, tools=(WEATHER,), max_output_tokens=60)
    second, events = await reply(adapter, answered, streamed=streamed)
    assert not second.calls
    assert second.finish in ("stop", "length")
    assert second.text.strip()
    if streamed:
        assert sum(isinstance(event, Text) for event in events) >= 3


async def test_a_reply_that_is_cut_is_continued(local: LocalAdapter):
    """A text that stops at 24 tokens is continued, joined into one answer, and ends completed, or marked as cut."""
    agent = DefaultAgent(model=local, max_output_tokens=24)
    result = await agent.run("Write a long story about the sea.")
    outcome = result.outcome
    assert 2 <= outcome.steps <= 4
    assert outcome.usage is not None
    assert outcome.usage.output_tokens is not None
    assert outcome.usage.output_tokens > 24
    roles = [message["role"] for message in outcome.messages]
    assert roles == ["user", "assistant"]
    if outcome.outcome == "cut":
        assert outcome.reason == "length"
        assert result.text.endswith("(response was cut off at the output limit)")
        assert "cut off at the output limit" not in str(outcome.messages)
    else:
        assert outcome.outcome == "completed"


async def test_both_dialects_read_the_same_tokens(local: LocalAdapter):
    """The same prompt costs the same number of prompt tokens, whichever dialect asks."""
    ctx = GenerateContext(brief="Be brief.", messages=({"role": "user", "content": "Say hello."},), max_output_tokens=9)
    async with in_messages(local) as messages:
        one, two = await local.generate(ctx), await messages.generate(ctx)
    assert one.usage is not None
    assert two.usage is not None
    assert one.usage.prompt_tokens == two.usage.prompt_tokens
    assert one.usage.prompt_tokens


@dataclass
class Person:
    """Somebody."""

    name: str
    age: int


RECORD = "Anna is 31 years old. Record the person."


@pytest.mark.parametrize("strategy", ["native", "tool"])
async def test_a_typed_answer(local: LocalAdapter, strategy: str):
    """By the server's grammar, and by a call, a real model gives an object of the type."""
    schema = OutputSchema(Person, strategy=strategy)
    assert await parse(RECORD, schema, model=local, max_tokens=60, temperature=0) == Person("Anna", 31)


async def test_a_typed_answer_that_was_asked_for_in_words(local: LocalAdapter):
    """A real model that was shown how gives an object of the type without any help of the server's."""
    shown: list[dict[str, Any]] = []
    for name, age in (("Tom", 5), ("Lea", 44)):
        shown.append({"role": "user", "content": f"{name} is {age} years old. Record the person."})
        shown.append({"role": "assistant", "content": f'{{"name": "{name}", "age": {age}}}'})
    schema = OutputSchema(Person, strategy="prompted")
    messages = (*shown, {"role": "user", "content": RECORD})
    ctx = GenerateContext(messages=messages, output=schema, max_output_tokens=60, temperature=0)
    step, value = await answered(local.generate, ctx, repair=repairing(schema, local.supports))
    assert value == Person("Anna", 31)
    assert step.finish == "stop"


async def test_an_object_grows_while_it_is_written(local: LocalAdapter):
    """A real stream shows partial objects, each contained in the next, and ends with the typed one."""
    stream = DefaultAgent(model=local, output=Person, max_output_tokens=60).run_stream(RECORD)
    parts = [part async for part in partial_outputs(stream, Person)]
    assert len(parts) >= 3
    for before, after in pairwise(parts):
        assert before.keys() <= after.keys()
        assert str(after.get("name", "")).startswith(str(before.get("name", "")))
    assert stream.outcome is not None
    person = stream.outcome.final_output
    assert isinstance(person, Person)
    assert parts[-1] == {"name": person.name, "age": person.age}
