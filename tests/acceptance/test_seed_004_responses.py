"""The page's block on native input, and its sentences on runs, over the official SDK against a scripted server."""

from __future__ import annotations

import json

import openai
import pytest

from isthmus import Agent
from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.models import Config, Tools, as_tool
from support.loopback import LoopbackServer
from support.responses_frames import call, message, reasoning, response
from support.responses_server import KEY, USER, answer, answer_stream, client, failed, sent

REFERENCE = {"type": "item_reference", "id": "ITEM_ID"}


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return f"It is {x}."


async def test_the_pages_block_on_native_input() -> None:
    """The block runs as written, and the item reaches the API as it is, once."""
    async with (
        LoopbackServer([answer(response(message()))]) as server,
        ResponsesClient(Config(api_key=KEY, model="m", base_url=f"{server.url}/v1")) as client,
    ):
        messages = [
            {
                "role": "user",
                "openai_responses_input": [
                    {"type": "item_reference", "id": "ITEM_ID"},
                ],
            },
        ]
        response_ = await client.get_response(messages)
    assert sent(server)["input"] == [REFERENCE]
    assert response_.choices[0].message.content == "Hello"


async def test_direct_calls_take_native_items_among_the_messages() -> None:
    """A dict with a type and no role goes as it is; the envelope says the same."""
    async with LoopbackServer([answer(response(message()))]) as server, client(server) as model:
        await model.get_response([REFERENCE, {"role": "user", "openai_responses_input": [REFERENCE]}, USER])
    assert sent(server)["input"] == [REFERENCE, REFERENCE, USER]


async def test_a_run_takes_the_envelope_too() -> None:
    """Native input passes through an agent's history to the API."""
    envelope = {"role": "user", "openai_responses_input": [REFERENCE]}
    async with LoopbackServer([answer(response(message()))]) as server, client(server) as model:
        result = await Agent(model=model).run([envelope, USER])
    assert sent(server)["input"] == [REFERENCE, USER]
    assert result.text == "Hello"


async def test_a_run_sends_native_output_back_once() -> None:
    """After a tool turn the next request holds the reply's own items, then the result; no text or call beside them."""
    output = [reasoning(), message("Let me see."), call("look", '{"x": 2}')]
    for way in (answer, answer_stream):
        script = [way(response(*output)), way(response(message("2")))]
        async with LoopbackServer(script) as server, client(server) as model:
            agent = Agent(model=model, tools=Tools([look]))
            if way is answer:
                result = await agent.run("q")
            else:
                result = await (await agent.run_stream("q")).result()
        result_item = {"type": "function_call_output", "call_id": "call_1", "output": "It is 2."}
        seen = [json.loads(request.body) for request in server.requests if b'"input"' in request.body]
        assert seen[-1]["input"][-4:] == [*output, result_item]
        assert result.text == "2"


async def test_a_run_adds_no_retry_of_its_own() -> None:
    """The adapter owns the tries: as many as its configuration says, and no more."""
    async with LoopbackServer([failed(500, retry_after="0")]) as server, client(server, max_retries=2) as model:
        with pytest.raises(Exception, match="no") as caught:
            await Agent(model=model).run("q")
        assert len(server.requests) == 2
    causes, error = [], caught.value
    while error is not None:
        causes.append(error)
        error = error.__cause__  # type: ignore[assignment]
    assert any(isinstance(cause, openai.InternalServerError) for cause in causes)


async def test_when_no_tool_is_left_the_choice_is_none() -> None:
    """When the round trips are used up an empty policy of none goes out, so that no default comes back."""
    asks = response(call("look", '{"x": 2}'))
    script = [answer(asks), answer(response(message("2")))]
    async with LoopbackServer(script) as server, client(server, tools=[{"type": "web_search"}]) as model:
        agent = Agent(model=model, tools=Tools([look], max_tool_round_trips=1))
        result = await agent.run("q")
    assert result.text == "2"
    first, last = (sent(server, at) for at in (0, -1))
    assert [tool.get("name", tool["type"]) for tool in first["tools"]] == ["web_search", "look"]
    assert last["tool_choice"] == "none"
    assert [tool["type"] for tool in last["tools"]] == ["web_search"]
