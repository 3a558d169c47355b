"""Agents that stand in files of Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.harness import DefaultAgent
from isthmus.harness.errors import AgentFileError
from isthmus.harness.markdown import read_document
from support.turns import Turns, says

FILE = """---
name: reviewer
description: "Reviews drafts: kindly."
# a remark
---

You review drafts.

---
Be exact.
"""


def written(folder: Path, text: str | bytes) -> Path:
    """A file with this text."""
    path = folder / "agent.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
async def test_an_agent_stands_in_a_file(ending: str, tmp_path: Path) -> None:
    """Its head gives name and description, the rest are its instructions; it keeps its conversation."""
    model = Turns(says("A"))
    path = written(tmp_path, FILE.replace("\n", ending))
    agent = DefaultAgent.from_markdown(path, model=model, max_output_tokens=7, state_path=tmp_path / "s.json")
    await agent.run("hi")
    assert agent.name == "reviewer"
    assert agent.agent_id is not None
    assert agent.agent_id.type == "reviewer"
    assert model.seen[0].brief == "You review drafts.\n\n---\nBe exact."
    assert model.seen[0].max_output_tokens == 7
    assert (tmp_path / "s.json").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("You review.", "line 1: an agent begins with"),
        ("---\nname: x\n", "line 1: the head has no end"),
        ("---\ndescription: x\n---\n", "line 2: the agent has no name"),
        ("---\nname: x\ntools: read\n---\n", "line 3: 'tools' is not known here"),
        ("---\nname: x\nname: y\n---\n", "line 3: 'name' is there twice"),
        ("---\nname: x\n- y\n---\n", "line 3: '- y' is not known"),
        (b"---\nname: \xff\n---\n", "not text in UTF-8"),
    ],
)
def test_a_file_that_describes_no_agent_is_refused(text: str | bytes, said: str, tmp_path: Path) -> None:
    """The error names file and line, and nothing is ignored in silence."""
    with pytest.raises(AgentFileError, match=rf"agent\.md.*{said}"):
        DefaultAgent.from_markdown(written(tmp_path, text), model=Turns())


def test_a_file_that_is_not_there_is_the_systems_own_error(tmp_path: Path) -> None:
    """A missing file is a FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        DefaultAgent.from_markdown(tmp_path / "none.md", model=Turns())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain # a remark", "plain"),
        ("issue#7 stays", "issue#7 stays"),
        ("# nothing", ""),
        ("Use when: asked", "Use when: asked"),
        ("'it''s # so'", "it's # so"),
        ('"a \\"b\\"\\n\\u00e9"', 'a "b"\né'),
        ('"a \\d b"', "a \\d b"),
        ('"open', '"open'),
        ("goes\n  on # here\n\n  after", "goes on\nafter"),
        (">-\n  one\n  two\n\n  three", "one two\nthree"),
        ("|\n  one\n    two\n  # three", "one\n  two\n# three"),
        ("> # a remark\n  one", "one"),
        ('"one\n  two"', "one two"),
        ("\n  a: b\n  c: d", "a: b c: d"),
        ("\n- a\n- b", "- a - b"),
    ],
)
def test_values_are_read_as_such_files_have_them(value: str, text: str, tmp_path: Path) -> None:
    """Bare, quoted, folded and block texts mean what they mean in YAML; mappings and lists are passed over as text."""
    path = written(tmp_path, f"---\nkey: {value}\nother: x\n---\nBody.\n")
    document = read_document(path, "a test", error=AgentFileError)
    assert document.head["key"].text == text
    assert document.head["other"].text == "x"
    assert (document.body, document.head["key"].line) == ("Body.", 2)
