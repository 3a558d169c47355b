"""What one round of tools costs: ask, run the tool, answer; whole and streamed, on a scripted server on loopback.

Each contender runs in a process of its own, and each peer in an environment of its own, which is made under `.venvs`
where it is not there (`--envs` says where else, `--alone` leaves the peers out). The contenders take turns, several
times; a figure is the least CPU time of their processes, in ms a round. Also printed: what it takes to build an agent,
and what an idle agent and a conversation of one round hold (tracemalloc). Exits 1 when a wanted figure is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
QUESTION = "What is twice 21?"
BRIEF = "Be brief."
AGENTS = 1000
PINS = {
    "sdk": (),
    "pydantic-ai": ("pydantic-ai-slim[openai]",),
    "openai-agents": ("openai-agents",),
    "langchain": ("langchain", "langchain-openai"),
}
FACTORS = {"by hand": 2.0, "sdk": 5.0, "pydantic-ai": 9.0, "openai-agents": 9.0, "langchain": 9.0}
"""Of the first ours may cost so many times as much at most; of the others so many times less at least."""
WANTED = {"build": 100.0, "idle": 5.0, "conversation": 4.0}
UNITS = {"build": "µs", "idle": "KB", "conversation": "KB"}

Round = Callable[[], Awaitable[object]]
Rounds = tuple[Round, Round]
"""A round of tools whole, and one streamed."""

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [{"type": "function", "function": {"name": "double", "description": "Double it.", "parameters": PARAMETERS}}]


async def double(n: int) -> int:
    """Double it."""
    return 2 * n


def asked() -> list[dict[str, Any]]:
    """The messages that a loop begins with."""
    return [{"role": "system", "content": BRIEF}, {"role": "user", "content": QUESTION}]


@asynccontextmanager
async def by_hand(url: str) -> AsyncIterator[Rounds]:
    """A loop over aiohttp that decodes what it needs and nothing else."""
    import floor

    async with floor.aiohttp.ClientSession(connector=floor.aiohttp.TCPConnector(limit=0)) as session:
        loop = floor.ToolLoop(session, url, tools=TOOLS, run=double)
        yield (lambda: loop.run(asked(), loop.whole)), (lambda: loop.run(asked(), loop.streamed))


@asynccontextmanager
async def sdk(url: str) -> AsyncIterator[Rounds]:
    """A loop over the official SDK."""
    import openai

    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        create: Any = client.chat.completions.create

        async def whole(messages: list[Any]) -> tuple[str | None, list[Any]]:
            reply = await create(model="m", messages=messages, tools=TOOLS)
            said = reply.choices[0].message
            return said.content, [
                {"id": each.id, "type": "function", "function": each.function.model_dump()}
                for each in said.tool_calls or ()
            ]

        async def streamed(messages: list[Any]) -> tuple[str | None, list[Any]]:
            texts: list[str] = []
            calls: dict[int, Any] = {}
            async with await create(model="m", messages=messages, tools=TOOLS, stream=True) as chunks:
                async for chunk in chunks:
                    for choice in chunk.choices:
                        texts.append(choice.delta.content or "")
                        for each in choice.delta.tool_calls or ():
                            made = {"id": each.id, "type": "function", "function": {"name": "", "arguments": ""}}
                            function = calls.setdefault(each.index, made)["function"]
                            function["name"] += each.function.name or ""
                            function["arguments"] += each.function.arguments or ""
            return "".join(texts), list(calls.values())

        async def loop(ask: Callable[[list[Any]], Awaitable[tuple[str | None, list[Any]]]]) -> str | None:
            messages = asked()
            while True:
                text, calls = await ask(messages)
                if not calls:
                    return text
                messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
                for each in calls:
                    result = await double(**json.loads(each["function"]["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": each["id"], "content": str(result)})

        yield (lambda: loop(whole)), (lambda: loop(streamed))


@asynccontextmanager
async def isthmus(url: str) -> AsyncIterator[Rounds]:
    """Ours."""
    from isthmus import Agent
    from isthmus.adapters.openai_chat import OpenAIChatAdapter

    async with OpenAIChatAdapter(model="m", api_key="k", base_url=url) as model:
        agent = Agent(model=model, tools=[double], instructions=BRIEF)

        async def whole() -> str:
            return (await agent.run(QUESTION)).text

        async def streamed() -> str:
            async with agent.run_stream(QUESTION) as stream:
                async for _ in stream:
                    pass
                return (await stream.result()).text

        yield whole, streamed


@asynccontextmanager
async def pydantic_ai(url: str) -> AsyncIterator[Rounds]:
    """Pydantic AI's agent."""
    made = importlib.import_module("pydantic_ai")
    model = importlib.import_module("pydantic_ai.models.openai").OpenAIChatModel
    provider = importlib.import_module("pydantic_ai.providers.openai").OpenAIProvider
    agent = made.Agent(model("m", provider=provider(base_url=url, api_key="k")), tools=[double], instructions=BRIEF)

    async def whole() -> Any:
        return (await agent.run(QUESTION)).output

    async def streamed() -> Any:
        async with agent.run_stream(QUESTION) as result:
            return "".join([text async for text in result.stream_text(delta=True, debounce_by=None)])

    yield whole, streamed


@asynccontextmanager
async def openai_agents(url: str) -> AsyncIterator[Rounds]:
    """OpenAI's agents, without its tracing."""
    agents = importlib.import_module("agents")
    client = importlib.import_module("openai").AsyncOpenAI(api_key="k", base_url=url, max_retries=0)
    agents.set_tracing_disabled(True)
    agent = agents.Agent(
        name="a",
        instructions=BRIEF,
        tools=[agents.function_tool(double)],
        model=agents.OpenAIChatCompletionsModel(model="m", openai_client=client),
    )

    async def whole() -> Any:
        return (await agents.Runner.run(agent, QUESTION)).final_output

    async def streamed() -> Any:
        result = agents.Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        return result.final_output

    yield whole, streamed


@asynccontextmanager
async def langchain(url: str) -> AsyncIterator[Rounds]:
    """LangChain's agent."""
    made = importlib.import_module("langchain.agents").create_agent
    chat = importlib.import_module("langchain_openai").ChatOpenAI
    agent = made(chat(model="m", base_url=url, api_key="k", max_retries=0), tools=[double], system_prompt=BRIEF)
    given = {"messages": [{"role": "user", "content": QUESTION}]}

    async def whole() -> Any:
        return (await agent.ainvoke(given))["messages"][-1].content

    async def streamed() -> Any:
        texts = []
        async for chunk, _ in agent.astream(given, stream_mode="messages"):
            if type(chunk).__name__ == "AIMessageChunk":
                texts.append(chunk.content)
        return "".join(texts)

    yield whole, streamed


CONTENDERS: dict[str, Callable[[str], Any]] = {
    "by hand": by_hand,
    "isthmus": isthmus,
    "sdk": sdk,
    "pydantic-ai": pydantic_ai,
    "openai-agents": openai_agents,
    "langchain": langchain,
}


async def figures(name: str, url: str, count: int) -> dict[str, float]:
    """The CPU of a round, whole and streamed, in ms; each answer is looked at."""
    found = {}
    async with CONTENDERS[name](url) as rounds:
        for kind, one in zip(("whole", "streamed"), rounds, strict=True):
            for _ in range(20):
                said = await one()
                if said != " token" * 8:
                    raise ValueError(f"{name}, {kind}: answered {said!r}")
            gc.collect()
            begun = time.process_time()
            for _ in range(count):
                await one()
            found[kind] = (time.process_time() - begun) / count * 1000
    return found


async def sizes(url: str) -> dict[str, float]:
    """What it takes to build one of our agents, and what it holds, idle and after a round."""
    from isthmus.adapters.openai_chat import OpenAIChatAdapter
    from isthmus.harness import AgentDescriptor, DefaultAgent
    from isthmus.models import Tools

    async with OpenAIChatAdapter(model="m", api_key="k", base_url=url) as model:
        tools = Tools([double])

        def build() -> DefaultAgent:
            return DefaultAgent(descriptor=AgentDescriptor(name="a", model=model, tools=tools, instructions=BRIEF))

        await build().run(QUESTION)
        best = float("inf")
        for _ in range(20):
            begun = time.process_time()
            for _ in range(100):
                build()
            best = min(best, (time.process_time() - begun) / 100 * 1e6)
        gc.collect()
        tracemalloc.start()
        agents = [build() for _ in range(AGENTS)]
        gc.collect()
        idle = tracemalloc.get_traced_memory()[0]
        for agent in agents:
            await agent.run(QUESTION)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return {"build": best, "idle": idle / AGENTS / 1024, "conversation": (held - idle) / AGENTS / 1024}


def environment(home: Path, name: str) -> str | None:
    """The interpreter that has a contender; its environment is made where it is not there. None if it cannot be."""
    pins = PINS.get(name, ())
    if not pins:
        return sys.executable
    place = home / f"bench-{name}"
    python, made = place / "bin" / "python", place / ".made"
    if made.is_file() and made.read_text() == "\n".join(pins):
        return str(python)
    for step in (
        [sys.executable, "-m", "venv", "--clear", str(place)],
        [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "install", *pins],
    ):
        done = subprocess.run(step, capture_output=True, text=True, timeout=900)
        if done.returncode:
            print(f"{name}: no environment: {done.stderr.strip().splitlines()[-1:]}")
            return None
    made.write_text("\n".join(pins))
    return str(python)


def said(python: str, *arguments: str) -> dict[str, float] | None:
    """The figures that a process of its own prints; None, and why, where it fails."""
    done = subprocess.run([python, __file__, *arguments], capture_output=True, text=True, timeout=900)
    if done.returncode:
        print(f"{' '.join(arguments)}: not measured: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def compare(rows: dict[str, dict[str, float]]) -> list[str]:
    """Print what a round costs, and say what was missed."""
    missed = []
    ours = rows["isthmus"]
    print(f"{'CPU of a round':<18} {'whole':>10} {'streamed':>13}")
    for name, row in rows.items():
        line = f"{name:<18} {row['whole']:>7.2f} ms {row['streamed']:>10.2f} ms"
        if name != "isthmus":
            less = name != "by hand"
            ratios = {kind: row[kind] / ours[kind] if less else ours[kind] / row[kind] for kind in row}
            line += "   ours is " + " and ".join(f"{ratio:.1f}" for ratio in ratios.values())
            line += " times less" if less else " times that"
            wanted = FACTORS[name]
            missed += [
                f"{name}, {kind}: {ratio:.2f}, wanted {wanted:g} at {'least' if less else 'most'}"
                for kind, ratio in ratios.items()
                if (ratio < wanted if less else ratio > wanted)
            ]
        print(line)
    return missed


def measure(url: str, *, home: Path, alone: bool, count: int, turns: int) -> int:
    """Measure, print, and tell whether the wanted figures were met."""
    names = [name for name in CONTENDERS if not alone or name in ("by hand", "isthmus", "sdk")]
    pythons = {name: environment(home, name) for name in names}
    rows: dict[str, dict[str, float]] = {}
    for _ in range(turns):
        for name, python in pythons.items():
            found = None if python is None else said(python, "--only", name, "--url", url, "--rounds", str(count))
            if found is not None:
                known = rows.setdefault(name, found)
                rows[name] = {kind: min(known[kind], value) for kind, value in found.items()}
    held = said(sys.executable, "--only", "sizes", "--url", url)
    if held is None or not {"isthmus", "by hand"} <= rows.keys():
        return 1
    missed = compare(rows)
    for key, value in held.items():
        print(f"{key:<18} {value:>7.1f} {UNITS[key]}, wanted {WANTED[key]:g} at most")
        missed += [f"{key}: {value:.1f} {UNITS[key]}"] if value > WANTED[key] else []
    for each in missed:
        print(f"missed: {each}")
    return 1 if missed else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=Path, default=HERE.parent / ".venvs", help="where the peers' environments are")
    parser.add_argument("--alone", action="store_true", help="leave out the peers that need an environment")
    parser.add_argument("--rounds", type=int, default=300, help="rounds a process")
    parser.add_argument("--turns", type=int, default=3, help="processes a contender")
    parser.add_argument("--only", choices=(*CONTENDERS, "sizes"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        work = sizes(given.url) if given.only == "sizes" else figures(given.only, given.url, given.rounds)
        print(json.dumps(asyncio.run(work)))
        return 0
    with subprocess.Popen(
        [sys.executable, str(HERE / "server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/round"
        try:
            return measure(url, home=given.envs, alone=given.alone, count=given.rounds, turns=given.turns)
        finally:
            server.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
