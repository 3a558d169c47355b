"""What it costs to declare tools: 200 typed functions made into `Tools`, with their schemas, then with validators.

Prints milliseconds of CPU (the least of several rounds) and kilobytes a tool; exits 1 when a wanted figure is missed.
Peers run in a process of their own, by the interpreter of an environment that has them: `--peers VENV`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

COUNT = 200
ROUNDS = 7
# Milliseconds of CPU for all tools, and kilobytes a tool.
WANTED = {"schemas_ms": 30.0, "validators_ms": 80.0, "kilobytes": 6.0}


@dataclass
class Place:
    """Somewhere on earth."""

    latitude: float
    longitude: float
    name: str = ""


class Unit(Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


def functions() -> list[Callable[..., Any]]:
    """200 functions of five shapes, as applications write them."""
    made: list[Callable[..., Any]] = []
    for number in range(COUNT // 5):

        def search(query: Annotated[str, "What to look for."], limit: int = 5, tags: list[str] | None = None) -> str:
            """Search the library."""
            return query

        def weather(place: Place, unit: Unit = Unit.METRIC, days: int = 1) -> dict[str, float]:
            """Give the weather at a place."""
            return {}

        def order(item: str, count: int, price: float, express: bool = False, note: str | None = None) -> int:
            """Order an item."""
            return count

        def sort(rows: list[dict[str, int]], by: str, way: Literal["up", "down"] = "up") -> list[dict[str, int]]:
            """Sort rows."""
            return rows

        def route(start: Place, stops: list[Place], options: dict[str, str]) -> list[Place]:
            """Find a way."""
            return stops

        for function in (search, weather, order, sort, route):
            function.__name__ = function.__qualname__ = f"{function.__name__}_{number}"
            made.append(function)
    return made


Step = Callable[[], Any]


def isthmus_steps(given: list[Callable[..., Any]]) -> tuple[Step, Step]:
    """Ours: tools with their schemas; and the first check of each."""
    from isthmus.models.tools import Tools

    def schemas() -> Any:
        tools = Tools(given)
        return tools, [tool.parameters for tool in tools.normalized_tools]

    def validators() -> Any:
        tools = Tools(given)
        shown = [tool.parameters for tool in tools.normalized_tools]
        for tool in tools.normalized_tools:
            try:
                tool.args_model.model_validate({})  # type: ignore[union-attr]
            except ValueError:
                continue
        return tools, shown

    return schemas, validators


def pydantic_ai_steps(given: list[Callable[..., Any]]) -> tuple[Step, Step]:
    """Pydantic AI's toolset of functions; it makes schema and validator together."""
    toolset = importlib.import_module("pydantic_ai").FunctionToolset

    def both() -> Any:
        tools = toolset(given)
        return tools, [tool.function_schema.json_schema for tool in tools.tools.values()]

    return both, both


def openai_agents_steps(given: list[Callable[..., Any]]) -> tuple[Step, Step]:
    """OpenAI's agents: its decorator, not strict, as two of the functions have open dicts."""
    function_tool = importlib.import_module("agents").function_tool

    def both() -> Any:
        tools = [function_tool(function, strict_mode=False) for function in given]
        return tools, [tool.params_json_schema for tool in tools]

    return both, both


CONTENDERS: dict[str, Callable[[list[Callable[..., Any]]], tuple[Step, Step]]] = {
    "isthmus": isthmus_steps,
    "pydantic-ai": pydantic_ai_steps,
    "openai-agents": openai_agents_steps,
}


def cpu_ms(step: Step) -> float:
    """The least CPU time of several rounds; the first one, which imports, is not counted."""
    step()
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time()
        kept = step()
        times.append((time.process_time() - start) * 1000)
        del kept
    return min(times)


def kilobytes(step: Step) -> float:
    """What one tool keeps in memory."""
    step()
    gc.collect()
    tracemalloc.start()
    kept = step()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size / COUNT / 1024


def measure(name: str) -> dict[str, float]:
    """The figures of one contender."""
    schemas, validators = CONTENDERS[name](functions())
    return {
        "schemas_ms": cpu_ms(schemas),
        "validators_ms": cpu_ms(validators),
        "kilobytes": kilobytes(schemas),
    }


def peer(name: str, python: Path) -> dict[str, float] | None:
    """The figures of a peer, from a process of its own environment."""
    done = subprocess.run([python, __file__, "--only", name], capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(f"{name}: not measured: {done.stderr.strip().splitlines()[-1:]}")
        return None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure, print, and tell whether the wanted figures were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, help="an environment that has pydantic-ai and openai-agents")
    parser.add_argument("--only", choices=CONTENDERS, help="measure one and print JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps(measure(asked.only)))
        return 0
    ours = measure("isthmus")
    rows = {"isthmus": ours}
    for name in ("pydantic-ai", "openai-agents") if asked.peers else ():
        found = peer(name, asked.peers / "bin" / "python")
        if found is not None:
            rows[name] = found
    print(f"{COUNT} tools          {'schemas':>10} {'validators':>12} {'a tool':>10}")
    for name, row in rows.items():
        times = row["validators_ms"] / ours["validators_ms"]
        print(
            f"{name:<18} {row['schemas_ms']:>7.1f} ms {row['validators_ms']:>9.1f} ms {row['kilobytes']:>7.1f} KB"
            + ("" if row is ours else f"   {times:.1f} times the CPU of ours")
        )
    missed = [key for key, most in WANTED.items() if ours[key] > most]
    for key in missed:
        print(f"missed: {key} is {ours[key]:.1f}, wanted {WANTED[key]:.0f} at most")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
