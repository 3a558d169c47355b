"""A fair semaphore for tasks of any event loop."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.models.slots import Slots


@given(st.integers(1, 3), st.lists(st.booleans(), max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_places_go_out_in_order_and_a_cancelled_waiter_leaves_none_taken(
    count: int, cancelled: list[bool], rng: random.Random
) -> None:
    """Whoever is cancelled, before or while a place is handed over, the rest get theirs first come, first served."""

    async def main() -> None:
        slots = Slots(count)
        got: list[int] = []

        async def pass_through(number: int) -> None:
            await slots.take()
            got.append(number)
            slots.give()

        for _ in range(count):
            await slots.take()
        tasks = [asyncio.create_task(pass_through(number)) for number in range(len(cancelled))]
        await asyncio.sleep(0)
        moves = [slots.give] * count + [task.cancel for task, no in zip(tasks, cancelled, strict=True) if no]
        rng.shuffle(moves)
        for move in moves:
            move()
            if rng.random() < 0.3:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert got == [number for number, task in enumerate(tasks) if not task.cancelled()]
        assert slots._free == count

    asyncio.run(main())


async def test_a_place_that_was_handed_over_to_a_cancelled_waiter_goes_on() -> None:
    """F10: cancelled between the handing over and the waking, a waiter passes its place on."""
    slots = Slots(1)
    await slots.take()
    first, second = asyncio.create_task(slots.take()), asyncio.create_task(slots.take())
    await asyncio.sleep(0)
    slots.give()
    first.cancel()
    await asyncio.wait_for(second, 1)
    with pytest.raises(asyncio.CancelledError):
        await first
    slots.give()
    await asyncio.wait_for(slots.take(), 1)


def test_it_is_shared_by_loops_in_threads() -> None:
    """Tasks of four event loops in four threads never hold more places than there are, and all get one."""
    slots, lock = Slots(2), threading.Lock()
    now = most = done = 0

    async def one() -> None:
        nonlocal now, most, done
        await slots.take()
        with lock:
            now += 1
            most = max(most, now)
        await asyncio.sleep(0.001)
        with lock:
            now -= 1
            done += 1
        slots.give()

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(20)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (done, most) == (80, 2)


def test_a_waiter_whose_loop_is_gone_is_passed_over() -> None:
    """A place is not lost to a loop that was closed with somebody waiting in it."""
    slots = Slots(1)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(slots.take())
    waiting = slots.take()
    loop.call_soon(loop.stop)
    task = loop.create_task(waiting)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_forever()
    loop.close()
    slots.give()
    asyncio.run(asyncio.wait_for(slots.take(), 1))


async def test_no_more_places_are_given_back_than_were_taken() -> None:
    """Giving back what nobody took is an error, so that a limit never grows."""
    slots = Slots(1)
    with pytest.raises(RuntimeError, match=r"nobody had taken.*once for each"):
        slots.give()
    await slots.take()
    slots.give()
    with pytest.raises(RuntimeError):
        slots.give()
