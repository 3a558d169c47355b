"""The embedded model with a tool of an MCP server in a process of its own: nothing is scripted."""

from __future__ import annotations

import pytest

from isthmus.adapters.local import LocalAdapter
from isthmus.harness import AgentDescriptor, DefaultAgent, McpShim
from support.mcp_runs import real

pytestmark = pytest.mark.model


async def test_a_real_model_uses_a_real_server():
    """It calls the server's tool with a city, reads the result, and answers in words."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=2048) as model:
        await model.start()
        shim = McpShim(real(allow=["weather"], prefix="get_"))
        descriptor = AgentDescriptor(name="clerk", model=model, shims=[shim], max_output_tokens=40)
        async with DefaultAgent(descriptor=descriptor) as agent:
            result = await agent.run("What is the weather in Rome?")
    history = result.run_state.history
    called = next(message for message in history if message.get("tool_calls"))
    answer = next(message for message in history if message["role"] == "tool")
    assert called["tool_calls"][0]["function"]["name"] == "get_weather"
    assert '"id": 2512292042121000001' in answer["content"]
    assert result.text.strip()
