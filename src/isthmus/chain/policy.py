"""What a chain does next: a pure function from a state and an event to the next state and its effects.

    SELECT    --Go------> PREPARE | EXHAUSTED | FAILED
    PREPARE   --Ready---> ATTEMPT
    PREPARE   --Unfit---> SELECT                                 no room in the window, or too little budget
    ATTEMPT   --Content-> COMMITTED
    ATTEMPT   --Ended---> DONE                                   an empty reply
    ATTEMPT   --Failed--> BACKOFF | PREPARE | SELECT | FAILED    by the error's class
    BACKOFF   --Woke----> PREPARE                                same tier, same context
    COMMITTED --Ended---> DONE
    COMMITTED --Failed--> DONE                                   an "error-post" reply, never tried again
    any       --Lapsed--> FAILED, or from COMMITTED: DONE        the time for all tries is over
    any       --Aborted-> ABORTED

No clock, no chance, no I/O: the driver feeds them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from isthmus.chain.happenings import Aborted, Content, Ended, Failed, Go, Happening, Lapsed, Ready, Unfit, Woke
from isthmus.errors import ChainCut, CutReason, ErrorClass, TierError, is_hint
from isthmus.models.retry import RetryPolicy

# Failures that another tier may hide and that somebody must mend.
_LOUD = frozenset({ErrorClass.CREDENTIALS, ErrorClass.PROTOCOL, ErrorClass.UNCLASSIFIED})


class Phase(StrEnum):
    """Where a call of a chain stands."""

    SELECT = "select"
    PREPARE = "prepare"
    ATTEMPT = "attempt"
    BACKOFF = "backoff"
    COMMITTED = "committed"
    DONE = "done"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    ABORTED = "aborted"


# A member looked up in its class takes longer than a call, and every move looks up several.
SELECT, PREPARE, ATTEMPT, BACKOFF, COMMITTED, DONE, EXHAUSTED, FAILED, ABORTED = Phase
OPEN = (SELECT, PREPARE, ATTEMPT, BACKOFF, COMMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the definition of a chain fixes, one entry a tier where it is a tuple.

    Args:
        ids: the tiers' ids.
        windows: their windows in tokens; None where unknown.
        owns_retries: whether a tier retries by itself and so gets one try.
        retry: the retry policy of each tier.
        fallback_on_refused: whether another tier is asked after a refusal.
        renders: whether a request can be rendered smaller after an overflow.
    """

    ids: tuple[str, ...]
    windows: tuple[int | None, ...]
    owns_retries: tuple[bool, ...]
    retry: RetryPolicy
    fallback_on_refused: bool = False
    renders: bool = False


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
        failed_on: the tier that was given up last, until another one is chosen.
        smaller: whether the request is to be rendered smaller than the tier's window asks for.
        lacking: why the first tier that could not be afforded was passed over.
        forced: whether tiers are tried though they are to be left alone.
        quiet: whether nobody listens, so that what goes well need not be told.
    """

    todo: tuple[int, ...]
    phase: Phase = SELECT
    attempt: int = 0
    tries: int = 0
    above: int | None = None
    shown: bool = False
    delay: float = 0.0
    error: TierError | None = None
    failed_on: int | None = None
    smaller: bool = False
    lacking: CutReason | None = None
    forced: bool = False
    quiet: bool = False


class Report(msgspec.Struct, frozen=True):
    """Effect: tell the listeners; `loud` ones go to the log too."""

    type: str
    fields: Mapping[str, Any]
    loud: bool = False


class Forget(msgspec.Struct, frozen=True):
    """Effect: tell the consumer to drop the side events shown so far; `attempt` is the number of the try to come."""

    attempt: int


Effect: TypeAlias = Report | Forget
Move: TypeAlias = tuple[State, tuple[Effect, ...]]


def step(rules: Rules, state: State, *, event: Happening) -> Move:
    """The next state, and what the driver has to do on the way there.

    Raises:
        RuntimeError: the event cannot happen in this state.
    """
    try:
        handle = _TABLE[state.phase, type(event)]
    except KeyError:
        raise RuntimeError(f"chain policy: {type(event).__name__} cannot happen in {state.phase}") from None
    return handle(rules, state, event)


def _select(rules: Rules, state: State, event: Go) -> Move:
    effects: list[Effect] = []
    todo = state.todo
    cold: tuple[int, ...] = ()
    while todo and (reason := _passed_over(rules, state, todo[0], event.cooling)) is not None:
        effects.append(Report("tier.skipped", {"tier": rules.ids[todo[0]], "reason": reason}))
        cold = (*cold, todo[0]) if reason == "cooling" else cold
        todo = todo[1:]
    if not todo and cold and not state.tries:
        # All are cooling: better a tier that may fail than a call that must.
        todo, state = cold, replace(state, forced=True)
        effects.append(Report("tier.forced", {"tier": rules.ids[todo[0]]}))
    if not todo:
        return _nothing_left(replace(state, todo=()), effects)
    if not state.quiet:
        tier = rules.ids[todo[0]]
        if state.failed_on is not None:
            effects.append(Report("tier.fallback", {"origin": rules.ids[state.failed_on], "tier": tier}))
        effects.append(Report("tier.selected", {"tier": tier}))
    chosen = replace(state, phase=PREPARE, todo=todo, attempt=0, smaller=False, failed_on=None)
    return chosen, tuple(effects)


def _passed_over(rules: Rules, state: State, tier: int, cooling: frozenset[int]) -> str | None:
    window = rules.windows[tier]
    if state.above is not None and window is not None and window <= state.above:
        return str(CutReason.WINDOW)
    return "cooling" if tier in cooling and not state.forced else None


def _nothing_left(state: State, effects: list[Effect]) -> Move:
    reason = state.lacking
    if reason is None or (reason is CutReason.WINDOW and state.tries):
        effects.append(Report("chain.exhausted", {"attempts": state.tries}))
        return replace(state, phase=EXHAUSTED), tuple(effects)
    if reason is CutReason.WINDOW:
        error = ChainCut("the prompt fits the window of no tier: shorten it, or add a tier with a larger one", reason)
    else:
        error = ChainCut(f"{reason}: what is left is too little for another try: raise the budget", reason)
        effects.append(Report("budget.exceeded", {"reason": str(reason)}))
    effects.append(_given_up(state, error))
    return replace(state, phase=FAILED, error=error), tuple(effects)


def _given_up(state: State, error: TierError) -> Report:
    fields = {"error_class": str(error.error_class), "attempts": state.tries}
    if isinstance(error, ChainCut):
        fields["reason"] = str(error.reason)
    return Report("chain.failed", fields)


def _ready(rules: Rules, state: State, event: Ready) -> Move:
    tries, attempt = state.tries + 1, state.attempt + 1
    effects: tuple[Effect, ...] = (Forget(tries),) if state.shown else ()
    if not state.quiet:
        effects += (Report("attempt.started", {"tier": rules.ids[state.todo[0]], "attempt": attempt}),)
    return replace(state, phase=ATTEMPT, attempt=attempt, tries=tries, shown=False), effects


def _unfit(rules: Rules, state: State, event: Unfit) -> Move:
    report = Report("tier.skipped", {"tier": rules.ids[state.todo[0]], "reason": str(event.reason)})
    # Too little budget says more than too small a window: only the caller can raise it.
    first = event.reason if state.lacking in (None, CutReason.WINDOW) else state.lacking
    above = state.above
    if event.reason is CutReason.WINDOW:
        above = _wider(above, rules.windows[state.todo[0]])
    passed = replace(state, phase=SELECT, todo=state.todo[1:], lacking=first, above=above)
    return replace(passed, failed_on=state.todo[0] if state.smaller else None), (report,)


def _wider(above: int | None, window: int | None) -> int | None:
    return max((size for size in (above, window) if size is not None), default=None)


def _content(rules: Rules, state: State, event: Content) -> Move:
    committed = replace(state, phase=COMMITTED)
    if state.quiet:
        return committed, ()
    return committed, (Report("attempt.committed", {**_try(rules, state), "seconds": event.seconds}),)


def _ended(rules: Rules, state: State, event: Ended) -> Move:
    done = replace(state, phase=DONE, error=event.error)
    if state.quiet:
        return done, ()
    fields = {**_try(rules, state), "finish": event.finish, "seconds": event.seconds}
    fields.update(usage=event.usage, cost=event.cost)
    if state.phase is ATTEMPT:
        fields["empty"] = True
    over = Report("chain.finished", {"tier": fields["tier"], "finish": event.finish, "attempts": state.tries})
    return done, (Report("attempt.finished", fields), over)


def _failed(rules: Rules, state: State, event: Failed) -> Move:
    error, tier = event.error, state.todo[0]
    state = replace(state, error=error, shown=state.shown or event.shown)
    if _ends(error, rules):
        effects = (_failure(rules, state, event, "stop"), _given_up(state, error))
        return replace(state, phase=FAILED), effects
    delay = None
    if not rules.owns_retries[tier] and not (event.cooled and len(state.todo) > 1):
        delay = rules.retry.after(error, state.attempt, rng=lambda: event.luck)
    if delay is not None and (event.left is None or delay < event.left):
        return _retry(rules, state, event, delay=delay)
    above = state.above
    if error.error_class == ErrorClass.OVERFLOW:
        if rules.renders and not state.smaller:
            again = replace(state, phase=PREPARE, smaller=True)
            return again, (_failure(rules, state, event, "rerender"),)
        above = _wider(above, rules.windows[tier])
    given_up = replace(state, phase=SELECT, todo=state.todo[1:], above=above, failed_on=tier)
    if isinstance(error, ChainCut) and state.lacking is None:
        # A chain among the tiers came to the end of a budget: its own, or this one's.
        given_up = replace(given_up, lacking=error.reason)
    return given_up, (_failure(rules, state, event, "fallback"),)


def _ends(error: TierError, rules: Rules) -> bool:
    """Whether no other tier would mend it."""
    if error.error_class == ErrorClass.INVALID:
        return not getattr(error, "for_this_tier", False)
    return error.error_class == ErrorClass.REFUSED and not rules.fallback_on_refused


def _retry(rules: Rules, state: State, event: Failed, *, delay: float) -> Move:
    source = "hint" if is_hint(event.error.retry_after) else "backoff"
    wait = Report("retry.scheduled", {**_try(rules, state), "seconds": delay, "source": source})
    effects: tuple[Effect, ...] = (_failure(rules, state, event, "retry"), wait)
    if state.shown:
        effects = (*effects, Forget(state.tries + 1))
    return replace(state, phase=BACKOFF, delay=delay, shown=False), effects


def _passed_on(rules: Rules, state: State, event: Failed) -> Move:
    finish = {"tier": rules.ids[state.todo[0]], "finish": "error-post", "attempts": state.tries}
    effects = (_failure(rules, state, event, "passthrough"), Report("chain.finished", finish))
    return replace(state, phase=DONE, error=event.error), effects


def _woke(rules: Rules, state: State, event: Woke) -> Move:
    report = Report("retry.started", {"tier": rules.ids[state.todo[0]], "attempt": state.attempt + 1})
    return replace(state, phase=PREPARE), (report,)


def _lapsed(rules: Rules, state: State, event: Lapsed) -> Move:
    error = event.error
    committed = state.phase is COMMITTED
    effects: list[Effect] = []
    if committed or state.phase is ATTEMPT:
        failure = Failed(error, event.seconds)
        effects.append(_failure(rules, state, failure, "passthrough" if committed else "stop"))
    if error.reason is not CutReason.DEADLINE:
        effects.append(Report("budget.exceeded", {"reason": str(error.reason)}))
    content = "post" if committed else "pre"
    effects.append(Report("chain.deadline", {"reason": str(error.reason), "content": content, "attempts": state.tries}))
    return replace(state, phase=DONE if committed else FAILED, error=error), tuple(effects)


def _aborted(rules: Rules, state: State, event: Aborted) -> Move:
    over = Report("chain.aborted", {"attempts": state.tries})
    gone = replace(state, phase=ABORTED)
    if state.phase in (ATTEMPT, COMMITTED):
        return gone, (Report("attempt.cancelled", _try(rules, state)), over)
    return gone, (over,)


def _try(rules: Rules, state: State) -> dict[str, Any]:
    return {"tier": rules.ids[state.todo[0]], "attempt": state.attempt}


def _failure(rules: Rules, state: State, event: Failed, then: str) -> Report:
    error = event.error
    fields = {
        **_try(rules, state),
        "error_class": str(error.error_class),
        "status": error.status,
        "message": error.message,
        "seconds": event.seconds,
        "content": "post" if state.phase is COMMITTED else "pre",
        "next": then,
    }
    return Report("attempt.failed", fields, error.error_class in _LOUD)


_TABLE: dict[tuple[Phase, type[Any]], Callable[[Rules, State, Any], Move]] = {
    (SELECT, Go): _select,
    (PREPARE, Ready): _ready,
    (PREPARE, Unfit): _unfit,
    (ATTEMPT, Content): _content,
    (ATTEMPT, Ended): _ended,
    (ATTEMPT, Failed): _failed,
    (BACKOFF, Woke): _woke,
    (COMMITTED, Ended): _ended,
    (COMMITTED, Failed): _passed_on,
    **{(phase, Lapsed): _lapsed for phase in OPEN},
    **{(phase, Aborted): _aborted for phase in OPEN},
}
