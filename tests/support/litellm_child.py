"""Runs the adapter where its library is: one JSON line in, one JSON line out."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from isthmus.adapters.litellm import LiteLLMAdapter
from isthmus.chain import define_chain
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.fold import consume_stream
from isthmus.models.messages import assistant_message
from isthmus.observability import hooks


class Answers:
    """A tier that takes any history."""

    id = "answers"

    def generate(self, ctx: GenerateContext) -> dict[str, Any]:
        """Answer."""
        return {"events": [{"type": "text", "text": "from the next tier"}], "finish": "stop"}


async def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Do one call and tell what came of it."""
    asked = dict(order["ctx"])
    asked["tools"] = tuple([ToolSpec(name=name) for name in asked.get("tools", ())])
    ctx = GenerateContext(**asked)
    seen: list[Any] = []
    stop = hooks.add_sink(seen.append)
    before = set(asyncio.all_tasks())
    try:
        adapter: Any = LiteLLMAdapter(**order["settings"])
        target = define_chain(id="c", tiers=[adapter, Answers()]) if order.get("chain") else adapter
        step = await (consume_stream(target.stream(ctx)) if order["stream"] else target.generate(ctx))
        told = {"result": step.to_dict(), "message": assistant_message(step)}
        told["raw_usage"] = step.usage.raw if step.usage else None
    except Exception as error:
        told = {
            "error": type(error).__name__,
            "class": str(getattr(error, "error_class", "")),
            "message": str(error),
            "value_error": isinstance(error, ValueError),
            "status": getattr(error, "status", None),
            "retry_after": getattr(error, "retry_after", None),
            "chain_of_causes": repr(error.__cause__) + repr(error.__context__ and type(error.__context__)),
        }
    finally:
        stop()
    # A generator that the library dropped is closed by a task of the loop's, which has no code of its own.
    await asyncio.sleep(0.01)
    own = [task for task in asyncio.all_tasks() - before if "litellm" not in _place(task)]
    return {**told, "tasks": len(own), "log": [repr(event) for event in seen], "lazy": order.get("lazy")}


def _place(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else code.co_filename


async def main() -> None:
    """Answer until there is no more to answer."""
    lazy = "litellm" not in sys.modules
    for line in sys.stdin:
        told = await answer(json.loads(line))
        out = json.dumps({**told, "lazy": lazy}, default=str)
        sys.stdout.write(out + "\n")
        sys.stdout.flush()


asyncio.run(main())
