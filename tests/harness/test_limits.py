"""A chain's budget in an agent: which limit counts, and what a run that meets it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.chain import Budget, CutReason, define_chain
from isthmus.harness import DefaultAgent, Limits
from isthmus.models.events import Finish, Text, Usage
from support.chain_doubles import PlayTier
from support.turns import Turns, asks, call, says

RAN: list[int] = []


def add(a: int, b: int) -> int:
    """Add two numbers."""
    RAN.append(a + b)
    return a + b


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


def agent_over(model: Any, budget: Budget | None, limits: Limits | None = None) -> DefaultAgent:
    """An agent over a chain with a budget."""
    chain = define_chain(id="c", tiers=[model], budget=budget)
    return DefaultAgent(model=chain, tools=[add], limits=limits)


def forever() -> Turns:
    """A model that asks for one more call each time."""
    return Turns(*[asks(call("add", a=n, b=0, call_id=f"c{n}")) for n in range(30)])


@pytest.mark.parametrize(
    ("budget", "limits", "steps"),
    [
        (None, None, 20),
        (Budget(), None, 20),
        (Budget(steps=4), None, 4),
        (Budget(steps=4), Limits(max_steps=2), 2),
        (Budget(steps=4), Limits(max_steps=6), 4),
        (Budget(steps=None), Limits(max_steps=3), 3),
    ],
)
async def test_the_lower_number_of_steps_counts(budget: Any, limits: Any, steps: int) -> None:
    """Of the chain's budget and the agent's limits the lower one ends the run, after exactly so many model calls."""
    model = forever()
    outcome = (await agent_over(model, budget, limits).run("go")).outcome
    assert (outcome.outcome, outcome.reason, outcome.steps) == ("cut", CutReason.BUDGET_STEPS, steps)
    assert len(model.seen) == steps


async def test_of_a_batch_that_does_not_fit_none_is_run() -> None:
    """Two of three calls are used; a batch of two more is cut "budget-calls", unrun, and each call has a result."""
    model = Turns(
        asks(call("add", a=1, b=0, call_id="x"), call("add", a=2, b=0, call_id="y")),
        asks(call("add", a=3, b=0, call_id="z"), call("add", a=4, b=0, call_id="w")),
        says("never"),
    )
    outcome = (await agent_over(model, Budget(calls=3)).run("go")).outcome
    assert (outcome.outcome, outcome.reason, RAN) == ("cut", CutReason.BUDGET_CALLS, [1, 2])
    assert "max_calls=3: 2 are used, and 2 more were asked for" in outcome.detail
    results = [m for m in outcome.messages if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["x", "y", "z", "w"]


async def test_exactly_the_calls_that_are_allowed_run() -> None:
    """A batch that uses the last of the calls is run."""
    model = Turns(asks(call("add", a=1, b=0, call_id="x"), call("add", a=2, b=0, call_id="y")), says("done"))
    outcome = (await agent_over(model, Budget(calls=2)).run("go")).outcome
    assert (outcome.outcome, RAN, outcome.text) == ("completed", [1, 2], "done")


async def test_tokens_that_are_used_up_cut_the_run_with_what_it_had() -> None:
    """The second model call no longer fits: the run is cut "budget-tokens" with its transcript, and says the remedy."""
    usage = Usage(input_tokens=100, output_tokens=50)
    model = Turns(asks(call("add", a=1, b=0, call_id="x"), usage=usage), says("never"))
    outcome = (await agent_over(model, Budget(tokens=200)).run("go")).outcome
    assert (outcome.outcome, outcome.reason) == ("cut", CutReason.BUDGET_TOKENS)
    assert "raise the budget" in outcome.detail
    assert [m["role"] for m in outcome.messages] == ["user", "assistant", "tool"]
    assert len(model.seen) == 1


async def test_each_run_has_the_budget_anew() -> None:
    """A budget is a run's: the next run of the same agent begins with all of it."""
    tier = PlayTier("a", [Text("x"), Finish("stop", Usage(input_tokens=100, output_tokens=50))])
    agent = DefaultAgent(model=define_chain(id="c", tiers=[tier], budget=Budget(tokens=200)))
    outcomes = [(await agent.run("hi")).outcome.outcome for _ in range(3)]
    assert outcomes == ["completed"] * 3


@pytest.mark.parametrize("wrong", [{"max_calls": 0}, {"max_calls": 1.5}, {"max_steps": None}])
def test_numbers_that_cannot_be(wrong: dict[str, Any]) -> None:
    """They are refused by name; only calls may be without limit."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)
