"""Which tiers of a chain are left alone for a while, because they kept failing; shared by all runs of the chain."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.errors import ChainCut, ConfigError, ErrorClass, TierError, is_hint
from isthmus.models.retry import Clock

_COUNTED = frozenset({ErrorClass.TRANSIENT, ErrorClass.UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """When a tier that keeps failing is left alone, and for how long.

    Failures before content count, "transient" and "unavailable" ones; a "credentials" failure is enough alone. After
    the wait one call tries the tier; the others go past it until that one has come out well.

    Args:
        failures: how many in a row.
        seconds: the first wait; the next one in a row is twice as long, then three times.
        cap: the longest wait, in seconds.

    Raises:
        ConfigError: a number that cannot be.
    """

    failures: int = 3
    seconds: float = 30.0
    cap: float = 300.0

    def __post_init__(self) -> None:
        if type(self.failures) is not int or self.failures < 1:
            raise ConfigError(f"must be a whole number from 1, not {self.failures!r}", where="Cooldown", key="failures")
        for name in ("seconds", "cap"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(f"must be seconds above 0, not {value!r}", where="Cooldown", key=name)


@dataclass(slots=True)
class _Tier:
    failures: int = 0
    ejections: int = 0
    until: float | None = None
    probe: object | None = None
    """The call that tries it after the wait; only what becomes of that one lets the next one in."""


class Health:
    """How the tiers of one chain fare.

    Args:
        cooldown: when one is left alone; None never does.
        count: how many tiers there are.
        clock: the time.
    """

    __slots__ = ("_clock", "_cooldown", "_tiers")

    def __init__(self, cooldown: Cooldown | None, count: int, *, clock: Clock) -> None:
        self._cooldown = cooldown
        self._clock = clock
        self._tiers = tuple(_Tier() for _ in range(count)) if cooldown is not None else ()

    def cooling(self) -> frozenset[int]:
        """The tiers, by index, that are to be left alone now."""
        if not self._tiers:
            return frozenset()
        now = self._clock.now()
        return frozenset(
            index
            for index, tier in enumerate(self._tiers)
            if tier.until is not None and (tier.until > now or tier.probe is not None)
        )

    def begun(self, index: int, call: object) -> None:
        """A try of the tier begins, in this call."""
        if self._tiers and self._tiers[index].until is not None:
            self._tiers[index].probe = call

    def left(self, index: int, call: object) -> None:
        """A try ended, in this call, and says nothing about the tier."""
        if self._tiers and self._tiers[index].probe is call:
            self._tiers[index].probe = None

    def good(self, index: int) -> bool:
        """A try came to content or to its end; whether the tier was being left alone."""
        if not self._tiers:
            return False
        tier = self._tiers[index]
        was = tier.until is not None
        tier.failures, tier.ejections, tier.until, tier.probe = 0, 0, None, None
        return was

    def failed(self, index: int, error: TierError, *, call: object) -> float | None:
        """A try failed before content; for how many seconds the tier is left alone, if it is from now on."""
        if self._cooldown is None:
            return None
        tier, limits = self._tiers[index], self._cooldown
        again = tier.until is not None
        self.left(index, call)
        account = error.error_class == ErrorClass.CREDENTIALS
        # A chain among the tiers that came to the end of a budget or of its time is not ill.
        if isinstance(error, ChainCut) or (error.error_class not in _COUNTED and not account):
            return None
        tier.failures += 1
        if tier.failures < limits.failures and not again and not account:
            return None
        tier.ejections += 1
        wait = min(limits.seconds * tier.ejections, limits.cap)
        if is_hint(error.retry_after):
            wait = max(wait, min(error.retry_after, limits.cap))
        now = self._clock.now()
        tier.until = max(tier.until or now, now + wait)
        return tier.until - now
