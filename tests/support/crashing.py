"""Kills a process at random points of a run with ten tools, lets others go on, and reports what was found.

A program of its own: `python crashing.py KILLS SEED FOLDER` prints a report as JSON. Each life of the run is a process,
forked from this one, which has imported everything and opened nothing. What the tools do is a line in a log outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from isthmus.harness import AgentDescriptor, DefaultAgent, RunState, SqliteJournal, SqliteStateStore
from isthmus.models import Tools
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text
from isthmus.models.normalise import make_call

RUN = "the-run"
ROUNDS = ((0,), (1, 2), (3,), (4, 5, 6), (7,), (8, 9))
START: list[Any] = [{"role": "user", "content": "do all ten"}]


class Model:
    """Asks for the next round of tools; what was said so far is all that it knows."""

    id = "planned"
    supports = frozenset({"tools"})
    handles_retries = True

    def __init__(self, folder: Path) -> None:
        self._log = folder / "model.log"

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        """One reply."""
        said = sum(message.get("role") == "assistant" for message in ctx.messages)
        note(self._log, str(said))
        await asyncio.sleep(0.001)
        if said == len(ROUNDS):
            yield Text("All ten are done.")
            yield Finish("stop")
            return
        for number in ROUNDS[said]:
            yield make_call(f"tool{number}", {"round": said}, call_id=f"call{number}")
        yield Finish("tool-calls")


def note(path: Path, line: str) -> None:
    """Append a line, at once and for good."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(number, f"{line}\n".encode())
        os.fsync(number)
    finally:
        os.close(number)


def lines(path: Path) -> list[str]:
    """The lines of a log."""
    return path.read_text().split() if path.exists() else []


def tools(folder: Path) -> list[Callable[..., Any]]:
    """Ten tools, every other one in a thread."""

    def made(number: int) -> Callable[..., Any]:
        async def work(round: int) -> str:
            """Do it."""
            await asyncio.sleep(0.001)
            note(folder / "tools.log", f"tool{number}")
            await asyncio.sleep(0.001)
            return answer(number)

        def plain(round: int) -> str:
            """Do it."""
            note(folder / "tools.log", f"tool{number}")
            return answer(number)

        tool = plain if number % 2 else work
        tool.__name__ = f"tool{number}"
        return tool

    return [made(number) for number in range(10)]


def answer(number: int) -> str:
    """What a tool says."""
    return f"tool {number} is done"


def agent(folder: Path) -> DefaultAgent:
    """The agent, as each of its processes makes it."""
    described = AgentDescriptor(
        name="worker", model=Model(folder), tools=Tools(tools(folder), parallel_tool_calls=True)
    )
    return DefaultAgent(
        descriptor=described,
        state_store=SqliteStateStore(folder / "state.sqlite"),
        journal=SqliteJournal(folder / "journal.sqlite"),
    )


async def live(folder: Path) -> None:
    """One life of the run: begin it, or go on with it, and decide what is uncertain by the log outside."""
    worker = agent(folder)
    kept = worker.run_state
    records = SqliteJournal(folder / "journal.sqlite").load(RUN)
    waits = bool(kept and kept.pending)
    if kept is not None and kept.revision and kept.task_id == RUN and not waits and records[-1]["kind"] == "end":
        return
    if not records:
        result = await worker.run(RunState(history=START, task_id=RUN))
    elif waits and kept is not None:
        result = await decide(worker, kept.pending, folder)
    else:
        result = await worker.resume(RUN)
    while result.pending:
        note(folder / "asked.log", ",".join(sorted(each.call_id for each in result.pending)))
        result = await decide(worker, result.pending, folder)
    (folder / "result.json").write_text(json.dumps(result.messages))


async def decide(worker: DefaultAgent, requests: Any, folder: Path) -> Any:
    """What a person would say who looks at the log: it has run, with this result; or run it."""
    done = lines(folder / "tools.log")
    decisions = [each.answer(answer(int(each.tool[4:]))) if each.tool in done else each.approve() for each in requests]
    return await worker.resume(decisions=decisions)


def forked(folder: Path) -> int:
    """A process that lives one life."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        asyncio.run(live(folder))
        status = 0
    except BaseException as error:
        (folder / "error.txt").write_text(f"{type(error).__name__}: {error}")
        raise
    finally:
        os._exit(status)


def uncertain(folder: Path) -> list[str]:
    """The calls whose start is in the journal and whose result is not, read by hand."""
    path = folder / "journal.sqlite"
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT kind, record FROM isthmus_journal ORDER BY place").fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()
    begun: set[str] = set()
    for kind, record in rows:
        found = json.loads(record)
        if kind == "start":
            begun.add(found["call_id"])
        elif kind == "result":
            begun.discard(found["result"]["call_id"])
    return sorted(begun)


def main(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill until there were so many kills; every run is brought to its end in between."""
    chance = random.Random(seed)
    times = []
    for number in range(3):
        place = folder / f"calm{number}"
        place.mkdir(parents=True)
        began = time.monotonic()
        _, status = os.waitpid(forked(place), 0)
        times.append(time.monotonic() - began)
        if status:
            raise SystemExit((place / "error.txt").read_text())
    calm = json.loads((folder / "calm0" / "result.json").read_text())
    report: dict[str, Any] = {"kills": 0, "runs": 0, "asked": 0, "faults": [], "seconds": sorted(times)[1]}
    while report["kills"] < kills:
        place = folder / f"run{report['runs']}"
        place.mkdir()
        report["runs"] += 1
        one_run(place, report, chance=chance, longest=sorted(times)[1] * 1.1)
        if (place / "result.json").exists():
            check(place, calm, report)
    return report


def one_run(place: Path, report: dict[str, Any], *, chance: random.Random, longest: float) -> None:
    """Lives of one run, of which the first is killed, and sometimes the next ones, until one comes to its end."""
    while True:
        process = forked(place)
        if chance.random() < 0.6:
            time.sleep(chance.uniform(0, longest))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            if status:
                report["faults"].append((place / "error.txt").read_text())
            return
        report["kills"] += 1
        note(place / "expected.log", ",".join(uncertain(place)) or "-")


def check(place: Path, calm: Any, report: dict[str, Any]) -> None:
    """What must hold of a run that came to its end."""
    faults = report["faults"]
    done = lines(place / "tools.log")
    if sorted(done) != sorted(f"tool{number}" for number in range(10)):
        faults.append(f"{place.name}: the tools ran {done}")
    asked = lines(place / "asked.log")
    report["asked"] += sum(len(each.split(",")) for each in asked)
    known = lines(place / "expected.log")
    if any(each not in known for each in asked):
        faults.append(f"{place.name}: asked about {asked}, uncertain were {known}")
    if json.loads((place / "result.json").read_text()) != calm:
        faults.append(f"{place.name}: the result has another history")
    held = SqliteStateStore(place / "state.sqlite").load()
    if held is None or json.loads(json.dumps(held.state["history"])) != calm:
        faults.append(f"{place.name}: the store has another history")
    told = lines(place / "model.log")
    replies = SqliteJournal(place / "journal.sqlite").load(RUN)
    if len(told) - len(set(told)) > len(known):
        faults.append(f"{place.name}: the model was asked {told}, with {len(known)} kills")
    if replies[-1]["kind"] != "end":
        faults.append(f"{place.name}: the journal ends with {replies[-1]['kind']}")


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])), indent=1))
