"""What a run may spend, and what it has spent: set aside before each try, settled after it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any

import msgspec

from isthmus.chain.prices import Prices, amount
from isthmus.chain.tier import Member
from isthmus.errors import ConfigError, CutReason
from isthmus.models.events import Usage

FLOOR = 64
"""The smallest output ceiling, in tokens, that a try is begun with because of a budget."""

UNTOLD = 8192
"""The output ceiling, in tokens, of a try for which nobody named one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one run may spend; None is without limit. Exactly at a limit is within it.

    Steps and tool calls count once, tokens, money and time for every try, failed and cut ones too. What would go
    beyond is not begun: the call is cut with the reason "budget-…".

    Args:
        steps: model calls.
        calls: tool calls; of a batch that does not fit, none is run.
        tokens: prompt and output tokens together.
        input_tokens: prompt tokens, cached ones too.
        output_tokens: output tokens.
        cost: money, in the currency of the chain's prices.
        seconds: time from the beginning of the run, counted while a model is awaited.

    Raises:
        ConfigError: a limit that is not above 0.
    """

    steps: int | None = 20
    calls: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.cost is not None:
            object.__setattr__(self, "cost", amount(self.cost, "Budget", key="cost"))
        for each in fields(self):
            value = getattr(self, each.name)
            whole = each.name not in ("cost", "seconds")
            if value is None or (each.name == "cost" and value > 0):
                continue
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
                kind = "a whole number" if whole else "a number"
                raise ConfigError(f"must be {kind} above 0, or None, not {value!r}", where="Budget", key=each.name)

    @property
    def measured(self) -> bool:
        """Whether tokens or money are limited."""
        return any(limit is not None for limit in (self.tokens, self.input_tokens, self.output_tokens, self.cost))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a run has spent so far.

    Args:
        steps: model calls.
        input_tokens: prompt tokens, cached ones too.
        output_tokens: output tokens.
        cost: money, as far as it is known.
        estimated: whether a count of tokens is an estimate.
        unpriced: whether some tokens have no known price, so that `cost` is less than was spent, or, under a limit of
            money, holds what was set aside for them.
    """

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    estimated: bool = False
    unpriced: bool = False


class Hold(msgspec.Struct, frozen=True):
    """What is set aside for one try."""

    prompt: int
    output: int
    cost: Decimal


class Account:
    """One run's spending against its budget; calls of the run that are under way at once share it.

    Args:
        budget: the limits.
        prices: what tokens cost; None where nobody said.
        began: when the run began, by the chain's clock.
    """

    __slots__ = ("_held", "_prices", "began", "budget", "spent")

    def __init__(self, budget: Budget, prices: Prices | None, *, began: float) -> None:
        self.budget = budget
        self.began = began
        self.spent = Spending()
        self._prices = prices
        self._held: list[Hold] = []

    def step(self) -> bool:
        """Count one more model call; False, and nothing counted, where all are used."""
        if self.budget.steps is not None and self.spent.steps >= self.budget.steps:
            return False
        self.spent = replace(self.spent, steps=self.spent.steps + 1)
        return True

    def reserve(self, member: Member, prompt: int, *, ceiling: int) -> Hold | CutReason:
        """Set aside what a try may spend, with the ceiling lowered to what is left; or why too little is left.

        Args:
            member: the tier.
            prompt: the tokens of the prompt, estimated.
            ceiling: the most output tokens that the try asks for.
        """
        budget, spent = self.budget, self.spent
        prompts = spent.input_tokens + sum(hold.prompt for hold in self._held)
        outputs = spent.output_tokens + sum(hold.output for hold in self._held)
        least = min(FLOOR, ceiling)
        room = ceiling
        if budget.input_tokens is not None and prompts + prompt > budget.input_tokens:
            return CutReason.BUDGET_TOKENS
        if budget.output_tokens is not None:
            room = min(room, budget.output_tokens - outputs)
        if budget.tokens is not None:
            room = min(room, budget.tokens - prompts - outputs - prompt)
        if room < least:
            return CutReason.BUDGET_TOKENS
        cost = Decimal(0)
        if budget.cost is not None:
            left = budget.cost - spent.cost - sum(hold.cost for hold in self._held)
            room = self._affordable(member, prompt, room, left=left)
            if room < least:
                return CutReason.BUDGET_COST
            cost = self._most(member, prompt, room)
        hold = Hold(prompt, room, cost)
        self._held.append(hold)
        return hold

    def _most(self, member: Member, prompt: int, output: int) -> Decimal:
        most = None if self._prices is None else self._prices.most(member, prompt, output=output)
        return Decimal("Infinity") if most is None else most

    def _affordable(self, member: Member, prompt: int, room: int, *, left: Decimal) -> int:
        """How many output tokens the money that is left pays for, at most `room`."""
        nothing, all_of_it = self._most(member, prompt, 0), self._most(member, prompt, room)
        if all_of_it <= left:
            return room
        if not all_of_it.is_finite() or nothing > left:
            return -1
        fewer = int((left - nothing) * room / (all_of_it - nothing))
        return fewer if self._most(member, prompt, fewer) <= left else -1

    def drop(self, hold: Hold) -> None:
        """Give back what was set aside for a try that was not begun."""
        self._held.remove(hold)

    def settle(self, hold: Hold, member: Member, *, usage: Usage | None) -> None:
        """Replace what was set aside by what was spent.

        Args:
            hold: what was set aside.
            member: the tier.
            usage: the tokens, with estimates where nobody said; None where nothing was spent.
        """
        self._held.remove(hold)
        if usage is None:
            return
        spent = self.spent
        cost = None if self._prices is None else self._prices.cost(member, usage)
        self.spent = replace(
            spent,
            input_tokens=spent.input_tokens + (usage.prompt_tokens or 0),
            output_tokens=spent.output_tokens + (usage.output_tokens or 0),
            cost=spent.cost + (hold.cost if cost is None else cost),
            estimated=spent.estimated or usage.estimated,
            unpriced=spent.unpriced or cost is None,
        )


def completed(usage: Usage | None, *, prompt: int, output: int) -> Usage:
    """The tokens of a try with estimates for what nobody said, and marked so."""
    if usage is None:
        return Usage(input_tokens=prompt, output_tokens=output, estimated=True)
    missing: dict[str, Any] = {}
    if usage.prompt_tokens is None:
        missing["input_tokens"] = prompt
    elif usage.input_tokens is None:
        missing["input_tokens"] = max(0, prompt - usage.prompt_tokens)
    if usage.output_tokens is None:
        missing["output_tokens"] = output
    return msgspec.structs.replace(usage, **missing, estimated=True) if missing else usage
