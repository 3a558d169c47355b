"""Where a chain takes in what it does not own: how a request is rendered for a tier, and how markers leave the text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from isthmus.chain.tier import Member
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Note

Tell: TypeAlias = Callable[[str, Mapping[str, Any]], None]


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A request as one tier gets it.

    Args:
        ctx: the request.
        input_tokens: how many tokens its prompt has, estimated; None where nobody counted.
        report: what was measured and taken out; its `to_dict()` is for listeners.
        notes: what was changed, for the reply.
    """

    ctx: GenerateContext
    input_tokens: int | None = None
    report: Any = None
    notes: tuple[Note, ...] = ()


class Renderer(Protocol):
    """Makes a request fit a tier; a pure function of its arguments."""

    def __call__(
        self, ctx: GenerateContext, tier: Member, *, smaller: bool
    ) -> Rendered | Awaitable[Rendered | None] | None:
        """The request for this tier; None where it cannot fit.

        Args:
            ctx: the request as it was made.
            tier: the tier's id, window and ceiling.
            smaller: whether the tier said that what it got before was too large.
        """
        ...


class Drain(Protocol):
    """Takes the markers of one reply out of its text."""

    def passes(self, events: Sequence[Event], texts: Sequence[str]) -> bool:
        """Take texts that came together, if nothing in them concerns a marker and all go out as they are.

        Args:
            events: what came, all of it text.
            texts: the text of each.
        """
        ...

    def take(self, event: Event) -> Iterable[Event]:
        """What goes out for an event that came in; a `Finish` or a `Call` flushes what is held."""
        ...


Markers: TypeAlias = Callable[[Tell], Drain]
"""Makes the drain of one call, given what tells the listeners: a type, e.g. "marker.promoted", and its fields."""
