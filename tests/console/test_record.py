from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.conformance import Play, replay, serve
from isthmus.console.main import run
from isthmus.errors import TransientError
from support.homes import Home

KEY = "CANARYplainWords+42"


@pytest.mark.parametrize("extra", [(), ("--whole",)])
def test_a_question_is_asked_and_the_exchange_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], extra: tuple[str, ...]
) -> None:
    """The answer is shown, the recording named and replayable, and no file holds the key."""
    monkeypatch.setenv("ISTHMUS_API_KEY", KEY)
    with serve(Play.steps("hello there")) as server:
        monkeypatch.setenv("ISTHMUS_BASE_URL", server.url)
        assert run(["record", "openai:m", "--to", "kept", *extra, "how", "are", "you"]) == 0
    out, err = capsys.readouterr()
    (place,) = (home.folder / "kept").iterdir()
    assert (out, f"recorded: {place.relative_to(home.folder)}" in err) == ("hello there\n", True)
    assert replay(place).text == "hello there"
    body = json.loads((place / "request.json").read_text())["body"]
    assert (body["model"], body["messages"][-1]["content"]) == ("m", "how are you")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert not [file for file in place.iterdir() if KEY in file.read_text()]


def test_a_failure_is_kept_too(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A reply that is an error ends with status 1, and its recording replays as that error."""
    with serve(Play.steps(TransientError("slow down", status=429))) as server:
        monkeypatch.setenv("ISTHMUS_BASE_URL", server.url)
        assert run(["record", "openai:m", "--to", str(home.folder / "kept"), "hi"]) == 1
    assert "slow down" in capsys.readouterr().err
    (place,) = (home.folder / "kept").iterdir()
    error = replay(place).error
    assert error is not None
    assert error.status == 429


def test_of_a_scripted_model_the_events_are_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A provider without a transport is recorded by its events; an unknown one is a mistake of the call."""
    home.write_user('[llm]\nprovider = "scripted"\nreplies = ["well"]\n')
    assert run(["record", "scripted", "--to", "kept", "hi"]) == 0
    assert capsys.readouterr().out == "well\n"
    (place,) = Path("kept").iterdir()
    assert replay(place).text == "well"
    assert run(["record", "nowhere:m", "--to", "kept", "hi"]) == 2
