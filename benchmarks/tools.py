"""What it costs to declare tools: 200 typed functions made into `Tools`, with their schemas, then with validators.

Each figure is of fresh processes that have imported everything and declared one other tool, so no cache helps; the
least of several counts. Milliseconds are CPU. Kilobytes are what Python allocated (tracemalloc) and still holds, a
tool: definition, schema and caches; "with validators" what hangs on a tool after its first check, too. What pydantic's
core allocates outside of Python is in no figure, for nobody. Exits 1 when a wanted figure is missed.
Peers run by the interpreter of an environment that has them: `--peers VENV`; they make schema and validator together.
"""

from __future__ import annotations

import argparse
import gc
import importlib
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
PROCESSES = 3
FIGURES = ("schemas", "validators", "kilobytes", "checked")
# Milliseconds of CPU for all tools, and kilobytes a tool.
WANTED = {"schemas": 30.0, "validators": 80.0, "kilobytes": 6.0, "checked": 6.0}


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


@dataclass
class Box:
    """A type that no measured tool names."""

    height: float


class Colour(Enum):
    RED = "red"


def warm(
    box: Box, colour: Colour = Colour.RED, kind: Literal["x", "y"] = "x", by: dict[str, list[int]] | None = None
) -> Box:
    """The tool that imports everything."""
    return box


def figure(name: str, what: str) -> float:
    """One figure of one contender, in a process that has measured nothing yet."""
    which = 1 if what in ("validators", "checked") else 0
    CONTENDERS[name]([warm])[which]()
    step = CONTENDERS[name](functions())[which]
    gc.collect()
    if what in ("schemas", "validators"):
        begun = time.process_time()
        step()
        return (time.process_time() - begun) * 1000
    tracemalloc.start()
    kept = step()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    del kept
    return size / COUNT / 1024


def measured(name: str, python: str | Path) -> dict[str, float] | None:
    """All figures of one contender; None where it cannot be run."""
    found = {}
    for what in FIGURES:
        values = []
        for _ in range(PROCESSES):
            asked = [python, __file__, "--only", name, "--figure", what]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=300)
            if done.returncode:
                print(f"{name}: not measured: {done.stderr.strip().splitlines()[-1:]}")
                return None
            values.append(float(done.stdout))
        found[what] = min(values)
    return found


def main() -> int:
    """Measure, print, and tell whether the wanted figures were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, help="an environment that has pydantic-ai and openai-agents")
    parser.add_argument("--only", choices=CONTENDERS, help="print one figure of one contender")
    parser.add_argument("--figure", choices=FIGURES, default="schemas")
    asked = parser.parse_args()
    if asked.only:
        print(figure(asked.only, asked.figure))
        return 0
    ours = measured("isthmus", sys.executable)
    if ours is None:
        return 1
    rows = {"isthmus": ours}
    for name in ("pydantic-ai", "openai-agents") if asked.peers else ():
        found = measured(name, asked.peers / "bin" / "python")
        if found is not None:
            rows[name] = found
    print(f"{COUNT} tools          {'schemas':>10} {'validators':>13} {'a tool':>10} {'with validators':>18}")
    for name, row in rows.items():
        print(
            f"{name:<18} {row['schemas']:>7.1f} ms {row['validators']:>10.1f} ms {row['kilobytes']:>7.1f} KB "
            f"{row['checked']:>15.1f} KB"
            + ("" if row is ours else f"   {row['validators'] / ours['validators']:.1f} times the CPU of ours")
        )
    missed = [key for key, most in WANTED.items() if ours[key] > most]
    for key in missed:
        print(f"missed: {key} is {ours[key]:.1f}, wanted {WANTED[key]:.0f} at most")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
