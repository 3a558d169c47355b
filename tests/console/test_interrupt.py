"""Work that Ctrl-C stops."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from isthmus.console.interrupt import Interrupted, interruptible


def test_ctrl_c_ends_a_wait_that_the_signal_itself_does_not_end() -> None:
    """A signal that another thread takes wakes no system call of the main one, and must stop the work all the same."""
    asleep = threading.Event()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(asleep.set)
        await asyncio.sleep(20)

    def press() -> None:
        asleep.wait()
        time.sleep(0.05)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    began = time.monotonic()
    with pytest.raises(Interrupted), asyncio.Runner() as runner:
        runner.run(interruptible(work()))
    presser.join()
    assert time.monotonic() - began < 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_work_that_nobody_stops_is_returned_and_a_cancellation_stays_one() -> None:
    """Without Ctrl-C nothing differs from awaiting the work itself."""

    async def answer() -> int:
        return 3

    async def main() -> None:
        assert await interruptible(answer()) == 3
        task = asyncio.ensure_future(interruptible(asyncio.sleep(20)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
