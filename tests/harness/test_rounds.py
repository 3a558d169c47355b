"""One round of tools: what is known is told and not run, the rest runs; a call that waits holds all of it up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from isthmus.harness.docket import Docket
from isthmus.harness.effects import RunTools
from isthmus.harness.reports import Held, ToolsRan
from isthmus.harness.rounds import run_round
from isthmus.models import Tools, as_tool
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.tools import ToolExecutionContext


class Played(SimpleNamespace):
    """A run that keeps what is reported to it."""

    def report(self, report: Any) -> None:
        """Keep it."""
        self.reported = report

    def collect(self) -> None:
        """Nobody works for it."""


async def played(docket: Docket | None) -> tuple[Played, list[str], list[Any]]:
    """A round of two calls: the run, which tools ran, and what was shown."""
    ran: list[str] = []

    async def look(name: str) -> str:
        """Look."""
        ran.append(name)
        return f"seen {name}"

    calls = tuple(Call("look", {"name": name}, f"c_{name}", f'{{"name": "{name}"}}') for name in "ab")
    nobody = {"crew": None, "op": None, "log": None, "lead": None, "active": None, "turn": None}
    context = ToolExecutionContext(run_id="r")
    run = Played(**nobody, state=None, context=context, docket=docket, results=(), started=frozenset())
    effect = RunTools(calls, Tools([as_tool(look)]), {})
    shown = [event async for event in run_round(run, effect)]  # type: ignore[arg-type]
    return run, ran, shown


async def test_each_call_runs_and_the_round_is_reported_once() -> None:
    """With the results as they were shown, and what had begun."""
    run, ran, shown = await played(None)
    assert sorted(ran) == ["a", "b"]
    assert isinstance(run.reported, ToolsRan)
    assert list(run.reported.results) == shown
    assert run.started == {"c_a", "c_b"}


async def test_what_is_known_is_not_run_and_not_told_again() -> None:
    """Its result is part of the round all the same."""
    known = ToolResult("c_a", "look", "from before", "ok")
    run, ran, shown = await played(Docket(results={"c_a": known}))
    assert (ran, [each.call_id for each in shown]) == (["b"], ["c_b"])
    assert [each.content for each in run.reported.results] == ["from before", "seen b"]


async def test_while_a_call_waits_none_is_run() -> None:
    """The report says which ones wait, and which have their answers."""
    known = ToolResult("c_a", "look", "from before", "ok")
    run, ran, shown = await played(Docket(results={"c_a": known}, started=frozenset({"c_b"})))
    assert (ran, shown) == ([], [])
    assert isinstance(run.reported, Held)
    assert (set(run.reported.asked), set(run.reported.results)) == ({"c_b"}, {"c_a"})
