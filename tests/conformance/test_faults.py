"""Faults put into adapters, and scripted ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus import Tier, define_chain
from isthmus.adapters.base import ModelAdapter
from isthmus.chain import RetryPolicy
from isthmus.conformance import Fault, faulty, scripted
from isthmus.conformance.faults import at_random
from isthmus.errors import ConfigError, InvalidRequestError, ProtocolError, TierError, TransientError, tier_error
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, StepResult, Text, Usage
from support.turns import says, tasks

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
SAID = "one two three"


def model(plan: Any, *steps: Any) -> Any:
    """A faulty adapter that says the same for ever."""
    return faulty(scripted(steps or [SAID] * 20), plan)


async def streamed(adapter: Any) -> tuple[list[Any], TierError | None]:
    """The events of a stream and the error that ended it."""
    seen: list[Any] = []
    try:
        async for event in adapter.stream(CTX):
            seen.append(event)
    except TierError as error:
        return seen, error
    return seen, None


async def whole(adapter: Any) -> tuple[str, TierError | None]:
    """The text of a whole reply and what is wrong with it."""
    try:
        result = await adapter.generate(CTX)
    except TierError as error:
        return "", error
    return result.text, result.error


def texts(events: list[Any]) -> str:
    """The text in some events."""
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize("kind", ["transient", "unavailable", "credentials", "overflow", "refused", "invalid"])
async def test_a_class_alone_fails_before_content_and_before_the_call(kind: str) -> None:
    """The name of a class fails every call with it, streamed and whole, before the model is asked."""
    adapter = model(kind)
    for said, error in (await streamed(adapter), await whole(adapter)):
        assert not said
        assert error is not None
        assert error.error_class == kind
    assert adapter.inner.contexts == []


AFTER = [
    (Fault.fail("transient", after=1), "one", "transient"),
    (Fault.fail("transient", characters=6), "one tw", "transient"),
    (Fault.fail(tier_error("unavailable", "x"), after=2), "one two", "unavailable"),
    (Fault.fail("transient", after=99), SAID, "transient"),
    (Fault.cut(after=1), "one", "protocol"),
    (Fault.cut(characters=2), "on", "protocol"),
    (Fault.no_finish(), SAID, "protocol"),
    (Fault.two_finishes(), SAID, "protocol"),
    (Fault.inject(after=1), "one", "protocol"),
    (Fault.inject({"type": "banana"}, characters=4), "one ", "protocol"),
    (Fault.inject(Finish("stop"), after=1), "one", "protocol"),
]


@pytest.mark.parametrize(("fault", "said", "kind"), AFTER)
async def test_a_fault_after_content_leaves_what_came_before(fault: Fault, said: str, kind: str) -> None:
    """F01: after content a fault is an error of its class on both faces, and what had gone out is kept."""
    adapter = model(fault)
    events, error = await streamed(adapter)
    assert (texts(events), error and error.error_class) == (said, kind)
    text, failure = await whole(adapter)
    assert (text, failure and failure.error_class) == (said, kind)


async def test_any_exception_can_be_raised() -> None:
    """An exception of no class comes out of a stream as it is, and of a whole reply classified."""
    adapter = model(Fault.fail(KeyError("x"), after=1))
    with pytest.raises(KeyError):
        await streamed(adapter)
    text, error = await whole(adapter)
    assert (text, error and error.error_class) == ("one", "unclassified")


async def test_a_wrong_type_is_a_protocol_error_on_both_faces() -> None:
    """An event with a field of a wrong type fails the reply."""
    adapter = model(Fault.wrong_type(after=1))
    _, error = await streamed(adapter)
    assert isinstance(error, ProtocolError)
    assert isinstance((await whole(adapter))[1], ProtocolError)


async def test_an_empty_stream_is_no_reply() -> None:
    """A cut before anything is an error without content."""
    adapter = model(Fault.cut())
    assert isinstance((await streamed(adapter))[1], ProtocolError)
    assert (await whole(adapter))[0] == ""


@settings(deadline=None)
@given(st.text(min_size=1), st.integers(1, 5))
def test_a_split_changes_no_text(text: str, size: int) -> None:
    """A split hands out pieces of at most so many characters, and the reply is the same."""

    async def main() -> None:
        adapter = model(Fault.split(size), text, text)
        events, error = await streamed(adapter)
        assert error is None
        assert texts(events) == text
        assert all(len(event.text) <= size for event in events if isinstance(event, Text))
        assert (await whole(adapter))[0] == text

    asyncio.run(main())


async def test_a_stall_hangs_until_it_is_cancelled() -> None:
    """F24: after its place a stall says nothing; cancelled, it leaves nothing behind."""
    adapter = model(Fault.stall(after=1))
    for call in (streamed, whole):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await call(adapter)
    assert not tasks()


async def test_a_delay_waits_and_is_right() -> None:
    """A delay comes once, or before each event, and the reply is whole."""
    loop = asyncio.get_running_loop()
    for fault, least in ((Fault.delay(0.02, after=1), 0.02), (Fault.delay(0.01, each=True), 0.04)):
        before = loop.time()
        events, error = await streamed(model(fault))
        assert (texts(events), error) == (SAID, None)
        assert loop.time() - before >= least


@pytest.mark.parametrize(
    ("plan", "failed"),
    [
        ("transient", [1, 2, 3, 4]),
        (["transient", None, "transient"], [1, 3]),
        ({2: "transient"}, [2]),
        (lambda number: "transient" if number % 2 else None, [1, 3]),
        (None, []),
    ],
)
async def test_a_plan_says_which_calls_fail(plan: Any, failed: list[int]) -> None:
    """Every call, some in turn, the n-th, or by a rule: streams and whole replies are counted together."""
    adapter = model(plan)
    outcomes = [await (whole if number % 2 else streamed)(adapter) for number in range(4)]
    assert [number for number, (_, error) in enumerate(outcomes, 1) if error is not None] == failed
    assert [number for number, _ in adapter.struck] == failed


async def test_random_failures_are_the_same_for_a_seed() -> None:
    """A random plan strikes about as often as asked, and the same calls for the same seed, in any order."""
    plan, same, other = (at_random("transient", chance=0.3, seed=seed) for seed in (1, 1, 2))
    struck = [number for number in range(1, 401) if plan(number)]
    assert struck == [number for number in reversed(range(1, 401)) if same(number)][::-1]
    assert struck != [number for number in range(1, 401) if other(number)]
    assert 80 < len(struck) < 160


def test_a_plan_with_a_wrong_word_is_refused() -> None:
    """A class that there is not fails when the plan is made, with the list."""
    for plan in ("transitory", ["transient", "x"], {1: "x"}):
        with pytest.raises(ConfigError, match="unavailable"):
            model(plan)


async def test_an_error_is_raised_anew_each_time() -> None:
    """Each call gets its own copy of a planned exception, so that nothing of one call hangs on another's."""
    planned = TransientError("x", retry_after=3.0)
    adapter = model(Fault.fail(planned, after=1))
    (_, first), (_, second) = await streamed(adapter), await streamed(adapter)
    assert first is not second
    assert isinstance(first, TransientError)
    assert (first.retry_after, planned.__traceback__, planned.partial) == (3.0, None, None)


class Chatty(ModelAdapter):
    """An adapter of the chat face."""

    model = "m"
    max_tokens = 77

    async def chat(self, messages: Any, tools: Any) -> Any:
        from isthmus.adapters.chat import ChatResponse

        return ChatResponse(SAID, [], "end_turn")


class Plain:
    """A plain object with `stream` alone."""

    id = "plain"
    supports = frozenset({"tools"})

    def __init__(self) -> None:
        self.closed = 0

    async def stream(self, ctx: GenerateContext) -> Any:
        for event in says("one ", "two three", usage=Usage(output_tokens=2)):
            yield event

    async def aclose(self) -> None:
        self.closed += 1


TIER = Tier(id="tier", window_tokens=100, max_output_tokens=10, generate=lambda _: StepResult(events=(Text(SAID),)))


@pytest.mark.parametrize("make", [Chatty, Plain, lambda: TIER, lambda: define_chain(id="c", tiers=[TIER])])
async def test_any_adapter_can_be_made_faulty_on_every_face(make: Any) -> None:
    """Chat-face adapters, plain objects, tiers and chains fail as planned on all faces and are themselves else."""
    inner = make()
    adapter = faulty(inner, {1: "transient", 3: "transient", 5: "transient"})
    assert (adapter.id, adapter.supports) == (getattr(inner, "id", "chatty:m"), getattr(inner, "supports", frozenset()))
    asked = ([{"role": "user", "content": "hi"}], [])
    with pytest.raises(TransientError):
        await adapter.chat(*asked)
    assert (await adapter.chat(*asked)).text == SAID
    with pytest.raises(TransientError):
        await adapter.get_response(asked[0])
    assert (await adapter.get_response(asked[0])).choices[0].message.content == SAID
    assert (await streamed(adapter))[1] is not None
    assert texts((await streamed(adapter))[0]) == SAID
    await adapter.aclose()
    if isinstance(inner, Plain):
        assert inner.closed == 1


async def test_seed_001_inject_a_failure() -> None:
    """Seed 001: a deliberate outage on the first tier falls back to the working local one at once."""
    greeting = Tier(
        id="local-greeting",
        window_tokens=4096,
        max_output_tokens=100,
        generate=lambda _: StepResult(events=(Text("hi"),)),
    )
    outage = faulty(greeting, tier_error("unavailable", "deliberate local outage"))
    outage.id = "local-unavailable"
    async with define_chain(id="greeting", tiers=[outage, greeting]) as chain:
        assert (await chain.generate(CTX)).text == "hi"
        assert (await chain.stream(CTX).result()).text == "hi"
    assert len(outage.struck) == 2


async def test_seed_001_a_transient_failure_is_tried_again_on_the_same_tier() -> None:
    """Seed 001: "fail, fail, ok" is answered by the same tier."""
    adapter = faulty(scripted([SAID] * 3), ["transient", "transient"])
    async with define_chain(id="c", tiers=[adapter], retry=RetryPolicy(base=0.001)) as chain:
        assert (await chain.generate(CTX)).text == SAID
    assert [number for number, _ in adapter.struck] == [1, 2]


async def test_a_script_is_played_and_its_contexts_are_kept() -> None:
    """A scripted adapter plays its steps in order, keeps what it was asked, and says when it is over."""
    step = {"text": "Let me see.", "calls": [{"tool": "add", "input": {"a": 1}, "call_id": "c1"}]}
    adapter = scripted([step, [Text("a"), 0.001, TransientError("x")], lambda ctx: ctx.messages[-1]["content"]], id="s")
    first = await adapter.generate(CTX)
    assert (first.text, first.calls, first.finish) == (
        "Let me see.",
        (Call("add", {"a": 1}, "c1", '{"a":1}'),),
        "tool-calls",
    )
    assert (await streamed(adapter))[1] is not None
    assert (await adapter.generate(CTX)).text == "hi"
    with pytest.raises(InvalidRequestError, match="s: call 4 of a script of 3"):
        await adapter.generate(CTX)
    assert adapter.contexts == [CTX] * 4


async def test_concurrent_calls_are_counted_once_each() -> None:
    """Calls side by side take one number each."""
    adapter = model(dict.fromkeys(range(1, 20, 2), "transient"))
    outcomes = await asyncio.gather(*[(whole, streamed)[index % 2](adapter) for index in range(20)])
    assert sum(error is not None for _, error in outcomes) == 10
