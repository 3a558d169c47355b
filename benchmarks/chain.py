"""What a chain costs: a chunk, a healthy call, and a call whose first tier is down; as ratios measured in one run.

`--pydantic-ai PYTHON` and `--litellm PYTHON` name interpreters of environments with these peers; each makes the same
failing call against the same server. Prints medians and spreads; exits 1 when a wanted ratio is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
MESSAGES = [{"role": "user", "content": "hi"}]
CALLS = 200
ROUNDS = 9


@dataclass
class Contender:
    """One way to make a call or to read a stream; gives how many it made."""

    name: str
    once: Callable[[], Awaitable[int]]


async def cpu(contender: Contender) -> float:
    """CPU time for each of what it made, in µs."""
    begun = time.process_time()
    made = await contender.once()
    return (time.process_time() - begun) / made * 1e6


async def measure(base: str, peers: dict[str, str]) -> int:
    import aiohttp
    import floor
    from stream import Report, paired, rounds

    from isthmus.adapters.openai_chat import OpenAIChatAdapter
    from isthmus.chain import Budget, define_chain, define_marker
    from isthmus.models.contract import GenerateContext
    from isthmus.models.events import Text

    ctx = GenerateContext(messages=tuple(MESSAGES))
    markers = (define_marker("card", "[[card:", "]]"), define_marker("note", "<note>", "</note>"))

    def adapter(mode: str, model: str = "m") -> OpenAIChatAdapter:
        return OpenAIChatAdapter(model=model, api_key="k", base_url=f"{base}/{mode}")

    def calls(ask: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[int]]:
        async def once() -> int:
            for _ in range(CALLS):
                await ask()
            return CALLS

        return once

    def chunks(make: Callable[[], Any]) -> Callable[[], Awaitable[int]]:
        async def once() -> int:
            count = 0
            for _ in range(20):
                async for event in make():
                    count += type(event) is Text
            return count

        return once

    report = Report()
    fast, one, down = adapter("fast"), adapter("one"), adapter("down")
    spare = adapter("one", "spare")
    full = define_chain(id="full", tiers=[fast, spare], budget=Budget(tokens=10**9), markers=markers)
    pair = define_chain(id="pair", tiers=[one, spare])
    broken = define_chain(id="broken", tiers=[down, spare])

    async with aiohttp.ClientSession() as session:

        async def by_hand() -> str:
            for mode in ("down", "one"):
                try:
                    async with session.post(
                        f"{base}/{mode}/chat/completions", json=floor.BODY, headers={"Authorization": "Bearer k"}
                    ) as reply:
                        reply.raise_for_status()
                        data = await reply.read()
                    events = [floor.decode(event[6:]) for event in data.split(b"\n\n")[:-2]]
                    return "".join(e.choices[0].delta.content or "" for e in events if e.choices)
                except aiohttp.ClientError:
                    continue
            raise RuntimeError("both failed")

        streams = [
            Contender("adapter", chunks(lambda: fast.stream(ctx))),
            Contender("chain", chunks(lambda: full.stream(ctx))),
        ]
        figures = await rounds(streams, cpu, ROUNDS)
        report.table("A chain of two with a budget and two markers: CPU a chunk", "µs", figures)
        report.want("chain against the bare adapter", paired(figures, "chain", "adapter"), 1.3)

        healthy = [
            Contender("adapter", calls(lambda: one.stream(ctx).result())),
            Contender("chain", calls(lambda: pair.generate(ctx))),
        ]
        figures = await rounds(healthy, cpu, ROUNDS)
        report.table("A healthy chain of two: CPU a call", "µs", figures)
        more = median(a - b for a, b in zip(figures["chain"], figures["adapter"], strict=True))
        report.want("chain above the bare adapter, µs", more, 30.0)

        failing = [Contender("by hand", calls(by_hand)), Contender("chain", calls(lambda: broken.generate(ctx)))]
        figures = await rounds(failing, cpu, ROUNDS)
        report.table("The first tier answers 503: CPU a call", "µs", figures)
        report.want("chain against aiohttp by hand", paired(figures, "chain", "by hand"), 2.0)
        ours = median(figures["chain"])
        for name, python in peers.items():
            said = subprocess.run(
                [python, __file__, "--peer", name, base], stdout=subprocess.PIPE, text=True, check=True
            ).stdout.split()
            theirs = float(said[-1])
            print(f"  {name:<12} {theirs:>10.2f}")
            least = 5.0 if name == "pydantic-ai" else 25.0
            report.want(f"chain: times less than {name}", theirs / ours, least, at_least=True)
    for each in (fast, one, down, spare):
        await each.aclose()
    print("\n" + ("missed: " + "; ".join(report.missed) if report.missed else "all wanted ratios hold"))
    return 1 if report.missed else 0


async def pydantic_ai(base: str) -> Callable[[], Awaitable[Any]]:
    """A call of `FallbackModel` whose first model answers 503."""
    from openai import AsyncOpenAI
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def model(mode: str) -> Any:
        client = AsyncOpenAI(api_key="k", base_url=f"{base}/{mode}", max_retries=0)
        return OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))

    both = FallbackModel(model("down"), model("one"))
    return lambda: model_request(both, [ModelRequest.user_text_prompt("hi")])


async def litellm(base: str) -> Callable[[], Awaitable[Any]]:
    """A call of `Router` whose first deployment answers 503."""
    from litellm import Router

    def place(name: str, mode: str) -> dict[str, Any]:
        settings = {"model": "openai/m", "api_key": "k", "api_base": f"{base}/{mode}", "max_retries": 0}
        return {"model_name": name, "litellm_params": settings}

    router = Router(
        model_list=[place("a", "down"), place("b", "one")],
        fallbacks=[{"a": ["b"]}],
        num_retries=0,
        disable_cooldowns=True,
    )
    return lambda: router.acompletion(model="a", messages=MESSAGES)


async def peer(name: str, base: str) -> float:
    """CPU a call of a peer, in µs: the median of its rounds."""
    ask = await (pydantic_ai if name == "pydantic-ai" else litellm)(base)
    figures = []
    for _ in range(6):
        begun = time.process_time()
        for _ in range(50):
            await ask()
        figures.append((time.process_time() - begun) / 50 * 1e6)
    return median(figures[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pydantic-ai", metavar="PYTHON")
    parser.add_argument("--litellm", metavar="PYTHON")
    parser.add_argument("--peer", nargs=2, metavar=("NAME", "BASE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(asyncio.run(peer(*given.peer)))
        return 0
    peers = {name: path for name, path in (("pydantic-ai", given.pydantic_ai), ("litellm", given.litellm)) if path}
    with subprocess.Popen(
        [sys.executable, str(HERE / "server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        status = asyncio.run(measure(f"http://127.0.0.1:{process.stdout.readline().strip()}", peers))
        process.communicate()
    return status


if __name__ == "__main__":
    sys.exit(main())
