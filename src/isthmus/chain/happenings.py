"""What happens to one call of a chain, as its policy is told."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

import msgspec

from isthmus.errors import ChainCut, CutReason, TierError
from isthmus.models.events import Usage


class Go(msgspec.Struct, frozen=True):
    """Choose a tier; `cooling` are those to be left alone."""

    cooling: frozenset[int] = frozenset()


class Ready(msgspec.Struct, frozen=True):
    """The request is rendered for the tier, and what it may spend is set aside."""


class Unfit(msgspec.Struct, frozen=True):
    """The tier has no room for the request, or too little budget is left for it."""

    reason: CutReason


class Content(msgspec.Struct, frozen=True):
    """The first content of a try arrived, `seconds` after its start."""

    seconds: float


class Ended(msgspec.Struct, frozen=True):
    """A try ended with its finish."""

    finish: str
    seconds: float
    error: TierError | None = None
    usage: Usage | None = None
    cost: Decimal | None = None


class Failed(msgspec.Struct, frozen=True):
    """A try failed.

    Args:
        error: why.
        seconds: after how long.
        shown: whether side events of it were handed on.
        luck: the jitter's draw.
        left: how many seconds are left for all tries; None for any number.
        cooled: whether the tier is to be left alone from now on.
    """

    error: TierError
    seconds: float
    shown: bool = False
    luck: float = 0.0
    left: float | None = None
    cooled: bool = False


class Lapsed(msgspec.Struct, frozen=True):
    """The time for all tries is over."""

    error: ChainCut
    seconds: float = 0.0


class Woke(msgspec.Struct, frozen=True):
    """The wait is over."""


class Aborted(msgspec.Struct, frozen=True):
    """The caller gave up."""


Happening: TypeAlias = Go | Ready | Unfit | Content | Ended | Failed | Woke | Lapsed | Aborted
