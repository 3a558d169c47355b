"""The table of a chain's states, row by row."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec import structs

from isthmus.chain.happenings import Aborted, Content, Ended, Failed, Go, Lapsed, Ready, Unfit, Woke
from isthmus.chain.policy import Forget, Phase, Report, Rules, State, step
from isthmus.errors import ChainCut, CutReason, ErrorClass, tier_error
from isthmus.models.retry import RetryPolicy

RULES = Rules(ids=("a", "b"), windows=(100, 200), owns_retries=(False, False), retry=RetryPolicy())
LATE = ChainCut("over", CutReason.DEADLINE)
TRYING = State(todo=(0, 1), phase=Phase.ATTEMPT, attempt=1, tries=1)


def _failed(kind: str, *, shown: bool = False, **more: Any) -> Failed:
    return Failed(tier_error(kind, "x", **more), 0.5, shown, 1.0)


def _then(state: State, event: Any) -> State:
    return step(RULES, state, event=event)[0]


def _reports(effects: tuple[Any, ...]) -> list[str]:
    return [effect.type for effect in effects if isinstance(effect, Report)]


def _next_of(effects: tuple[Any, ...]) -> str:
    (report,) = (effect for effect in effects if isinstance(effect, Report) and effect.type == "attempt.failed")
    return str(report.fields["next"])


def test_select_takes_the_first_usable_tier() -> None:
    """SELECT and a usable tier: PREPARE; once that is done, ATTEMPT of number 1."""
    state, effects = step(RULES, State(todo=(0, 1)), event=Go())
    assert (state.phase, state.todo, _reports(effects)) == (Phase.PREPARE, (0, 1), ["tier.selected"])
    state, effects = step(RULES, state, event=Ready())
    assert (state.phase, state.todo, state.attempt, state.tries) == (Phase.ATTEMPT, (0, 1), 1, 1)
    assert _reports(effects) == ["attempt.started"]


def test_select_skips_windows_that_are_too_small() -> None:
    """SELECT after an overflow: smaller and equal windows are skipped, unknown ones are not."""
    state, effects = step(RULES, State(todo=(0, 1), above=100), event=Go())
    assert (state.todo, _reports(effects)[0]) == ((1,), "tier.skipped")
    unknown = dataclasses.replace(RULES, windows=(None, 200))
    assert step(unknown, State(todo=(0, 1), above=500), event=Go())[0].todo == (0, 1)


def test_select_without_a_tier_is_exhausted() -> None:
    """SELECT with no tier left: EXHAUSTED."""
    state, effects = step(RULES, State(todo=(), tries=3), event=Go())
    assert (state.phase, _reports(effects)) == (Phase.EXHAUSTED, ["chain.exhausted"])


def test_content_commits() -> None:
    """ATTEMPT and the first content: COMMITTED."""
    state, effects = step(RULES, TRYING, event=Content(0.1))
    assert (state.phase, _reports(effects)) == (Phase.COMMITTED, ["attempt.committed"])


@pytest.mark.parametrize("phase", [Phase.ATTEMPT, Phase.COMMITTED])
def test_a_finish_is_the_end(phase: Phase) -> None:
    """ATTEMPT or COMMITTED and a finish: DONE; without content the reply is called empty."""
    state, effects = step(RULES, structs.replace(TRYING, phase=phase), event=Ended("stop", 0.5))
    assert (state.phase, _reports(effects)) == (Phase.DONE, ["attempt.finished", "chain.finished"])
    assert isinstance(effects[0], Report)
    assert effects[0].fields.get("empty", False) is (phase is Phase.ATTEMPT)


@pytest.mark.parametrize(
    ("kind", "phase", "then"),
    [
        ("transient", Phase.BACKOFF, "retry"),
        ("unavailable", Phase.SELECT, "fallback"),
        ("credentials", Phase.SELECT, "fallback"),
        ("overflow", Phase.SELECT, "fallback"),
        ("protocol", Phase.SELECT, "fallback"),
        ("unclassified", Phase.SELECT, "fallback"),
        ("refused", Phase.FAILED, "stop"),
        ("invalid", Phase.FAILED, "stop"),
    ],
)
def test_a_failure_before_content_goes_by_its_class(kind: str, phase: Phase, then: str) -> None:
    """ATTEMPT and a failure: retry, fallback or stop, by the class."""
    state, effects = step(RULES, TRYING, event=_failed(kind))
    assert (state.phase, _next_of(effects)) == (phase, then)
    assert state.todo == ((1,) if phase is Phase.SELECT else (0, 1))


def test_retries_are_bounded() -> None:
    """ATTEMPT number 3 and a transient failure: the two retries are spent, so the next tier."""
    assert step(RULES, structs.replace(TRYING, attempt=2), event=_failed("transient"))[0].phase is Phase.BACKOFF
    assert step(RULES, structs.replace(TRYING, attempt=3), event=_failed("transient"))[0].phase is Phase.SELECT


def test_the_wait_is_the_policys() -> None:
    """BACKOFF waits the drawn backoff, or the hint; the report says which."""
    state, effects = step(RULES, structs.replace(TRYING, attempt=2), event=_failed("transient"))
    assert state.delay == 0.5
    hinted, told = step(RULES, TRYING, event=_failed("transient", retry_after=7.0))
    assert hinted.delay == 7.0
    assert [e.fields["source"] for e in (*effects, *told) if isinstance(e, Report) and "source" in e.fields] == [
        "backoff",
        "hint",
    ]


def test_a_refusal_may_fall_back() -> None:
    """ATTEMPT and `refused`, opted in: the next tier."""
    rules = dataclasses.replace(RULES, fallback_on_refused=True)
    assert step(rules, TRYING, event=_failed("refused"))[0].phase is Phase.SELECT


def test_a_wait_that_is_over_tries_the_same_tier() -> None:
    """BACKOFF and the wait over: PREPARE, then ATTEMPT n+1, of the same tier."""
    waiting, _ = step(RULES, TRYING, event=_failed("transient"))
    state, effects = step(RULES, waiting, event=Woke())
    assert (state.phase, _reports(effects)) == (Phase.PREPARE, ["retry.started"])
    state, effects = step(RULES, state, event=Ready())
    assert (state.phase, state.todo, state.attempt, state.tries) == (Phase.ATTEMPT, (0, 1), 2, 2)
    assert _reports(effects) == ["attempt.started"]


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_no_failure_after_content_is_tried_again(kind: str) -> None:
    """F05: COMMITTED and any failure: DONE, passed through."""
    state, effects = step(RULES, structs.replace(TRYING, phase=Phase.COMMITTED), event=_failed(kind))
    assert (state.phase, _next_of(effects)) == (Phase.DONE, "passthrough")


@pytest.mark.parametrize("phase", [Phase.SELECT, Phase.PREPARE, Phase.ATTEMPT, Phase.BACKOFF, Phase.COMMITTED])
def test_an_abort_ends_any_state(phase: Phase) -> None:
    """Any state that is not an end, and an abort: ABORTED, with a cancelled try only where one was under way."""
    state, effects = step(RULES, structs.replace(TRYING, phase=phase), event=Aborted())
    under_way = phase in (Phase.ATTEMPT, Phase.COMMITTED)
    assert (state.phase, _reports(effects)) == (Phase.ABORTED, ["attempt.cancelled"] * under_way + ["chain.aborted"])


def test_side_events_are_taken_back_once() -> None:
    """F05: a retry forgets at once; a fallback when there is a tier to go to; neither does so twice."""
    waiting, effects = step(RULES, TRYING, event=_failed("transient", shown=True))
    assert effects[-1] == Forget(2)
    assert Forget not in map(type, step(RULES, _then(waiting, Woke()), event=Ready())[1])
    gone, effects = step(RULES, TRYING, event=_failed("unavailable", shown=True))
    assert Forget not in map(type, effects)
    assert Forget(2) in step(RULES, _then(gone, Go()), event=Ready())[1]
    last = structs.replace(gone, todo=())
    assert Forget not in map(type, step(RULES, last, event=Go())[1])


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_what_somebody_must_mend_is_loud(kind: str) -> None:
    """Credentials, protocol and unclassified failures are marked for the log, before and after content."""
    for phase in (Phase.ATTEMPT, Phase.COMMITTED):
        _, effects = step(RULES, structs.replace(TRYING, phase=phase), event=_failed(kind))
        assert isinstance(effects[0], Report)
        assert effects[0].loud is (kind in ("credentials", "protocol", "unclassified"))


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.EXHAUSTED, Phase.FAILED, Phase.ABORTED])
def test_an_end_is_an_end(phase: Phase) -> None:
    """Nothing can happen after an end."""
    for event in (
        Go(),
        Ready(),
        Unfit(CutReason.WINDOW),
        Lapsed(LATE),
        Content(0),
        Ended("stop", 0),
        _failed("transient"),
        Woke(),
        Aborted(),
    ):
        with pytest.raises(RuntimeError, match=f"cannot happen in {phase}"):
            step(RULES, structs.replace(TRYING, phase=phase), event=event)


def test_select_goes_past_what_is_cooling() -> None:
    """SELECT and a cooling tier: the next one; all cooling and none tried: the first, forced, and on from there."""
    state, effects = step(RULES, State(todo=(0, 1)), event=Go(frozenset({0})))
    assert (state.todo, _reports(effects)) == ((1,), ["tier.skipped", "tier.selected"])
    forced, effects = step(RULES, State(todo=(0, 1)), event=Go(frozenset({0, 1})))
    assert (forced.phase, forced.todo, forced.forced) == (Phase.PREPARE, (0, 1), True)
    assert _reports(effects)[-2:] == ["tier.forced", "tier.selected"]
    tried, _ = step(RULES, State(todo=(1,), tries=1), event=Go(frozenset({1})))
    assert tried.phase is Phase.EXHAUSTED


def test_an_unfit_tier_is_passed_over() -> None:
    """PREPARE and too little of something: the next tier; with none left, a cut that says what was lacking."""
    ready = State(todo=(0, 1), phase=Phase.PREPARE)
    for reason in (CutReason.WINDOW, CutReason.BUDGET_TOKENS, CutReason.BUDGET_COST):
        state, effects = step(RULES, ready, event=Unfit(reason))
        assert (state.phase, state.todo, _reports(effects)) == (Phase.SELECT, (1,), ["tier.skipped"])
        failed, _ = step(RULES, structs.replace(state, todo=()), event=Go())
        assert failed.phase is Phase.FAILED
        assert isinstance(failed.error, ChainCut)
        assert failed.error.reason is reason
    after = structs.replace(_then(ready, Unfit(CutReason.WINDOW)), todo=(), tries=1)
    assert _then(after, Go()).phase is Phase.EXHAUSTED
    both = _then(
        structs.replace(_then(ready, Unfit(CutReason.WINDOW)), phase=Phase.PREPARE), Unfit(CutReason.BUDGET_COST)
    )
    assert both.lacking is CutReason.BUDGET_COST


def test_an_overflow_is_rendered_smaller_once() -> None:
    """ATTEMPT and an overflow, where requests are rendered: PREPARE of the same tier; the second time SELECT."""
    rules = dataclasses.replace(RULES, renders=True)
    again, effects = step(rules, TRYING, event=_failed("overflow"))
    assert (again.phase, again.todo, again.smaller, _next_of(effects)) == (Phase.PREPARE, (0, 1), True, "rerender")
    gone, effects = step(rules, _then(again, Ready()), event=_failed("overflow"))
    assert (gone.phase, gone.above, _next_of(effects)) == (Phase.SELECT, 100, "fallback")


def test_no_wait_beyond_the_time_that_is_left() -> None:
    """ATTEMPT and a passing failure whose wait is longer than what is left: the next tier."""
    for left, phase in ((0.3, Phase.BACKOFF), (0.2, Phase.SELECT), (None, Phase.BACKOFF)):
        event = Failed(tier_error("transient", "x"), 0.5, False, 1.0, left)
        assert _then(TRYING, event).phase is phase


@pytest.mark.parametrize("phase", [Phase.SELECT, Phase.PREPARE, Phase.ATTEMPT, Phase.BACKOFF, Phase.COMMITTED])
@pytest.mark.parametrize("reason", [CutReason.DEADLINE, CutReason.BUDGET_TIME])
def test_time_that_is_over_ends_any_state(phase: Phase, reason: CutReason) -> None:
    """Any state that is not an end, and the end of the time: FAILED, or after content DONE; a budget's is called so."""
    state, effects = step(RULES, structs.replace(TRYING, phase=phase), event=Lapsed(ChainCut("over", reason)))
    assert state.phase is (Phase.DONE if phase is Phase.COMMITTED else Phase.FAILED)
    under_way = ["attempt.failed"] * (phase in (Phase.ATTEMPT, Phase.COMMITTED))
    exceeded = ["budget.exceeded"] * (reason is CutReason.BUDGET_TIME)
    assert _reports(effects) == [*under_way, *exceeded, "chain.deadline"]
