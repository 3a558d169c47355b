"""How a tier comes to its end once its reply is whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Any

from isthmus.models.contract import Timeouts
from isthmus.models.watchdog import Watchdog

_log = logging.getLogger("isthmus.chain")
# A tier whose reply is whole has this many seconds to end: nobody waits longer for what changes nothing.
_GRACE = Timeouts(connect=None, first_content=1.0, idle=1.0, total=1.0)


@coroutine
def soon(step: Awaitable[Any], watch: Watchdog) -> Generator[Any, None, Any]:
    """Take a step, and time it from its first wait on: a timer costs more than a step that never waits."""
    steps: Any = step.__await__()
    try:
        awaited = next(steps)
        watch.restart(_GRACE)
        while True:
            try:
                yield awaited
            except BaseException as error:
                awaited = steps.throw(error)
            else:
                awaited = next(steps)
    except StopIteration as end:
        return end.value


async def settle(inner: Any, tier: str, *, watch: Watchdog, batched: bool) -> bool:
    """Let a tier end by itself, soon, once its finish is through; whatever it still does changes nothing.

    Returns:
        Whether it has: a generator, or a source of batches, that has come to its end has nothing left to close.
    """
    try:
        extra = await soon(inner.__aiter__().__anext__(), watch)
        kind = type(extra[0] if batched else extra)
        _log.warning("chain: tier %s went on after its finish: %r was dropped", tier, kind)
    except StopAsyncIteration:
        return batched or getattr(inner, "ag_frame", inner) is None
    except asyncio.CancelledError:
        if watch.overdue() is None:
            raise
        _log.warning("chain: tier %s did not end after its finish", tier)
    except Exception as error:
        _log.warning("chain: tier %s failed after its finish: %s", tier, type(error).__name__)
    return False
