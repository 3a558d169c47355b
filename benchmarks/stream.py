"""What a streamed chat reply costs here, as ratios to the floor and to the official SDK, measured in one run.

Prints medians and spreads of alternating rounds; exits 1 when a wanted ratio is missed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
import floor
import openai
import server as scripted
import uvloop

from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.chain import of
from isthmus.harness.agents import DefaultAgent
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Text

HERE = Path(__file__).parent
ROUNDS = 9
CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))

# Each stream is read as its own library hands it out, without a layer of ours around it: some give texts, some events.
Open = Callable[[str], AsyncIterator[object]]
TEXTS = (str, Text)


@dataclass
class Contender:
    """One way to read a stream and to ask for a whole reply."""

    name: str
    stream: Open
    whole: Callable[[str], Awaitable[object]] | None = None


@dataclass
class Bench:
    """All contenders, with the clients that they keep."""

    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def contenders(self, base: str) -> list[Contender]:
        session = await self.stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None))
        )
        sdks: dict[str, openai.AsyncOpenAI] = {}
        adapters: dict[str, OpenAIChatAdapter] = {}

        def sdk(url: str) -> openai.AsyncOpenAI:
            if url not in sdks:
                limits = openai.DefaultAsyncHttpxClient(limits=_no_limits())
                sdks[url] = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=limits)
            return sdks[url]

        def adapter(url: str) -> OpenAIChatAdapter:
            if url not in adapters:
                adapters[url] = OpenAIChatAdapter(model="m", api_key="k", base_url=url)
                self.stack.push_async_callback(adapters[url].aclose)
            return adapters[url]

        chains = {}

        def chain(url: str):
            if url not in chains:
                chains[url] = of(adapter(url))
            return chains[url]

        agents = {}

        def agent(url: str) -> DefaultAgent:
            if url not in agents:
                agents[url] = DefaultAgent(model=adapter(url))
            return agents[url]

        async def by_sdk(url: str) -> AsyncIterator[str]:
            stream = await sdk(url).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            async with stream:
                async for chunk in stream:
                    if chunk.choices and chunk.choices[0].delta.content is not None:
                        yield chunk.choices[0].delta.content

        async def sdk_whole(url: str) -> object:
            return await sdk(url).chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

        return [
            Contender("floor", lambda url: floor.stream(session, url), lambda url: floor.whole(session, url)),
            Contender("adapter", lambda url: adapter(url).stream(CTX), lambda url: adapter(url).generate(CTX)),
            Contender("chain", lambda url: chain(url).stream(CTX)),
            Contender("loop", lambda url: agent(url).run_stream("hi")),
            Contender("sdk", by_sdk, sdk_whole),
        ]


def _no_limits():
    import httpx2

    return httpx2.Limits(max_connections=None, max_keepalive_connections=None)


class Report:
    """Collects figures, prints them, and remembers the misses."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def table(self, title: str, unit: str, figures: dict[str, list[float]]) -> dict[str, float]:
        print(f"\n{title} ({unit})")
        medians = {name: median(values) for name, values in figures.items()}
        for name, values in figures.items():
            ratio = f"{medians[name] / medians['floor']:>6.2f}x the floor" if medians.get("floor") else ""
            spread = f"{min(values):>9.2f} … {max(values):<9.2f}"
            print(f"  {name:<10} {medians[name]:>10.2f}   {spread}  {ratio}".rstrip())
        return medians

    def want(self, what: str, value: float, limit: float, *, at_least: bool = False) -> None:
        good = value >= limit if at_least else value <= limit
        sign = "≥" if at_least else "≤"
        print(f"  {'ok  ' if good else 'MISS'} {what}: {value:.2f} (wanted {sign} {limit})")
        if not good:
            self.missed.append(what)


def paired(figures: dict[str, list[float]], one: str, other: str) -> float:
    """The median of the ratios of the rounds, each round's two figures taken together."""
    return median(a / b for a, b in zip(figures[one], figures[other], strict=True))


async def rounds(
    contenders: list[Contender], run: Callable[[Contender], Awaitable[float]], count: int
) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for contender in contenders:
        await run(contender)
    for number in range(count):
        order = contenders if number % 2 == 0 else contenders[::-1]
        for contender in order:
            gc.collect()
            figures[contender.name].append(await run(contender))
    return figures


async def coalesced(base: str, report: Report, contenders: list[Contender]) -> None:
    async def run(contender: Contender) -> float:
        streams = 4 if contender.name == "sdk" else 40
        begun = time.process_time()
        for _ in range(streams):
            count = 0
            async for item in contender.stream(f"{base}/fast"):
                if type(item) in TEXTS:
                    count += 1
            assert count == scripted.CHUNKS, (contender.name, count)
        return (time.process_time() - begun) / streams / scripted.CHUNKS * 1e6

    figures = await rounds(contenders, run, ROUNDS)
    report.table("500 chunks at once: CPU a chunk", "µs", figures)
    for name in ("adapter", "chain", "loop"):
        report.want(f"{name} against the floor", paired(figures, name, "floor"), 2.0)
        report.want(f"{name}: times less than the SDK", paired(figures, "sdk", name), 25.0, at_least=True)


async def paced(base: str, report: Report, contenders: list[Contender]) -> None:
    chunks = scripted.PACED_CHUNKS

    async def one(contender: Contender) -> None:
        count = 0
        async for item in contender.stream(f"{base}/paced"):
            count += type(item) in TEXTS
        assert count == chunks, (contender.name, count)

    async def run(contender: Contender) -> float:
        begun = time.process_time()
        await asyncio.gather(*(one(contender) for _ in range(100)))
        return (time.process_time() - begun) / 100 / chunks * 1e6

    figures = await rounds(contenders, run, 7)
    report.table("100 paced streams on uvloop: CPU a chunk", "µs", figures)
    report.want("adapter, paced, against the floor", paired(figures, "adapter", "floor"), 1.3)
    report.want("adapter, paced: times less than the SDK", paired(figures, "sdk", "adapter"), 8.0, at_least=True)


async def whole(base: str, report: Report, contenders: list[Contender]) -> None:
    able = [contender for contender in contenders if contender.whole is not None]

    async def run(contender: Contender) -> float:
        calls = 60
        begun = time.process_time()
        for _ in range(calls):
            await contender.whole(f"{base}/fast")  # type: ignore[misc]
        return (time.process_time() - begun) / calls * 1e6

    figures = await rounds(able, run, ROUNDS)
    report.table("One whole reply: CPU", "µs", figures)
    report.want("whole reply against the floor", paired(figures, "adapter", "floor"), 1.5)
    report.want("whole reply: times less than the SDK", paired(figures, "sdk", "adapter"), 4.0, at_least=True)


async def first_token(base: str, report: Report, contenders: list[Contender]) -> None:
    some = [contender for contender in contenders if contender.name in ("floor", "adapter", "sdk")]

    async def run(contender: Contender) -> float:
        times = []
        for _ in range(40):
            begun = time.perf_counter()
            stream = contender.stream(f"{base}/one")
            async for item in stream:
                if type(item) in TEXTS:
                    times.append(time.perf_counter() - begun)
                    break
            async for _item in stream:
                pass
        return median(times) * 1e6

    figures = await rounds(some, run, ROUNDS)
    report.table("First token: time", "µs", figures)
    report.want("first token against the floor", paired(figures, "adapter", "floor"), 1.5)


def memory(name: str, base: str) -> None:
    """In a process of its own: open 1,000 streams slowly, hold them all, print bytes a stream."""

    async def main() -> None:
        bench = Bench()
        contender = next(c for c in await bench.contenders(base) if c.name == name)
        warm = contender.stream(f"{base}/slow")
        await anext(warm)
        gc.collect()
        before, held = _resident(), []
        for _ in range(1000):
            stream = contender.stream(f"{base}/slow")
            await anext(stream)
            held.append(stream)
            await asyncio.sleep(0.001)
        gc.collect()
        sockets = sum(1 for fd in Path("/proc/self/fd").iterdir() if _is_socket(fd))
        print((_resident() - before) / 1000, sockets, flush=True)
        os._exit(0)

    scripted.allow_files()
    uvloop.run(main())


def _is_socket(fd: Path) -> bool:
    try:
        return str(fd.readlink()).startswith("socket:")
    except OSError:
        return False


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memories(base: str, report: Report) -> None:
    figures: dict[str, list[float]] = {"floor": [], "adapter": [], "sdk": []}
    for _ in range(3):
        for name, values in figures.items():
            command = [sys.executable, __file__, "--memory", name, base]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE).stdout.split()
            values.append(float(said[0]) / 1000)
            if int(said[1]) < 1000:
                report.missed.append(f"only {said[1]} sockets open for {name}")
    report.table("1,000 streams open at once: memory a stream", "KB", figures)
    report.want("memory against the floor", paired(figures, "adapter", "floor"), 1.5)


def _fresh(code: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.perf_counter() - begun) * 1e3


def starts(report: Report) -> None:
    click = "import click\n@click.group()\ndef main(): pass\n@main.command()\ndef hello(): pass\nmain(['--help'])"
    runs = {
        "bare": ["-c", "pass"],
        "isthmus": ["-c", "import isthmus"],
        "click": ["-c", click],
        "--help": ["-m", "isthmus", "--help"],
    }
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(13):
        for name, code in runs.items():
            taken = _fresh(code)
            if number:
                figures[name].append(taken)
    print("\nFresh processes (ms)")
    for name, values in figures.items():
        print(f"  {name:<10} {median(values):>10.1f}   {min(values):>9.1f} … {max(values):<9.1f}")
    report.want(
        "import isthmus above a bare interpreter, ms", median(figures["isthmus"]) - median(figures["bare"]), 60.0
    )
    report.want(
        "isthmus --help against a bare click program", median(figures["--help"]) / median(figures["click"]), 1.6
    )


def main() -> int:
    report = Report()
    with subprocess.Popen(
        [sys.executable, str(HERE / "server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        base = f"http://127.0.0.1:{process.stdout.readline().strip()}"

        async def timed(*parts: Callable[[str, Report, list[Contender]], Awaitable[None]]) -> None:
            bench = Bench()
            async with bench.stack:
                contenders = await bench.contenders(base)
                for part in parts:
                    await part(base, report, contenders)

        asyncio.run(timed(coalesced, whole, first_token))
        uvloop.run(timed(paced))
        memories(base, report)
        process.communicate()
    starts(report)
    print("\n" + ("missed: " + "; ".join(report.missed) if report.missed else "all wanted ratios hold"))
    return 1 if report.missed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        memory(sys.argv[2], sys.argv[3])
    sys.exit(main())
