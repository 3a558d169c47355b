from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from isthmus import conformance
from isthmus.console.main import run
from isthmus.errors import TransientError
from isthmus.models.events import Call, Note, StepResult, Text, Usage
from support.homes import Home

GOOD = StepResult(
    events=(Text("hello"), Call("look", {"q": 1}, "c1", '{"q": 1}')),
    finish="tool-calls",
    raw_reason="tool_calls",
    usage=Usage(input_tokens=3, output_tokens=2),
    notes=(Note("no-end-mark", "d"),),
)
BAD = StepResult(events=(Text("hel"),), finish="error-post", error=TransientError("cut"))


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Replays give the first item; what they were asked is added behind it."""
    held: list[object] = []

    def replay(path: Path, *, adapter: str | None, split: int | None) -> object:
        held.append((path, adapter, split))
        return held[0]

    monkeypatch.setattr(conformance, "replay", replay, raising=False)
    return held


def test_a_result_is_shown_and_printed_as_json(
    home: Home, replayed: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Text and calls on stdout, the rest on stderr; JSON is the whole result; arguments are passed on."""
    replayed.append(GOOD)
    assert run(["replay", "folder", "--adapter", "x", "--split", "3"]) == 0
    assert replayed[1] == (Path("folder"), "x", 3)
    out, err = capsys.readouterr()
    assert out == 'hello\ncall look {"q": 1}\n'
    assert "3 tokens in, 2 out" in err
    assert "no-end-mark" in err
    assert run(["replay", "folder", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == GOOD.to_dict()


def test_an_error_is_status_1(home: Home, replayed: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """A result that is an error is shown whole and makes status 1."""
    replayed.append(BAD)
    assert run(["replay", "folder", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "transient"
    assert run(["replay", "folder"]) == 1
    assert "transient: cut" in capsys.readouterr().err


def test_no_recording_is_status_2(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is no recording is a wrong call."""
    assert run(["replay", "nowhere"]) == 2
    assert "request.json" in capsys.readouterr().err
    assert run(["replay", "nowhere", "--split", "0"]) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_f06_text_that_stdout_cannot_encode_is_shown_escaped(
    home: Home, replayed: list[object], monkeypatch: pytest.MonkeyPatch, flags: list[str], encoding: str
) -> None:
    """F06: half a surrogate pair, which servers send, or a narrow terminal breaks neither the text nor the JSON."""
    replayed.append(StepResult(events=(Text("é\ud83d\U0001f600"), Call("look", {}, "c", '"\ud83d"'))))
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    assert run(["replay", "folder", *flags]) == 0
    out.flush()
    said = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert json.loads(said)["text"] == "é\ud83d\U0001f600" if flags else "\\ud83d" in said
