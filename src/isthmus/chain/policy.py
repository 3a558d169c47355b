"""What a chain does next: a pure function from a state and an event to the next state and its effects.

    SELECT    --Go------> ATTEMPT | EXHAUSTED
    ATTEMPT   --Content-> COMMITTED
    ATTEMPT   --Ended---> DONE                                   an empty reply
    ATTEMPT   --Failed--> BACKOFF | SELECT | FAILED              by the error's class
    BACKOFF   --Woke----> ATTEMPT                                same tier, same context
    COMMITTED --Ended---> DONE
    COMMITTED --Failed--> DONE                                   an "error-post" reply, never tried again
    any       --Aborted-> ABORTED

No clock, no chance, no I/O: the driver feeds them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from isthmus.errors import ErrorClass, TierError, is_hint
from isthmus.models.retry import RetryPolicy

# Failures that another tier may hide and that somebody must mend.
_LOUD = frozenset({ErrorClass.CREDENTIALS, ErrorClass.PROTOCOL, ErrorClass.UNCLASSIFIED})


class Phase(StrEnum):
    """Where a call of a chain stands."""

    SELECT = "select"
    ATTEMPT = "attempt"
    BACKOFF = "backoff"
    COMMITTED = "committed"
    DONE = "done"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the definition of a chain fixes, one entry a tier where it is a tuple.

    Args:
        ids: the tiers' ids.
        windows: their windows in tokens; None where unknown.
        owns_retries: whether a tier retries by itself and so gets one try.
        retry: the retry policy of each tier.
        fallback_on_refused: whether another tier is asked after a refusal.
    """

    ids: tuple[str, ...]
    windows: tuple[int | None, ...]
    owns_retries: tuple[bool, ...]
    retry: RetryPolicy
    fallback_on_refused: bool = False


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where one call stands.

    Args:
        todo: the tiers not yet given up, by index, the present one first.
        phase: the state's name.
        attempt: the number of the try on the present tier, from 1.
        tries: the number of tries of this call so far.
        above: after an overflow, the window that a tier must exceed.
        shown: whether side events of a failed try are with the consumer.
        delay: in BACKOFF, the seconds to wait.
        error: the failure that counts: the last one, or the one to raise or to pass on.
        failed_on: the tier that was given up last.
    """

    todo: tuple[int, ...]
    phase: Phase = Phase.SELECT
    attempt: int = 0
    tries: int = 0
    above: int | None = None
    shown: bool = False
    delay: float = 0.0
    error: TierError | None = None
    failed_on: int | None = None


class Go(NamedTuple):
    """Choose a tier."""


class Content(NamedTuple):
    """The first content of a try arrived, `seconds` after its start."""

    seconds: float


class Ended(NamedTuple):
    """A try ended with its finish."""

    finish: str
    seconds: float
    error: TierError | None = None


class Failed(NamedTuple):
    """A try failed; `shown` says whether side events of it were handed on, `luck` is the jitter's draw."""

    error: TierError
    seconds: float
    shown: bool = False
    luck: float = 0.0


class Woke(NamedTuple):
    """The wait is over."""


class Aborted(NamedTuple):
    """The caller gave up."""


class Report(NamedTuple):
    """Effect: tell the listeners; `loud` ones go to the log too."""

    type: str
    fields: Mapping[str, Any]
    loud: bool = False


class Forget(NamedTuple):
    """Effect: tell the consumer to drop the side events shown so far; `attempt` is the number of the try to come."""

    attempt: int


Happening: TypeAlias = Go | Content | Ended | Failed | Woke | Aborted
Effect: TypeAlias = Report | Forget
Move: TypeAlias = tuple[State, tuple[Effect, ...]]


def step(rules: Rules, state: State, *, event: Happening) -> Move:
    """The next state, and what the driver has to do on the way there.

    Raises:
        RuntimeError: the event cannot happen in this state.
    """
    handle = _TABLE.get((state.phase, type(event)))
    if handle is None:
        raise RuntimeError(f"chain policy: {type(event).__name__} cannot happen in {state.phase}")
    return handle(rules, state, event)


def _select(rules: Rules, state: State, event: Go) -> Move:
    effects: list[Effect] = []
    todo = state.todo
    while todo and not _fits(rules.windows[todo[0]], state.above):
        effects.append(Report("tier.skipped", {"tier": rules.ids[todo[0]], "reason": "window"}))
        todo = todo[1:]
    if not todo:
        effects.append(Report("chain.exhausted", {"attempts": state.tries}))
        return replace(state, phase=Phase.EXHAUSTED, todo=()), tuple(effects)
    tier = rules.ids[todo[0]]
    if state.failed_on is not None:
        effects.append(Report("tier.fallback", {"from": rules.ids[state.failed_on], "to": tier}))
    effects.append(Report("tier.selected", {"tier": tier}))
    return _begin(rules, replace(state, todo=todo, attempt=0), effects)


def _fits(window: int | None, above: int | None) -> bool:
    return window is None or above is None or window > above


def _begin(rules: Rules, state: State, effects: list[Effect]) -> Move:
    tries = state.tries + 1
    if state.shown:
        effects.append(Forget(tries))
    attempt = state.attempt + 1
    effects.append(Report("attempt.started", {"tier": rules.ids[state.todo[0]], "attempt": attempt}))
    return replace(state, phase=Phase.ATTEMPT, attempt=attempt, tries=tries, shown=False), tuple(effects)


def _content(rules: Rules, state: State, event: Content) -> Move:
    report = Report("attempt.committed", {**_try(rules, state), "seconds": event.seconds})
    return replace(state, phase=Phase.COMMITTED), (report,)


def _ended(rules: Rules, state: State, event: Ended) -> Move:
    fields = {**_try(rules, state), "finish": event.finish, "seconds": event.seconds}
    if state.phase is Phase.ATTEMPT:
        fields["empty"] = True
    over = Report("chain.finished", {"tier": rules.ids[state.todo[0]], "finish": event.finish, "attempts": state.tries})
    return replace(state, phase=Phase.DONE, error=event.error), (Report("attempt.finished", fields), over)


def _failed(rules: Rules, state: State, event: Failed) -> Move:
    error, tier = event.error, state.todo[0]
    state = replace(state, error=error, shown=state.shown or event.shown)
    if _ends(error, rules):
        over = Report("chain.failed", {"class": str(error.error_class), "attempts": state.tries})
        return replace(state, phase=Phase.FAILED), (_failure(rules, state, event, "stop"), over)
    delay = None
    if not rules.owns_retries[tier]:
        delay = rules.retry.after(error, state.attempt, rng=lambda: event.luck)
    if delay is not None:
        source = "hint" if is_hint(error.retry_after) else "backoff"
        wait = Report("retry.scheduled", {**_try(rules, state), "delay": delay, "source": source})
        effects: tuple[Effect, ...] = (_failure(rules, state, event, "retry"), wait)
        if state.shown:
            effects = (*effects, Forget(state.tries + 1))
        return replace(state, phase=Phase.BACKOFF, delay=delay, shown=False), effects
    above = state.above
    if error.error_class == ErrorClass.OVERFLOW:
        above = max((w for w in (above, rules.windows[tier]) if w is not None), default=None)
    given_up = replace(state, phase=Phase.SELECT, todo=state.todo[1:], above=above, failed_on=tier)
    return given_up, (_failure(rules, state, event, "fallback"),)


def _ends(error: TierError, rules: Rules) -> bool:
    """Whether no other tier would mend it."""
    if error.error_class == ErrorClass.INVALID:
        return not getattr(error, "for_this_tier", False)
    return error.error_class == ErrorClass.REFUSED and not rules.fallback_on_refused


def _passed_on(rules: Rules, state: State, event: Failed) -> Move:
    finish = {"tier": rules.ids[state.todo[0]], "finish": "error-post", "attempts": state.tries}
    effects = (_failure(rules, state, event, "passthrough"), Report("chain.finished", finish))
    return replace(state, phase=Phase.DONE, error=event.error), effects


def _woke(rules: Rules, state: State, event: Woke) -> Move:
    report = Report("retry.started", {"tier": rules.ids[state.todo[0]], "attempt": state.attempt + 1})
    return _begin(rules, state, [report])


def _aborted(rules: Rules, state: State, event: Aborted) -> Move:
    over = Report("chain.aborted", {"attempts": state.tries})
    gone = replace(state, phase=Phase.ABORTED)
    if state.phase in (Phase.ATTEMPT, Phase.COMMITTED):
        return gone, (Report("attempt.cancelled", _try(rules, state)), over)
    return gone, (over,)


def _try(rules: Rules, state: State) -> dict[str, Any]:
    return {"tier": rules.ids[state.todo[0]], "attempt": state.attempt}


def _failure(rules: Rules, state: State, event: Failed, then: str) -> Report:
    error = event.error
    fields = {
        **_try(rules, state),
        "class": str(error.error_class),
        "status": error.status,
        "message": error.message,
        "seconds": event.seconds,
        "content": "post" if state.phase is Phase.COMMITTED else "pre",
        "next": then,
    }
    return Report("attempt.failed", fields, error.error_class in _LOUD)


_TABLE: dict[tuple[Phase, type[Any]], Callable[[Rules, State, Any], Move]] = {
    (Phase.SELECT, Go): _select,
    (Phase.ATTEMPT, Content): _content,
    (Phase.ATTEMPT, Ended): _ended,
    (Phase.ATTEMPT, Failed): _failed,
    (Phase.BACKOFF, Woke): _woke,
    (Phase.COMMITTED, Ended): _ended,
    (Phase.COMMITTED, Failed): _passed_on,
    **{(phase, Aborted): _aborted for phase in (Phase.SELECT, Phase.ATTEMPT, Phase.BACKOFF, Phase.COMMITTED)},
}
