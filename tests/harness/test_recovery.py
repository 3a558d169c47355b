"""F13: runs that are taken up from their journal, from wherever they stopped."""

from __future__ import annotations

import asyncio
import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import ChainExhausted, CutReason, TransientError
from isthmus.harness import (
    AgentDescriptor,
    ApprovalError,
    ApprovalShim,
    BoundShim,
    DefaultAgent,
    JournalError,
    JsonFileStateStore,
    Limits,
    Resume,
    RunIdentity,
    RunState,
    Shim,
    StateConflictError,
)
from isthmus.harness.steps import decoded_result, decoded_step, encoded_result, encoded_step
from isthmus.models import OutputSchema, PromptSpec, PromptTemplate, Tools, internal_message
from isthmus.models.events import Call, Finish, Native, Note, NoteCode, StepResult, Text, Usage
from isthmus.models.executor import ToolResult
from support.journals import Tape
from support.turns import Turns, asks, call, says

RUN = "the run"


class Bench:
    """Tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def add(self, word: str) -> str:
        """Add a word."""
        self.done.append(word)
        return f"added {word}"


TURNS = (
    [
        Text("First."),
        call("add", "c1", word="a"),
        call("add", "c2", word="b"),
        Native("strange", "message", {"it": "said", "n": 12345678901234567890123}),
        Finish("tool-calls", Usage(input_tokens=3, output_tokens=2), notes=(Note("metadata", "x"),)),
    ],
    asks(call("add", "c1", word="c"), usage=Usage(input_tokens=5, output_tokens=1)),
    says("All ", "done.", usage=Usage(input_tokens=7, output_tokens=4)),
)


def worker(bench: Bench, journal: Any, model: Any = None, **settings: Any) -> DefaultAgent:
    """An agent with a journal."""
    return DefaultAgent(model=model or Turns(*TURNS), tools=[bench.add], journal=journal, name="worker", **settings)


def left(result: Any) -> RunState:
    """The state that a run left, without the ids and times that are made up for each look at a reply."""
    state, made_up = result.run_state, {"id", "created"}
    state.responses = tuple({key: each[key] for key in each.keys() - made_up} for each in state.responses)
    return state


async def whole() -> tuple[Any, Tape]:
    """An undisturbed run, and its journal."""
    tape = Tape()
    result = await worker(Bench(), tape).run(RunState(history=[{"role": "user", "content": "go"}], task_id=RUN))
    return result, tape


async def test_a_journal_has_each_step() -> None:
    """Each reply, each start and each result, and what is before a tool is written before it runs."""
    _, tape = await whole()
    assert tape.kinds(RUN)[:2] == ["begun", "reply"]
    assert sorted(tape.kinds(RUN)[2:6]) == ["result", "result", "start", "start"]
    assert tape.kinds(RUN)[6:] == ["reply", "start", "result", "reply", "end"]


async def test_a_run_goes_on_from_every_record() -> None:
    """Cut anywhere, the run ends as the undisturbed one; no recorded reply is asked for again, no recorded tool run."""
    undisturbed, tape = await whole()
    for count in range(1, len(tape.load(RUN)) + 1):
        records = tape.load(RUN)[:count]
        kinds = [each["kind"] for each in records]
        replies = kinds.count("reply")
        finished = {each["result"]["call_id"] for each in records if each["kind"] == "result"}
        began = {each["call_id"] for each in records if each["kind"] == "start"}
        bench, journal = Bench(), tape.cut(RUN, count)
        model = Turns(*TURNS[replies:])
        result = await worker(bench, journal, model).resume(RUN)
        uncertain = began - finished
        assert {each.call_id for each in result.pending} == uncertain, kinds
        assert {each.why for each in result.pending} <= {"unknown"}
        if uncertain:
            assert bench.done == []
            result = await worker(bench, journal, model).resume(
                RUN, decisions=[each.approve() for each in result.pending]
            )
        assert result.messages == undisturbed.messages, kinds
        assert result.outcome.usage == undisturbed.outcome.usage
        assert (result.turn_count, result.text) == (3, "All done.")
        assert left(result) == left(undisturbed)
        assert len(model.seen) == 3 - replies
        assert len(bench.done) == 3 - len(finished)
        assert journal.kinds(RUN)[-1] == "end"


@pytest.mark.parametrize("policy", ["rerun", "fail", "callable"])
async def test_an_uncertain_call_follows_the_policy(policy: str) -> None:
    """It is run once more, or the model reads that its outcome is unknown; a function says so for each call."""
    _, tape = await whole()
    place = tape.kinds(RUN).index("start", 6) + 1
    bench, asked = Bench(), []

    def says_what(made: Call) -> str:
        asked.append(made.tool)
        return "rerun"

    uncertain: Any = says_what if policy == "callable" else policy
    result = await worker(bench, tape.cut(RUN, place), Turns(TURNS[2])).resume(RUN, uncertain=uncertain)
    assert result.text == "All done."
    assert bench.done == ([] if policy == "fail" else ["c"])
    assert asked == (["add"] if policy == "callable" else [])
    last = [each["content"] for each in result.messages if each["role"] == "tool"][-1]
    assert ("unknown" in last) == (policy == "fail")


async def test_a_decision_holds_for_one_start() -> None:
    """A call that was run by decision, and crashed again, is asked about again."""
    _, tape = await whole()
    journal = tape.cut(RUN, tape.kinds(RUN).index("start", 6) + 1)
    (request,) = (await worker(Bench(), journal, Turns()).resume(RUN)).pending
    await worker(Bench(), journal, Turns(TURNS[2])).resume(RUN, decisions=[request.approve()])
    kinds = journal.kinds(RUN)
    again = journal.cut(RUN, len(kinds) - kinds[::-1].index("start"))
    assert again.kinds(RUN)[-2:] == ["resumed", "start"]
    (once_more,) = (await worker(Bench(), again, Turns()).resume(RUN)).pending
    assert once_more == request


async def test_a_decision_survives_a_crash_before_its_start() -> None:
    """What was decided is in the journal before anything runs, and need not be decided again."""
    _, tape = await whole()
    journal = tape.cut(RUN, tape.kinds(RUN).index("start", 6) + 1)
    (request,) = (await worker(Bench(), journal, Turns()).resume(RUN)).pending
    await worker(Bench(), journal, Turns(TURNS[2])).resume(RUN, decisions=[request.answer("added before")])
    kinds = journal.kinds(RUN)
    bench = Bench()
    result = await worker(bench, journal.cut(RUN, len(kinds) - kinds[::-1].index("resumed")), Turns(TURNS[2])).resume(
        RUN
    )
    assert bench.done == []
    assert [each["content"] for each in result.messages if each["role"] == "tool"][-1] == "added before"


async def test_a_decision_of_nothing_is_refused() -> None:
    """Where no call is open, a decision has nothing to decide; one of other arguments decides nothing either."""
    _, tape = await whole()
    journal = tape.cut(RUN, tape.kinds(RUN).index("start", 6) + 1)
    (request,) = (await worker(Bench(), journal, Turns()).resume(RUN)).pending
    with pytest.raises(ApprovalError, match="does not wait"):
        await worker(Bench(), tape.cut(RUN, 1)).resume(RUN, decisions=[request.approve()])
    wrong = type(request.approve())(**{**request.approve().to_dict(), "digest": "0" * 64})
    with pytest.raises(ApprovalError, match="other arguments"):
        await worker(Bench(), journal).resume(RUN, decisions=[wrong])


async def test_a_finished_run_gives_its_result_again() -> None:
    """Nothing is called, run or written."""
    undisturbed, tape = await whole()
    before = tape.load(RUN)
    model = Turns()
    result = await worker(Bench(), tape, model).resume(RUN)
    assert (result.messages, result.text) == (undisturbed.messages, undisturbed.text)
    assert left(result) == left(undisturbed)
    assert model.seen == []
    assert tape.load(RUN) == before


async def test_a_failed_run_can_be_taken_up() -> None:
    """What it had done stands; the model is asked again."""
    bench, tape = Bench(), Tape()
    state = RunState(history=[{"role": "user", "content": "go"}], task_id=RUN)
    with pytest.raises(ChainExhausted, match="down"):
        await worker(bench, tape, Turns(TURNS[0], [ValueError("down")])).run(state)
    assert tape.unfinished() == [RUN]
    result = await worker(bench, tape, Turns(*TURNS[1:])).resume(RUN)
    assert (result.text, sorted(bench.done)) == ("All done.", ["a", "b", "c"])
    assert tape.unfinished() == []


async def test_a_cancelled_run_can_be_taken_up() -> None:
    """The tool that was running is uncertain; the one that was done is not."""
    tape, begun = Tape(), asyncio.Event()

    async def quick() -> str:
        return "quick"

    async def slow() -> str:
        begun.set()
        await asyncio.sleep(60)
        return "slow"

    turn = asks(call("quick", "c1"), call("slow", "c2"))
    agent = DefaultAgent(model=Turns(turn), tools=[quick, slow], journal=tape)
    running = asyncio.ensure_future(agent.run(RunState(history=[{"role": "user", "content": "go"}], task_id=RUN)))
    await begun.wait()
    while not running.done() and "result" not in tape.kinds(RUN):
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tape.kinds(RUN)[-1] == "stopped"
    again = DefaultAgent(model=Turns(), tools=[quick, slow], journal=tape)
    assert [each.call_id for each in (await again.resume(RUN)).pending] == ["c2"]


async def test_the_result_of_a_parallel_call_is_written_at_once() -> None:
    """The second of two calls is certain as soon as it is done, while the first still runs."""
    tape, release = Tape(), asyncio.Event()

    async def slow() -> str:
        await release.wait()
        return "slow"

    async def quick() -> str:
        return "quick"

    model = Turns(asks(call("slow", "c1"), call("quick", "c2")), says("x"))
    agent = DefaultAgent(model=model, tools=Tools([slow, quick], parallel_tool_calls=True), journal=tape)
    running = asyncio.ensure_future(agent.run(RunState(history=[{"role": "user", "content": "go"}], task_id=RUN)))
    while not running.done() and (RUN not in tape.runs or "result" not in tape.kinds(RUN)):
        await asyncio.sleep(0.001)
    assert [each["result"]["call_id"] for each in tape.load(RUN) if each["kind"] == "result"] == ["c2"]
    release.set()
    assert (await running).text == "x"


@pytest.mark.parametrize("kind", ["begun", "start"])
async def test_what_cannot_be_written_is_not_done(kind: str) -> None:
    """A run whose beginning cannot be written calls no model; a tool whose start cannot be written does not run."""
    bench, model = Bench(), Turns(*TURNS)
    tape = Tape(fails=lambda batch: any(each["kind"] == kind for each in batch))
    with pytest.raises(JournalError, match="full"):
        await worker(bench, tape, model).run("go")
    assert bench.done == []
    assert len(model.seen) == (0 if kind == "begun" else 1)


async def test_what_is_done_fails_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """A result that cannot be written is written with the next record, or the run fails before anything else."""
    full = cycle((True, False))
    tape = Tape(fails=lambda batch: batch[-1]["kind"] == "result" and next(full))
    result = await worker(Bench(), tape).run(RunState(history=[{"role": "user", "content": "go"}], task_id=RUN))
    assert result.text == "All done."
    assert "not in its journal yet" in caplog.text
    assert tape.kinds(RUN).count("result") == 3

    bench, model = Bench(), Turns(*TURNS)
    tape = Tape(fails=lambda batch: any(each["kind"] == "result" for each in batch))
    with pytest.raises(JournalError, match="full"):
        await worker(bench, tape, model).run("go")
    assert len(model.seen) == 1

    tape = Tape(fails=lambda batch: batch[-1]["kind"] == "end")
    assert (await worker(Bench(), tape).run("go")).text == "All done."
    assert "the end of run" in caplog.text


async def test_of_two_that_take_up_a_run_one_goes_on() -> None:
    """The second finds that the journal has moved, before it does anything."""
    _, tape = await whole()
    journal = tape.cut(RUN, 2)
    benches = [Bench(), Bench()]
    first, second = (worker(bench, journal, Turns(*TURNS[1:])) for bench in benches)
    other = second.run_stream(Resume(run_id=RUN))
    await first.resume(RUN)
    with pytest.raises(JournalError, match="somebody else"):
        await other.result()
    assert (len(benches[0].done), benches[1].done) == (3, [])


async def test_the_run_and_the_agent_must_fit() -> None:
    """No journal, no such run, another agent, another version, another kind, another form: each says what to do."""
    _, tape = await whole()
    with pytest.raises(JournalError, match="keeps no journal"):
        await DefaultAgent(model=Turns(*TURNS)).resume(RUN)
    with pytest.raises(JournalError, match="no run 'x'"):
        await worker(Bench(), tape).resume("x")
    with pytest.raises(JournalError, match="agent 'worker'"):
        await DefaultAgent(model=Turns(*TURNS), journal=tape, name="other").resume(RUN)
    begun = tape.load(RUN)[0]
    for records, words in (
        ([{**begun, "v": 2}], "version 2"),
        ([{key: begun[key] for key in begun if key != "messages"}], "messages is missing"),
        ([begun, {"kind": "jump"}], "'jump'"),
        ([begun, {"kind": "reply"}], "not what it must be"),
        ([begun, tape.load(RUN)[1], tape.load(RUN)[1]], "none was due"),
        ([begun, tape.load(RUN)[1], {"kind": "result", "result": {"call_id": 1}}], "not what it must be"),
    ):
        with pytest.raises(JournalError, match=words):
            await worker(Bench(), Tape({RUN: records})).resume(RUN)
    with pytest.raises(JournalError, match="form"):
        await worker(Bench(), tape, output=OutputSchema(list[int])).resume(RUN)


async def test_a_kept_conversation_is_committed_once(tmp_path: Path) -> None:
    """A run that crashed is committed when it is taken up; one that had been is not committed again."""
    bench, tape = Bench(), Tape()

    def kept(*turns: Any, journal: Any) -> DefaultAgent:
        described = AgentDescriptor(name="worker", model=Turns(*turns), tools=[bench.add])
        return DefaultAgent(descriptor=described, state_path=tmp_path / "state.json", journal=journal)

    await kept(says("hello"), journal=None).run("hi")
    before = (tmp_path / "state.json").read_bytes()
    result = await kept(*TURNS, journal=tape).run("go")
    run = result.run_state.task_id or ""
    for count in (1, 3, len(tape.load(run)) - 1):
        bench.done.clear()
        (tmp_path / "state.json").write_bytes(before)
        replies = tape.kinds(run)[:count].count("reply")
        again = await kept(*TURNS[replies:], journal=tape.cut(run, count)).resume(run, uncertain="rerun")
        assert left(again) == left(result)
        assert (JsonFileStateStore(tmp_path / "state.json").load() or result).revision == 2  # type: ignore[union-attr]

    journal = tape.cut(run, len(tape.load(run)) - 1)
    committed = await kept(journal=journal).resume(run)
    assert left(committed) == left(result)
    await kept(says("next"), journal=None).run("next")
    with pytest.raises(StateConflictError, match="revision 1"):
        await kept(journal=journal).resume(run)


async def test_an_approval_in_a_journal() -> None:
    """A run that waits is taken up by its decision, and so is its crash after that."""
    bench, tape = Bench(), Tape()

    def asking(*turns: Any, journal: Any, **settings: Any) -> DefaultAgent:
        shims = [ApprovalShim({"add": "ask"})]
        described = AgentDescriptor(name="worker", model=Turns(*turns), tools=[bench.add], shims=shims)
        return DefaultAgent(descriptor=described, journal=journal, **settings)

    turns = (asks(call("add", "c1", word="a")), says("done"))
    agent = asking(*turns, journal=tape)
    stopped = await agent.run("go")
    run = stopped.run_state.task_id or ""
    assert tape.kinds(run)[-1] == "paused"
    assert tape.unfinished() == []
    snapshot = agent.snapshot()
    result = await agent.resume(run, decisions=[stopped.pending[0].approve()])
    assert (result.text, bench.done) == ("done", ["a"])
    kinds = tape.kinds(run)
    assert kinds == ["begun", "reply", "paused", "begun", "start", "result", "reply", "end"]

    after = tape.cut(run, 5)
    later = asking(says("done"), journal=after, snapshot=snapshot)
    with pytest.raises(ApprovalError):
        await later.resume(run)
    assert result.run_state.revision == 3
    state = RunState(**{name: getattr(result.run_state, name) for name in ("shim_state",)})
    state.revision = 2
    crashed = asking(says("done"), journal=after, run_state=state)
    (request,) = (await crashed.resume(run)).pending
    assert (request.why, bench.done) == ("unknown", ["a"])
    assert (await crashed.resume(decisions=[request.answer("added a")])).messages == result.messages
    assert bench.done == ["a"]


async def test_a_rewound_run_forks_at_any_step() -> None:
    """The state after so many replies has their results and nothing behind them; a fork goes its own way."""
    undisturbed, tape = await whole()
    agent = worker(Bench(), tape)
    lengths = [len(agent.rewind(RUN, step=step).history) for step in range(4)]
    assert lengths == [1, 4, 6, 7]
    assert agent.rewind(RUN).history == undisturbed.messages
    assert [agent.rewind(RUN, step=step).turn_count for step in range(4)] == [0, 1, 2, 3]
    before = tape.load(RUN)
    forked = await worker(Bench(), tape, Turns(says("another way"))).fork(agent.rewind(RUN, step=1))
    assert (forked.text, len(forked.messages)) == ("another way", 5)
    assert tape.load(RUN) == before
    with pytest.raises(ValueError, match="3 replies"):
        agent.rewind(RUN, step=4)
    half = worker(Bench(), tape.cut(RUN, tape.kinds(RUN).index("start", 6) + 1)).rewind(RUN)
    assert "unknown" in half.history[-1]["content"]


async def test_ephemeral_context_leaves_the_journal_when_the_run_ends() -> None:
    """While the run lasts a crash can be survived with it; once it ended, failed or waits, only its place is left."""
    view = internal_message({"role": "user", "content": "secret view"}, origin="ui", ephemeral=True)
    kept: list[Tape] = []

    def watch(batch: Any) -> bool:
        kept.append(Tape({RUN: tape.load(RUN)}))
        return False

    tape = Tape(fails=watch)
    history = [view, {"role": "user", "content": "go"}]
    model = Turns(*TURNS)
    await worker(Bench(), tape, model).run(RunState(history=history, task_id=RUN))
    assert "secret view" not in json.dumps(tape.load(RUN))
    assert "secret view" not in str(worker(Bench(), tape).rewind(RUN, step=1))
    alive = kept[-2]
    assert "secret view" in json.dumps(alive.load(RUN))
    again = Turns(*TURNS[2:])
    await worker(Bench(), alive, again).resume(RUN, uncertain="rerun")
    assert again.seen[0].messages[0]["content"] == "secret view"
    assert "secret view" not in json.dumps(alive.load(RUN))

    tape = Tape()
    with pytest.raises(ChainExhausted, match="down"):
        await worker(Bench(), tape, Turns([ValueError("down")])).run(RunState(history=history, task_id=RUN))
    assert "secret view" not in json.dumps(tape.load(RUN))
    for context, missing in (([view], 0), ([], 1)):
        model = Turns(says("x"))
        result = await worker(Bench(), Tape({RUN: tape.load(RUN)}), model).resume(RUN, context=context)
        assert [each["content"] for each in model.seen[0].messages] == ["secret view", "go"][missing:]
        assert ["'ui'" in note.detail for note in result.outcome.notes] == [True] * missing
    unused = await worker(Bench(), alive, Turns(says("x"))).resume(RUN, context=[view])
    assert unused.text == "All done."


async def test_shims_find_what_they_kept() -> None:
    """A counter that a shim keeps goes on where it stood; what it did to the transcript is not done twice."""
    bench = Bench()

    class Counting(BoundShim):
        async def prepare_turn(self, turn: Any) -> None:
            count = turn.run_state.shim_state["counter:turns"] = turn.run_state.shim_state.get("counter:turns", 0) + 1
            turn.append_history_item(f"turn {count}")

    class Counts(Shim):
        name = "counter"

        async def bind(self, run: RunIdentity) -> BoundShim:
            return Counting()

    def counted(*turns: Any, journal: Any) -> DefaultAgent:
        described = AgentDescriptor(name="worker", model=Turns(*turns), tools=[bench.add], shims=[Counts()])
        return DefaultAgent(descriptor=described, journal=journal)

    tape = Tape()
    result = await counted(*TURNS, journal=tape).run(RunState(task_id=RUN))
    for count in range(1, len(tape.load(RUN))):
        replies = tape.kinds(RUN)[:count].count("reply")
        again = await counted(*TURNS[replies:], journal=tape.cut(RUN, count)).resume(RUN, uncertain="rerun")
        assert again.messages == result.messages
        assert again.run_state.shim_state == {"counter:turns": 3}


async def test_a_continued_and_a_repaired_reply_are_taken_up() -> None:
    """What the loop does between two replies follows from the records: continuation, pause, repair."""
    cut = says("One two three four", finish="length")
    turns = (
        cut,
        says(" five six."),
    )
    tape = Tape()
    state = RunState(history=[{"role": "user", "content": "go"}], task_id=RUN)
    result = await worker(Bench(), tape, Turns(*turns)).run(state)
    again = await worker(Bench(), tape.cut(RUN, 2), Turns(turns[1])).resume(RUN)
    assert (again.text, again.messages) == (result.text, result.messages)

    form = {"output": OutputSchema(list[int]), "limits": Limits()}
    tape = Tape()
    turns = (says("no list"), says('{"response": [1, 2]}'))
    result = await worker(Bench(), tape, Turns(*turns), **form).run(state)
    again = await worker(Bench(), tape.cut(RUN, 2), Turns(turns[1]), **form).resume(RUN)
    assert again.final_output == result.final_output == [1, 2]
    assert [note.code for note in again.outcome.notes] == [note.code for note in result.outcome.notes]


async def test_limits_stand_after_a_crash() -> None:
    """Steps that were taken before the crash are taken."""
    _, tape = await whole()
    count = tape.kinds(RUN).index("reply", 2)
    result = await worker(Bench(), tape.cut(RUN, count), limits=Limits(max_steps=1)).resume(RUN)
    assert result.outcome.reason == CutReason.BUDGET_STEPS


async def test_what_is_no_plain_json_is_refused_before_anything_is_done() -> None:
    """A message that cannot be written would be lost."""
    model = Turns(says("x"))
    with pytest.raises(JournalError, match="plain JSON"):
        await worker(Bench(), Tape(), model).run({"role": "user", "content": [{"type": "x", "at": {1, 2}}]})
    assert model.seen == []


async def test_an_input_that_is_a_prompt_is_kept_as_it_was_rendered() -> None:
    """A run is taken up with the words it began with, whatever the prompt would say now."""
    tape = Tape()
    prompt = PromptSpec(PromptTemplate(system_template=None, user_template="Say {{ x }}"), {"x": "hi"})
    result = await worker(Bench(), tape, Turns(*TURNS), instructions="Be kind.").run(prompt)
    run = tape.unfinished() or list(tape.runs)
    model = Turns(*TURNS)
    await worker(Bench(), tape.cut(run[0], 1), model, instructions="Be quick.").resume(run[0])
    assert model.seen[0].brief == "Be kind."
    assert model.seen[0].messages[0] == result.messages[0]


async def test_text_is_journalled_by_the_reply() -> None:
    """Streaming writes nothing: one record a reply, however many pieces it has."""
    tape = Tape()
    agent = worker(Bench(), tape, Turns(says(*"a long text in many pieces")))
    async with agent.run_stream("go") as stream:
        pieces = [event async for event in stream if isinstance(event, Text)]
    assert len(pieces) > 20
    assert tape.batches == [["begun"], ["reply"], ["end"]]


def test_a_result_and_side_events_survive() -> None:
    """Every field of a result comes back; reasoning and notes are those of the reply."""
    step = StepResult(
        events=(Text("a\ud800"), Call("t", {"n": 1.5}, "c", '{"n":1.5}'), Call("t", None, "d", "{", "broken")),
        finish="tool-calls",
        raw_reason="tool_use",
        usage=Usage(input_tokens=1, raw={"x": [1]}),
        reasoning="because",
        native=(Native("d", "message", {"a": 1}),),
        notes=(Note(NoteCode.METADATA, "m"),),
    )
    again = decoded_step(json.loads(json.dumps(encoded_step(step))))
    assert (again.text, again.finish, again.raw_reason, again.usage) == (
        step.text,
        "tool-calls",
        "tool_use",
        step.usage,
    )
    assert (again.reasoning, again.native, again.notes) == (step.reasoning, step.native, step.notes)
    assert again.calls[0] == step.calls[0]
    assert again.calls[1].input is None
    result = ToolResult("c", "t", [{"type": "text", "text": "x"}], "error", 1.5)
    assert decoded_result(json.loads(json.dumps(encoded_result(result)))) == result


async def test_a_run_that_was_cut_in_a_reply_is_not_gone_on_with() -> None:
    """Its text was handed out; the error says how to go on from before it."""
    tape = Tape()
    broken = [Text("half an"), TransientError("gone")]
    state = RunState(history=[{"role": "user", "content": "go"}], task_id=RUN)
    result = await worker(Bench(), tape, Turns(TURNS[0], broken)).run(state)
    assert result.outcome.reason == CutReason.STREAM_ERROR
    model = Turns(says("x"))
    agent = worker(Bench(), tape, model)
    with pytest.raises(JournalError, match="stream-error"):
        await agent.resume(RUN)
    assert model.seen == []
    assert (await agent.fork(agent.rewind(RUN, step=1))).text == "x"


async def test_the_reader_of_events_sees_what_is_new() -> None:
    """A run that is taken up shows its own steps, and none that were shown before."""
    _, tape = await whole()
    count = tape.kinds(RUN).index("reply", 2)
    agent = worker(Bench(), tape.cut(RUN, count), Turns(*TURNS[1:]))
    async with agent.run_events(Resume(run_id=RUN)) as events:
        kinds = [event.kind async for event in events if event.kind != "model_stream"]
    assert kinds.count("llm_start") == 2
    assert kinds.count("tool_start") == 1
    assert (kinds[0], kinds[-1]) == ("agent_start", "agent_end")


async def test_a_run_is_not_taken_up_in_a_fork() -> None:
    """It would run its calls beside the conversation, which could run them again."""
    with pytest.raises(ValueError, match="rewind"):
        await DefaultAgent(model=Turns(says("x"))).fork(Resume())


async def test_a_fork_that_is_taken_up_commits_nothing() -> None:
    """It waits, or crashes, and goes on beside the conversation, which may have moved meanwhile."""
    bench, tape = Bench(), Tape()
    shims = [ApprovalShim({"add": "ask"})]
    model = Turns(says("hello"), asks(call("add", "c1", word="a")), says("more"), says("done"))
    agent = DefaultAgent(
        descriptor=AgentDescriptor(name="worker", model=model, tools=[bench.add], shims=shims), journal=tape
    )
    await agent.run("hi")
    stopped = await agent.fork("go")
    (request,) = stopped.pending
    await agent.run("and more")
    before = agent.run_state
    result = await agent.resume(request.run, decisions=[request.approve()])
    assert (result.text, bench.done) == ("done", ["a"])
    assert agent.run_state == before
