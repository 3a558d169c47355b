"""Every code block of the README and of the docs runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.M | re.S)


@dataclass
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages, page by page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match[1] in languages:
                found.append(Block(page, text[: match.start()].count("\n") + 1, match[1], match[3]))
    return found


PYTHON_PAGES = sorted({block.page for block in blocks("python")})


@pytest.mark.model
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """All Python blocks of a page, run in order as one program in an empty folder, end without an error."""
    program = "\n".join(block.text for block in blocks("python") if block.page == page)
    script = tmp_path / "page.py"
    script.write_text(program, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)]), "ISTHMUS_LOG": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.model
@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_the_commands_of_a_page_run(block: Block, tmp_path: Path) -> None:
    """Each `isthmus` command of a shell block ends with status 0; a script that it names exists."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    for line in block.text.strip().splitlines():
        command = shlex.split(line, comments=True)
        if not command or command[0].startswith("scripts/"):
            assert not command or (ROOT / command[0]).exists()
            continue
        assert command[0] == "isthmus", f"{block}: a block may hold isthmus commands and scripts, not {command[0]!r}"
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
            input="",
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("block", blocks("toml", "json"), ids=str)
def test_the_data_blocks_of_a_page_parse(block: Block) -> None:
    """TOML and JSON blocks are well formed."""
    (tomllib.loads if block.language == "toml" else json.loads)(block.text)


def test_every_block_has_a_language() -> None:
    """No block is left out for want of a language that this test knows."""
    known = {"python", "sh", "toml", "json", "text"}
    strange = [
        f"{page.relative_to(ROOT)}: {match[1]!r}"
        for page in PAGES
        if page.exists()
        for match in FENCE.finditer(page.read_text(encoding="utf-8"))
        if match[1] not in known
    ]
    assert not strange


def test_each_fault_class_that_is_held_is_named_by_a_test() -> None:
    """Every class that the table calls held stands in the tests, and the table has all 32, in order."""
    rows = re.findall(r"^\| (F\d\d) \|[^|]*\| (\w+)", (ROOT / "docs/faults.md").read_text(encoding="utf-8"), re.M)
    assert [name for name, _ in rows] == [f"F{number:02}" for number in range(1, 33)]
    named = {name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"\bF[0-3]\d\b", path.read_text())}
    assert not [name for name, state in rows if state == "held" and name not in named]


def test_each_test_that_the_table_of_the_sources_names_exists() -> None:
    """Every row of the table names a test that is there, and no test of the acceptance files is left out of it."""
    named = re.findall(r"\| `(tests/\S+\.py)::(test_\w+)` \|$", (ROOT / "docs/seeds.md").read_text("utf-8"), re.M)
    rows = re.findall(r"^\| (?!asked|---)", (ROOT / "docs/seeds.md").read_text("utf-8"), re.M)
    assert len(named) == len(rows) > 50
    texts = {path: (ROOT / path).read_text("utf-8") for path, _ in named}
    assert not [f"{path}::{name}" for path, name in named if not re.search(rf"def {name}\(", texts[path])]
    for path in ("tests/acceptance/test_seed_000.py", "tests/acceptance/test_seed_001.py"):
        assert {name for where, name in named if where == path} == set(re.findall(r"def (test_\w+)\(", texts[path]))


def test_every_page_of_the_docs_is_linked_from_the_readme() -> None:
    """The table of the README leads to every page, each page once."""
    linked = re.findall(r"\]\((docs/\w+\.md)\)", (ROOT / "README.md").read_text("utf-8"))
    assert sorted(linked) == sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))
