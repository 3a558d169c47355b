"""Compaction: when it acts, what it keeps, what the summary is made of, and what happens where there is none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.chain import Budget, define_chain
from isthmus.chain.estimate import estimate_sections, estimated_tokens, message_tokens
from isthmus.errors import AdapterError, ConfigError, TransientError
from isthmus.harness import (
    AgentDescriptor,
    CompactionShim,
    DefaultAgent,
    Limits,
    PlanShim,
    RunState,
    SkillsShim,
    keep_whole,
)
from isthmus.harness.pairing import paired
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import BoundShim, PreparedTurn, Shim, TurnState
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Usage
from isthmus.models.internal import internal_message, is_ephemeral_message, is_internal_message, public_messages
from isthmus.models.messages import RESERVED
from isthmus.models.tools import Tools, as_tool
from support.attended import Attended
from support.turns import Turns, asks, call, says, tasks

Message = Mapping[str, Any]


def user(text: str) -> dict[str, Any]:
    """A message of the user's."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    """A message of the model's."""
    return {"role": "assistant", "content": text}


def talk(turns: int, size: int = 1600) -> list[dict[str, Any]]:
    """A conversation of many turns; each message has about `size` characters and a number."""
    pairs = ((user(f"q{n} ".ljust(size, "x")), assistant(f"a{n} ".ljust(size, "y"))) for n in range(turns))
    return [message for pair in pairs for message in pair]


def model(*steps: Any, window: int = 8000, **settings: Any) -> ScriptedAdapter:
    """A model with a window."""
    return ScriptedAdapter(steps, window_tokens=window, **settings)


def is_summary(message: Message) -> bool:
    """Whether a message is what a compaction left."""
    return is_internal_message(message, "compaction")


def asked(ctx: GenerateContext) -> str:
    """What the model of a summary is given."""
    return str(ctx.messages[0]["content"])


async def test_below_the_trigger_nothing_happens() -> None:
    """At less than nine tenths of the window the request is what it would be without the shim."""
    history = talk(8)
    plain, attended = model("hello"), model("hello")
    await Attended(plain, [], history=history).say("hi")
    await Attended(attended, [CompactionShim()], history=history).say("hi")
    assert attended.contexts == plain.contexts
    assert estimate_sections(attended.contexts[0]).total < 7200


async def test_a_full_window_is_compacted_for_good() -> None:
    """The beginning becomes one internal message, before the end as it was; the run and the next one go on from it."""
    history = talk(10)
    scripted = model("The user asked ten things.", "hello", "again")
    run = Attended(scripted, [CompactionShim()], history=history)
    assert await run.say("hi") == "hello"
    first, second = scripted.contexts
    assert not first.tools
    assert second.brief == "Be brief."
    assert [is_summary(message) for message in second.messages].count(True) == 1
    assert is_summary(second.messages[0])
    assert "The user asked ten things." in second.messages[0]["content"]
    tail = [dict(message) for message in second.messages[1:]]
    assert tail == [*history, user("hi")][-len(tail) :]
    assert len(tail) >= 4
    assert estimate_sections(second).total < 7200
    assert await run.say("more") == "again"
    assert scripted.contexts[2].messages[: len(second.messages)] == second.messages


async def test_the_summary_is_made_of_what_goes() -> None:
    """Its request has every message that goes and none that stays, in order, with calls and results as text."""
    old = [user("fetch it"), *_round("c1", "fetch", "forty-two"), assistant("It is 42.")]
    scripted = model("S", "hello")
    run = Attended(scripted, [CompactionShim()], history=[*old, *talk(10)])
    await run.say("hi")
    text = asked(scripted.contexts[0])
    places = [text.index(part) for part in ("user: fetch it", "[calls fetch with {}]", "tool fetch: forty-two", "q0")]
    assert places == sorted(places)
    kept = {str(message["content"]) for message in scripted.contexts[1].messages}
    assert not [message for message in talk(10) if (message["content"] in text) == (message["content"] in kept)]
    assert scripted.contexts[0].max_output_tokens is not None
    assert text.startswith("Transcript:")
    assert text.endswith("words.")


async def test_an_earlier_summary_is_folded_into_the_new_one() -> None:
    """The second summary is asked for with the first at hand, and takes its place."""
    scripted = model("FIRST", "hello", "SECOND", "again")
    run = Attended(scripted, [CompactionShim()], history=talk(10))
    await run.say("hi")
    run.history = (*run.history, *talk(5))
    await run.say("more")
    assert "Earlier summary:\n\nFIRST\n\nTranscript:" in asked(scripted.contexts[2])
    said = [message["content"] for message in scripted.contexts[3].messages if is_summary(message)]
    assert len(said) == 1
    assert said[0].endswith("\n\nSECOND")
    assert "FIRST" not in str(scripted.contexts[3].messages)


def _round(call_id: str, tool: str, result: str) -> list[dict[str, Any]]:
    calls = [{"id": call_id, "type": "function", "function": {"name": tool, "arguments": "{}"}}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "name": tool, "content": result},
    ]


@given(st.lists(st.sampled_from("uact"), max_size=40), st.integers(1, 900), st.integers(1, 8))
def test_no_call_is_parted_from_its_result(form: list[str], keep: int, least: int) -> None:
    """Wherever it cuts, what is left is valid, its end is at least as long as asked for, and nothing is reordered."""
    history: list[dict[str, Any]] = [user("begin")]
    for number, kind in enumerate(form):
        text = f"{number} ".ljust(150, "z")
        made = {"u": [user(text)], "a": [assistant(text)], "c": _round(f"c{number}", "t", text)}
        history += made.get(kind) or [internal_message(user(text), origin="note", ephemeral=True)]

    scripted = model("S", "hello", window=100_000)
    shim = CompactionShim(trigger=0.001, keep_tokens=keep, keep_messages=least, summary_tokens=20)
    asyncio.run(Attended(scripted, [shim], history=history).say("hi"))
    sent = [dict(message) for message in scripted.contexts[-1].messages]
    left = [message for message in sent if not is_summary(message)]
    before = [*history, user("hi")]
    assert paired(sent) == (tuple(sent), ())
    places = [before.index(message) for message in left]
    assert places == sorted(places)
    tail = min(least, len(before))
    assert left[-tail:] == before[-tail:]
    assert [m for m in left if is_ephemeral_message(m)] == [m for m in before if is_ephemeral_message(m)]


async def test_the_end_has_the_tokens_that_it_may_have() -> None:
    """As many messages stay as fit into `keep_tokens`, and at least `keep_messages`, however long they are."""
    for shim, count in ((CompactionShim(keep_tokens=2025), 6), (CompactionShim(keep_tokens=10, keep_messages=6), 6)):
        scripted = model("S", "S", "hello")
        await Attended(scripted, [shim], history=talk(10)).say("hi")
        tail = scripted.contexts[-1].messages[1:]
        assert len(tail) == count
        assert sum(map(message_tokens, tail[:-1])) <= 2020


async def test_ephemeral_context_stays_and_is_never_summarised() -> None:
    """What lives for this run alone is there until its end, in no summary, and then is gone."""
    secret = internal_message(user("EPHEMERAL"), origin="inventory", ephemeral=True)
    lasting = internal_message(user("LASTING"), origin="note")
    scripted = model("S", asks(call("look")), "hello")
    run = Attended(
        scripted,
        [CompactionShim()],
        tools=[look],
        history=[secret, lasting, *talk(10)],
    )
    await run.say("hi")
    summary, *others = scripted.contexts
    assert "EPHEMERAL" not in str(summary)
    assert "LASTING" in asked(summary)
    assert all("EPHEMERAL" in str(ctx.messages) for ctx in others)
    assert "EPHEMERAL" not in str(run.history)
    assert sum(map(is_summary, run.history)) == 1


async def test_a_long_run_is_compacted_between_its_rounds() -> None:
    """A run of many tool rounds goes on past the window: what it was told to do is in each summary request."""
    asked_for = 0

    def work(ctx: GenerateContext) -> Any:
        nonlocal asked_for
        if "Transcript:" in str(ctx.messages[0]["content"]):
            assert "count to" in asked(ctx)
            return "The user wants me to count to 40."
        asked_for += 1
        return "done" if asked_for > 40 else asks(call("fetch", f"c{asked_for}", n=asked_for))

    scripted = model(*[work] * 80)
    run = Attended(scripted, [CompactionShim()], tools=Tools([fetch], max_tool_round_trips=99))
    run.limits = Limits(max_steps=99)
    assert await run.say("count to 40") == "done"
    assert len(run.results) == 40
    assert all(result.ran for result in run.results)
    assert all(estimate_sections(ctx).total < 7200 for ctx in scripted.contexts)
    assert paired(run.history)[1] == ()


@as_tool
async def fetch(n: int) -> str:
    """Fetch."""
    return f"{n} ".ljust(1600, "r")


@as_tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_instructions_stay_as_they_are() -> None:
    """System and developer messages of the transcript stand before the summary, word for word."""
    rules = [{"role": "system", "content": "RULE 1"}, {"role": "developer", "content": "RULE 2"}]
    scripted = model("S", "hello")
    await Attended(scripted, [CompactionShim()], history=[*rules, *talk(10)]).say("hi")
    assert "RULE" not in asked(scripted.contexts[0])
    assert [dict(message) for message in scripted.contexts[1].messages[:2]] == rules
    assert is_summary(scripted.contexts[1].messages[2])


async def test_the_summary_is_lasting_and_no_part_of_the_public_conversation() -> None:
    """A stored conversation has it, `public_messages` leave it out, and no request shows the mark as text."""
    run = Attended(model("S", "hello"), [CompactionShim()], history=talk(10))
    await run.say("hi")
    plain = RunState(history=run.history, shim_state=run.shim_state).to_dict()
    assert sum(map(is_summary, plain["history"])) == 1
    assert not any(map(is_summary, public_messages(run.history)))
    scripted = model("again")
    again = Attended(scripted, [CompactionShim()], history=plain["history"], shim_state=plain["shim_state"])
    await again.say("hi")
    assert "\n\nS" in scripted.contexts[0].messages[0]["content"]


@pytest.mark.parametrize(
    "failing",
    [
        TransientError("no"),
        says(""),
        says("I can't", finish="content-filter"),
        [*says("half")[:1], TransientError("x")],
    ],
)
async def test_without_a_summary_the_history_stays(failing: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A summary that fails, is empty or is refused changes nothing, is logged without any content; the run goes on."""
    history = talk(9)
    writer = model(*[failing] * 5)
    scripted = model(asks(call("look")), "hello")
    run = Attended(scripted, [CompactionShim(writer)], tools=[look], history=history)
    with caplog.at_level(logging.WARNING, "isthmus.harness"):
        assert await run.say("hi".ljust(400)) == "hello"
    assert run.history[:18] == tuple(history)
    said = [record.getMessage() for record in caplog.records if "no summary" in record.getMessage()]
    assert len(said) == 1
    assert "xxxx" not in said[0]


async def test_a_given_model_writes_the_summaries() -> None:
    """The run's own model is called for the answer alone."""
    writer, scripted = model("SHORT", window=100_000), model("hello")
    await Attended(scripted, [CompactionShim(writer)], history=talk(10)).say("hi")
    assert len(writer.contexts) == len(scripted.contexts) == 1
    assert "SHORT" in scripted.contexts[0].messages[0]["content"]


async def test_more_than_a_window_is_summarised_in_pieces() -> None:
    """Each piece fits the window of the model that reads it, is asked for with the summary of those before, and none
    is left out."""
    history = talk(60)
    scripted = model(*[f"S{n}" for n in range(20)])
    run = Attended(scripted, [CompactionShim()], history=history)
    await run.say("hi")
    *pieces, last = scripted.contexts
    assert len(pieces) > 2
    for number, ctx in enumerate(pieces):
        assert estimate_sections(ctx).total + (ctx.max_output_tokens or 0) <= 8000
        assert (f"Earlier summary:\n\nS{number - 1}\n" in asked(ctx)) == (number > 0)
    read = "".join(map(asked, pieces))
    kept = str(last.messages)
    assert all((message["content"] in read) != (message["content"] in kept) for message in history)


async def test_one_message_that_fills_the_window_loses_its_middle() -> None:
    """A result longer than the window is read from both ends."""
    huge = "BEGIN" + "x" * 20_000 + "END"
    scripted = model("S", "hello")
    await Attended(scripted, [CompactionShim()], history=[user(huge), assistant("ok"), *talk(3)]).say("hi")
    text = asked(scripted.contexts[0])
    assert "BEGIN" in text
    assert "END" in text
    assert estimate_sections(scripted.contexts[0]).total < 50000


async def test_a_summary_has_at_most_the_tokens_that_it_may_have() -> None:
    """A model that says too much is cut."""
    scripted = model("word " * 4000, "hello")
    await Attended(scripted, [CompactionShim(summary_tokens=100)], history=talk(10)).say("hi")
    assert estimated_tokens(scripted.contexts[1].messages[0]["content"]) < 130


async def test_what_the_provider_counted_decides() -> None:
    """Where a reply's usage says that estimates are too low, it acts sooner; the next run remembers."""
    history = talk(6)
    step = says("hello", usage=Usage(input_tokens=7000, output_tokens=5))
    scripted = model(step, "S", "again")
    run = Attended(scripted, [CompactionShim()], history=history)
    await run.say("hi")
    assert estimate_sections(scripted.contexts[0]).total < 5000
    await run.say("x" * 800)
    assert len(scripted.contexts) == 3
    assert any(map(is_summary, run.history))


async def test_room_for_the_reply_is_kept_free() -> None:
    """With a ceiling of half the window it acts before the chain would have to leave turns out."""
    scripted = model("S", "hello", window=8000, max_output_tokens=4000)
    await Attended(scripted, [CompactionShim()], history=talk(5)).say("hi")
    assert len(scripted.contexts) == 2
    assert any(map(is_summary, scripted.contexts[1].messages))


async def test_nothing_is_done_where_nothing_can_be_gained() -> None:
    """A window filled by instructions, tools or the last messages alone asks for no summary at each turn."""
    scripted = model(*["hello"] * 3)
    for small in ([], [user("a"), assistant("b")]):
        run = Attended(scripted, [CompactionShim()], history=[*small, *talk(2, 9600)[:3]])
        await run.say("hi")
        assert estimate_sections(scripted.contexts[-1]).total > 7200
    assert len(scripted.contexts) == 2


async def test_an_unknown_window_is_left_alone() -> None:
    """Nobody can say when it is full."""
    scripted = ScriptedAdapter(["hello"])
    await Attended(scripted, [CompactionShim()], history=talk(100)).say("hi")
    assert len(scripted.contexts) == 1


@pytest.mark.parametrize("by", ["option", "item", "native"])
async def test_a_provider_that_compacts_is_the_only_one_to(by: str) -> None:
    """The shim stands back where the request asks for the provider's own, or the history holds what that left."""
    item = {"type": "compaction", "encrypted_content": "zzz"}
    native = {"provider": "p", "json": '{"content":[{"type": "compaction","content":"s"}]}'}
    first = {
        "option": user("hi"),
        "item": item,
        "native": {"role": "assistant", "content": "s", RESERVED: {"native": native}},
    }
    scripted = model("hello")
    args = {"context_management": [{"type": "compaction"}]} if by == "option" else {}
    history = (first[by], *talk(9))
    run = RunIdentity(agent="a", task_id="t", metadata={})
    state = TurnState(run=run, history=history, shim_state={}, model=scripted)
    bound = await CompactionShim().bind(run)
    await bound.prepare_turn(PreparedTurn(run_state=state, tools=Tools(), model_args=args))
    assert state.history == history
    assert not scripted.contexts


async def test_skills_and_plans_outlive_a_compaction(tmp_path: Path) -> None:
    """The instructions of an active skill stay word for word, and an open plan is told anew."""
    (tmp_path / "SKILL.md").write_text("---\nname: tea\ndescription: x\n---\nWarm the pot.", encoding="utf-8")
    steps = [{"text": "Boil water", "status": "in_progress"}]
    scripted = model(
        asks(call("activate_skill", "c1", name="tea"), call("write_plan", "c2", steps=steps)), "ok", "S", "hello"
    )
    run = Attended(scripted, [CompactionShim(), SkillsShim(tmp_path), PlanShim()])
    await run.say("tea, please")
    run.history = (*run.history, *talk(9))
    await run.say("hi")
    summary, last = scripted.contexts[2:]
    assert "Warm the pot" not in asked(summary)
    assert str(last.messages).count("Warm the pot.") == 1
    assert "- [in_progress] Boil water" in last.messages[-1]["content"]


class Keeping(Shim):
    """Asks that its notes be kept."""

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What asks."""
        return KeepingBound()


class KeepingBound(BoundShim):
    """Asks at the start of the run."""

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """Ask."""
        keep_whole(transient_state, "note")


async def test_a_shim_may_ask_that_its_messages_be_kept() -> None:
    """Internal messages of an origin that was named stay, with the results of calls that they make."""
    calling, result = _round("c1", "t", "RESULT")
    history = [internal_message(calling, origin="note"), result, user("go on"), *talk(9)]
    scripted = model("S", "hello")
    await Attended(scripted, [CompactionShim(), Keeping()], history=history).say("hi")
    assert "RESULT" not in asked(scripted.contexts[0])
    assert "RESULT" in str(scripted.contexts[1].messages)
    assert paired(scripted.contexts[1].messages)[1] == ()


async def test_a_summary_under_way_is_cancelled_with_the_run() -> None:
    """The run ends at once, the history is as it was, and the stream of the summary is closed."""
    turns = Turns([60, *says("late")])
    turns.window_tokens = 8000  # type: ignore[attr-defined]
    history = talk(9)
    run = Attended(turns, [CompactionShim()], history=history)
    task = asyncio.create_task(run.say("hi"))
    await asyncio.sleep(0.05)
    assert turns.open == 1
    began = asyncio.get_running_loop().time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() - began < 0.05
    assert turns.open == 0
    assert run.history == history
    assert not tasks()


async def test_two_runs_share_a_shim_and_no_summary() -> None:
    """Each of two runs at once gets the summary of its own beginning."""
    shim = CompactionShim()
    models = [model([0.01, *says(f"S{name}")], "hello") for name in "ab"]
    runs = [Attended(each, [shim], history=talk(9)) for each in models]
    await asyncio.gather(*(run.say("hi") for run in runs))
    assert [run.history[0]["content"][-2:] for run in runs] == ["Sa", "Sb"]


@pytest.mark.parametrize(
    "wrong", [{"trigger": 0}, {"trigger": 1.5}, {"trigger": True}, {"keep_tokens": 0}, {"keep_messages": "4"}]
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the number."""
    with pytest.raises(ConfigError, match=f"CompactionShim.*{next(iter(wrong))}"):
        CompactionShim(**wrong)


def test_what_writes_the_summaries_must_be_a_model() -> None:
    """Anything else is refused when the shim is made."""
    with pytest.raises(AdapterError):
        CompactionShim(object())


async def test_a_stream_that_is_closed_stops_the_summary() -> None:
    """Closing it from outside while nobody answers returns at once and commits nothing."""
    turns = Turns([60, *says("late")])
    turns.window_tokens = 8000  # type: ignore[attr-defined]
    state = RunState(history=talk(9))
    agent = DefaultAgent(descriptor=AgentDescriptor(name="a", model=turns, shims=[CompactionShim()]), run_state=state)
    stream = agent.run_stream("hi")
    reading = asyncio.create_task(anext(aiter(stream), None))
    await asyncio.sleep(0.05)
    assert turns.open == 1
    began = asyncio.get_running_loop().time()
    await stream.aclose()
    assert asyncio.get_running_loop().time() - began < 0.05
    assert turns.open == 0
    await asyncio.gather(reading, return_exceptions=True)
    assert agent.run_state is not None
    assert agent.run_state.history == state.history


@pytest.mark.parametrize(("allowed", "outcome", "inputs"), [(20_000, "completed", [5000, 4000]), (8000, "cut", [5000])])
async def test_a_summary_counts_in_the_budget_of_the_run(allowed: int, outcome: str, inputs: list[int]) -> None:
    """What the run's own model spent on a summary is among the attempts, and the chain's budget knows it."""
    scripted = model(
        says("S", usage=Usage(input_tokens=5000, output_tokens=50)),
        says("hello", usage=Usage(input_tokens=4000, output_tokens=5)),
    )
    chain = define_chain(id="c", tiers=[scripted], budget=Budget(input_tokens=allowed))
    agent = DefaultAgent(
        descriptor=AgentDescriptor(name="a", model=chain, shims=[CompactionShim()]),
        run_state=RunState(history=talk(9)),
    )
    result = await agent.run("hi")
    spent = [attempt.usage.input_tokens for attempt in result.attempts if attempt.usage is not None]
    assert (result.outcome.outcome, spent) == (outcome, inputs)
    assert result.usage is not None
    assert result.usage.input_tokens == sum(inputs)
    assert any("became a summary" in note.detail for note in result.outcome.notes)


async def test_a_kept_conversation_goes_on_from_its_summary(tmp_path: Path) -> None:
    """An agent that is made anew from its file sends the summary, and asks for no other."""
    path = tmp_path / "a.json"
    made = AgentDescriptor(name="a", model=model("S", "hello"), shims=[CompactionShim()])
    await DefaultAgent(descriptor=made, state_path=path).run(RunState(history=[*talk(9), user("hi")]))
    scripted = model("again")
    again = AgentDescriptor(name="a", model=scripted, shims=[CompactionShim()])
    await DefaultAgent(descriptor=again, state_path=path).run("and now?")
    (ctx,) = scripted.contexts
    assert ctx.messages[0]["content"].endswith("\n\nS")
