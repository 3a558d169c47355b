"""The file of spans."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from isthmus import Agent, observability
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.models.events import Call, Finish, Text


def look() -> str:
    """Look."""
    observability.set_attributes(found=3)
    return "payload"


async def lines(path: Path, **config: Any) -> list[dict[str, Any]]:
    """The lines that a run with a tool and a failure leaves."""
    steps = [[Call("look", {}), Finish("tool-calls")], [Text("payload"), ValueError("payload")]]
    observability.start(observability.Telemetry(sinks=("jsonl",), file=path, **config))
    try:
        await Agent(model=ScriptedAdapter(steps), tools=[look]).run("payload")
        assert observability.flush()
    finally:
        observability.shutdown()
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_each_span_is_a_line_with_its_place_in_the_tree(tmp_path: Path) -> None:
    """Kinds, parents, errors and what was set inside are there; the file is its owner's alone; no content."""
    found = await lines(tmp_path / "trace.jsonl")
    assert stat.S_IMODE((tmp_path / "trace.jsonl").stat().st_mode) == 0o600
    by_span = {line["span"]: line for line in found}
    tree = {(line["kind"], by_span[line["parent"]]["kind"] if line["parent"] else None) for line in found}
    assert tree == {("model", "attempt"), ("attempt", "chain"), ("chain", "agent"), ("tool", "agent"), ("agent", None)}
    (tool,) = [line for line in found if line["kind"] == "tool"]
    assert tool["attributes"]["found"] == 3
    assert [line["error"] for line in found if line["kind"] == "model"] == [None, "ValueError"]
    assert len({line["trace"] for line in found}) == 1
    assert "payload" not in (tmp_path / "trace.jsonl").read_text()


async def test_contents_are_there_where_they_are_captured(tmp_path: Path) -> None:
    """With `capture_content` the reply, the result and the error's words stand in the lines."""
    found = await lines(tmp_path / "trace.jsonl", capture_content=True)
    assert any("payload" in line["attributes"].get("gen_ai.output.messages", "") for line in found)
    assert any("payload" in line["attributes"].get("gen_ai.tool.call.result", "") for line in found)
    assert any("payload" in line["attributes"].get("exception.message", "") for line in found)


async def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """A folder in its place costs the lines, not the run, and a flush says so."""
    observability.start(observability.Telemetry(sinks=("jsonl",), file=tmp_path))
    try:
        assert (await Agent(model=ScriptedAdapter(["fine"])).run("hello")).text == "fine"
        assert not observability.flush()
        assert observability.flush()
    finally:
        observability.shutdown()
