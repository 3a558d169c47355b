"""Agents from sync code: in scripts, in cells of a notebook, any number of times, with errors as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus import run_sync, stream_sync
from isthmus.errors import ChainExhausted, CredentialsError, CutReason, OutputError
from isthmus.harness import AgentDescriptor, DefaultAgent, RunnerHooks, RunResult, RunState
from isthmus.models.events import Text
from support.turns import Turns, asks, call, says

ROOT = Path(__file__).parents[2]

SCRIPT = """
from dataclasses import dataclass

from isthmus import run_sync
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.harness import AgentDescriptor, DefaultAgent


@dataclass
class Weather:
    city: str
    degrees: int


model = ScriptedAdapter(['{"city": "Oslo", "degrees": 4}', '{"city": "Rome", "degrees": 21}'])
agent = DefaultAgent(descriptor=AgentDescriptor(name="scout", model=model, output=Weather))
for city in ("Oslo", "Rome"):
    result = run_sync(agent.run, city)
    print(repr(result.final_output), result.run_state.revision)
"""


@dataclass
class Weather:
    """An answer."""

    city: str
    degrees: int


def test_a_script_runs_an_agent_twice_and_ends() -> None:
    """A process of its own: two runs of one conversation, typed answers, and it ends by itself."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["Weather(city='Oslo', degrees=4) 1", "Weather(city='Rome', degrees=21) 2"]


async def test_a_cell_of_a_notebook_runs_an_agent_twice() -> None:
    """Inside a running loop the same call works, twice, and the agent goes on in that loop afterwards."""
    threads = threading.active_count()
    agent = DefaultAgent(descriptor=AgentDescriptor(name="scout", model=Turns(says("a"))))
    assert run_sync(agent.run, "one").run_state.revision == 1
    assert run_sync(agent.run("two")).run_state.revision == 2
    assert (await agent.run("three")).run_state.revision == 3
    assert threading.active_count() == threads


def test_the_result_is_typed() -> None:
    """`final_output` is the validated object; the result is the very `RunResult` that `await` gives."""
    model = Turns(says('{"city": "Oslo", "degrees": 4}'))
    result: RunResult = run_sync(DefaultAgent(model=model, output=Weather).run, "go")
    assert result.final_output == Weather("Oslo", 4)


@pytest.mark.parametrize("running", [False, True], ids=["script", "loop"])
def test_the_events_of_a_run_come_one_at_a_time(running: bool) -> None:
    """A run's stream is read without `await`, in a script and in a cell; leaving it stops the run."""
    model = Turns([Text("a"), Text("b"), 3600])
    agent = DefaultAgent(descriptor=AgentDescriptor(name="scout", model=model))

    def work() -> None:
        for _ in range(2):
            stream = agent.run_stream("go")
            events = stream_sync(stream)
            assert [next(events).text, next(events).text] == ["a", "b"]  # type: ignore[union-attr]
            events.close()
            assert (model.open, stream.outcome and stream.outcome.reason) == (0, CutReason.ABORTED)
            assert agent.run_state == RunState()

    async def cell() -> None:
        work()

    asyncio.run(cell()) if running else work()


def failing(error: Exception) -> Turns:
    """A model that fails with an error that has a cause."""
    error.__cause__ = LookupError("behind it")
    return Turns([error])


class Breaks(RunnerHooks):
    """Fails when the agent starts."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def on_agent_start(self, run: Any) -> None:
        raise self.error from ValueError("behind it")


@pytest.mark.parametrize("running", [False, True], ids=["script", "loop"])
@pytest.mark.parametrize("kept", [False, True], ids=["plain", "kept"])
def test_an_error_keeps_its_type_and_cause(running: bool, kept: bool) -> None:
    """The reference library turns any failure into a RuntimeError; here it is the very object, with its cause."""

    def caught(model: Any, **more: Any) -> BaseException:
        made = {"descriptor": AgentDescriptor(model=model)} if kept else {"model": model}
        agent = DefaultAgent(**made, **more)

        def work() -> BaseException:
            with pytest.raises((ChainExhausted, KeyError)) as info:
                run_sync(agent.run, "go")
            return info.value

        async def cell() -> BaseException:
            return work()

        return asyncio.run(cell()) if running else work()

    error: BaseException | None = caught(failing(CredentialsError("the key is wrong")))
    causes = []
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert [type(each) for each in causes] == [ChainExhausted, CredentialsError, LookupError]
    assert [str(each) for each in causes[1:]] == ["the key is wrong", "behind it"]

    own = KeyError("mine")
    raised = caught(Turns(says("never")), hooks=Breaks(own))
    assert raised is own
    assert isinstance(raised.__cause__, ValueError)


def test_an_answer_without_its_form_is_an_output_error() -> None:
    """The last text comes with it."""
    with pytest.raises(OutputError) as info:
        run_sync(DefaultAgent(model=Turns(says("no object")), output=Weather).run, "go")
    assert info.value.text == "no object"


def test_a_tools_failure_is_no_failure_of_the_run() -> None:
    """What a tool raises is told to the model, through `run_sync` too."""

    def broken() -> None:
        """Break."""
        raise ZeroDivisionError("by nought")

    model = Turns(asks(call("broken")), says("I see."))
    result = run_sync(DefaultAgent(model=model, tools=[broken]).run, "go")
    assert result.final_output == "I see."
    assert "by nought" in result.messages[2]["content"]
