"""How a run saves: in a thread, so that nobody else waits, and never half, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def saved(save: Callable[[], object], then: Callable[[], object]) -> None:
    """Save, and take note of it; whoever is cancelled meanwhile waits for both.

    Args:
        save: what blocks; called in a thread.
        then: called in the loop once that has succeeded, even where nobody waits any more.

    Raises:
        Exception: what `save` raised.
    """

    async def both() -> None:
        await asyncio.to_thread(save)
        then()

    work = asyncio.ensure_future(both())
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,))
        raise
    finally:
        # Looked at, so that the loop does not report an error that nobody asks for any more.
        _ = not work.done() or work.cancelled() or work.exception()
