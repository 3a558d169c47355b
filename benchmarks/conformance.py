"""How many seconds one run of the conformance kit takes: an author waits for it at each change of an adapter.

An adapter without a network, and each built-in one over 100 recordings: rare shapes of `tests/recordings`, or those of
a folder with a folder a recording, `--recordings DIR --provider NAME`. Exits 1 when a wanted figure is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.registry import resolve
from isthmus.conformance import conform
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Event, Finish, Text

ROOT = Path(__file__).resolve().parents[1]
COUNT = 100
# Seconds.
WANTED = {"no network": 5.0, "built-in": 30.0}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "openai": {},
    "anthropic": {},
    "openai-responses": {},
    "bedrock": {"aws_region": "us-east-1"},
    "langserve": {"base_url": "http://langserve.invalid"},
}


class Echo(ModelAdapter):
    """Says the last message back, and calls the first tool that it is given."""

    provider = "echo"
    supports = frozenset({"tools", "parallel-tools"})

    def __init__(self, *, model: str = "echo-1", api_key: str = "", max_tokens: int = 100) -> None:
        self.model = model
        self.max_tokens = max_tokens

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        """The reply's events."""
        last = ctx.messages[-1]
        if ctx.tools and last.get("role") != "tool":
            yield Call(ctx.tools[0].name, {"query": "x"}, "c1")
            yield Finish("tool-calls")
            return
        for word in str(last.get("content")).split(" "):
            await asyncio.sleep(0)
            yield Text(word + " ")
        yield Finish("stop")


def taken(adapter: Any, recordings: list[Path] | None) -> tuple[float, str]:
    """The seconds of one run, and what came of it."""
    began = time.perf_counter()
    report = asyncio.run(conform(adapter, recordings=recordings))
    laws = [standing.status for standing in report.laws]
    return time.perf_counter() - began, f"{laws.count('pass')} laws pass, {laws.count('fail')} fail"


def maker(provider: str) -> Any:
    """A factory of a built-in adapter that plays what it is given."""
    make: Any = resolve(provider).factory

    def adapter(*, transport: Any, api_key: str = "", max_tokens: int = 100) -> Any:
        return make(model="m", transport=transport, api_key=api_key, max_tokens=max_tokens, **SETTINGS[provider])

    return adapter


def rare(provider: str, folder: Path) -> list[Path]:
    """The first recordings of the rare shapes of an adapter, laid out."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.rare import lay_out, rows

    names = {"openai": "openai_chat", "openai-responses": "openai_responses"}
    places: list[Path] = []
    for row in islice(rows(names.get(provider, provider)), COUNT):
        places.append(folder / provider / row["name"])
        lay_out(row, places[-1])
    return places


def main() -> int:
    """Measure, print, and say whether what is wanted holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", choices=SETTINGS, help="one built-in adapter; all of them where none is named")
    parser.add_argument("--recordings", type=Path, help="a folder of recordings of that provider")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as kept:
        rows: list[tuple[str, str, Any, list[Path] | None]] = [("no network", "no network", Echo, None)]
        for provider in [options.provider] if options.provider else SETTINGS:
            given = sorted(options.recordings.iterdir())[:COUNT] if options.recordings else rare(provider, Path(kept))
            rows.append(("built-in", f"{provider}, {len(given)} recordings", maker(provider), given))
        for kind, what, adapter, recordings in rows:
            seconds, said = taken(adapter, recordings)
            good = seconds <= WANTED[kind]
            missed += not good
            print(f"{'ok  ' if good else 'MISS'} {what}: {seconds:.1f} s (wanted {WANTED[kind]:g}), {said}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
