"""Skills: what their folders must be, how a model gets at them, and what stays out of its reach."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.harness import (
    AgentDescriptor,
    AgentSnapshot,
    ApprovalShim,
    DefaultAgent,
    RunState,
    Skill,
    SkillFileError,
    SkillsShim,
    ToolNameCollisionError,
)
from isthmus.harness.view import ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX, LiveRunView
from isthmus.models.internal import public_messages
from isthmus.models.tools import Tool, ToolExecutionContext
from support.attended import Attended
from support.turns import asks, call, says

KEY = "skills" + ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX


def skill(root: Path, name: str = "tea", *, head: str = "", body: str = "Warm the pot.") -> Path:
    """A folder with a skill."""
    folder = root / name
    folder.mkdir(parents=True)
    head = head or f"name: {name}\ndescription: How to make {name}."
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n{body}\n", encoding="utf-8")
    return folder


def told(run: Attended, text: str) -> int:
    """How many messages of a transcript hold a text."""
    return sum(text in str(message.get("content")) for message in run.history)


async def test_a_model_is_told_name_and_description_and_no_more(tmp_path: Path) -> None:
    """The system text of every turn lists each skill; the instructions stay where they are until one is activated."""
    skill(tmp_path, "tea")
    skill(tmp_path, "coffee")
    model = ScriptedAdapter(["hello"])
    await Attended(model, [SkillsShim(tmp_path)]).say("hi")
    brief = model.contexts[0].brief
    assert brief.startswith("Be brief.\n\n")
    assert "- coffee: How to make coffee.\n- tea: How to make tea." in brief
    assert "Warm the pot" not in brief + str(model.contexts[0].messages)
    assert [tool.name for tool in model.contexts[0].tools] == ["activate_skill", "read_skill_file"]


async def test_an_activated_skill_stands_in_the_transcript_once(tmp_path: Path) -> None:
    """The next turn has its instructions, later ones have them no second time; activating it again says so."""
    skill(tmp_path, "tea")
    model = ScriptedAdapter(
        [
            asks(call("activate_skill", "c1", name="tea")),
            asks(call("activate_skill", "c2", name="tea")),
            "done",
            asks(call("activate_skill", "c3", name="tea")),
            "done",
        ]
    )
    run = Attended(model, [SkillsShim(tmp_path)])
    await run.say("tea, please")
    await run.say("and again")
    assert told(run, "Warm the pot.") == 1
    assert "Warm the pot." in str(model.contexts[1].messages)
    first, *others = [str(result.content) for result in run.results]
    assert "is active: its instructions follow" in first
    assert all("is active already" in each for each in others)
    assert run.shim_state == {KEY: ["tea"]}


async def test_instructions_are_no_part_of_the_public_conversation(tmp_path: Path) -> None:
    """What the shim puts into the transcript is internal and lasting."""
    skill(tmp_path, "tea", head="name: tea\ndescription: x\ncompatibility: Needs a kettle.")
    run = Attended(ScriptedAdapter([asks(call("activate_skill", name="tea")), "done"]), [SkillsShim(tmp_path)])
    await run.say("tea")
    assert told(run, "Needs a kettle.") == 1
    assert "Warm the pot" not in str(public_messages(run.history))
    assert "Warm the pot" in str(RunState(history=run.history).lasting().history)


async def test_tools_see_which_skills_are_active(tmp_path: Path) -> None:
    """`RunStateView.active_skill_names` names them from the moment they are activated."""
    seen: list[Any] = []

    def look(context: ToolExecutionContext) -> None:
        assert context.run_state is not None
        seen.append(list(context.run_state.active_skill_names))

    skill(tmp_path, "tea")
    skill(tmp_path, "coffee")
    model = ScriptedAdapter(
        [
            asks(call("look")),
            asks(call("activate_skill", "c2", name="tea"), call("activate_skill", "c3", name="coffee")),
            asks(call("look", "c4")),
            "done",
        ]
    )
    await Attended(model, [SkillsShim(tmp_path)], tools=[Tool.from_function(look)]).say("go")
    assert seen == [[], ["tea", "coffee"]]


async def test_active_skills_survive_a_stored_conversation(tmp_path: Path) -> None:
    """A conversation that was stored and read back has the skill, active and told once."""
    skill(tmp_path, "tea")
    shim = SkillsShim(tmp_path)
    run = Attended(ScriptedAdapter([asks(call("activate_skill", name="tea")), "done"]), [shim])
    await run.say("tea")
    plain = RunState(history=run.history, shim_state=run.shim_state).to_dict()
    again = Attended(ScriptedAdapter(["still"]), [shim], history=plain["history"], shim_state=plain["shim_state"])
    await again.say("and now?")
    assert LiveRunView("t", again.shim_state).active_skill_names == ("tea",)
    assert told(again, "Warm the pot.") == 1


async def test_active_skills_go_along_with_a_handoff_and_through_a_stop(tmp_path: Path) -> None:
    """Who took over has what the first agent activated, also in another process, and each text stands there once."""
    skill(tmp_path, "tea")
    skill(tmp_path, "cake", body="Mind the oven.")
    seen: list[Any] = []

    def pay(context: ToolExecutionContext) -> str:
        """Pay."""
        seen.append(context.run_state.active_skill_names)  # type: ignore[union-attr]
        return "paid"

    def made(first: Any, second: Any, **settings: Any) -> DefaultAgent:
        shims = [SkillsShim(tmp_path), ApprovalShim({"pay": "ask"})]
        desk = AgentDescriptor(name="desk", model=ScriptedAdapter(second), tools=[pay], shims=shims)
        host = AgentDescriptor(name="host", model=ScriptedAdapter(first), shims=[SkillsShim(tmp_path)], handoffs=[desk])
        return DefaultAgent(descriptor=host, **settings)

    agent = made(
        [asks(call("activate_skill", "c1", name="tea")), asks(call("desk", "c2"))],
        [asks(call("activate_skill", "c3", name="cake")), asks(call("pay", "c4"))],
    )
    (asked,) = (await agent.run("go")).pending
    again = made([], ["done"], snapshot=AgentSnapshot.from_json(agent.snapshot().to_json()))
    result = await again.resume(decisions=[asked.approve()])
    assert result.text == "done"
    assert seen == [("tea", "cake")]
    assert result.run_state.shim_state == {KEY: ["tea", "cake"]}
    said = [str(message.get("content")) for message in result.messages]
    assert [sum(text in each for each in said) for text in ("Warm the pot.", "Mind the oven.")] == [1, 1]


async def test_instructions_that_somebody_took_out_come_back(tmp_path: Path) -> None:
    """An active skill is told anew where the transcript holds it no more."""
    skill(tmp_path, "tea")
    run = Attended(ScriptedAdapter(["yes"]), [SkillsShim(tmp_path)], shim_state={KEY: ["tea", "gone"]})
    await run.say("hi")
    assert told(run, "Warm the pot.") == 1


async def test_two_runs_share_a_shim_and_nothing_else(tmp_path: Path) -> None:
    """What one of two runs at once activates is not active in the other."""
    skill(tmp_path, "tea")
    skill(tmp_path, "coffee")
    shim = SkillsShim(tmp_path)
    runs = [
        Attended(ScriptedAdapter([[0.01, *asks(call("activate_skill", name=name))], "done"]), [shim])
        for name in ("tea", "coffee")
    ]
    await asyncio.gather(*(run.say("go") for run in runs))
    assert [run.shim_state for run in runs] == [{KEY: ["tea"]}, {KEY: ["coffee"]}]


async def test_a_tool_of_that_name_is_an_error(tmp_path: Path) -> None:
    """An agent's own `activate_skill` is neither replaced nor silently preferred."""
    skill(tmp_path)

    def activate_skill() -> None:
        pass

    run = Attended(ScriptedAdapter(["x"]), [SkillsShim(tmp_path)], tools=[Tool.from_function(activate_skill)])
    with pytest.raises(ToolNameCollisionError, match="activate_skill"):
        await run.say("hi")


async def read(shim: SkillsShim, path: str) -> str:
    """What a model reads of a file."""
    run = Attended(ScriptedAdapter([asks(call("read_skill_file", skill="tea", path=path)), "done"]), [shim])
    await run.say("go")
    return str(run.results[0].content)


async def test_other_files_of_a_skill_can_be_read(tmp_path: Path) -> None:
    """A path within the folder gives its text; one that is wrong gives what there is."""
    folder = skill(tmp_path)
    (folder / "reference").mkdir()
    (folder / "reference" / "pots.md").write_text("Brown Betty", encoding="utf-8")
    (folder / "icon.png").write_bytes(b"\x89PNG\xff")
    (folder / "long.txt").write_bytes(b"x" * 300_000)
    shim = SkillsShim(folder)
    assert await read(shim, "reference/pots.md") == "Brown Betty"
    assert await read(shim, "./reference/../reference/pots.md") == "Brown Betty"
    assert "it has: icon.png, long.txt, reference/pots.md" in await read(shim, "pots.md")
    assert "Warm the pot." in await read(shim, "SKILL.md")
    assert "not text in UTF-8" in await read(shim, "icon.png")
    assert "too long" in await read(shim, "long.txt")


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "reference/../../secret",
        "link",
        "folder/secret",
        "loop",
        "pipe",
        ".",
        "",
        "a\0b",
        "~",
    ],
)
async def test_no_path_leads_out_of_a_skill(path: str, tmp_path: Path) -> None:
    """Parents, absolute paths, links that lead outside or in circles, and what is no file are no files of the skill."""
    (tmp_path / "secret").write_text("swordfish", encoding="utf-8")
    folder = skill(tmp_path / "skills")
    (tmp_path / "skills" / "secret").write_text("swordfish", encoding="utf-8")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    text = await asyncio.wait_for(read(SkillsShim(folder), path), 5)
    assert "has no file" in text
    assert "swordfish" not in text
    assert text.endswith("it has: none.")


def test_a_skill_may_be_linked_into_its_place(tmp_path: Path) -> None:
    """A folder that is itself a link is a skill like any other, and so are links within one."""
    folder = skill(tmp_path / "store")
    (folder / "a.md").write_text("A", encoding="utf-8")
    (folder / "b.md").symlink_to(folder / "a.md")
    (tmp_path / "use").mkdir()
    (tmp_path / "use" / "tea").symlink_to(folder)
    assert SkillsShim(tmp_path / "use").skills["tea"].file("b.md") == "A"


HEADS = """name: tea
description: >-
  How to make
  tea.

  Use it at five.
license: "Apache-2.0"   # a remark
compatibility: 'Ann''s kettle'
metadata:
  author: ann
  version: "1.0"
allowed-tools:
- Bash(git:*)
- Read"""


def test_the_head_is_read_as_the_format_has_it(tmp_path: Path) -> None:
    """Folded blocks, quotes, remarks, mappings and lists are read or passed over; other keys are left alone."""
    made = Skill.read(skill(tmp_path, head=HEADS))
    assert (made.name, made.compatibility) == ("tea", "Ann's kettle")
    assert made.description == "How to make tea. Use it at five."
    assert made.body == "Warm the pot."
    plain = skill(tmp_path, "x", head='name: x\ndescription: "Two\n  lines: \\"so\\""')
    assert Skill.read(plain).description == 'Two lines: "so"'


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("name: tea", "x", "line 2: the skill has no description"),
        ("description: x", "x", "line 2: the skill has no name"),
        ("description: x\nname:", "x", "line 3: the skill has no name"),
        ("description: x\nname: Tea", "x", "line 3: name 'Tea' must be"),
        ("name: a--b\ndescription: x", "x", "line 2: name 'a--b' must be"),
        ("name: ../x\ndescription: x", "x", r"line 2: name '\.\./x' must be"),
        (f"name: {'x' * 65}\ndescription: x", "x", "at most 64"),
        (f"name: tea\ndescription: {'x' * 1025}", "x", "line 3: description has 1025 characters: at most 1024"),
        (f"name: tea\ndescription: x\ncompatibility: {'x' * 501}", "x", "line 4: compatibility has 501"),
        ("name: tea\ndescription: x\ncompatibility:", "x", "line 4: the skill has no compatibility"),
        ("name: tea\ndescription: x", "", "line 5: the skill says nothing"),
        ("name: tea\ndescription: x", "a\n" * 501, "line 505: the instructions have 501 lines: at most 500"),
        ("name: tea\nname: tea", "x", "line 3: 'name' is there twice"),
        ("name: tea\nwhat", "x", "line 3: 'what' is not known here"),
    ],
)
def test_a_folder_that_is_no_skill_is_refused_at_once(head: str, body: str, said: str, tmp_path: Path) -> None:
    """The error names file and line, when the shim is made."""
    skill(tmp_path, head=head, body=body)
    with pytest.raises(SkillFileError, match=rf"tea/SKILL\.md, {said}" if said.startswith("line") else said):
        SkillsShim(tmp_path)


def test_limits_are_reached_and_not_crossed(tmp_path: Path) -> None:
    """64, 1024 and 500 characters and 500 lines are still a skill."""
    name = "x" * 64
    head = f"name: {name}\ndescription: {'d' * 1024}\ncompatibility: {'c' * 500}"
    made = Skill.read(skill(tmp_path, "long", head=head, body="\n".join(["line"] * 500)))
    assert (len(made.name), len(made.description), made.body.count("\n")) == (64, 1024, 499)


def test_skills_must_be_there_and_have_names_of_their_own(tmp_path: Path) -> None:
    """A folder without any, two of one name, a folder that is missing, and no folder at all are errors."""
    with pytest.raises(SkillFileError, match=r"there is no SKILL\.md in it"):
        SkillsShim(tmp_path)
    with pytest.raises(FileNotFoundError):
        SkillsShim(tmp_path / "nowhere")
    with pytest.raises(SkillFileError, match="give it the folder"):
        SkillsShim()
    skill(tmp_path / "a")
    skill(tmp_path / "b")
    with pytest.raises(SkillFileError, match=r"b/tea/SKILL\.md: there is a skill 'tea' in .*a/tea already"):
        SkillsShim(tmp_path / "a", tmp_path / "b")


async def test_a_run_that_is_stopped_leaves_the_shim_as_it_was(tmp_path: Path) -> None:
    """A cancelled run ends at once, and the next one is served as if it had not been."""
    skill(tmp_path)
    shim = SkillsShim(tmp_path)
    run = asyncio.create_task(Attended(ScriptedAdapter([[60, *says("late")]]), [shim]).say("hi"))
    await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await Attended(ScriptedAdapter(["hello"]), [shim]).say("hi") == "hello"
