"""What is under way, and what is under it: the identity of spans, without a word about who records them.

An `Operation` is made where a call is made and knows what it is part of. It is current only inside the code that it is
about: each step of a stranger's stream is taken between `enter` and `leave`, so that its consumer never sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeAlias

_numbers = count(1)
_current: ContextVar[Operation | None] = ContextVar("isthmus_operation", default=None)


class Carrier(Protocol):
    """Makes an operation current for a tracing library too."""

    def capture(self) -> Any:
        """What is current there now."""
        ...

    def reattach(self, captured: Any) -> Any:
        """Make current there what was captured; gives what `detach` takes."""
        ...

    def attach(self, op: Operation) -> Any:
        """Make an operation current there; gives what `detach` takes."""
        ...

    def detach(self, token: Any) -> None:
        """Make current again what was before."""
        ...

    def ids(self, op: Operation | None) -> tuple[str, str] | None:
        """The ids of the trace and the span of an operation, or of what is current; None where there is none."""
        ...


class _Nobody:
    def capture(self) -> Any:
        return None

    def reattach(self, captured: Any) -> Any:
        return None

    def attach(self, op: Operation) -> Any:
        return None

    def detach(self, token: Any) -> None:
        return None

    def ids(self, op: Operation | None) -> tuple[str, str] | None:
        return None


_NOBODY: Carrier = _Nobody()
_carrier: Carrier = _NOBODY
_wanted = 0
_NOTHING: Mapping[str, Any] = {}

Entered: TypeAlias = "tuple[Token[Operation | None], Carrier, Any]"


class Operation:
    """One thing under way: a run, a call of a chain, a try, a model call or a tool.

    Args:
        subject: what it is about, e.g. the adapter that is called.
        parent: what it is part of; None for what is current where it is made.

    Attributes:
        id: unique in the process.
        parent: what it is part of; None at the top.
        conversation: the identity of the run that it is part of, as far as known.
        origin: what was current for the carrier where it was made; None under a parent that was given.
        over: whether it has ended.
        wraps: whether another model call was made inside it, to which the tokens belong.
        reply: the id and the model of a reply, as soon as its first bytes tell them.
        said: what was said to begin it: a `GenerateContext`, a `Call`; only until it has ended, like the next two.
        answer: what came of it, if anybody wants contents: a `StepResult`, or the content of a tool's result.
        error: why it failed.
        facts: what whoever carries it out says of it, by the conventions' names.
        held: what each sink keeps of it, by sink.
    """

    __slots__ = (
        "__weakref__",
        "answer",
        "conversation",
        "error",
        "facts",
        "held",
        "id",
        "origin",
        "over",
        "parent",
        "reply",
        "said",
        "subject",
        "wraps",
    )

    def __init__(self, subject: Any = None, parent: Operation | None = None) -> None:
        self.id = next(_numbers)
        self.subject = subject
        self.origin = None if parent is not None else _carrier.capture()
        self.parent = _current.get() if parent is None else parent
        self.conversation: str | None = None if self.parent is None else self.parent.conversation
        self.over = False
        self.wraps = False
        self.reply: tuple[str | None, str | None] = (None, None)
        self.said: Any = None
        self.answer: Any = None
        self.error: BaseException | None = None
        self.facts = _NOTHING
        self.held: dict[Any, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Operation:
        # It is an identity: a copy of a record is about the same thing.
        return self

    def __repr__(self) -> str:
        return f"Operation({self.id})"

    def forget(self) -> None:
        """It has ended, and everybody was told: let go of what was said."""
        self.said = self.answer = self.error = self.subject = None

    @property
    def root(self) -> Operation:
        """The operation at the top of this one."""
        op = self
        while op.parent is not None:
            op = op.parent
        return op

    def enter(self) -> Entered:
        """Make it current; give what `leave` takes. The two belong into one frame, with no `yield` between them."""
        carrier = _carrier
        return _current.set(self), carrier, carrier.attach(self)

    @staticmethod
    def leave(entered: Entered) -> None:
        """Make current again what was before."""
        token, carrier, carried = entered
        try:
            _current.reset(token)
        except ValueError:
            # Its task was dropped while it waited, and this is another's context: nothing of it is current here.
            return
        carrier.detach(carried)


class under:  # noqa: N801
    """A block in which an operation is current; with None, nothing happens."""

    __slots__ = ("_entered", "_op")

    def __init__(self, op: Operation | None) -> None:
        self._op = op
        self._entered: Entered | None = None

    def __enter__(self) -> None:
        if self._op is not None:
            self._entered = self._op.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered is not None:
            Operation.leave(self._entered)


class Captured(NamedTuple):
    """What was current somewhere: what was under way, and what a carrier knew of it."""

    op: Operation | None
    carrier: Carrier
    carried: Any


def capture() -> Captured:
    """What is current here, for elsewhere."""
    return Captured(_current.get(), _carrier, _carrier.capture())


@contextmanager
def again(captured: Captured) -> Iterator[None]:
    """A block in which what was captured is current."""
    op, carrier, carried = captured
    entered = _current.set(op), carrier, carrier.reattach(carried)
    try:
        yield
    finally:
        Operation.leave(entered)


def current() -> Operation | None:
    """What is under way here; None outside of everything, and where nobody listens."""
    return _current.get()


def carry(carrier: Carrier | None) -> None:
    """Let this carrier know from now on what is current; None for nobody."""
    global _carrier
    _carrier = carrier or _NOBODY


def carrier() -> Carrier:
    """Who knows what is current."""
    return _carrier


def trace_ids(op: Operation | None = None) -> dict[str, str]:
    """The ids that a log record of an operation, or of what is current, should have; {} outside of any trace."""
    found = _carrier.ids(op)
    return {} if found is None else {"trace_id": found[0], "span_id": found[1]}


def want_contents(more: int) -> None:
    """Count who wants to see what was said: 1 for one more, -1 for one less."""
    global _wanted
    _wanted += more


def contents_wanted() -> bool:
    """Whether anybody wants to see what was said, so that a reply is collected for it."""
    return _wanted > 0
