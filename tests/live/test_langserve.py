"""A real LangServe server in an environment of its own: what no recording can show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from isthmus.adapters.langserve import LangServeAdapter, adapter
from isthmus.errors import InvalidRequestError, TransientError
from isthmus.harness import DefaultAgent
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import CallDelta, Event, StepResult, Text
from isthmus.models.fold import consume_stream
from support.langserve_peer import peer

pytestmark = pytest.mark.xdist_group("langserve")

QUESTION = {"role": "user", "content": "What is the weather in Rome?"}
CTX = GenerateContext(messages=(QUESTION,))
SUNNY = "It is sunny in Rome."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the peer."""
    with peer(tmp_path_factory.mktemp("langserve") / "log") as url:
        yield url


def made(server: str, path: str, **settings: Any) -> LangServeAdapter:
    """An adapter of one of the peer's runnables."""
    return LangServeAdapter(base_url=f"{server}/{path}", **settings)


async def both(server: str, path: str, **settings: Any) -> tuple[list[Event], StepResult, StepResult]:
    """A runnable's reply: the events of its stream, their result, and the whole reply."""
    async with aclosing(made(server, path, **settings)) as one:
        events = [event async for event in one.stream(CTX)]
        return events, await consume_stream(iter(events)), await one.generate(CTX)


async def test_text_streamed_and_whole(server: str) -> None:
    """A model that is published by itself streams its text piece by piece, and says the same whole."""
    events, streamed, whole = await both(server, "generic")
    assert sum(isinstance(event, Text) for event in events) > 3
    assert streamed.text == whole.text == SUNNY
    assert (whole.finish, whole.usage and whole.usage.output_tokens) == ("stop", 6)


async def test_an_input_that_is_the_list_of_messages(server: str) -> None:
    """Such a model takes the bare list too."""
    _, streamed, whole = await both(server, "generic", input_messages_key="")
    assert streamed.text == whole.text == SUNNY


async def test_tool_calls_are_streamed(server: str) -> None:
    """Pieces of a call arrive as they are made and join to the call, with text before it, reason and tokens."""
    events, streamed, whole = await both(server, "toolstream")
    deltas = [event.arguments_delta for event in events if isinstance(event, CallDelta)]
    assert (streamed.text, streamed.finish) == ("Let me check.", "tool-calls")
    assert "".join(deltas) == streamed.calls[0].arguments == '{"city": "Rome"}'
    assert streamed.calls[0].input == whole.calls[0].input == {"city": "Rome"}
    assert streamed.usage == whole.usage


async def test_a_chain_of_prompt_and_model(server: str) -> None:
    """A nested model's reply is the chain's, calls and reason included."""
    events, streamed, _ = await both(server, "chain")
    assert sum(isinstance(event, Text) for event in events) == 2
    assert (streamed.text, streamed.finish, streamed.raw_reason) == ("Let me check.", "tool-calls", "tool_calls")


async def test_a_chain_that_ends_in_text(server: str) -> None:
    """A parser at the end of the chain leaves text alone, which streams."""
    events, streamed, whole = await both(server, "text")
    assert sum(isinstance(event, Text) for event in events) > 3
    assert streamed.text == whole.text == SUNNY


async def test_an_agent_that_runs_its_own_tools(server: str) -> None:
    """Its calls are its own business: the reply is the last answer, and nothing is left to run."""
    _, streamed, whole = await both(server, "agent")
    assert (streamed.text, streamed.calls, streamed.finish) == (SUNNY, (), "stop")
    assert (whole.text, whole.calls) == (SUNNY, ())


async def test_two_models_in_one_chain(server: str) -> None:
    """The draft of the first model is no part of the answer."""
    _, streamed, whole = await both(server, "two")
    assert streamed.text == whole.text == SUNNY


async def test_a_model_that_fails_in_the_middle(server: str) -> None:
    """F01: what had arrived is kept, and the reply is an error."""
    async with aclosing(made(server, "boom")) as one:
        step = await consume_stream(one.stream(CTX))
    assert (step.finish, step.text) == ("error-post", "Let me ")
    assert isinstance(step.error, TransientError)


async def test_streams_that_are_not_published(server: str) -> None:
    """The whole reply serves instead, and the route is not asked for again."""
    async with aclosing(made(server, "unstreamed")) as one:
        assert one.streams
        assert (await consume_stream(one.stream(CTX))).text == SUNNY
        assert not one.streams
        assert (await consume_stream(one.stream(CTX))).text == SUNNY
    assert adapter._without_streams


async def test_what_reaches_the_runnable(server: str) -> None:
    """Brief, messages and tools arrive as dicts with a type and as function tools."""
    async with aclosing(made(server, "echo", system="Be brief.")) as one:
        ctx = GenerateContext(messages=(QUESTION,), tools=(ToolSpec(name="get_weather"),))
        step = await one.generate(ctx)
    assert step.text == "system: Be brief. | human: What is the weather in Rome? | tool get_weather"


async def test_bad_input_is_told_with_its_place(server: str) -> None:
    """A 422 is an invalid request with the validator's words, on both routes."""
    ctx = GenerateContext(messages=(QUESTION,), options={"input": 5})
    async with aclosing(made(server, "generic")) as one:
        with pytest.raises(InvalidRequestError, match="Input should be") as caught:
            await one.generate(ctx)
        assert caught.value.status == 422
        with pytest.raises(InvalidRequestError, match="Input should be"):
            await consume_stream(one.stream(ctx))


async def test_a_tool_loop(server: str) -> None:
    """An agent runs a call of the peer's model and reads its answer; the history is taken as we say it."""

    async def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"Sunny in {city}"

    async with aclosing(made(server, "list", input_messages_key="")) as one:
        agent = DefaultAgent(name="weather", model=one, tools=[get_weather])
        result = await agent.run("What is the weather in Rome?")
    assert result.final_output == SUNNY
    assert [item["content"] for item in result.messages if item["role"] == "tool"] == ["Sunny in Rome"]
    assert json.dumps(result.messages)
