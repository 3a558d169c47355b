"""Many agents at once on a scripted server, with storms of cancellations; says what they leave behind.

Run by `scripts/soak`. Every wave builds its agents anew and lets all of them run at once over sockets. Some of their
runs end by themselves, after a round of tools; the others hang, in a silent model, in half a reply or in a tool, and
once all of them do, they are given up at one moment, each in one of several ways.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from time import monotonic
from typing import Any

from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.conformance import Play, serve
from isthmus.errors import TierError
from isthmus.harness import AgentDescriptor, DefaultAgent, RunnerHooks, RunStream
from isthmus.models import CancellationToken
from isthmus.models.events import Text

TOLERATED = 0.05
"""How much more memory the last run may hold than the one at which counting begins."""
ENDS = ("answers", "breaks")
HANGS = ("silent", "half", "tool")
SCRIPTS = (*ENDS, "answers", *HANGS)
WAYS = ("task", "token", "close", "leave", "events")


def answer(server: Any) -> Callable[[Any], Play]:
    """What the server says: the first word of the conversation is the script; it forgets what it was asked."""

    def said(request: Any) -> Play:
        server[0].requests.clear()
        messages = request.asked["messages"]
        script = str(messages[1]["content"]).partition(" ")[0]
        if messages[-1]["role"] == "tool":
            step: Any = "It is done, and all of it is well."
        elif script == "silent":
            step = TimeoutError()
        elif script in ("half", "breaks"):
            step = [Text("I be"), Text("gin"), TimeoutError() if script == "half" else ConnectionResetError()]
        else:
            step = {"calls": [{"tool": "hang" if script == "tool" else "double", "input": {"n": 21}, "call_id": "c"}]}
        return Play.steps(step)[0]

    return said


async def keep_serving() -> None:
    """Serve until standard input closes; the address is printed."""
    known: list[Any] = []
    async with serve(answer(known)) as server:
        known.append(server)
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def other_process() -> Iterator[str]:
    """The server in a process of its own, so that what it holds is not counted; gives its address."""
    child = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child.stdout.readline().decode().strip()
    finally:
        child.stdin.close()
        child.wait(30)
        child.stdout.close()


class Counts(RunnerHooks):
    """Counts its agents' ends."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def on_agent_start(self, run: Any) -> None:
        self.begun += 1

    async def on_agent_end(self, run: Any, result: Any) -> None:
        self.ended += 1


class Wave:
    """Agents that run at once.

    Args:
        model: what they all call.
        count: how many there are.
        chance: decides who does what.
    """

    def __init__(self, model: Any, count: int, chance: random.Random) -> None:
        self.hooks = Counts()
        self._storm = asyncio.Event()
        self._jobs = [(chance.choice(SCRIPTS), chance.choice(WAYS), chance.random() < 0.5) for _ in range(count)]
        self._agents = [self._agent(model, number, hooked) for number, (_, _, hooked) in enumerate(self._jobs)]

    def _agent(self, model: Any, number: int, hooked: bool) -> DefaultAgent:
        async def double(n: int) -> int:
            """Double it."""
            return 2 * n

        async def hang(n: int) -> None:
            """Never end."""
            await asyncio.Event().wait()

        made = AgentDescriptor(name=f"agent-{number}", model=model, tools=[double, hang], instructions="Be brief.")
        return DefaultAgent(descriptor=made, hooks=self.hooks if hooked else ())

    async def run(self) -> dict[str, int]:
        """Run all to their ends; how many ended in which way."""
        tasks = [asyncio.ensure_future(self._one(n, *job[:2])) for n, job in enumerate(self._jobs)]
        hanging = sum(script in HANGS for script, _, _ in self._jobs)
        # Whoever waits for a model says so only by its silence: all of them have been asked by then.
        while sum(task.done() for task in tasks) < len(tasks) - hanging:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        self._storm.set()
        ends: dict[str, int] = {}
        for end in await asyncio.gather(*tasks):
            ends[end] = ends.get(end, 0) + 1
        return ends

    async def _one(self, number: int, script: str, way: str) -> str:
        agent, said = self._agents[number], f"{script} {number}"
        if script in ENDS:
            return await self._to_its_end(agent, said, way)
        if way == "token":
            token = CancellationToken()
            task = asyncio.ensure_future(agent.run(said, cancellation_token=token))
            await self._storm.wait()
            threading.Thread(target=token.cancel).start()
            return str((await task).outcome.reason)
        if way == "task":
            task = asyncio.ensure_future(agent.run(said))
            await self._storm.wait()
            task.cancel()
            await asyncio.wait({task})
            return "cancelled" if task.cancelled() else "not cancelled"
        stream = agent.run_events(said) if way == "events" else agent.run_stream(said)
        return await self._given_up(stream, leaves=way == "leave")

    async def _to_its_end(self, agent: DefaultAgent, said: str, way: str) -> str:
        try:
            if way in ("task", "token"):
                return (await agent.run(said)).outcome.outcome
            stream = agent.run_events(said) if way == "events" else agent.run_stream(said)
            async with stream:
                async for _ in stream:
                    pass
                return (await stream.result()).outcome.outcome
        except TierError as error:
            return type(error).__name__

    async def _given_up(self, stream: RunStream, *, leaves: bool) -> str:
        """Closed from elsewhere, or left by its reader, who is cancelled and closes nothing."""

        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.ensure_future(read())
        await self._storm.wait()
        if leaves:
            task.cancel()
        else:
            await stream.aclose()
        await asyncio.wait({task})
        return "left" if leaves else str(stream.outcome and stream.outcome.reason)


@dataclass(frozen=True)
class Held:
    """What this process holds at a moment.

    Args:
        memory: bytes, as the system counts them.
        objects: those that the garbage collector knows.
        tasks: of the loop.
        threads: of the process.
        descriptors: files and sockets.
    """

    memory: int
    objects: int
    tasks: int
    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> Held:
        """What is held now, without what is only waiting to be collected."""
        for _ in range(3):
            gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
        descriptors = sum(1 for _ in Path("/dev/fd").iterdir()) - 1
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        return cls(memory, len(gc.get_objects()), len(asyncio.all_tasks()), threading.active_count(), descriptors)

    def more_than(self, earlier: Held) -> dict[str, float]:
        """The share by which each figure has grown; how many idle connections a model keeps is left to chance."""
        names = [each.name for each in fields(self) if each.name != "descriptors"]
        return {name: getattr(self, name) / max(getattr(earlier, name), 1) - 1 for name in names}


@asynccontextmanager
async def soaking(url: str, *, at_once: int, seed: int = 7) -> AsyncIterator[Callable[[int], Any]]:
    """A function that lets a number of runs run, and says what is held then and how they ended."""
    chance = random.Random(seed)
    ends: dict[str, int] = {}
    async with OpenAIChatAdapter(model="m", base_url=f"{url}/v1", api_key="k") as model:

        async def soak(runs: int) -> tuple[Held, dict[str, int]]:
            for begun in range(0, runs, at_once):
                wave = Wave(model, min(at_once, runs - begun), chance)
                for end, count in (await wave.run()).items():
                    ends[end] = ends.get(end, 0) + count
                assert wave.hooks.begun == wave.hooks.ended, "an agent that began was not told to have ended"
                del wave
            await asyncio.sleep(0.1)
            return Held.now(), dict(ends)

        yield soak


async def report(at_once: int, first: int, runs: int) -> int:
    """Soak, print, and tell whether anything grew."""
    with other_process() as url:
        before = Held.now()
        async with soaking(url, at_once=at_once) as soak:
            begun = monotonic()
            early, _ = await soak(first)
            print(f"after {first:>6} runs: {early}")
            late, ends = await soak(runs - first)
            print(f"after {runs:>6} runs: {late}")
            print(f"ended: {ends}; {monotonic() - begun:.0f} s")
        after = Held.now()
    grown = late.more_than(early)
    print("grown: " + ", ".join(f"{name} {share:+.1%}" for name, share in grown.items()))
    print(
        f"once the model is closed: {after.descriptors - before.descriptors} descriptors, {after.tasks - 1} tasks left"
    )
    missed = [f"{name} grew by {share:.1%}" for name, share in grown.items() if share > TOLERATED]
    if (after.descriptors, after.tasks, after.threads) != (before.descriptors, before.tasks, before.threads):
        missed.append(f"left behind: before {before}, after {after}")
    for each in missed:
        print(f"missed: {each}")
    return 1 if missed else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=500, help="how many run at once")
    parser.add_argument("--first", type=int, default=1000, help="after how many runs the first look is taken")
    parser.add_argument("--runs", type=int, default=10_000, help="how many runs there are")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(keep_serving())
        return 0
    return asyncio.run(report(asked.agents, asked.first, asked.runs))


if __name__ == "__main__":
    sys.exit(main())
