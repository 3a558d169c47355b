"""The life of a session: one task owns it, and no process of a server outlives what started it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.harness import McpShim
from support.mcp_runs import driven, gone, gone_soon, lives, odd

TESTS = Path(__file__).resolve().parents[1]

CHILD = """
import asyncio, sys, threading
from isthmus.harness import McpShim
from support.mcp_runs import driven, odd

shims = []

async def main(what=""):
    shims.append(McpShim(odd(what)))
    async with driven(shims[-1]) as run:
        print((await run.call("pid")).content, flush=True)
        await asyncio.sleep(60 if sys.argv[1] == "kill" else 0)

asyncio.run(main())
print("over", flush=True)
sys.stdin.readline()
elsewhere = asyncio.new_event_loop()
threading.Thread(target=elsewhere.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(main(), elsewhere).result()
idle = asyncio.new_event_loop()
idle.run_until_complete(main("stubborn"))
"""


@contextmanager
def child(how: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has started a server."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
    command = [sys.executable, "-W", "error", "-c", CHILD, how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as made:
        yield made


def test_no_server_outlives_the_loop_or_the_interpreter():
    """`asyncio.run` takes its servers with it, the interpreter those of loops that nobody closed, stubborn ones too.

    One of these loops runs in a thread, one is idle.
    """
    with child("calm") as made:
        assert made.stdout is not None
        first = int(made.stdout.readline())
        assert made.stdout.readline() == "over\n"
        assert not lives(first)
        rest, said = made.communicate("\n")
    assert (made.returncode, said) == (0, "")
    assert [lives(int(server)) for server in rest.split()] == [False, False]


def test_a_killed_process_leaves_no_server():
    """A server sees the end of its input when the process that started it is killed."""
    with child("kill") as made:
        assert made.stdout is not None
        server = int(made.stdout.readline())
        assert lives(server)
        made.kill()
        made.communicate()
    assert gone(server)


async def test_a_session_is_opened_and_closed_by_one_task():
    """Runs in tasks that come and go use one session, and another task closes it (F10: scopes left by another task)."""
    shim = McpShim(odd())

    async def one_run() -> str:
        async with driven(shim) as run:
            return str((await run.call("pid")).content)

    first = await asyncio.create_task(one_run())
    assert await asyncio.create_task(one_run()) == first
    await asyncio.create_task(shim.aclose())
    assert not lives(int(first))


async def test_closing_from_another_loop():
    """A shim that is closed in one loop ends what it runs in others, and forgets loops that are closed."""
    shim = McpShim(odd())
    found: list[int] = []

    async def elsewhere() -> None:
        async with driven(shim) as run:
            found.append(int(str((await run.call("pid")).content)))
        while lives(found[0]):
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    async with asyncio.timeout(10):
        while not found:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        await shim.aclose()
        assert await gone_soon(found[0])
    thread.join()
    async with driven(shim) as run:
        assert int(str((await run.call("pid")).content)) != found[0]
    await shim.aclose()


def test_a_loop_that_ends_while_a_server_closes_waits_for_it():
    """A process that takes its time to end is not left to the garbage collector, and is gone."""

    async def main() -> int:
        shim = McpShim(odd("stubborn"))
        async with driven(shim) as run:
            pid = int(str((await run.call("pid")).content))
        closing = asyncio.ensure_future(shim.aclose())
        await asyncio.sleep(0.05)
        assert not closing.done()
        return pid

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pid = asyncio.run(main())
        gc.collect()
    assert [str(each.message) for each in warned if issubclass(each.category, ResourceWarning)] == []
    assert gone(pid, 0.5)
