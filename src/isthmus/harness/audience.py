"""Tells hooks of what starts and ends, so that each start has one end, whatever goes wrong between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias

from isthmus.harness.runnerhooks import RunnerHooks
from isthmus.models.fold import fail_if_uninvited

Say: TypeAlias = Callable[[RunnerHooks], Any]


class Audience:
    """The hooks of a run, and which of them are still to be told of which end.

    Args:
        hooks: in the order in which they are told.
    """

    def __init__(self, hooks: Sequence[RunnerHooks]) -> None:
        self.hooks = tuple(hooks)
        self._owed: dict[str, tuple[Say, deque[RunnerHooks]]] = {}

    def owed(self, key: str) -> bool:
        """Whether something has started whose end is not told yet."""
        return key in self._owed

    def owe(self, key: str, end: Say) -> None:
        """Something has its end alone, and everybody is to be told of that."""
        self._owed[key] = end, deque(self.hooks)

    async def starts(self, key: str, start: Say, *, end: Say) -> None:
        """Tell of a start.

        Args:
            key: what starts.
            start: tells one of it.
            end: tells one of its end, should it be broken off.

        Raises:
            Exception: whatever a hook raises; those behind it are told neither of the start nor of the end.
        """
        if not self.hooks:
            return
        _, told = self._owed[key] = end, deque()
        for hooks in self.hooks:
            told.append(hooks)
            if (answer := start(hooks)) is not None:
                await answered(answer)

    async def ends(self, key: str, end: Say) -> None:
        """Tell of an end those who were told of the start.

        Raises:
            Exception: whatever a hook raises; those behind it are told by `settle`.
        """
        if key not in self._owed:
            return
        _, left = self._owed[key]
        self._owed[key] = end, left
        while left:
            if (answer := end(left.popleft())) is not None:
                await answered(answer)
        self._owed.pop(key, None)

    async def settle(self, *keys: str) -> list[Exception]:
        """Tell of the ends that are left, of all but these; what goes wrong is returned."""
        failures: list[Exception] = []
        for key, (end, left) in tuple(self._owed.items()):
            if key in keys:
                continue
            while left:
                await collected(failures, end, left.popleft())
            self._owed.pop(key, None)
        return failures


async def answered(answer: Any) -> None:
    """Wait for a hook that is async; a cancellation of its own making is its failure, and cancels nobody else."""
    if not isawaitable(answer):
        return
    try:
        await answer
    except asyncio.CancelledError as error:
        fail_if_uninvited(error)
        raise


async def collected(failures: list[Exception], told: Callable[..., Any], *what: Any) -> None:
    """Tell somebody at the end of a run: a failure there keeps nobody else from being told."""
    try:
        await answered(told(*what))
    except Exception as error:
        failures.append(error)
