from __future__ import annotations

import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from isthmus.conformance import Play, serve
from isthmus.console.main import run
from support.homes import SRC, Home

TESTS = Path(__file__).resolve().parents[1]
TALK = ("chat", "--provider", "support.talkative:Talk")


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run the command here; its status and what it wrote."""
    status = run([*TALK, *args])
    out, err = capsys.readouterr()
    return status, out, err


def events(out: str) -> list[dict[str, Any]]:
    """The JSON lines of a run."""
    return [json.loads(line) for line in out.splitlines()]


def process(home: Home, *args: str, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    env = {**os.environ, **home.variables(), "PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}", "TERM": "dumb"}
    return subprocess.Popen([sys.executable, "-m", "isthmus", *args], cwd=home.folder, env=env, text=True, **options)


CHAIN = """
[chain.budget]
tokens = 400
[[chain.markers]]
name = "cite"
open = "[["
close = "]]"
[[chain.tiers]]
provider = "support.talkative:Talk"
max_output_tokens = 100
window_tokens = 8000
"""


def test_the_chain_of_the_configuration_answers(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Markers and budget of `[chain]` hold in a conversation: a marker leaves the text, a dear question is cut."""
    home.write_user(CHAIN)
    status, out, err = ask(capsys, "see [[page 3]] now")
    assert (status, " ".join(out.split())) == (0, "see now")
    assert "[cite: [[page 3]]]" in err
    _, out, _ = ask(capsys, "--json", "see [[page 3]] now")
    marker = next(event for event in events(out) if event["type"] == "marker")
    assert marker == {"type": "marker", "name": "cite", "value": "page 3", "text": "[[page 3]]"}
    status, out, _ = ask(capsys, "--json", "long " * 1000)
    assert (status, events(out)[-1]["reason"]) == (1, "budget-tokens")


def test_a_wrong_chain_is_status_2_and_names_the_key(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A key of a chain's table that nothing takes ends the command with file, key and nearest name."""
    home.write_user(CHAIN.replace("tokens = 400", "token = 400", 1))
    status, _, err = ask(capsys, "hello")
    assert status == 2
    assert f"{home.user_file}: chain.budget.token: nothing takes this key; did you mean 'tokens'?" in err


def test_one_question_gets_one_answer(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is all that stands on stdout; model, tokens and speed are the last line on stderr."""
    status, out, err = ask(capsys, "hello", "there")
    assert (status, out) == (0, "hello there\n")
    last = err.splitlines()[-1]
    for part in ("talk:m", "3 tokens in", "4 out", "first after", "tokens/s"):
        assert part in last


@pytest.mark.parametrize(("line", "calls"), [("", 4), ("max_continuations = 1", 2), ("max_continuations = 0", 1)])
def test_the_configuration_says_how_often_an_answer_is_continued(
    home: Home, capsys: pytest.CaptureFixture[str], line: str, calls: int
) -> None:
    """`[llm] max_continuations` bounds the continuations of an answer that is cut at the output limit; 3 by default."""
    home.write_user(f"[llm]\n{line}\n")
    status, out, _ = ask(capsys, "--model", "cut", "--json", "go")
    assert status == 1
    assert [event["usage"]["output_tokens"] for event in events(out) if event["type"] == "outcome"] == [4 * calls]


@pytest.mark.parametrize("args", [[], ["-"]])
def test_the_question_may_come_on_stdin(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    """Without an argument, or with `-`, standard input is the question."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    assert ask(capsys, *args)[:2] == (0, "from a pipe\n")


def test_no_question_at_all_is_a_wrong_call(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty standard input is status 2."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    status, out, err = ask(capsys)
    assert (status, out) == (2, "")
    assert "no question" in err


def test_json_is_one_event_a_line_and_the_outcome_last(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is an event with its type; the last line says how it ended."""
    status, out, _ = ask(capsys, "--json", "hello")
    lines = events(out)
    assert status == 0
    assert [line["type"] for line in lines][:2] == ["reasoning", "text"]
    last = lines[-1]
    assert list(last) == ["type", "outcome", "reason", "text", "usage", "tier"]
    assert (last["type"], last["outcome"], last["reason"], last["text"]) == ("outcome", "completed", None, "hello")
    assert last["usage"]["output_tokens"] == 4
    assert last["tier"] == "talk:m"


@pytest.mark.parametrize(("question", "outcome", "text"), [("fail", "failed", ""), ("break", "cut", "break")])
def test_a_failed_or_broken_turn_is_status_1(
    home: Home, capsys: pytest.CaptureFixture[str], question: str, outcome: str, text: str
) -> None:
    """The outcome says failed or cut with the reason and what had arrived; no traceback, no key."""
    status, out, err = ask(capsys, "--json", question)
    last = events(out)[-1]
    assert (status, last["outcome"], last["text"]) == (1, outcome, text)
    assert last["reason"]
    assert "Traceback" not in err
    status, out, err = ask(capsys, question)
    assert status == 1
    assert f"isthmus: {outcome}" in err


def test_flags_are_trusted_and_win(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """System text and model come from the flags."""
    status, out, _ = ask(capsys, "--system", "Be brief.", "--model", "other", "count")
    assert (status, out) == (0, "1 messages, brief 'Be brief.', tools []\n")


def test_a_key_in_an_error_is_hidden(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F29: a key that an adapter puts into its error does not reach the screen."""
    monkeypatch.setenv("ISTHMUS_API_KEY", "sk-CANARY123456")
    for args in (["fail"], ["--json", "fail"]):
        status, out, err = ask(capsys, *args)
        assert status == 1
        assert "CANARY" not in out + err


def test_tools_are_offered_and_used(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--tools` the model may calculate; the answer uses the exact result."""
    status, out, err = ask(capsys, "--tools", "tool: 2 ** 64 + 0.1")
    assert (status, out) == (0, "It is 18446744073709551616.1.\n")
    assert "calculate" in err
    assert "'current_time', 'calculate'" in ask(capsys, "--tools", "count")[1]


def test_a_wrong_configuration_is_status_2(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A provider that is not there, and a wrong flag, are status 2 with one line."""
    assert run(["chat", "--provider", "nowhere", "hi"]) == 2
    assert capsys.readouterr().err.startswith("isthmus: --provider: llm.provider: no provider is called 'nowhere'")
    assert run(["chat", "--effort", "huge", "hi"]) == 2
    assert "--effort" in capsys.readouterr().err
    assert run(["chat", "--nonsense"]) == 2


@pytest.mark.parametrize(
    "text",
    [
        '[llm]\napi_key_command = "touch ran"\n',
        '[plugins]\nmodules = ["hostile"]\n',
        '[llm]\nprovider = "hostile:Adapter"\n',
        '[llm]\nbase_url = "http://127.0.0.1:9"\n',
        '[llm]\nheaders = {x = "y"}\n',
        '[[chain.tiers]]\nprovider = "hostile:Adapter"\n',
    ],
)
def test_a_hostile_folder_runs_nothing(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """F29: in a folder with a hostile isthmus.toml the command stops with status 2, and runs and shows nothing."""
    (home.folder / "hostile.py").write_text("open('ran', 'w')\n")
    home.write_folder(text)
    monkeypatch.syspath_prepend(str(home.folder))
    monkeypatch.setenv("ISTHMUS_API_KEY", "CANARY")
    for args in (["chat", "hi"], ["doctor"], ["config", "show"], ["adapters"]):
        status = run(args)
        out, err = capsys.readouterr()
        assert "CANARY" not in out + err
        assert not (home.folder / "ran").exists()
        if args != ["adapters"]:
            assert status == 2
            assert "isthmus config trust" in err


@pytest.mark.parametrize("as_json", [True, False])
def test_an_interrupt_cuts_the_reply(home: Home, as_json: bool) -> None:
    """Ctrl-C closes the model's stream, says "cut" and "aborted", and ends with status 1."""
    extra = ("--json",) if as_json else ()
    with process(home, *TALK, *extra, "wait", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        seen = child.stdout.read(4)
        while "wait" not in seen:
            seen += child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        out, err = child.stdout.read(), child.stderr.read()
    assert child.returncode == 1
    assert "Traceback" not in err
    assert (home.folder / "closed").exists()
    if as_json:
        last = json.loads((seen + out).splitlines()[-1])
        assert (last["outcome"], last["reason"], last["text"]) == ("cut", "aborted", "wait")
    else:
        assert "cut: aborted" in err


def test_a_closed_pipe_ends_quietly(home: Home) -> None:
    """A reader that goes away early is no traceback."""
    with process(home, *TALK, "--json", "hello " * 20000, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        err = child.stderr.read()
        child.wait(30)
    assert "Traceback" not in err
    assert child.returncode == 1


class Terminal:
    """The command on a terminal, typed at."""

    def __init__(self, home: Home, *args: str) -> None:
        self._main, side = pty.openpty()
        self.child = process(home, *args, stdin=side, stdout=side, stderr=side, start_new_session=True)
        os.close(side)
        self.text, self._seen = "", 0
        self._arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._main, 4096)
            except OSError:
                data = b""
            with self._arrived:
                self.text += data.decode()
                self._arrived.notify_all()
            if not data:
                return

    def expect(self, part: str) -> None:
        """Wait until it has written this, after what was waited for before."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: part in self.text[self._seen :], 30), self.text
            self._seen = self.text.index(part, self._seen) + len(part)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._main, text.encode())

    def close(self) -> int:
        """Wait for its end."""
        status = self.child.wait(30)
        self._reader.join(30)
        os.close(self._main)
        return status


def test_a_conversation_is_kept_and_interrupted_and_ended(home: Home) -> None:
    """The second question sees the first; Ctrl-C stops a reply, Ctrl-D the program; lines are remembered."""
    terminal = Terminal(home, *TALK)
    terminal.expect("> ")
    terminal.type("hello\n")
    terminal.expect("3 tokens in")
    terminal.expect("> ")
    terminal.type("count\n")
    terminal.expect("3 messages")
    terminal.expect("> ")
    terminal.type("wait\n")
    terminal.expect("\r\nwait")
    os.kill(terminal.child.pid, signal.SIGINT)
    terminal.expect("cut: aborted")
    terminal.expect("> ")
    terminal.type("count\n")
    terminal.expect("5 messages")
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.close() == 0
    assert "Traceback" not in terminal.text
    held = home.state / "chat_history"
    assert held.read_text().split() == ["hello", "count", "wait", "count"]
    assert held.stat().st_mode & 0o777 == 0o600


DEAD_FIRST = """
[chain]
id = "mine"
[[chain.tiers]]
id = "dead"
provider = "openai"
model = "m"
base_url = "http://127.0.0.1:{port}/v1"
[[chain.tiers]]
id = "alive"
provider = "openai"
model = "m"
base_url = "{url}"
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dead_first_tier_is_told_beside_the_answer(home: Home, as_json: bool) -> None:
    """The answer is on stdout; stderr says who served, which tier failed, and why, without its key."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with serve(*Play.steps({"text": "I am here."})) as server:
        home.write_user(DEAD_FIRST.format(port=port, url=server.url))
        args = ["-m", "isthmus", "chat", *(["--json"] if as_json else []), "hello"]
        done = home.run(*args, env={"OPENAI_API_KEY": "sk-canary-0123456789"})
    assert done.returncode == 0, done.stderr
    if as_json:
        last = events(done.stdout)[-1]
        assert (last["outcome"], last["text"], last["tier"]) == ("completed", "I am here.", "alive")
    else:
        assert done.stdout == "I am here.\n"
        assert done.stderr.splitlines()[-1].startswith("alive · ")
    (told,) = [line for line in done.stderr.splitlines() if "dead" in line]
    assert told.startswith("isthmus: dead failed: unavailable: ")
    assert str(port) in told
    assert "sk-canary" not in done.stdout + done.stderr


def test_a_chain_without_an_answer_names_every_try_once(home: Home) -> None:
    """Where nobody answers, the failure itself lists the tries."""
    home.write_user(DEAD_FIRST.format(port=9, url="http://127.0.0.1:9"))
    done = home.run("-m", "isthmus", "chat", "hello", env={"OPENAI_API_KEY": "k"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("dead") == 1
    assert "alive" in done.stderr


def test_what_failed_before_a_failure_that_ends_all_is_told_too(home: Home) -> None:
    """A second tier that says the request is wrong ends the turn; the first one's failure is told beside it."""
    with serve(Play.whole('{"error": {"message": "no such field"}}', status=400)) as server:
        home.write_user(DEAD_FIRST.format(port=9, url=server.url))
        done = home.run("-m", "isthmus", "chat", "hello", env={"OPENAI_API_KEY": "k"})
    assert done.returncode == 1
    assert done.stderr.count("isthmus: dead failed: unavailable: ") == 1
    assert done.stderr.count("no such field") == 1
