"""Holds the adapter to the laws where its library is, over a scripted server; prints the report as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from isthmus.adapters.litellm import LiteLLMAdapter, _library
from isthmus.conformance import Play, conform, serve
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, Text, Usage

USAGE = Usage(input_tokens=5, output_tokens=4)


def answer(request: Any) -> Play:
    """A call of the first tool that is offered, a text once there are results or no tools."""
    messages, tools = request.asked["messages"], request.asked.get("tools")
    answered = any(message["role"] == "tool" for message in messages)
    if not tools or answered or request.asked.get("tool_choice") == "none":
        return Play.steps([Text("The answer "), 0.2, Text("is forty-two."), Finish("stop", USAGE)])[0]
    call = Call(tools[0]["function"]["name"], {"query": "Zürich"}, "call_1", '{"query":"Zürich"}')
    return Play.steps([Text("Let me "), 0.2, Text("see."), call, Finish("tool-calls", USAGE)])[0]


async def warm(adapter: LiteLLMAdapter) -> None:
    """One call."""
    await adapter.generate(GenerateContext(messages=({"role": "user", "content": "Hi"},)))


def main() -> None:
    """Judge, and say; the first import and the first call, which take seconds, go first."""
    _library()
    refuses = Play.whole(json.dumps({"error": {"message": "busy"}}), status=503)
    cut = Play.steps({"text": "The answer", "finish": "length"})
    with serve(answer) as server, serve(refuses, repeat=True) as busy, serve(*cut, repeat=True) as short:

        class Ours(LiteLLMAdapter):
            def __init__(self, *, api_key: str = "k", max_tokens: int = 8192, at: str = server.url) -> None:
                super().__init__("openai/m", api_key=api_key, base_url=at, max_tokens=max_tokens)

        asyncio.run(warm(Ours()))
        report = asyncio.run(
            conform(
                Ours,
                patience=30.0,
                scenarios={
                    "error": lambda: Ours(at=busy.url),
                    "truncated": lambda: Ours(at=short.url),
                },
            )
        )
    print(
        json.dumps(
            {
                "findings": [[each.law, each.message, str(each.seen)] for each in report.errors],
                "laws": {each.id: str(each.status) for each in report.laws},
            }
        )
    )


if __name__ == "__main__":
    main()
