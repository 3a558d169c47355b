"""What the language costs: its import, and a transcript of 50 messages made into a request by each dialect.

Prints medians; exits 1 when a wanted figure is missed.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.models.contract import GenerateContext, ToolSpec

STARTS = 12
ROUNDS = 200
# Milliseconds: above a bare interpreter, and for one request.
WANTED = {"import": 80.0, "render": 0.3}
IMPORTS = {
    "bare": "pass",
    "import": "import isthmus.models",
    "names": "from isthmus.models import OutputSchema, PromptTemplate, Tools, as_tool",
}
UNNEEDED = ("aiohttp", "jinja2", "pydantic")


def transcript() -> tuple[dict[str, Any], ...]:
    """50 messages: ten rounds of a question, two calls, their results, and an answer."""
    made: list[dict[str, Any]] = []
    for number in range(10):
        calls = [
            {
                "id": f"call_{number}_{which}",
                "type": "function",
                "function": {"name": "search", "arguments": f'{{"query": "the {which} thing", "limit": {number}}}'},
            }
            for which in ("first", "second")
        ]
        made.append({"role": "user", "content": f"Question {number}: what does the report say of it?"})
        made.append({"role": "assistant", "content": "Let me look.", "tool_calls": calls})
        made += [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "name": "search",
                "content": "Found: " + "a line of text. " * 20,
            }
            for call in calls
        ]
        made.append({"role": "assistant", "content": "It says this and that. " * 10})
    return tuple(made)


SEARCH = ToolSpec(
    name="search",
    description="Search the library.",
    parameters_schema={"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}},
)


def rendering(encode: Callable[..., Any]) -> float:
    """The median time of one request, its body made."""
    ctx = GenerateContext(brief="Be brief.", messages=transcript(), tools=(SEARCH,), max_output_tokens=1000)
    assert len(ctx.messages) == 50
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        encode(ctx, stream=True)
        times.append((time.perf_counter() - begun) * 1e3)
    return median(times)


def starts(cache: str) -> dict[str, float]:
    """The median times of fresh processes, alternating, that find all modules compiled."""
    options = ["-I", "-X", f"pycache_prefix={cache}"]
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / 'src')!r}); "
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for number in range(STARTS + 1):
        for name, code in IMPORTS.items():
            begun = time.perf_counter()
            subprocess.run([sys.executable, *options, "-c", path + code], check=True)
            if number:
                times[name].append((time.perf_counter() - begun) * 1e3)
    loaded = f"import isthmus.models; {IMPORTS['names']}; assert not sys.modules.keys() & {set(UNNEEDED)}"
    subprocess.run([sys.executable, *options, "-c", f"{path}{loaded}"], check=True)
    return {name: median(values) for name, values in times.items()}


def main() -> int:
    """Measure, print, and tell whether the wanted figures were met."""
    with tempfile.TemporaryDirectory() as cache:
        taken = starts(cache)
    figures = {"import isthmus.models, above a bare interpreter": (taken["import"] - taken["bare"], WANTED["import"])}
    print(f"bare interpreter {taken['bare']:.1f} ms; with the names of an application in use, without ", end="")
    print(f"{', '.join(UNNEEDED)}: {taken['names'] - taken['bare']:.1f} ms above it")
    gc.collect()
    gc.freeze()
    for name, codec in (("chat", ChatCodec("m")), ("messages", MessagesCodec("m"))):
        figures[f"a request of 50 messages, {name}"] = rendering(codec.encode), WANTED["render"]
    for what, (figure, most) in figures.items():
        print(f"{what:<50} {figure:>8.3f} ms   wanted {most:g} at most{'' if figure <= most else ': missed'}")
    return 1 if any(figure > most for figure, most in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
