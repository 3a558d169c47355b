"""The scripted server's frames are right: boto3 and AnthropicBedrock read them, and the adapter reads the same."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing

import pytest

from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.errors import TransientError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.fold import consume_stream
from isthmus.models.messages import assistant_message, tool_message
from support import anthropic_fold as wire
from support.anthropic_fold import user
from support.bedrock_kit import document, reply, served, stop, stream, tail, text, tool
from support.bedrock_reading import chunk, message
from support.loopback import LoopbackServer

boto3 = pytest.importorskip("boto3")
anthropic = pytest.importorskip("anthropic")

CTX = GenerateContext(messages=(user(),))
KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "s3cr3t-of-the-test"}
CONVERSED = [("messageStart", {"role": "assistant"}), text("Hi"), stop(), *tool(1, '{"a"', ": 1}"), *tail("tool_use")]
MESSAGE = [
    wire.head(),
    wire.start(0, {"type": "text", "text": ""}),
    wire.delta(0, "text_delta", text="Hi"),
    wire.stop(0),
    wire.start(1, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}),
    wire.delta(1, "input_json_delta", partial_json='{"a": 1}'),
    wire.stop(1),
    *wire.tail("tool_use"),
]


def ours(server, model):
    """The adapter for the server."""
    return BedrockAdapter(model=model, aws_region="us-east-1", base_url=server.url, **KEYS)


async def theirs_of(server, ask):
    """What boto3's client for the server is given; the client and its sockets are gone afterwards."""

    def asked():
        config = boto3.session.Config(retries={"total_max_attempts": 1})
        with closing(boto3.client("bedrock-runtime", "us-east-1", endpoint_url=server.url, config=config, **KEYS)) as b:
            return ask(b)

    return await asyncio.to_thread(asked)


def events_of(client):
    """The events of a Converse stream, as boto3 parses them."""
    with closing(client.converse_stream(**ASKED)["stream"]) as events:
        return list(events)


ASKED = {"modelId": "amazon.m", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}


async def test_boto3_and_the_adapter_read_one_converse_stream():
    """Text, call, reason and usage that boto3 finds in a stream are those that the adapter finds."""
    async with LoopbackServer([stream(*CONVERSED)]) as server:
        theirs = await theirs_of(server, events_of)
        async with ours(server, "amazon.m") as adapter:
            step = await consume_stream(adapter.stream(CTX))
        signed = [seen.headers["authorization"].split("Signature=")[0] for seen in server.requests]
    found = {name: value for event in theirs for name, value in event.items()}
    pieces = [event["contentBlockDelta"]["delta"] for event in theirs if "contentBlockDelta" in event]
    assert step.text == "".join(piece.get("text", "") for piece in pieces) == "Hi"
    arguments = "".join(piece["toolUse"]["input"] for piece in pieces if "toolUse" in piece)
    assert [call.arguments for call in step.calls] == [arguments]
    assert step.raw_reason == found["messageStop"]["stopReason"]
    assert step.usage.output_tokens == found["metadata"]["usage"]["outputTokens"]
    assert signed[0].split(",")[0] == signed[1].split(",")[0]
    assert server.requests[0].path == server.requests[1].path


async def test_boto3_and_the_adapter_read_one_whole_reply():
    """A whole Converse reply, to the same request."""
    async with LoopbackServer([reply(document([{"text": "Hi"}]))]) as server:
        theirs = await theirs_of(server, lambda client: client.converse(**ASKED))
        async with ours(server, "amazon.m") as adapter:
            step = await adapter.generate(CTX)
        sent, made = (json.loads(seen.body) for seen in server.requests)
    assert theirs["output"]["message"]["content"] == [{"text": step.text}]
    assert theirs["usage"]["inputTokens"] == step.usage.input_tokens
    assert made["messages"] == sent["messages"]


async def test_an_exception_in_a_stream_is_one_for_boto3_too():
    """F01: the frame that the adapter classifies is what boto3 raises as an EventStreamError."""
    from botocore.exceptions import EventStreamError

    frames = [message("throttlingException", {"message": "slow down"}, "exception")]
    async with LoopbackServer([served(*frames)]) as server:
        with pytest.raises(EventStreamError, match="throttlingException"):
            await theirs_of(server, events_of)
        async with ours(server, "amazon.m") as adapter:
            with pytest.raises(TransientError, match="slow down"):
                await consume_stream(adapter.stream(CTX))


async def test_anthropic_bedrock_and_the_adapter_read_one_stream():
    """The Messages stream in chunks, as Anthropic's own client for Bedrock reads it; the requests agree."""
    made = {"max_retries": 0, "aws_region": "us-east-1", "aws_access_key": "AKIDEXAMPLE", "aws_secret_key": "s3cr3t"}

    async with LoopbackServer([served(*map(chunk, MESSAGE))]) as server:

        def ask():
            with anthropic.AnthropicBedrock(base_url=server.url, **made) as client:
                asked = {"model": "anthropic.m", "max_tokens": 8192, "messages": [{"role": "user", "content": "hi"}]}
                with client.messages.stream(**asked) as events:
                    return events.get_final_message()

        theirs = await asyncio.to_thread(ask)
        async with ours(server, "anthropic.m") as adapter:
            step = await consume_stream(adapter.stream(CTX))
        sent, built = (json.loads(seen.body) for seen in server.requests)
        assert server.requests[0].path == server.requests[1].path
    said, used = theirs.content
    assert (said.text, used.id, used.input) == (step.text, step.calls[0].call_id, step.calls[0].input)
    assert (theirs.stop_reason, theirs.usage.output_tokens) == (step.raw_reason, step.usage.output_tokens)
    assert sent.keys() == built.keys()


async def test_a_tool_loop_is_valid_for_boto3():
    """The request after a tool turn passes boto3's own validation of parameters, and asks the same."""
    tools = (ToolSpec(name="f", description="F.", parameters_schema={"type": "object", "properties": {}}),)
    async with LoopbackServer([stream(*CONVERSED), reply(document([{"text": "done"}]))]) as server:
        async with ours(server, "amazon.m") as adapter:
            first = await consume_stream(adapter.stream(GenerateContext(messages=(user(),), tools=tools, brief="Be.")))
            messages = (user(), assistant_message(first), tool_message("t1", "2"))
            step = await adapter.generate(GenerateContext(messages=messages, tools=tools, brief="Be."))
        body = json.loads(server.requests[1].body)
        theirs = await theirs_of(server, lambda client: client.converse(modelId="amazon.m", **body))
        assert json.loads(server.requests[2].body) == body
    assert step.text == theirs["output"]["message"]["content"][0]["text"] == "done"
