"""The page's block on steering and asynchronous tools, against the scripted server."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from isthmus.adapters.openai_responses import sdk
from isthmus.conformance.live import Peer, live_server
from support.live_runs import ASYNC


async def batteries(peer: Peer) -> None:
    """What a provider does that supports both."""
    request = await peer.hear()
    (tool,) = request["tools"]
    assert (tool["name"], tool["async"], request["model"]) == ("lookup", True, "gpt-6-astra")
    await peer.begin("resp_1")
    await peer.call("lookup", '{"topic": "battery storage"}', call_id="call_1", **ASYNC)
    await peer.hear("response.steer")
    await peer.accept("steer_1")
    await peer.text("Batteries", " store")
    await peer.end("steered")
    await peer.begin("resp_2", "resp_1")
    await peer.text(" At home, a wall unit will do.")
    await peer.end()
    request = await peer.hear()
    assert [item["output"] for item in request["input"]] == ["Recorded topic: battery storage"]
    await peer.begin("resp_3", "resp_2")
    await peer.text(" It is recorded.")
    await peer.end()


async def test_the_pages_block_on_steering(monkeypatch: Any) -> None:
    """The block runs as written, changed only in the import root; the key stands in the environment."""
    async with live_server(batteries) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key")
        # The block names no address, so that the SDK's own is moved.
        monkeypatch.setattr(sdk, "_BASE_URL", server.url)
        with redirect_stdout(StringIO()) as printed:
            from isthmus.adapters.openai_responses import ResponsesClient
            from isthmus.harness import AgentDescriptor
            from isthmus.harness.agents import DefaultAgent
            from isthmus.models import Config, Tools

            async def lookup(topic: str) -> str:
                return f"Recorded topic: {topic}"

            model = ResponsesClient(
                Config(api_key=os.environ["OPENAI_API_KEY"], model="gpt-6-astra"),
                websocket=True,
                async_tools=["lookup"],
            )
            agent = DefaultAgent(
                descriptor=AgentDescriptor(
                    name="Research",
                    model=model,
                    tools=Tools([lookup]),
                ),
            )
            stream = await agent.run_stream("Look up battery storage and explain the result.")
            receipt = None
            async for event in stream:
                if event.provider_event_type == "response.created" and receipt is None:
                    receipt = await stream.steer("Focus on home use.")
                if event.text:
                    print(event.text, end="")
            result = await stream.result()
        await model.aclose()
    assert printed.getvalue() == "Batteries store At home, a wall unit will do. It is recorded."
    assert receipt is not None
    assert (receipt.status, receipt.response_id) == ("applied", "resp_2")
    assert result.final_output == " It is recorded."
    assert [message["role"] for message in result.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert result.messages[2]["content"] == "Focus on home use."
