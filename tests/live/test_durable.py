"""A run that waits for a person, and one that stops in the middle, on a real model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.adapters.local import LocalAdapter
from isthmus.harness import AgentDescriptor, AgentSnapshot, ApprovalShim, DefaultAgent, SqliteJournal
from isthmus.models.tools import Tools

pytestmark = pytest.mark.model


@pytest.fixture
async def local() -> AsyncIterator[LocalAdapter]:
    """A running server of the test's own, with a small window."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=1024) as adapter:
        await adapter.start()
        yield adapter


async def test_a_run_waits_and_goes_on(local: LocalAdapter, tmp_path: Path) -> None:
    """A real model's call waits in a snapshot, runs once by decision, and the model answers; the journal has it all."""
    greeted: list[str] = []

    def greet(name: str) -> str:
        """Greet somebody by name."""
        greeted.append(name)
        return f"{name} was greeted."

    journal = SqliteJournal(tmp_path / "journal.sqlite")
    made = AgentDescriptor(
        name="host",
        model=local,
        tools=Tools([greet], tool_choice="required", max_tool_round_trips=1),
        shims=[ApprovalShim({"greet": "ask"})],
        max_output_tokens=60,
    )
    first = DefaultAgent(descriptor=made, journal=journal)
    stopped = await first.run("Call the tool greet with the name Ann.")
    assert [request.tool for request in stopped.pending] == ["greet"]
    assert greeted == []

    kept = AgentSnapshot.from_json(first.snapshot().to_json())
    second = DefaultAgent(descriptor=made, journal=journal, snapshot=kept)
    result = await second.resume(decisions=[request.approve() for request in stopped.pending])
    assert len(greeted) == 1
    assert result.text.strip()
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]

    run_id = result.run_state.task_id or ""
    kinds = [record["kind"] for record in journal.load(run_id)]
    assert kinds == ["begun", "reply", "paused", "begun", "start", "result", "reply", "end"]
    forked = await second.fork(second.rewind(run_id, step=0))
    assert [request.tool for request in forked.pending] == ["greet"]
    assert len(greeted) == 1
    journal.close()
