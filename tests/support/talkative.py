"""A provider for tests of the command: what it does depends on the question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from isthmus.adapters.base import ModelAdapter
from isthmus.errors import CredentialsError, TransientError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Event, Finish, Reasoning, Text, Usage


class Talk(ModelAdapter):
    """Echoes; `count` counts messages, `tool: …` calculates; `fail`, `break`, `wait`; the model `cut` has no end."""

    provider = "talk"
    supports = frozenset({"tools"})

    def __init__(self, *, model: str = "m", system: str = "", api_key: str | None = None, base_url: str = "") -> None:
        self.model, self.system, self.api_key = model, system, api_key

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        said = str(ctx.messages[-1].get("content") or "").strip()
        usage = Usage(input_tokens=3, output_tokens=4)
        if self.model == "cut":
            yield Text("word ")
            yield Finish("length", usage)
            return
        if ctx.messages[-1].get("role") == "tool":
            yield Text(f"It is {said}.")
        elif said.startswith("tool: "):
            arguments: dict[str, Any] = {"expression": said.removeprefix("tool: ")}
            yield Call("calculate", arguments, "c1", None)
            yield Finish("tool-calls", usage)
            return
        else:
            async for event in self._answer(said, ctx):
                yield event
        yield Finish("stop", usage)

    async def _answer(self, said: str, ctx: GenerateContext) -> AsyncIterator[Event]:
        if said == "fail":
            raise CredentialsError(f"wrong key {self.api_key}")
        if said == "count":
            said = f"{len(ctx.messages)} messages, brief {ctx.brief!r}, tools {[tool.name for tool in ctx.tools]}"
        yield Reasoning("hm")
        yield Text(said)
        if said == "break":
            raise TransientError("lost")
        if said == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                Path("closed").touch()
