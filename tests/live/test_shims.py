"""The shims that come with the harness, on a real model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.adapters.local import LocalAdapter
from isthmus.chain.estimate import estimate_sections
from isthmus.harness import AgentDescriptor, CompactionShim, DefaultAgent, RunState, SkillsShim
from isthmus.models.contract import GenerateContext
from isthmus.models.internal import is_internal_message
from isthmus.models.tools import Tools

pytestmark = pytest.mark.model

TOLD = (
    "My cat is called Miso. She is nine years old, grey, and sleeps on the piano all day. ",
    "I live in Trieste, in the street behind the old fish market, on the fourth floor. ",
    "I tune pianos for a living. Most of my customers are schools and churches. ",
    "My sister Nadia lives in Graz and builds violins, which I cannot play at all. ",
)


@pytest.fixture
async def local() -> AsyncIterator[LocalAdapter]:
    """A running server of the test's own, with a small window."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=1024) as adapter:
        await adapter.start()
        yield adapter


async def test_a_conversation_outgrows_its_window(local: LocalAdapter) -> None:
    """A real model writes the summary of a conversation that fills its window, and answers after it."""
    history = []
    for told in TOLD * 2:
        history += [{"role": "user", "content": told * 3}, {"role": "assistant", "content": "I see, thank you."}]
    model = AgentDescriptor(name="a", model=local, shims=[CompactionShim()], max_output_tokens=60)
    agent = DefaultAgent(descriptor=model)
    result = await agent.run(RunState(history=[*history, {"role": "user", "content": "Say hello."}]))
    summary = [message for message in result.messages if is_internal_message(message, "compaction")]
    assert len(summary) == 1
    assert summary[0]["content"].partition("\n\n")[2].strip()
    writing, answering = (attempt.usage for attempt in result.attempts)
    assert writing is not None
    assert answering is not None
    # A reply may have half of the window.
    assert answering.input_tokens < 512
    before = estimate_sections(GenerateContext(messages=tuple(history))).total
    assert estimate_sections(GenerateContext(messages=result.messages)).total < 0.7 * before


async def test_a_skill_is_activated(local: LocalAdapter, tmp_path: Path) -> None:
    """A real model that must call a tool activates the one skill there is, and reads its instructions."""
    (tmp_path / "SKILL.md").write_text(
        "---\nname: greeting\ndescription: How to greet the user. Use it before you say hello.\n---\n"
        "Greet with the word Servus.",
        encoding="utf-8",
    )
    made = AgentDescriptor(
        name="a",
        model=local,
        instructions="You are a polite host.",
        tools=Tools(tool_choice="required", max_tool_round_trips=1),
        shims=[SkillsShim(tmp_path)],
        max_output_tokens=80,
    )
    result = await DefaultAgent(descriptor=made).run("Activate the skill greeting.")
    assert result.run_state.shim_state["skills:active-skill-names"] == ["greeting"]
    told = [message for message in result.messages if is_internal_message(message)]
    assert ["Servus" in message["content"] for message in told] == [True]
