"""What the definition of a chain fixes, and what a request asks of all its tiers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from isthmus.chain.budget import Budget
from isthmus.chain.happenings import Go
from isthmus.chain.health import Health
from isthmus.chain.policy import Rules, State, step
from isthmus.chain.prices import Prices
from isthmus.chain.report import Teller
from isthmus.chain.seams import Markers, Renderer
from isthmus.chain.tier import Member, lacking
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.limits import RateLimiter
from isthmus.models.reading import media_needs
from isthmus.models.retry import Clock

_NOTHING: frozenset[str] = frozenset()
_TEXT = (str, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that the definition of a chain fixes, and the health of its tiers."""

    id: str
    members: tuple[Member, ...]
    rules: Rules
    timeouts: Timeouts | None
    clock: Clock
    sticky: bool
    health: Health
    step_seconds: float | None = None
    budget: Budget | None = None
    prices: Prices | None = None
    limits: tuple[RateLimiter | None, ...] = ()
    context: Renderer | None = None
    markers: Markers | None = None
    supports: frozenset[str] = field(init=False)
    """What all members can do."""
    orders: tuple[tuple[int, ...], ...] = field(init=False)
    """By the member that comes first, the order in which they are tried."""
    openings: tuple[State, ...] = field(init=False)
    """By the member that comes first, where a call stands to which nobody listens once that one is chosen."""
    silent: Teller = field(init=False)
    """The teller of all calls to which nobody listens."""

    def __post_init__(self) -> None:
        places = range(len(self.members))
        set_field = partial(object.__setattr__, self)
        set_field("supports", frozenset.intersection(*[each.supports for each in self.members]))
        set_field("orders", tuple((*places[first:], *places[:first]) for first in places))
        states = (State(todo=order, quiet=True) for order in self.orders)
        set_field("openings", tuple(step(self.rules, state, event=Go())[0] for state in states))
        set_field("silent", Teller(self.id))


def needs(ctx: GenerateContext) -> frozenset[str]:
    """What a request asks of a model, in the words of `supports`."""
    # Of a transcript most is plain text, which asks for nothing.
    rich = [each for each in ctx.messages if type(each) is not dict or type(each.get("content")) not in _TEXT]
    wanted: set[str] = media_needs(rich) if rich else set()
    if not wanted and not ctx.tools and ctx.output is None:
        return _NOTHING
    if ctx.tools:
        wanted.add("tools")
    if ctx.output is not None and ctx.output.response_format() is not None:
        wanted.add("output-schema")
    return frozenset(wanted)


def require(chain_id: str, members: Sequence[Member], *, wanted: Collection[str]) -> None:
    """See to it that any tier may serve.

    Raises:
        InvalidRequestError: a tier lacks what is needed; names each tier and what it lacks.
    """
    gaps = lacking(members, wanted) if wanted else None
    if gaps:
        remedy = "use a tier that does, or declare it in supports if it truly does"
        raise InvalidRequestError(f"chain {chain_id!r}: {gaps}: {remedy}", code="unsupported")
