from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from isthmus.sync import iterate_sync, run_sync

NAME: ContextVar[str] = ContextVar("NAME", default="unset")


class Counter:
    """An async iterator that says what it did."""

    def __init__(self, until: int = 3) -> None:
        self.until, self.read, self.closed = until, 0, False
        self.task: asyncio.Task[object] | None = None
        self.same_task = True

    async def items(self) -> AsyncIterator[int]:
        self.task = asyncio.current_task()
        try:
            for number in range(self.until):
                await asyncio.sleep(0)
                self.read += 1
                yield number
                self.same_task = self.same_task and asyncio.current_task() is self.task
        finally:
            self.same_task = self.same_task and asyncio.current_task() is self.task
            self.closed = True


async def twice(number: int) -> int:
    """A piece of async work."""
    await asyncio.sleep(0)
    return 2 * number


def test_async_work_runs_from_a_script_any_number_of_times() -> None:
    """Awaitables and functions are both run, more than once in a process."""
    assert run_sync(twice(1)) == 2
    assert run_sync(twice, 2) == 4
    assert run_sync(twice, number=3) == 6


async def test_async_work_runs_where_a_loop_runs_already() -> None:
    """In a notebook's cell, inside a running loop, the same call works, with the caller's context."""
    NAME.set("cell")

    async def name() -> str:
        return NAME.get()

    assert run_sync(twice(1)) == 2
    assert run_sync(name) == "cell"


def test_what_is_raised_reaches_the_caller() -> None:
    """An exception of the work is the caller's."""

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_sync(fail)


def test_items_come_one_at_a_time_and_only_when_asked_for() -> None:
    """Nothing is read ahead, everything is read in one task, and the iterator is closed at the end."""
    counter = Counter()
    stream = iterate_sync(counter.items)
    assert counter.read == 0
    assert next(stream) == 0
    assert counter.read == 1
    assert list(stream) == [1, 2]
    assert counter.closed
    assert counter.same_task


async def test_items_come_where_a_loop_runs_already() -> None:
    """The same generator works inside a running loop, twice."""
    for _ in range(2):
        assert list(iterate_sync(Counter().items)) == [0, 1, 2]


def test_closing_early_closes_the_iterator_and_the_thread() -> None:
    """Leaving the generator closes the source, awaits the closer and leaves no thread."""
    before = threading.active_count()
    counter, closed = Counter(), []

    async def on_close() -> None:
        closed.append(True)

    stream = iterate_sync(counter.items, on_close)
    next(stream)
    stream.close()
    assert counter.closed
    assert closed == [True]
    assert threading.active_count() == before


def test_dropping_the_generator_closes_the_iterator() -> None:
    """A generator that is no longer referenced closes its source."""
    counter = Counter()
    stream = iterate_sync(counter.items)
    next(stream)
    del stream
    gc.collect()
    assert counter.closed


def test_the_garbage_collector_may_close_it_from_its_own_thread() -> None:
    """A generator in a cycle, collected while its own loop runs something, closes its source and blocks nothing."""
    dropped, closed = threading.Event(), threading.Event()

    async def items() -> AsyncIterator[int]:
        async def collect() -> None:
            while not dropped.is_set():
                await asyncio.sleep(0.001)
            gc.collect()

        task = asyncio.create_task(collect())
        try:
            yield 1
            await task
        finally:
            closed.set()

    gc.disable()
    try:
        stream = iterate_sync(items)
        assert next(stream) == 1
        cycle: list[object] = [stream]
        cycle.append(cycle)
        del stream, cycle
        dropped.set()
        assert closed.wait(10)
    finally:
        gc.enable()


def test_a_time_out_of_the_work_is_the_callers() -> None:
    """A TimeoutError that the work raises is not taken for the wait's own."""

    async def late() -> AsyncIterator[int]:
        raise TimeoutError("late")
        yield 1

    with pytest.raises(TimeoutError, match="late"):
        next(iterate_sync(late))


def test_a_failure_in_the_middle_reaches_the_consumer() -> None:
    """What was read before stays read; the exception comes at its place."""

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ValueError("cut")

    stream = iterate_sync(failing)
    assert next(stream) == 1
    with pytest.raises(ValueError, match="cut"):
        next(stream)


def test_the_source_is_closed_when_its_closing_fails() -> None:
    """A source whose end raises does not hide what had been read, and no thread is left."""
    before = threading.active_count()

    async def untidy() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("untidy")

    stream = iterate_sync(untidy)
    assert next(stream) == 1
    stream.close()
    assert threading.active_count() == before


def test_an_interrupt_in_the_middle_of_a_wait_closes_the_source() -> None:
    """Ctrl-C while the model is silent closes the source and comes through to the caller."""
    entered = threading.Event()
    closed = threading.Event()

    async def silent() -> AsyncIterator[int]:
        try:
            entered.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.set()

    def interrupt() -> None:
        entered.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            next(iterate_sync(silent))
    finally:
        signal.signal(signal.SIGINT, before)
    assert closed.wait(10)


async def test_what_is_left_over_in_a_loop_of_its_own_is_ended():
    """In a loop that runs already, too, tasks that outlive the work are cancelled, and may clean up."""
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    async def work() -> None:
        tasks.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    run_sync(work)
    assert ended == ["cleaned up"]


@pytest.mark.parametrize(
    ("work", "words"),
    [(5, r"run_sync\(5\): must be an awaitable"), (lambda: 5, r"gave 5: must be an awaitable, or a function that")],
)
def test_what_is_not_to_be_waited_for_is_refused(work: Any, words: str) -> None:
    """It says what it was given, and what to give."""
    with pytest.raises(TypeError, match=words):
        run_sync(work)
