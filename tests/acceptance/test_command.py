"""The command on real pipes and terminals: its exit status, its streams, its signals, and what it lets through."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from support.homes import SRC, Home, enter_home
from support.loopback import HOLD, stream
from support.sockets import CHAT, CHAT_END, Elsewhere, said

TESTS = Path(__file__).resolve().parents[1]
TALK = ("--provider", "support.talkative:Talk")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own."""
    return enter_home(tmp_path, monkeypatch)


def variables(home: Home, **more: str) -> dict[str, str]:
    """What the process sees."""
    return {**os.environ, **home.variables(), "PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}", "TERM": "dumb", **more}


def run(home: Home, *args: str, env: dict[str, str] | None = None, **options: Any) -> tuple[int, bytes, bytes]:
    """Run `isthmus`; its status and what it wrote."""
    options.setdefault("input", b"")
    done = subprocess.run(
        [sys.executable, "-m", "isthmus", *args],
        cwd=home.folder,
        env=variables(home, **(env or {})),
        capture_output="stdout" not in options,
        timeout=30,
        check=False,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


def outcome(out: bytes) -> dict[str, Any]:
    """The last line, which must be the one outcome."""
    lines = [json.loads(line) for line in out.decode().splitlines()]
    assert [line["type"] for line in lines].count("outcome") == 1
    assert lines[-1]["type"] == "outcome"
    return lines[-1]


@pytest.mark.parametrize(
    ("args", "status", "ending"),
    [
        (("--json", *TALK, "hello"), 0, "completed"),
        (("--json", *TALK, "fail"), 1, "failed"),
        (("--json", *TALK, "break"), 1, "cut"),
        (("--json", "--provider", "nowhere", "hello"), 2, "failed"),
        (("--json", *TALK, "--effort", "huge", "hello"), 2, "failed"),
        (("--json", *TALK, ""), 2, "failed"),
        (("--json", *TALK, " "), 2, "failed"),
        (("--json", *TALK), 2, "failed"),
    ],
)
def test_json_ends_with_one_outcome(home: Home, args: tuple[str, ...], status: int, ending: str) -> None:
    """Whatever happens once the options are read, the last line of `--json` says how it ended."""
    seen, out, err = run(home, "chat", *args)
    assert (seen, outcome(out)["outcome"]) == (status, ending)
    assert b"Traceback" not in err
    assert b'"type"' not in err


@pytest.mark.parametrize("stdin", [b"\xff\xfe\x00abc", b"abc\xed\xa0\x80"])
def test_binary_input_is_a_wrong_call(home: Home, stdin: bytes) -> None:
    """What is not text is refused with status 2, before any model is asked; so is an argument."""
    for more in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0"}):
        status, out, err = run(home, "chat", *TALK, input=stdin, env=more)
        assert (status, out) == (2, b""), err
        assert b"UTF-8" in err
    assert run(home, "chat", *TALK, os.fsdecode(b"\xff"))[0] == 2


def test_large_input_arrives_whole(home: Home) -> None:
    """Megabytes on standard input are a question like any other; a byte order mark is no part of it."""
    question = "word " * 400_000 + "end"
    status, out, _ = run(home, "chat", *TALK, input=b"\xef\xbb\xbf" + question.encode())
    assert (status, out.decode()) == (0, question + "\n")


def test_closed_streams_are_no_defect(home: Home) -> None:
    """Without standard input, output or errors the command ends with its own status, and says nothing of a defect."""
    base = f"{sys.executable} -m isthmus chat --provider support.talkative:Talk"
    for command, status in {
        f"{base} hello <&-": 0,
        f"{base} <&-": 2,
        f"{base} - <&-": 2,
        f"{base} hello >&-": 0,
        f"{base} --json hello >&-": 0,
        f"{base} hello 2>&-": 0,
        f"{base} hello >/dev/full": 1,
        f"{base} --json hello >/dev/full": 1,
    }.items():
        done = subprocess.run(
            ["sh", "-c", command], cwd=home.folder, env=variables(home), capture_output=True, timeout=30, check=False
        )
        assert done.returncode == status, (command, done.stderr)
        assert b"defect" not in done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("more", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"COLUMNS": "1"}])
def test_any_locale_will_do(home: Home, more: dict[str, str]) -> None:
    """Output in a locale that cannot spell the answer shows it escaped; JSON is UTF-8 everywhere."""
    status, out, err = run(home, "chat", *TALK, "grüße €", env=more)
    assert status == 0, err
    assert out in ("grüße €\n".encode(), b"gr\\xfc\\xdfe \\u20ac\n")
    status, out, err = run(home, "chat", "--json", *TALK, "grüße €", env=more)
    assert (status, outcome(out)["text"]) == (0, "grüße €")


def test_a_near_name_is_offered(home: Home) -> None:
    """A misspelt option or command is status 2 and names the right one."""
    for args, right in {
        ("chat", "--provder", "x", "hi"): b"--provider",
        ("cht",): b"chat",
        ("docter",): b"doctor",
    }.items():
        status, out, err = run(home, *args)
        assert (status, out) == (2, b"")
        assert right in err


def test_an_answer_in_a_pipe_is_plain_and_verbatim(home: Home) -> None:
    """Without a terminal there is no colour of ours, and the model's own bytes are left as they are."""
    wild = "a\x1b[31mred\x1b]0;title\x07\x9b1m\r|"
    status, out, err = run(home, "chat", *TALK, wild)
    assert (status, out.decode()) == (0, wild + "\n")
    assert b"\x1b" not in err


def test_head_ends_it_quietly(home: Home) -> None:
    """A reader that has enough ends the command without a word of a broken pipe."""
    for extra in ("", "--json"):
        command = f"yes word | head -c 2000000 | {sys.executable} -m isthmus chat {extra} {' '.join(TALK)} | head -c 9"
        done = subprocess.run(
            ["sh", "-c", command], cwd=home.folder, env=variables(home), capture_output=True, timeout=30, check=False
        )
        assert len(done.stdout) == 9
        assert b"roken" not in done.stderr
        assert b"Traceback" not in done.stderr


class Typing:
    """The command on a terminal."""

    def __init__(self, home: Home, *args: str) -> None:
        self._main, side = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "isthmus", *args],
            cwd=home.folder,
            env=variables(home),
            stdin=side,
            stdout=side,
            stderr=side,
            preexec_fn=lambda: os.login_tty(0),
        )
        os.close(side)
        self.seen = b""
        self._arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(self._main, 65536)
            except OSError:
                data = b""
            with self._arrived:
                self.seen += data
                self._arrived.notify_all()

    def until(self, part: bytes, since: int = 0) -> int:
        """Wait for it; where it ended."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: part in self.seen[since:], 20), self.seen
            return self.seen.index(part, since) + len(part)

    def type(self, text: bytes) -> None:
        """Press keys."""
        os.write(self._main, text)

    def press_until(self, key: bytes, part: bytes, since: int) -> None:
        """Press a key that may come too early for the program to see, until it shows this."""
        with self._arrived:
            for _ in range(50):
                os.write(self._main, key)
                if self._arrived.wait_for(lambda: part in self.seen[since:], 0.3):
                    return
        raise AssertionError(self.seen)

    def end(self) -> int:
        """Wait for its end."""
        status = self.child.wait(20)
        self._reader.join(20)
        os.close(self._main)
        return status


def test_nothing_that_a_model_says_acts_on_a_terminal(home: Home) -> None:
    """Escapes in an answer, a tool call, an error or a file's keys are shown, not obeyed; tabs and lines stay."""
    wild = "a\x1b]52;c;cHduZWQ=\x07b\x9b2Jc\rd\x08e\x7f\tf\ng"
    for ask in (wild, "--tools", "fail"):
        args = ["--tools", f"tool: 1+\x1b]0;x\x07{wild}"] if ask == "--tools" else [ask]
        terminal = Typing(home, "chat", *TALK, *args)
        terminal.end()
        text = terminal.seen.decode().replace("\r\n", "\n")
        assert not set(text) & {chr(code) for code in (*range(9), *range(11, 32), *range(0x7F, 0xA0))}, text
    home.write_folder('[llm]\n"x\\u001b]0;owned\\u0007" = 1\n["\\u001b[2J"]\na = "\\u001b[3J"\n')
    for command in (("config", "trust"), ("config", "show"), ("doctor",), ("chat", "hi")):
        terminal = Typing(home, *command)
        terminal.end()
        assert b"\x1b" not in terminal.seen, command


def test_a_conversation_survives_an_interrupt_and_closes_its_socket(home: Home) -> None:
    """F10: Ctrl-C on a terminal stops the reply, its socket closes within 0.2 s, and the next turn works."""
    answers = [[*stream(*CHAT, last=False), HOLD], stream(said("again"), *CHAT_END)]
    with Elsewhere(*answers) as there:
        terminal = Typing(home, "chat", "--provider", "openai", "--model", "m", "--base-url", there.server.url)
        terminal.until(b"> ")
        terminal.type(b"first\n")
        terminal.until(b"onetwo")
        pressed = monotonic()
        terminal.type(b"\x03")
        assert there.gone() - pressed < 0.2
        at = terminal.until(b"> ", terminal.until(b"aborted"))
        terminal.type(b"second\n")
        at = terminal.until(b"> ", terminal.until(b"again", at))
        terminal.press_until(b"\x03", b"> ", at)
        terminal.type(b"\x04")
        assert terminal.end() == 0
        assert b"Traceback" not in terminal.seen
        assert json.loads(there.server.requests[-1].body)["messages"][-1]["content"] == "second"


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_an_interrupt_of_one_question_closes_its_socket(home: Home, extra: tuple[str, ...]) -> None:
    """F10: SIGINT in the middle of a reply closes the socket within 0.2 s, says so, and is status 1."""
    with Elsewhere([*stream(*CHAT, last=False), HOLD]) as there:
        flags = ("--provider", "openai", "--model", "m", "--base-url", there.server.url)
        with subprocess.Popen(
            [sys.executable, "-m", "isthmus", "chat", *extra, *flags, "hello"],
            cwd=home.folder,
            env=variables(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            seen = b""
            while b"two" not in seen:
                seen += os.read(child.stdout.fileno(), 4096)
            sent = monotonic()
            child.send_signal(signal.SIGINT)
            assert there.gone() - sent < 0.2
            out, err = child.communicate(timeout=20)
        assert child.returncode == 1
        assert b"Traceback" not in err
        if extra:
            assert (outcome(seen + out)["outcome"], outcome(seen + out)["reason"]) == ("cut", "aborted")


def test_an_interrupt_while_the_question_is_awaited(home: Home) -> None:
    """SIGINT before the question has come ends the command with status 1 and, in JSON, with its outcome."""
    with subprocess.Popen(
        [sys.executable, "-m", "isthmus", "chat", "--json", *TALK],
        cwd=home.folder,
        env=variables(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        # More than a pipe holds: once it is written, the command reads.
        child.stdin.write(b"word " * 100_000)
        child.stdin.flush()
        # A signal between two reads ends neither: it is sent until it meets one.
        for _ in range(100):
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.3)
                break
        else:
            child.kill()
        assert child.stdout is not None
        out = child.stdout.read()
    assert child.returncode == 1
    assert outcome(out)["reason"] == "aborted"


def test_no_key_reaches_screen_or_files(home: Home) -> None:
    """F29: a key in the user's file, a variable or a command is in no output and no file that the command writes."""
    key = "CANARYplainWords+42"
    body = json.dumps({"error": {"message": f"bad key {key}"}}).encode()
    answer = [f"HTTP/1.1 401 No\r\ncontent-length: {len(body)}\r\nx-echo: {key}\r\n\r\n".encode() + body]
    with Elsewhere(answer) as there:
        where = f'provider = "openai"\nmodel = "m"\nbase_url = "http://u:{key}@{there.server.url[7:]}/?key={key}"\n'
        for own, env in (
            (f'api_key = "{key}"', {}),
            (f'api_key_command = "echo {key}"', {}),
            (f'headers = {{"x-api-key" = "{key}"}}', {}),
            ("", {"OPENAI_API_KEY": key}),
            ("", {"ISTHMUS_API_KEY": key}),
            ("", {"ISTHMUS_HEADERS": f'{{"authorization": "{key}"}}'}),
        ):
            home.write_user(f"[llm]\n{where}{own}\n")
            more = [["--debug", "chat", "--json", "hi"], ["config", "show"], ["doctor"]] if "command" in own else []
            for args in (["chat", "hi"], *more):
                _, out, err = run(home, *args, env={**env, "ISTHMUS_LOG": "wire"})
                assert key.encode() not in out + err, (own, env, args, out, err)
        kept = [path for path in home.root.rglob("*") if path.is_file() and path != home.user_file]
        assert not [path for path in kept if key.encode() in path.read_bytes()]
