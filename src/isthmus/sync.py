"""Async work from sync code: in scripts, in notebooks (where a loop already runs), any number of times.

Rank 0: standard library only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from inspect import isawaitable
from threading import Thread, current_thread
from typing import Any, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")


@overload
def run_sync(work: Awaitable[T], /) -> T: ...
@overload
def run_sync(work: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
def run_sync(work: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run async work to its end and return what it returns.

    Args:
        work: an awaitable, or a function that returns one; the function is called inside the loop.
        args: for the function.
        kwargs: for the function.

    Raises:
        TypeError: there is nothing to wait for.
    """

    async def main() -> Any:
        waits = work(*args, **kwargs) if callable(work) else work
        if not isawaitable(waits):
            said = f"run_sync({work!r:.60})" + (f" gave {waits!r:.60}" if callable(work) else "")
            raise TypeError(f"{said}: must be an awaitable, or a function that returns one")
        return await waits

    if not _loop_runs():
        return asyncio.run(main())
    helper = LoopThread()
    try:
        return helper.call(main())
    finally:
        helper.finish()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def iterate_sync(
    make: Callable[[], AsyncIterator[T]], on_close: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> Generator[T, None, None]:
    """The items of an async iterator, one at a time; nothing is read before it is asked for.

    Args:
        make: returns the iterator; called inside the loop that it is read in.
        on_close: awaited in that loop at the end, also when the generator is closed early.
    """
    helper = LoopThread()
    reader = _Reader(make, on_close)
    try:
        while (item := helper.call(reader.next())) is not _END:
            yield item
    finally:
        helper.finish(reader.close())


_END: Any = object()
# A wait is cut into pieces this long, in seconds: a signal that arrives just before a wait does not end it, and on some
# systems none ever does.
_PIECE = 0.5


class LoopThread:
    """A loop that runs in a thread of its own, with the context of whoever made it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="isthmus-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine there and wait for it; an interrupt of the wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while True:
                try:
                    return future.result(_PIECE)
                except TimeoutError:
                    if future.done():
                        return future.result()
        finally:
            future.cancel()

    def finish(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Run a last coroutine, then end loop and thread."""
        ending = self._ending(last)
        if current_thread() is self._thread:
            # The garbage collector came by in the loop's own thread: to wait here would be to wait for ever.
            self._last = self._loop.create_task(ending)
            self._last.add_done_callback(lambda _: self._loop.stop())
            return
        try:
            self.call(ending)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _ending(self, last: Coroutine[Any, Any, None] | None) -> None:
        if last is not None:
            await last
        # As `asyncio.run` does: what is left over would never run again, nor let go of what it holds.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class _Reader:
    """Reads an async iterator a step at a time, all of it in one task, as its author expects."""

    def __init__(
        self, make: Callable[[], AsyncIterator[Any]], on_close: Callable[[], Coroutine[Any, Any, None]] | None
    ) -> None:
        self._make, self._on_close = make, on_close
        self._asked = asyncio.Event()
        self._item: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    async def next(self) -> Any:
        """The next item, or `_END`."""
        self._item = asyncio.get_running_loop().create_future()
        self._asked.set()
        if self._task is None:
            self._task = asyncio.create_task(self._drive())
        await asyncio.wait((self._item, self._task), return_when=asyncio.FIRST_COMPLETED)
        if self._item.done():
            return self._item.result()
        self._task.result()
        return _END

    async def _drive(self) -> None:
        source = self._make()
        try:
            async for item in source:
                self._asked.clear()
                if self._item is not None:
                    self._item.set_result(item)
                await self._asked.wait()
        finally:
            aclose = getattr(source, "aclose", None)
            if aclose is not None:
                await aclose()
            if self._on_close is not None:
                await self._on_close()

    async def close(self) -> None:
        """Stop reading, also in the middle of a step, and close the iterator; how that fails is nobody's business."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()
