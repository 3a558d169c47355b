from __future__ import annotations

import json
from importlib import import_module

import click
import pytest

from isthmus.console import main as console
from isthmus.console.main import run
from isthmus.errors import ChainExhausted, ConfigError, InvalidRequestError, MissingDependencyError, TransientError
from support.homes import Home

ERRORS = [
    (TransientError("down"), 1),
    (InvalidRequestError("wrong"), 1),
    (ChainExhausted("c"), 1),
    (ConfigError("wrong"), 2),
    (MissingDependencyError("x", "y", extra="z"), 2),
    (KeyError("a defect"), 1),
]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Makes `isthmus doctor` raise whatever is put into the list."""
    raised: list[BaseException] = []

    @click.command()
    def fail() -> None:
        raise raised[0]

    monkeypatch.setattr(import_module("isthmus.console.doctor"), "doctor", fail)
    return raised


@pytest.mark.parametrize(("error", "status"), ERRORS)
def test_an_error_is_one_line_and_a_status(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], error: Exception, status: int
) -> None:
    """A failed call is 1, a wrong configuration 2; no traceback without `--debug`, the exception itself with it."""
    failing.append(error)
    assert run(["doctor"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("isthmus: ")
    assert len(err.splitlines()) == 1
    with pytest.raises(type(error)):
        run(["--debug", "doctor"])


def test_a_key_in_an_error_is_hidden(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    """F29: what is shaped like a key is taken out of any error."""
    failing.append(ConfigError("wrong sk-CANARY12345"))
    run(["doctor"])
    failing[0] = RuntimeError("wrong sk-CANARY12345")
    run(["doctor"])
    assert "CANARY" not in capsys.readouterr().err


def test_an_interrupt_is_status_1(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C outside of a reply ends the program quietly."""
    failing.append(KeyboardInterrupt())
    assert run(["doctor"]) == 1
    assert "aborted" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["nonsense"], ["chat", "--nonsense"], ["replay"]])
def test_a_wrong_call_is_status_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command, an unknown option and a missing argument are status 2, on stderr."""
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage:" in err


def test_every_command_of_the_help_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The table behind the help names real commands, and each has a help of its own."""
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in console._COMMANDS:
        assert name in listed
        assert run([name, "--help"]) == 0
        assert "Usage: isthmus" in capsys.readouterr().out


def test_the_module_is_the_command(home: Home) -> None:
    """`python -m isthmus` is `isthmus`."""
    done = home.run("-m", "isthmus", "--version")
    assert (done.returncode, done.stdout.startswith("isthmus, version ")) == (0, True)


def test_adapters_are_listed_with_their_source(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Each provider stands on a line of its own with where it comes from; as JSON too."""
    assert run(["adapters"]) == 0
    out = capsys.readouterr().out
    assert "\nlocal" in out
    assert "built in" in out
    assert run(["adapters", "--json"]) == 0
    assert "scripted" in json.loads(capsys.readouterr().out)
