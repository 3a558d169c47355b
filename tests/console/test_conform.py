"""`isthmus conform` judges an adapter by name, in words, JSON and annotations, with the statuses of every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from isthmus.conformance import LAWS

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
from isthmus.adapters.base import ChatResponse, ModelAdapter

class Mine(ModelAdapter):
    async def chat(self, messages, tools):
        return ChatResponse("Hi.", [], {stop!r})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a right and a wrong adapter."""
    (tmp_path / "right.py").write_text(RIGHT.format(stop="end_turn"))
    (tmp_path / "wrong.py").write_text(RIGHT.format(stop="tool_use"))
    return tmp_path


def run(folder: Path, *words: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    command = [sys.executable, *flags, "-m", "isthmus", "conform", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def test_a_right_adapter_of_the_folder_conforms(folder: Path) -> None:
    """A dotted path may name a module of the current folder; the status is 0."""
    done = run(folder, "right:Mine")
    assert done.returncode == 0, done.stderr
    assert "Mine conforms" in done.stdout


def test_a_wrong_adapter_is_told_what_to_mend(folder: Path) -> None:
    """The status is 1, and each finding says what was seen, expected and how to mend it."""
    done = run(folder, "wrong:Mine", "--list")
    assert done.returncode == 1
    assert "error: calls-stop: " in done.stdout
    assert "fix: " in done.stdout
    assert "pass  answers" in done.stdout


ENDS = {
    "a call": ("    async def chat(self, messages, tools):\n        os._exit(0)\n", "answers"),
    "its maker": ("    def __init__(self):\n        os._exit(0)\n    chat = Mine.chat\n", "made"),
    "its capabilities": ("    def capabilities(self):\n        os._exit(0)\n    chat = Mine.chat\n", "capabilities"),
    "its turns": ("    def make_tool_turn(self, *a):\n        sys.exit(0)\n    chat = Mine.chat\n", "turn-made"),
    "its name": ("    id = property(lambda self: 1 / 0)\n    chat = Mine.chat\n", "identity"),
}


@pytest.mark.parametrize("where", ENDS)
def test_an_adapter_that_ends_the_program_does_not_pass(folder: Path, where: str) -> None:
    """What ends the program with status 0, or raises where it is only looked at, is a finding of the law there."""
    body, law = ENDS[where]
    (folder / "ending.py").write_text(
        f"import os, sys\nfrom isthmus.adapters.base import ModelAdapter\nfrom right import Mine\n\n"
        f"class Ends(ModelAdapter):\n{body}"
    )
    done = run(folder, "ending:Ends")
    assert done.returncode == 1
    assert f"error: {law}: " in done.stdout


@pytest.mark.parametrize("statement", ["raise KeyboardInterrupt", "import os; os._exit(0)", "raise SystemExit(0)"])
def test_a_module_that_ends_the_program_is_a_wrong_call(folder: Path, statement: str) -> None:
    """An import that ends the program has the status of a wrong call, and is told as one in JSON."""
    (folder / "ending.py").write_text(f"{statement}\n")
    done = run(folder, "ending:Ends", "--json")
    assert done.returncode == 2
    assert "while it was imported" in json.loads(done.stdout)["error"]


def test_nothing_depends_on_assertions(folder: Path) -> None:
    """`python -O` finds the same."""
    assert run(folder, "wrong:Mine", flags=("-O",)).returncode == 1
    assert run(folder, "right:Mine", flags=("-O",)).returncode == 0


def test_the_report_is_json(folder: Path) -> None:
    """`--json` prints the report, each law with its status."""
    done = run(folder, "wrong:Mine", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert not report["ok"]
    assert [each["id"] for each in report["laws"]] == [law.id for law in LAWS]
    assert set(report["findings"][0]) == {"law", "severity", "message", "seen", "expected", "fix"}


def test_findings_become_annotations(folder: Path) -> None:
    """`--github` prints a workflow command a finding, at the adapter's own file, on one line."""
    done = run(folder, "wrong:Mine", "--github")
    assert done.returncode == 1
    first, *rest = done.stdout.strip().splitlines()
    assert first.startswith("::error file=wrong.py,title=conformance%3A calls-stop::")
    assert not [line for line in rest if not line.startswith("::")]


def test_the_laws_are_listed(folder: Path) -> None:
    """`--laws` says what each law is, in words or as JSON, and judges nothing."""
    done = run(folder, "--laws")
    assert done.returncode == 0
    assert all(law.id in done.stdout and law.claim in done.stdout for law in LAWS)
    assert {each["id"] for each in json.loads(run(folder, "--laws", "--json").stdout)} == {law.id for law in LAWS}


HOSTILE = """
import asyncio, os, sys
from isthmus.adapters.base import ChatResponse, ModelAdapter

class Right(ModelAdapter):
    async def chat(self, messages, tools):
        return ChatResponse("Hi.", [], "end_turn")

class Prints(Right):
    async def chat(self, messages, tools):
        print("noise")
        os.write(1, b"noise")
        return ChatResponse("Hi.", [], "end_turn")

class Closes(Right):
    async def chat(self, messages, tools):
        sys.stdout.close()
        return ChatResponse("Hi.", [], "end_turn")

class Leaves(Right):
    async def chat(self, messages, tools):
        sys.exit(0)

class LeavesWhenMade(Right):
    def __init__(self, *, max_tokens=1):
        sys.exit(0)

class Odd(BaseException):
    pass

class OddWhenMade(Right):
    def __init__(self, *, max_tokens=1):
        raise Odd

class Interrupts(Right):
    async def chat(self, messages, tools):
        raise KeyboardInterrupt

class NeverCancelled(Right):
    async def chat(self, messages, tools):
        while True:
            try:
                await asyncio.sleep(99)
            except BaseException:
                pass

class Huge(Right):
    async def chat(self, messages, tools):
        return ChatResponse("x" * 5_000_000, [], "end_turn")

class Wants(Right):
    def __init__(self, region, *, zone):
        self.region = region

def make():
    return Right()

def nothing():
    return None

number = 7
"""
STATUSES = {
    **dict.fromkeys(("Right", "Prints", "Closes", "Huge", "Wants", "make"), 0),
    **dict.fromkeys(("Leaves", "LeavesWhenMade", "OddWhenMade", "Interrupts", "NeverCancelled", "nothing"), 1),
    **dict.fromkeys(("number", "Nobody"), 2),
}


@pytest.mark.parametrize(("name", "status"), STATUSES.items())
def test_whatever_an_adapter_does_the_report_is_json_with_its_status(name: str, status: int, folder: Path) -> None:
    """F24: printing, closing stdout, leaving, hanging: stdout holds one JSON value, the status is 0, 1 or 2."""
    (folder / "hostile.py").write_text(HOSTILE)
    done = run(folder, f"hostile:{name}", "--json", "--patience", "1")
    assert done.returncode == status, done.stderr
    assert json.loads(done.stdout)["ok"] is (status == 0)


@pytest.mark.parametrize(
    "line",
    [
        "raise RuntimeError('x')",
        "import sys; sys.exit(0)",
        "import nobody_x",
        "x x",
        "class E(BaseException): ...\nraise E",
    ],
)
def test_a_module_that_cannot_be_read_has_status_2(line: str, folder: Path) -> None:
    """A module that fails, leaves or is no Python when it is imported is a wrong call, and says so in JSON too."""
    (folder / "broken.py").write_text(line)
    done = run(folder, "broken:Mine", "--json")
    assert done.returncode == 2
    assert "broken" in json.loads(done.stdout)["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [(), ("nobody",), ("right:None_",), ("right:Mine", "--recordings", "absent")])
def test_a_wrong_call_has_status_2(folder: Path, words: tuple[str, ...]) -> None:
    """No adapter, one that is not found, and recordings that are not there are wrong calls."""
    assert run(folder, *words).returncode == 2


def test_recordings_that_cannot_reach_an_adapter_have_status_2(folder: Path) -> None:
    """An adapter without a base URL is told what it needs."""
    (folder / "tape").mkdir()
    (folder / "tape" / "response.meta.json").write_text('{"status": 200, "headers": []}')
    (folder / "tape" / "response.body").write_text("x")
    done = run(folder, "right:Mine", "--recordings", "tape")
    assert done.returncode == 2
    assert "base_url" in done.stderr


def test_a_provider_without_recordings_is_not_proven(folder: Path) -> None:
    """A built-in adapter whose provider is out of reach doesn't conform, and is told how it could be judged."""
    done = run(folder, "openai:some-model")
    assert done.returncode == 1
    assert "recordings=" in done.stdout


def test_the_server_plays_a_script(folder: Path) -> None:
    """`--serve` stands in for a provider until it is stopped, at an address that it prints."""
    (folder / "script.jsonl").write_text('"Hello."\n')
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "isthmus", "conform", "--serve", "script.jsonl"]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = next(word for word in process.stderr.readline().split() if word.startswith("http://"))
            request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=10) as reply:
                assert json.loads(reply.read())["choices"][0]["message"]["content"] == "Hello."
        finally:
            process.terminate()
