"""One agent for many tasks, many loops and many runs: nothing is shared and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

from isthmus import Agent
from isthmus.adapters.base import ModelAdapter
from isthmus.models.events import Call, Finish, Text


class Echo(ModelAdapter):
    """Asks for `double` of what it is given and says what came of it."""

    supports = frozenset({"tools"})

    async def stream(self, ctx: Any) -> Any:
        last = ctx.messages[-1]
        await asyncio.sleep(0)
        if last["role"] == "user":
            yield Call("double", {"n": int(last["content"])})
            yield Finish("tool-calls")
        else:
            yield Text(last["content"])
            yield Finish("stop")


async def double(n: int) -> int:
    """Double it."""
    return 2 * n


def agent() -> Agent:
    """An agent that doubles."""
    return Agent(model=Echo(), tools=[double])


async def test_a_hundred_tasks_share_an_agent_and_nothing_else() -> None:
    """F22: each of a hundred runs at once has its own transcript and its own answer."""
    one = agent()
    results = await asyncio.gather(*(one.run(str(n)) for n in range(100)))
    assert [result.text for result in results] == [str(2 * n) for n in range(100)]
    assert {len(result.messages) for result in results} == {4}


def test_several_loops_share_an_agent() -> None:
    """F10: an agent answers in loops of different threads at the same time."""
    one, texts = agent(), {}

    def loop(n: int) -> None:
        texts[n] = asyncio.run(one.run(str(n))).text

    threads = [threading.Thread(target=loop, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {n: str(2 * n) for n in range(8)}


async def test_a_thousand_runs_leave_nothing_behind() -> None:
    """F10, F31: runs to the end and runs that were left early leave no object, task, thread or descriptor."""
    one = agent()

    async def some(count: int) -> None:
        for _ in range(count):
            await one.run("1")
            async with one.run_stream("1") as run:
                async for _event in run:
                    break

    def held() -> tuple[int, int, int, int]:
        gc.collect()
        descriptors = sum(1 for _ in Path("/dev/fd").iterdir())
        return len(gc.get_objects()), len(asyncio.all_tasks()), threading.active_count(), descriptors

    await some(20)
    objects, *rest = held()
    await some(500)
    more, *same = held()
    assert (same, more - objects < 100) == (rest, True)
