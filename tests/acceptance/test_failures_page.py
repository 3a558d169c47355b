"""The tables of docs/failures.md and docs/chains.md, row by row: a chain of tiers meets each failure."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isthmus import Agent, as_tool, define_chain
from isthmus.chain import Budget, tier_error
from isthmus.chain.ledger import Attempt
from isthmus.errors import ErrorClass, TierError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Call, Finish, Text
from support.chain_doubles import HANG, OK, FakeTime, PlayTier

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]*) \| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", re.M)
CLASS = re.compile(r"^\| `([a-z]+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.M)
TOOLS = frozenset({"tools"})


@dataclass
class Scene:
    """What the two tiers do, and how the chain is set up."""

    first: tuple[Any, ...]
    second: tuple[Any, ...] = (OK,)
    options: dict[str, Any] = field(default_factory=dict)
    window: int = 8000
    prompt: str = "hi"
    leave: bool = False


def _err(kind: str) -> Any:
    return tier_error(kind, "deliberate")


HALF = Text("half an")
LOOK = Call("look", {}, "c1")
SCENES: dict[str, Callable[[], Scene]] = {
    "a passing failure before any text, once": lambda: Scene(([_err("transient")], OK)),
    "the same, three times": lambda: Scene(([_err("transient")],)),
    "no answer within the time for the first content": lambda: Scene(
        ([HANG],), options={"timeouts": Timeouts(first_content=0.03)}
    ),
    "down, or overloaded": lambda: Scene(([_err("unavailable")],)),
    "a wrong key, or an unpaid bill": lambda: Scene(([_err("credentials")],)),
    "a reply that breaks the protocol, or just ends, before any text": lambda: Scene(([],)),
    "an exception that nobody classified": lambda: Scene(([RuntimeError("bug")],)),
    "a prompt too long for the first tier": lambda: Scene(([_err("overflow")],), window=4000),
    "a prompt too long for every tier": lambda: Scene((OK,), prompt="x" * 60_000),
    "a wrong request": lambda: Scene(([_err("invalid")],)),
    "a refusal before any text": lambda: Scene(([_err("refused")],)),
    "the provider's filter stops the reply": lambda: Scene(((HALF, Finish("content-filter")),)),
    "the model refuses in words": lambda: Scene(((HALF, Finish("refusal")),)),
    "every tier is down": lambda: Scene(([_err("unavailable")],), ([_err("unavailable")],)),
    "the stream breaks after text": lambda: Scene(((HALF, _err("transient")),)),
    "the stream just ends after text": lambda: Scene(((HALF,),)),
    "the stream stalls after text": lambda: Scene(((HALF, HANG),), options={"timeouts": Timeouts(idle=0.03)}),
    "the stream breaks after a tool call": lambda: Scene(((LOOK, _err("transient")),)),
    "the time for all tries is over before any text": lambda: Scene(([HANG],), options={"step_timeout": 0.03}),
    "the time for all tries is over after text": lambda: Scene(((HALF, HANG),), options={"step_timeout": 0.03}),
    "the steps of the budget are used": lambda: Scene(
        ((LOOK, Finish("tool-calls")),), options={"budget": Budget(steps=1)}
    ),
    "the tool calls of the budget are used": lambda: Scene(
        ((LOOK, Call("look", {}, "c2"), Finish("tool-calls")),), options={"budget": Budget(calls=1)}
    ),
    "the tokens of the budget do not pay for the prompt": lambda: Scene((OK,), options={"budget": Budget(tokens=3)}),
    "the reader stops reading": lambda: Scene(((HALF, HANG),), leave=True),
}


def rows() -> dict[str, tuple[str, ...]]:
    """The table of the page, by its first column."""
    return {match[0]: match[1:] for match in ROW.findall((DOCS / "failures.md").read_text("utf-8"))}


async def _met(scene: Scene) -> tuple[str, str, str, str]:
    ran: list[str] = []

    @as_tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "found"

    clock = {} if "timeouts" in scene.options or "step_timeout" in scene.options else {"clock": FakeTime().clock()}
    tiers = [
        PlayTier("first", *scene.first, window=scene.window, supports=TOOLS),
        PlayTier("second", *scene.second, window=9000, supports=TOOLS),
    ]
    chain = define_chain(id="c", tiers=tiers, **clock, **scene.options)
    agent = Agent(model=chain, tools=[look])
    texts: list[str] = []
    async with agent.run_stream(scene.prompt) as stream:
        with suppress(TierError):
            async for event in stream:
                if isinstance(event, Text):
                    texts.append(event.text)
                    if scene.leave:
                        break
    outcome = stream.outcome
    assert outcome is not None
    assert [tier.open for tier in tiers] == [0, 0]
    if "budget-steps" not in str(outcome.reason):
        assert ran == []
    attempts: tuple[Attempt, ...] = outcome.attempts
    return (
        "".join(texts),
        outcome.outcome,
        f"`{outcome.reason}`" if outcome.reason else "",
        ", ".join(attempt.tier for attempt in attempts),
    )


def test_the_page_has_a_row_for_each_scene() -> None:
    """No failure is played that the page does not tell of, and none is told of that is not played."""
    assert list(rows()) == list(SCENES)


@pytest.mark.parametrize("name", SCENES)
async def test_the_row_is_what_happens(name: str) -> None:
    """What the reader sees, how the turn ends, why, and which tiers were tried is what the page says."""
    assert await _met(SCENES[name]()) == rows()[name]


CLASSES = {match[0]: match[1:] for match in CLASS.findall((DOCS / "chains.md").read_text("utf-8"))}
# What the cells of that table mean, for a chain of two tiers with the same window and a third with a larger one.
TRIES = {"yes": 3, "no": 1, "once, rendered smaller": 2}
SERVED = {"when these are spent": 1, "at once": 1, "at once, loudly": 1, "only with a larger window": 2, "no": None}


def test_the_page_tells_of_each_class() -> None:
    """The table has a row for each error class, and no other."""
    assert set(CLASSES) == set(ErrorClass)


@pytest.mark.parametrize("kind", list(CLASSES))
@pytest.mark.parametrize("fallback", [False, True])
async def test_the_row_of_a_class_is_what_a_chain_does(
    kind: str, fallback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """How often the tier is tried that failed, who answers then, and whether it is said aloud, is as the page says."""
    again, then = CLASSES[kind]
    tiers = [PlayTier("a", [_err(kind)]), PlayTier("b", OK), PlayTier("c", OK, window=9000)]
    chain = define_chain(id="c", tiers=tiers, clock=FakeTime().clock(), fallback_on_refused=fallback)
    turns = [{"role": role, "content": "x" * 4000} for role in ("user", "assistant", "user", "assistant", "user")]
    ctx = GenerateContext(messages=turns)  # type: ignore[arg-type]
    if then == "with `fallback_on_refused`":
        then = "at once" if fallback else "no"
    if SERVED[then] is None:
        with pytest.raises(TierError):
            await chain.generate(ctx)
    else:
        assert (await chain.generate(ctx)).text == "fine"
    assert len(tiers[0].calls) == TRIES[again]
    assert [len(tier.calls) for tier in tiers[1:]] == [int(SERVED[then] == at) for at in (1, 2)]
    assert bool(caplog.records) == then.endswith("loudly")
