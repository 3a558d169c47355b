"""What comes one after another, each when it is asked for: no generator, which is dearer to begin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar

_Item = TypeVar("_Item")
_Given = TypeVar("_Given")
_Item_co = TypeVar("_Item_co", covariant=True)


class Closable(Protocol[_Item_co]):
    """An async iterator that can be closed."""

    def __aiter__(self) -> AsyncIterator[_Item_co]: ...

    def __anext__(self) -> Coroutine[Any, Any, _Item_co]: ...

    async def aclose(self) -> None:
        """Close it; harmless twice."""


class InTurn(Generic[_Given, _Item]):
    """What is made of things, one by one. Where one fails, or is broken off, no other is begun.

    Args:
        given: the things.
        make: makes an item of one.

    Raises:
        RuntimeError: somebody asks for the next, or closes it, while one is being made.
    """

    __slots__ = ("_at_work", "_left", "_make")

    def __init__(self, given: Iterable[_Given], make: Callable[[_Given], Awaitable[_Item]]) -> None:
        self._left = iter(given)
        self._make = make
        self._at_work = False

    def __aiter__(self) -> InTurn[_Given, _Item]:
        return self

    async def __anext__(self) -> _Item:
        self._check()
        left, self._left = self._left, iter(())
        for each in left:
            self._at_work = True
            try:
                item = await self._make(each)
            finally:
                self._at_work = False
            self._left = left
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Begin no other."""
        self._check()
        self._left = iter(())

    def _check(self) -> None:
        # Who was told that this is over would take a part for all.
        if self._at_work:
            raise RuntimeError("one is being made: wait for it before the next is asked for, or all is closed")
