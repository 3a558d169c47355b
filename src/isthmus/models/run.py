"""State and traces of a run, for code around a model; none of it is sent to the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from time import time
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable
from uuid import uuid4

__all__ = ["DefaultRunContext", "RunContext", "Trace", "TraceCtxManager", "current_trace"]


@runtime_checkable
class RunContext(Protocol):
    """Local state of a run that several tasks may change: each of these is done before anybody else's begins."""

    async def set(self, key: str, value: Any) -> None:
        """Put a value."""

    async def increment(self, key: str, default: int = 0) -> int:
        """Add 1 to a number, which starts at `default`; returns the new one."""

    async def append_to_list(self, key: str, value: Any) -> None:
        """Add one item to a list, which starts empty."""

    async def extend_list(self, key: str, values: Iterable[Any]) -> None:
        """Add several items to a list, which starts empty."""

    async def append_if_unique(self, key: str, value: Any, key_fn: Callable[[Any], Any] | None = None) -> bool:
        """Add an item to a list unless one like it is there; returns whether it was added."""


class DefaultRunContext(MutableMapping[str, Any]):
    """Local state of a run in a dict; safe between tasks, event loops and threads.

    Args:
        context: the dict to keep it in, used as it is; a new one if left out.
    """

    def __init__(self, context: dict[str, Any] | None = None) -> None:
        self.context: dict[str, Any] = {} if context is None else context
        # Reentrant: `key_fn` may look at the context.
        self._lock = threading.RLock()

    def __getitem__(self, key: str) -> Any:
        return self.context[key]

    def __setitem__(self, key: str, value: Any) -> None:
        with self._lock:
            self.context[key] = value

    def __delitem__(self, key: str) -> None:
        with self._lock:
            del self.context[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.context)

    def __len__(self) -> int:
        return len(self.context)

    def __repr__(self) -> str:
        return f"DefaultRunContext({', '.join(map(repr, self.context))})"

    async def set(self, key: str, value: Any) -> None:
        """Put a value."""
        self[key] = value

    async def increment(self, key: str, default: int = 0) -> int:
        """Add 1 to a number, which starts at `default`; returns the new one.

        Raises:
            TypeError: what stands there is no number.
        """
        with self._lock:
            value = self.context.get(key, default)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"run context: {key!r} holds {type(value).__name__}, no number: set it to one first")
            self.context[key] = value + 1
            return self.context[key]  # type: ignore[no-any-return]

    async def append_to_list(self, key: str, value: Any) -> None:
        """Add one item to a list, which starts empty.

        Raises:
            TypeError: what stands there is no list.
        """
        with self._lock:
            self._list(key).append(value)

    async def extend_list(self, key: str, values: Iterable[Any]) -> None:
        """Add several items to a list, which starts empty.

        Raises:
            TypeError: what stands there is no list.
        """
        items = list(values)
        with self._lock:
            self._list(key).extend(items)

    async def append_if_unique(self, key: str, value: Any, key_fn: Callable[[Any], Any] | None = None) -> bool:
        """Add an item to a list, which starts empty, unless one like it is there; returns whether it was added.

        Args:
            key: where the list is.
            value: the item.
            key_fn: what of an item tells whether two are alike; the item itself if left out.

        Raises:
            TypeError: what stands there is no list.
        """
        with self._lock:
            items = self._list(key)
            mine = value if key_fn is None else key_fn(value)
            if any((item if key_fn is None else key_fn(item)) == mine for item in items):
                return False
            items.append(value)
            return True

    def _list(self, key: str) -> list[Any]:
        items = self.context.setdefault(key, [])
        if not isinstance(items, list):
            raise TypeError(f"run context: {key!r} holds {type(items).__name__}, no list: set it to a list first")
        return items


@dataclass(slots=True, kw_only=True)
class Trace:
    """One piece of work that several calls belong to.

    Args:
        workflow_name: what is being done.
        trace_id: unique; made here if not given.
        group_id: what several traces have in common, e.g. a conversation.
        metadata: whatever the application gave along.
        disabled: whether nothing of it is to be recorded; what begins inside is not recorded either.
        started: when it began, in seconds since 1970.
        ended: when it ended; None while it runs.
    """

    workflow_name: str
    trace_id: str
    group_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    disabled: bool = False
    started: float = field(default_factory=time)
    ended: float | None = None


@dataclass(slots=True, eq=False)
class _Block:
    """One entering of a manager; without a trace where it found one."""

    trace: Trace | None = None
    token: Token[Trace | None] | None = None


_current: ContextVar[Trace | None] = ContextVar("isthmus_trace", default=None)
_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("isthmus_trace_blocks", default=())


def current_trace() -> Trace | None:
    """The trace that the code runs in, or None."""
    trace = _current.get()
    return trace if trace is not None and trace.ended is None else None


class TraceCtxManager:
    """Sees to it that a block runs in a trace: starts one only if none is current, and ends only its own.

    Args:
        workflow_name: what is being done.
        trace_id: the id of a new trace; made here if left out.
        group_id: what several traces have in common.
        metadata: whatever the application gives along.
        disabled: whether a new trace is one of which nothing is recorded.
    """

    def __init__(
        self,
        workflow_name: str,
        trace_id: str | None = None,
        *,
        group_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        disabled: bool = False,
    ) -> None:
        self._made = (workflow_name, trace_id, group_id, dict(metadata or {}), disabled)
        self._open: list[_Block] = []

    @property
    def trace(self) -> Trace | None:
        """The trace that the code runs in."""
        return current_trace()

    def __enter__(self) -> Self:
        if current_trace() is not None:
            self._begin(_Block())
            return self
        name, trace_id, group_id, metadata, disabled = self._made
        trace = Trace(
            workflow_name=name,
            trace_id=trace_id or f"trace_{uuid4().hex}",
            group_id=group_id,
            metadata=metadata,
            disabled=disabled,
        )
        self._begin(_Block(trace, _current.set(trace)))
        return self

    def _begin(self, block: _Block) -> None:
        self._open.append(block)
        _blocks.set((*_blocks.get(), block))

    def _end(self) -> _Block:
        """The block that ends here: the latest that this context began, so that tasks may share one manager."""
        begun = _blocks.get()
        block = next((each for each in reversed(begun) if each in self._open), self._open[-1])
        self._open.remove(block)
        _blocks.set(tuple(each for each in begun if each is not block))
        return block

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block = self._end()
        if block.trace is None or block.token is None:
            return
        block.trace.ended = time()
        # A generator that is closed elsewhere leaves in another context: the trace has ended all the same.
        with suppress(ValueError):
            _current.reset(block.token)
