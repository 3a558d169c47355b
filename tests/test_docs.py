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

from isthmus.conformance import LAWS
from isthmus.conformance.laws import law_table
from isthmus.observability.catalogue import tables
from support.plugin import plugin_flags

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
    file: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages, page by page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match[1] in languages:
                named = re.search(r"file=(\S+)", match[2])
                line = text[: match.start()].count("\n") + 1
                found.append(Block(page, line, match[1], match[3], named[1] if named else ""))
    return found


def write_files(page: Path, folder: Path) -> None:
    """Write the blocks of a page that are files into a folder."""
    for block in blocks("python", "json", "text", "toml"):
        if block.page == page and block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")


PYTHON_PAGES = sorted({block.page for block in blocks("python")})


def one_processor() -> None:
    """Stay on one of the processors, each test process on its own: threads of a model that wait for each other spin."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        os.sched_setaffinity(0, {mine[worker % len(mine)]})


@pytest.mark.model
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """All Python blocks of a page, run in order as one program in a folder with its files, end without an error."""
    write_files(page, tmp_path)
    program = "\n".join(block.text for block in blocks("python") if block.page == page and not block.file)
    script = tmp_path / "page.py"
    script.write_text(program, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)]), "ISTHMUS_LOG": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        preexec_fn=one_processor,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.model
@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_the_commands_of_a_page_run(block: Block, tmp_path: Path) -> None:
    """Each `isthmus` or `pytest` command of a shell block ends with status 0; a script that it names exists."""
    write_files(block.page, tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    for line in block.text.strip().splitlines():
        command = shlex.split(line, comments=True)
        if not command or command[0].startswith("scripts/"):
            assert not command or (ROOT / command[0]).exists()
            continue
        assert command[0] in ("isthmus", "pytest"), f"{block}: isthmus, pytest and scripts only, not {command[0]!r}"
        if command[0] == "pytest":
            command += [*plugin_flags(), "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
            input="",
            preexec_fn=one_processor,
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


def test_the_table_of_laws_is_the_one_in_the_code() -> None:
    """The page on conformance shows the laws as they are; `scripts/docs` writes them anew."""
    page = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    assert page.partition("<!-- laws -->\n")[2].partition("<!-- end -->")[0] == law_table() + "\n"


def test_the_tables_of_telemetry_are_those_in_the_code() -> None:
    """The page on telemetry shows all spans, attributes, events and metrics; `scripts/docs` writes them anew."""
    page = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
    assert page.partition("<!-- telemetry -->\n")[2].partition("<!-- end -->")[0] == tables() + "\n"


def test_each_fault_class_is_tied_to_a_law_or_to_what_it_waits_for() -> None:
    """A class is covered by the laws that the table names, or by a test, or is due with the room that will close it."""
    rows = re.findall(
        r"^\| (F\d\d) \|[^|]*\| ([^|]*) \|[^|]*\| ([^|]*) \|$", (ROOT / "docs/faults.md").read_text("utf-8"), re.M
    )
    assert len(rows) == 32
    for name, state, laws in rows:
        covering = [f"`{law.id}`" for law in LAWS if name in law.covers]
        assert laws.strip() == ", ".join(covering), f"{name}: {', '.join(covering)}"
        assert covering or state.startswith(("held", "due: ", "out of scope")), name
    assert {name for law in LAWS for name in law.covers} <= {name for name, _, _ in rows}


def test_each_test_that_the_table_of_the_sources_names_exists() -> None:
    """Every row of the table names a test that is there, and no test of the acceptance files is left out of it."""
    named = re.findall(r"\| `(tests/\S+\.py)::(test_\w+)` \|$", (ROOT / "docs/seeds.md").read_text("utf-8"), re.M)
    rows = re.findall(r"^\| (?!asked|block|---)", (ROOT / "docs/seeds.md").read_text("utf-8"), re.M)
    assert len(named) == len(rows) > 50
    texts = {path: (ROOT / path).read_text("utf-8") for path, _ in named}
    assert not [f"{path}::{name}" for path, name in named if not re.search(rf"def {name}\(", texts[path])]
    for path in ("tests/acceptance/test_seed_000.py", "tests/acceptance/test_seed_001.py"):
        assert {name for where, name in named if where == path} == set(re.findall(r"def (test_\w+)\(", texts[path]))


def test_every_page_of_the_docs_is_linked_from_the_readme() -> None:
    """The table of the README leads to every page, each page once."""
    linked = re.findall(r"\]\((docs/\w+\.md)\)", (ROOT / "README.md").read_text("utf-8"))
    assert sorted(linked) == sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))
