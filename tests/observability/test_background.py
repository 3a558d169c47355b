"""Work behind a queue."""

from __future__ import annotations

import threading
from typing import Any

from isthmus.observability import background
from isthmus.observability.background import Background


def test_it_hands_on_in_order_and_survives_what_fails() -> None:
    """Each thing comes in its turn, after one that raised too; `flush` waits for all, `shutdown` for what is left."""
    seen: list[Any] = []

    def work(thing: Any) -> None:
        if thing == 1:
            raise ValueError
        seen.append(thing)

    later = Background(work)
    for number in range(4):
        later(number)
    assert later.flush(5)
    assert seen == [0, 2, 3]
    later(4)
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
