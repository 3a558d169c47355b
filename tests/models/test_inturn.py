"""What comes one after another."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.models.inturn import InTurn


async def half(number: int) -> int:
    """A number that can be halved."""
    if number % 2:
        raise ValueError(f"{number} is odd")
    await asyncio.sleep(0)
    return number // 2


async def test_each_is_made_when_it_is_asked_for() -> None:
    """In order, and nothing before somebody wants it."""
    given = iter((2, 4, 6))
    turns = InTurn(given, half)
    assert await anext(turns) == 1
    assert next(given) == 4
    assert [each async for each in turns] == [3]


async def test_nothing_is_begun_after_a_failure_or_a_close() -> None:
    """As with a generator: what failed, was broken off or was closed is over."""
    turns = InTurn((2, 3, 4), half)
    assert await anext(turns) == 1
    with pytest.raises(ValueError, match="odd"):
        await anext(turns)
    assert [each async for each in turns] == []
    turns = InTurn((2, 4), half)
    await turns.aclose()
    await turns.aclose()
    assert [each async for each in turns] == []
    turns = InTurn((2, 4), half)
    waits = asyncio.ensure_future(anext(turns))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait((waits,))
    assert waits.cancelled()
    assert [each async for each in turns] == []


async def test_one_is_made_at_a_time() -> None:
    """As with a generator: who asks for the next while one is being made, or closes it, hears of it."""
    turns = InTurn((2, 4), half)
    waits = asyncio.ensure_future(anext(turns))
    await asyncio.sleep(0)
    for again in (turns.__anext__(), turns.aclose()):
        with pytest.raises(RuntimeError, match="is being made"):
            await again
    assert await waits == 1
    assert [each async for each in turns] == [2]
    await turns.aclose()
