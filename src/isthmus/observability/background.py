"""Work behind a queue: whether it fails, and how long it takes, is no business of the run's."""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import Any

_MOST_WAITING = 10_000
_log = logging.getLogger("isthmus.observability")


class Background:
    """Hands each thing on in a thread of its own; what cannot wait any more is dropped and counted.

    The first failure and the first thing dropped are logged, without a word of what was lost.

    Args:
        work: what gets the things, one by one; it may block and fail.
    """

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._waiting: deque[Any] = deque()
        self._change = Condition()
        self._busy = self._over = self._lost = False
        self.dropped = 0
        """How many were not handed on."""
        self._told: set[str] = set()
        self._begin()
        if hasattr(os, "register_at_fork"):
            again = weakref.WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: (begin := again()) is not None and begin())

    def _begin(self) -> None:
        self._thread = Thread(target=self._run, daemon=True, name="isthmus telemetry")
        self._thread.start()

    def _forked(self) -> None:
        """In a child process: its thread is the parent's, which also hands on what waited, and may hold the lock."""
        self._waiting, self._change, self._busy, self._lost = deque(), Condition(), False, False
        if not self._over:
            self._begin()

    def __call__(self, thing: Any) -> bool:
        """Take one thing; whether it could. Safe in a finaliser: whoever holds the lock may take it again."""
        with self._change:
            if self._over or len(self._waiting) >= _MOST_WAITING:
                self.dropped += 1
                self._lost = True
                return False
            self._waiting.append(thing)
            self._change.notify_all()
        return True

    def _run(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                while not self._waiting and not self._over:
                    self._change.wait()
                if not self._waiting:
                    return
                thing = self._waiting.popleft()
                self._busy = True
            try:
                self._work(thing)
            except BaseException as error:
                # A cancellation or an exit that it makes up ends nothing: what comes after it is to be handed on too.
                self._lost = True
                why = (
                    f"{type(error).__name__}: {error.strerror}" if isinstance(error, OSError) else type(error).__name__
                )
                self._tell(f"a sink failed, and what it was given is lost ({why})")
            del thing
            if self.dropped:
                self._tell("a sink cannot keep up, and what it was to be given is lost")

    def _tell(self, what: str) -> None:
        """Log this, once."""
        if what not in self._told:
            self._told.add(what)
            _log.warning("telemetry: %s", what)

    def flush(self, timeout: float) -> bool:
        """Wait until all is handed on; whether they were in time, and none was lost since this was asked last."""
        until = monotonic() + timeout
        with self._change:
            while self._waiting or self._busy:
                if not self._change.wait(max(0.0, until - monotonic())):
                    return False
            lost, self._lost = self._lost, False
        return not lost

    def shutdown(self, timeout: float) -> None:
        """Hand on what waits and end."""
        with self._change:
            self._over = True
            self._change.notify_all()
        with suppress(RuntimeError):
            self._thread.join(timeout)
