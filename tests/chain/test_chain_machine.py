"""A run of a chain against everything that can happen, call by call: a state machine that hypothesis plays."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus import Agent
from isthmus.chain import Budget, ChainCut, Cooldown, CutReason, Price, TierError, define_chain
from isthmus.chain.seams import Rendered
from isthmus.conformance import Fault, faulty, scripted
from isthmus.models.adaptive import AdaptiveConcurrencyLimiter
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Call, Finish, Reset, Text, Usage
from isthmus.models.retry import Clock
from isthmus.models.tools import Tool
from support.chain_doubles import Recorder
from support.virtual_time import run_virtual

_ENDS = ("chain.finished", "chain.exhausted", "chain.failed", "chain.aborted", "chain.deadline")
_OUTCOMES = ("attempt.finished", "attempt.failed", "attempt.cancelled")
_TOKENS = (20, 30)
_CTX = GenerateContext(messages=({"role": "user", "content": "hi"},), max_output_tokens=100)
_PRICES = {"inner-a": Price(input=1, output=1), "inner-b": Price(input=2, output=2), "last": Price(input=0, output=3)}


def _exact(ctx: GenerateContext, tier: Any, *, smaller: bool) -> Any:
    """A renderer whose estimate is exactly what the tiers will say."""
    return None if smaller else Rendered(ctx=ctx, input_tokens=_TOKENS[0])


_FAULT = st.one_of(
    st.none(),
    st.sampled_from(["transient", "unavailable", "credentials", "overflow", "refused", "invalid", "protocol"]),
    st.builds(
        lambda kind, after: Fault.fail(kind, after=after),
        st.sampled_from(["transient", "unavailable", "unclassified"]),
        st.integers(0, 4),
    ),
    st.builds(lambda after: Fault.stall(after=after), st.integers(0, 4)),
    st.builds(lambda after: Fault.cut(after=after), st.integers(0, 4)),
    st.builds(lambda characters: Fault.cut(characters=characters), st.integers(1, 9)),
    st.builds(lambda seconds: Fault.delay(seconds), st.floats(0.1, 9)),
    st.just(Fault.two_finishes()),
    st.just(Fault.inject(after=1)),
)
_PLANS = st.lists(st.lists(_FAULT, max_size=4), min_size=3, max_size=3)
_BUDGET = st.builds(
    Budget,
    steps=st.integers(1, 6),
    tokens=st.none() | st.integers(100, 900),
    output_tokens=st.none() | st.integers(64, 400),
    cost=st.none() | st.sampled_from(["0.0003", "0.001"]),
    seconds=st.none() | st.floats(5, 60),
)
# What the consumer does with each call of the run: reads it whole, or leaves after so many events, or after so long.
_READER = st.one_of(
    st.just(("whole", 0)),
    st.tuples(st.just("events"), st.integers(1, 4)),
    st.tuples(st.just("seconds"), st.floats(0.1, 6)),
)


def _tier(id: str, plan: list[Any], said: Counter[str]) -> Any:
    """A tier that says something new each time, calls a tool at times, and goes wrong as planned."""

    def step(ctx: GenerateContext) -> Any:
        said[id] += 1
        mark = f"{id}{said[id]}"
        usage = Usage(input_tokens=_TOKENS[0], output_tokens=min(_TOKENS[1], ctx.max_output_tokens or 10**6))
        if ctx.tools and ctx.messages[-1]["role"] == "user":
            call = Call("look", {"mark": mark}, f"call-{mark}", f'{{"mark": "{mark}"}}')
            return [call, Finish("tool-calls", usage)]
        # However early it is cut, a text is told from any other: its first character is its own.
        one, other = (chr(0x4E00 + 2 * said.total() + more) for more in (0, 1))
        return [Text(f"{one}{mark}."), Text(f"{other}{mark}>"), Finish("stop", usage)]

    inner = scripted([step] * 60, id=id, window_tokens=9_000, max_output_tokens=900, supports={"tools"})
    return faulty(inner, plan)


def _chain(plans: list[list[Any]], budget: Budget | None, said: Counter[str], **settings: Any) -> Any:
    clock = Clock(now=asyncio.get_running_loop().time, random=lambda: 0.5)
    first, second, last = (
        _tier(name, plan, said) for name, plan in zip(("inner-a", "inner-b", "last"), plans, strict=True)
    )
    limits = Timeouts(first_content=3.0, idle=2.0)
    common: dict[str, Any] = {"timeouts": limits, "clock": clock, "context": _exact, "prices": _PRICES}
    inner = define_chain(id="inner", tiers=[first, second], cooldown=Cooldown(failures=2, seconds=5), **common)
    return define_chain(
        id="outer",
        tiers=[inner, last],
        budget=budget,
        limits={"last": AdaptiveConcurrencyLimiter(2)},
        **common,
        **settings,
    )


async def _read(run: Any, way: str, count: float) -> tuple[list[Any], BaseException | None, bool]:
    """The events of one call, its failure, and whether the reader left early."""
    events: list[Any] = []

    async def read() -> None:
        async with run.stream(_CTX) as stream:
            async for event in stream:
                events.append(event)
                if way == "events" and len(events) == count and not isinstance(event, Finish):
                    return

    task = asyncio.create_task(read())
    if way == "seconds":
        await asyncio.wait([task], timeout=count)
        left = not task.done()
        task.cancel()
        await asyncio.wait([task])
        failure = None if task.cancelled() else task.exception()
        return events, failure, left
    await asyncio.wait([task])
    return events, task.exception(), not task.exception() and not any(isinstance(e, Finish) for e in events)


def _check_call(events: list[Any], failure: BaseException | None, left: bool) -> None:
    assert failure is None or isinstance(failure, TierError), repr(failure)
    finishes = [event for event in events if isinstance(event, Finish)]
    content = [at for at, event in enumerate(events) if isinstance(event, Call) or getattr(event, "text", "")]
    resets = [at for at, event in enumerate(events) if isinstance(event, Reset)]
    if not left:
        assert len(finishes) + (failure is not None) == 1, "exactly one terminal event"
    assert not finishes or events[-1] is finishes[0], "something after the terminal event"
    assert failure is None or not content, "an error after content"
    assert not content or all(at < content[0] for at in resets), "a reset after content"


def _check_spending(run: Any, budget: Budget) -> None:
    spent = run.spent
    assert spent.steps <= (budget.steps or 0)
    # Only tries that ended by themselves say what they took; the others are estimates.
    if not spent.estimated:
        assert budget.tokens is None or spent.input_tokens + spent.output_tokens <= budget.tokens
        assert budget.output_tokens is None or spent.output_tokens <= budget.output_tokens
        assert budget.cost is None or spent.cost <= budget.cost
    over = 40
    assert budget.tokens is None or spent.input_tokens + spent.output_tokens <= budget.tokens + over
    reported = [leaf.usage for leaf in _leaves(run.attempts) if leaf.usage is not None]
    known = sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in reported)
    assert known <= spent.input_tokens + spent.output_tokens, "a try that said what it took was not counted"
    assert spent.estimated or known == spent.input_tokens + spent.output_tokens


def _check_records(records: list[Any]) -> None:
    calls: dict[int, list[Any]] = {}
    for record in records:
        calls.setdefault(record.call, []).append(record)
    for call in calls.values():
        types = [record.type for record in call]
        assert [record.seq for record in call] == list(range(1, len(call) + 1)), "a gap in the numbers"
        assert len({(record.run, record.step, record.chain) for record in call}) == 1
        assert types.count("attempt.started") == sum(types.count(kind) for kind in _OUTCOMES), types
        assert sum(types.count(kind) for kind in _ENDS) == 1, types
        assert types[-1] in _ENDS, types
        assert types.count("budget.reserved") >= types.count("budget.settled")
        if "attempt.committed" in types:
            assert "attempt.started" not in types[types.index("attempt.committed") :], types


def _leaves(attempts: tuple[Any, ...]) -> list[Any]:
    return [leaf for each in attempts for leaf in (each.attempts if each.tier == "inner" else [each])]


@given(_PLANS, _BUDGET, st.lists(_READER, min_size=1, max_size=6), st.none() | st.floats(4, 12))
@settings(max_examples=60, deadline=None)
def test_a_run_keeps_every_law(
    plans: list[list[Any]], budget: Budget, readers: list[tuple[str, float]], step_timeout: float | None
) -> None:
    """F05, F09, F10, F11, F24: one end a call, nothing said twice, no budget exceeded, records whole, nothing left."""

    async def main() -> None:
        said: Counter[str] = Counter()
        chain = _chain(plans, budget, said, step_timeout=step_timeout)
        texts: list[str] = []
        with Recorder() as seen:
            async with chain.open_run() as run:
                for way, count in readers:
                    events, failure, left = await _read(run, way, count)
                    _check_call(events, failure, left)
                    texts += [event.text for event in events if isinstance(event, Text) and event.text]
                    if isinstance(failure, ChainCut):
                        assert failure.reason in tuple(CutReason)
                _check_spending(run, budget)
                attempts = _leaves(run.attempts)
        assert len(texts) == len(set(texts)), "a text was said twice"
        assert all(attempt.attempt <= 3 for attempt in attempts)
        _check_records(seen.events)
        started = [record for record in seen.events if record.type == "attempt.started"]
        assert len([record for record in started if record.tier != "inner"]) == len(attempts)

    run_virtual(main())


@given(_PLANS, st.integers(1, 3), st.none() | st.integers(1, 3), st.none() | st.floats(0.1, 8))
@settings(max_examples=40, deadline=None)
def test_an_agent_runs_no_call_twice(
    plans: list[list[Any]], steps: int, calls: int | None, leave_after: float | None
) -> None:
    """F05, F10: over random faults each call runs at most once, only after a whole reply, and a run has one outcome."""

    async def main() -> None:
        said: Counter[str] = Counter()
        ran: list[str] = []

        def look(mark: str) -> str:
            ran.append(mark)
            return mark

        chain = _chain(plans, Budget(steps=steps, calls=calls), said)
        agent = Agent(model=chain, tools=[Tool.from_function(look)])
        stream = agent.run_stream("hi")

        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(read())
        await asyncio.wait([task], timeout=leave_after)
        await stream.aclose()
        await asyncio.wait([task])
        outcome = stream.outcome
        assert outcome is not None
        assert len(ran) == len(set(ran)), "a call ran twice"
        assert calls is None or len(ran) <= calls
        assert outcome.steps <= steps
        finished = [a for a in outcome.attempts if a.finish == "tool-calls"]
        assert len(ran) <= len(finished), "a call of a broken reply ran"
        if outcome.outcome == "completed":
            assert outcome.attempts[-1].finish == "stop"
            assert outcome.reason is None
        assert outcome.cost is None or outcome.cost > Decimal(0)
        roles = [message["role"] for message in outcome.messages]
        assert roles.count("tool") == sum(len(m.get("tool_calls", ())) for m in outcome.messages), (
            "a call without result"
        )

    run_virtual(main())
