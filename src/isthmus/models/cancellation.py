"""A signal that nobody waits for a piece of work any more."""

from __future__ import annotations

import threading
from asyncio import Future, get_running_loop
from collections.abc import Callable
from contextlib import ExitStack, suppress


class CancellationToken:
    """Tells work that nobody waits for it any more; safe to use from any thread, and never taken back."""

    __slots__ = ("_callbacks", "_cancelled", "_lock")

    def __init__(self) -> None:
        self._cancelled = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"CancellationToken(cancelled={self.cancelled})"

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` has been called."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel; harmless twice."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        if not callbacks:
            return
        with ExitStack() as calls:
            for callback in reversed(callbacks):
                calls.callback(callback)

    def raise_if_cancelled(self) -> None:
        """Stop here if cancelled.

        Raises:
            InterruptedError: it has been cancelled.
        """
        if self.cancelled:
            raise InterruptedError("cancelled")

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once cancelled, in the thread that cancels; at once where that has happened.

        Args:
            callback: what it raises is raised by `cancel`, once all the others were called.

        Returns:
            What takes the callback off again; harmless twice.
        """
        with self._lock:
            waits = not self._cancelled
            if waits:
                self._callbacks.append(callback)
        if not waits:
            callback()

        def forget() -> None:
            with self._lock, suppress(ValueError):
                self._callbacks.remove(callback)

        return forget

    async def wait(self) -> None:
        """Return once cancelled."""
        loop = get_running_loop()
        future: Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_release, future)

        forget = self.on_cancel(wake)
        try:
            await future
        finally:
            forget()


def _release(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
