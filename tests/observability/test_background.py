"""Work behind a queue."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from isthmus.observability import background
from isthmus.observability.background import Background


@pytest.mark.parametrize("wrong", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_it_hands_on_in_order_and_survives_what_fails(
    wrong: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Each thing comes in its turn, after one that raised anything; `flush` waits for all, `shutdown` for the rest."""
    seen: list[Any] = []

    def work(thing: Any) -> None:
        if thing == 1:
            raise wrong
        seen.append(thing)

    later = Background(work)
    for number in range(4):
        later(number)
    assert not later.flush(5)
    assert seen == [0, 2, 3]
    assert wrong.__name__ in caplog.text
    later(4)
    assert later.flush(5)
    later.shutdown(5)
    assert seen[-1] == 4


def test_it_never_waits_for_what_blocks(monkeypatch: Any) -> None:
    """What cannot wait any more is dropped and counted, and `flush` gives up in time."""
    monkeypatch.setattr(background, "_MOST_WAITING", 2)
    release = threading.Event()
    later = Background(lambda thing: release.wait(5))
    for number in range(9):
        later(number)
    assert later.dropped >= 6
    assert not later.flush(0.05)
    release.set()
    later.shutdown(5)


def test_loss_is_told_once(monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Who reads logs learns that something fails, or cannot keep up: once, without what was lost."""
    monkeypatch.setattr(background, "_MOST_WAITING", 2)
    go = threading.Event()

    def work(thing: Any) -> None:
        go.wait(5)
        raise FileNotFoundError(2, "No such file or directory", f"payload {thing}")

    later = Background(work)
    for number in range(9):
        later(number)
    go.set()
    assert not later.flush(5)
    later.shutdown(5)
    told = [record.getMessage() for record in caplog.records if record.name == "isthmus.observability"]
    assert len(told) == 2
    assert "FileNotFoundError: No such file or directory" in told[0] + told[1]
    assert "keep up" in told[0] + told[1]
    assert "payload" not in str(told)
