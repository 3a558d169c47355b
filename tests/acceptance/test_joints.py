"""F13: where handoffs, journals, approval, shims and agents as tools meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.harness import (
    AgentDescriptor,
    AgentSnapshot,
    ApprovalError,
    ApprovalShim,
    BoundShim,
    CompactionShim,
    DefaultAgent,
    JournalError,
    Limits,
    PlanShim,
    Resume,
    RunnerHooks,
    RunState,
    Shim,
)
from isthmus.models import Tools
from isthmus.models.events import Usage
from isthmus.observability import hooks
from support.journals import Tape
from support.turns import Turns, asks, call, says

RUN = "the run"


def spent(tokens: int) -> Usage:
    """So many in, and twice as many out."""
    return Usage(input_tokens=tokens, output_tokens=2 * tokens)


class Desk:
    """Tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def look(self, what: str) -> str:
        """Look at something."""
        self.done.append(f"look {what}")
        return f"{what} is fine"

    def pay(self, to: str) -> str:
        """Pay somebody."""
        self.done.append(f"pay {to}")
        return f"paid {to}"


class Told(RunnerHooks):
    """Writes down which agents begin and end."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_agent_start(self, run: Any) -> None:
        """An agent begins."""
        self.said.append(f"+{run.agent}")

    def on_agent_end(self, run: Any, result: Any) -> None:
        """An agent ends."""
        self.said.append(f"-{run.agent}")


FIRST = (asks(call("look", "c1", what="bill")), asks(call("cashier", "c2", task="Pay Ann.")))
SECOND = (asks(call("pay", "c1", to="Ann")), asks(call("boss", "c3")))
THIRD = (asks(call("look", "c9", what="sum")), says("All is done."))


class Team:
    """Three agents, of which each hands over to the next; each with a model of its own."""

    def __init__(self, desk: Desk, played: tuple[int, int, int] = (0, 0, 0), **settings: Any) -> None:
        self.models = [Turns(*turns[count:]) for turns, count in zip((FIRST, SECOND, THIRD), played, strict=True)]
        asking = settings.pop("asking", {})
        shims = {name: [ApprovalShim(policy)] for name, policy in asking.items()}
        boss = AgentDescriptor(
            name="boss", model=self.models[2], instructions="You lead.", tools=[desk.look], shims=shims.get("boss", [])
        )
        cashier = AgentDescriptor(
            name="cashier",
            model=self.models[1],
            instructions="You pay.",
            tools=[desk.pay],
            handoffs=[boss],
            shims=shims.get("cashier", []),
        )
        clerk = AgentDescriptor(
            name="clerk",
            model=self.models[0],
            instructions="You look.",
            tools=[desk.look],
            handoffs=[cashier],
            shims=shims.get("clerk", []),
        )
        self.agent = DefaultAgent(descriptor=clerk, **settings)

    @property
    def asked(self) -> list[int]:
        """How often each model was asked."""
        return [len(model.seen) for model in self.models]


def begin() -> RunState:
    """A conversation whose run has a name."""
    return RunState(history=[{"role": "user", "content": "go"}], task_id=RUN)


async def test_a_journalled_run_that_hands_over_goes_on_from_every_record() -> None:
    """Cut anywhere, the agent that had the conversation goes on: no reply is asked for, no tool run, twice."""
    desk, tape = Desk(), Tape()
    whole = await Team(desk, journal=tape).agent.run(begin())
    assert (whole.text, desk.done) == ("All is done.", ["look bill", "pay Ann", "look sum"])
    of_model = [0, 0, 1, 1, 2, 2]
    for count in range(1, len(tape.load(RUN)) + 1):
        records = tape.load(RUN)[:count]
        kinds = [each["kind"] for each in records]
        began = {each["call_id"] for each in records if each["kind"] == "start"}
        finished = {each["result"]["call_id"] for each in records if each["kind"] == "result"}
        replies = kinds.count("reply")
        played = tuple(of_model[:replies].count(each) for each in range(3))
        again, journal = Desk(), tape.cut(RUN, count)
        team = Team(again, played, journal=journal)  # type: ignore[arg-type]
        result = await team.agent.resume(RUN)
        if began - finished:
            assert [each.why for each in result.pending] == ["unknown"], kinds
            team = Team(again, played, journal=journal)  # type: ignore[arg-type]
            result = await team.agent.resume(RUN, decisions=[each.approve() for each in result.pending])
        assert result.messages == whole.messages, kinds
        assert (result.text, result.turn_count) == ("All is done.", 6)
        assert team.asked == [2 - each for each in played], kinds
        assert len(again.done) == 3 - len(finished)
        assert journal.kinds(RUN)[-1] == "end"
        briefs = [model.seen[0].brief for model in team.models if model.seen]
        assert briefs == [b for b, n in zip(("You look.", "You pay.", "You lead."), played, strict=True) if n < 2]


async def test_a_resumed_run_begins_as_the_agent_that_had_it() -> None:
    """Hooks are told of the agent at work alone, and the conversation keeps the first one's instructions."""
    tape = Tape()
    await Team(Desk(), journal=tape).agent.run(begin())
    place = tape.kinds(RUN).index("handoff") + 1
    hooks = Told()
    team = Team(Desk(), (2, 0, 0), journal=tape.cut(RUN, place), hooks=hooks)
    result = await team.agent.resume(RUN)
    assert hooks.said == ["+cashier", "-cashier", "+boss", "-boss"]
    assert result.run_state.instructions == "You look."


async def test_a_handoff_that_is_gone_is_no_guess() -> None:
    """An agent without the handoff that the journal has does not go on as somebody else."""
    tape = Tape()
    await Team(Desk(), journal=tape).agent.run(begin())
    place = tape.kinds(RUN).index("handoff") + 1
    alone = AgentDescriptor(name="clerk", model=Turns(says("hm")), tools=[Desk().look])
    with pytest.raises(JournalError, match="cashier"):
        await DefaultAgent(descriptor=alone, journal=tape.cut(RUN, place)).resume(RUN)


async def test_a_rewound_run_has_its_handoffs() -> None:
    """The state at a step behind a handoff is the transcript up to there."""
    tape = Tape()
    whole = await Team(Desk(), journal=tape).agent.run(begin())
    team = Team(Desk(), journal=tape)
    for step, length in ((0, 1), (1, 3), (2, 6), (3, 8), (4, 11), (6, 14)):
        assert tuple(team.agent.rewind(RUN, step=step).history) == whole.messages[:length], step


async def test_a_run_that_waits_after_a_handoff_goes_on_as_the_agent_that_asked() -> None:
    """The mark says who asks; a snapshot in another process is enough."""
    desk, asking = Desk(), {"cashier": {"pay": "ask"}}
    team = Team(desk, asking=asking)
    stopped = await team.agent.run("go")
    assert [each.tool for each in stopped.pending] == ["pay"]
    kept = AgentSnapshot.from_json(team.agent.snapshot().to_json())
    hooks = Told()
    team = Team(desk, (2, 1, 0), asking=asking, snapshot=kept, hooks=hooks)
    result = await team.agent.resume(decisions=[stopped.pending[0].approve()])
    assert (result.text, desk.done) == ("All is done.", ["look bill", "pay Ann", "look sum"])
    assert team.asked == [0, 1, 2]
    assert team.models[1].seen[0].brief == "You pay."
    assert hooks.said == ["+cashier", "-cashier", "+boss", "-boss"]
    assert result.run_state.instructions == "You look."


async def test_a_run_that_waits_twice_after_two_handoffs() -> None:
    """A resume of a resume knows the whole way."""
    desk, asking = Desk(), {"cashier": {"pay": "ask"}, "boss": {"look": "ask"}}
    team = Team(desk, asking=asking)
    result = await team.agent.run("go")
    for played in ((2, 1, 0), (2, 2, 1)):
        kept = AgentSnapshot.from_json(team.agent.snapshot().to_json())
        team = Team(desk, played, asking=asking, snapshot=kept)
        result = await team.agent.resume(decisions=[each.approve() for each in result.pending])
    assert (result.text, desk.done) == ("All is done.", ["look bill", "pay Ann", "look sum"])


async def test_a_decision_after_a_handoff_survives_a_crash() -> None:
    """With a journal, too, the resumed run is the asking agent's, from each of its records."""
    asking = {"cashier": {"pay": "ask"}}
    tape = Tape()
    desk = Desk()
    first = Team(desk, journal=tape, asking=asking)
    stopped = await first.agent.run(begin())
    decisions = [stopped.pending[0].approve()]
    kept = first.agent.snapshot()
    before = len(tape.load(RUN))
    whole = await Team(desk, (2, 1, 0), asking=asking, snapshot=kept, journal=tape).agent.resume(decisions=decisions)
    assert whole.text == "All is done."
    of_model = [1, 2, 2]
    for count in range(before + 1, len(tape.load(RUN)) + 1):
        records = tape.load(RUN)[before:count]
        replies = [each["kind"] for each in records].count("reply")
        played = (2, *(have + of_model[:replies].count(place) for place, have in ((1, 1), (2, 0))))
        kept = {"journal": tape.cut(RUN, count), "run_state": RunState(revision=2)}
        team = Team(Desk(), played, asking=asking, **kept)  # type: ignore[arg-type]
        result = await team.agent.resume(RUN, uncertain="rerun")
        assert result.messages == whole.messages, count
        assert team.asked[0] == 0


async def test_a_run_that_waits_for_an_agent_that_is_gone_says_so() -> None:
    """Who was to go on is named, and nothing runs."""
    desk, asking = Desk(), {"cashier": {"pay": "ask"}}
    team = Team(desk, asking=asking)
    stopped = await team.agent.run("go")
    alone = AgentDescriptor(name="clerk", model=Turns(says("hm")), tools=[desk.pay])
    agent = DefaultAgent(descriptor=alone, snapshot=team.agent.snapshot())
    with pytest.raises(ApprovalError, match="'cashier'"):
        await agent.resume(decisions=[stopped.pending[0].approve()])
    assert desk.done == ["look bill"]


async def test_the_steps_before_a_pause_count_after_a_handoff() -> None:
    """A run that waited, went on and was handed over has no steps anew."""
    desk = Desk()
    other = AgentDescriptor(name="cashier", model=Turns(asks(call("look", what="x"))), tools=[desk.look])
    model = Turns(asks(call("pay", to="Ann")), asks(call("cashier", "c2")))
    made = AgentDescriptor(
        name="clerk", model=model, tools=[desk.pay], handoffs=[other], shims=[ApprovalShim({"pay": "ask"})]
    )
    agent = DefaultAgent(descriptor=made, limits=Limits(max_steps=4))
    stopped = await agent.run("go")
    result = await agent.resume(decisions=[stopped.pending[0].approve()])
    assert result.outcome.reason == "budget-steps"
    assert (stopped.turn_count, result.turn_count) == (1, 3)


async def test_a_withheld_handoff_is_answered_like_any_tool_and_replays() -> None:
    """A call of a handoff with wrong arguments is a result in the journal, and no handoff."""
    tape = Tape()
    other = AgentDescriptor(name="cashier", model=Turns(says("no")))
    turns = (asks(call("cashier", "c1", task=3)), says("I stay."))
    made = AgentDescriptor(name="clerk", model=Turns(*turns), tools=Tools([]), handoffs=[other])
    whole = await DefaultAgent(descriptor=made, journal=tape).run(begin())
    assert whole.text == "I stay."
    for count in range(1, len(tape.load(RUN)) + 1):
        played = tape.kinds(RUN)[:count].count("reply")
        made = AgentDescriptor(name="clerk", model=Turns(*turns[played:]), tools=Tools([]), handoffs=[other])
        result = await DefaultAgent(descriptor=made, journal=tape.cut(RUN, count)).resume(RUN)
        assert result.messages == whole.messages


def office(desk: Desk, turns: tuple[Any, Any], *, parallel: bool = False, deep: bool = False, **settings: Any) -> Any:
    """An agent that looks by itself, and for whom another one pays, once it may; that one may work for a third."""
    payer = AgentDescriptor(
        name="payer",
        model=Turns(*turns[1]),
        instructions="You pay.",
        tools=[desk.pay],
        shims=[ApprovalShim({"pay": "ask"}), PlanShim()],
    )
    if deep:
        payer = AgentDescriptor(
            name="middle", model=Turns(asks(call("payer", "m1")), says("Passed on.")), tools=[payer.as_tool()]
        )
    made = AgentDescriptor(
        name="clerk",
        model=Turns(*turns[0]),
        tools=Tools([desk.look, payer.as_tool(name="payer")], parallel_tool_calls=parallel),
        shims=settings.pop("shims", ()),
    )
    return DefaultAgent(descriptor=made, **settings)


OF_CLERK = (asks(call("look", "c1", what="bill"), call("payer", "c2")), says("Paid."))
STEPS = [{"text": "Pay", "status": "in_progress"}]
OF_PAYER = (
    asks(call("write_plan", "c1", steps=STEPS)),
    asks(call("pay", "c1", to="Ann")),
    asks(call("pay", "c2", to="Bo")),
    says("Both are paid."),
)


def answers(messages: Any) -> list[tuple[str, str]]:
    """What the tools said."""
    return [(each["tool_call_id"], each["content"]) for each in messages if each["role"] == "tool"]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("deep", [False, True])
async def test_an_agent_that_waits_makes_those_wait_for_whom_it_works(parallel: bool, deep: bool) -> None:
    """Its requests stand in the result of the run at the root; each resume, in another process, goes on there."""
    desk = Desk()
    agent = office(desk, (OF_CLERK, OF_PAYER), parallel=parallel, deep=deep)
    stopped = await agent.run("go")
    for place, done in ((2, ["pay Ann"]), (3, ["pay Ann", "pay Bo"])):
        assert (stopped.outcome.outcome, stopped.outcome.reason) == ("cut", "approval")
        (request,) = stopped.pending
        assert (request.tool, request.why) == ("pay", "approval")
        assert request.run != stopped.run_state.task_id
        kept = AgentSnapshot.from_json(agent.snapshot().to_json())
        agent = office(desk, (OF_CLERK[1:], OF_PAYER[place:]), parallel=parallel, deep=deep, snapshot=kept)
        if deep:
            middle = agent.descriptor.tools.normalized_tools[1].handler.agent
            middle.model.turns = middle.model.turns[1:]
        stopped = await agent.resume(decisions=[request.approve()])
        assert desk.done == ["look bill", *done]
    said = "Passed on." if deep else "Both are paid."
    assert (stopped.text, answers(stopped.messages)) == ("Paid.", [("c1", "bill is fine"), ("c2", said)])
    assert "_isthmus" not in str(stopped.messages)


async def test_what_an_agent_that_waits_kept_is_there_when_it_goes_on() -> None:
    """Its plan and its transcript are the same as in a run that did not wait; hooks and events are told in pairs."""
    desk, hooks = Desk(), Told()
    agent = office(desk, (OF_CLERK, OF_PAYER), hooks=hooks)
    kinds: list[tuple[str, str]] = []

    async def seen(stream: Any) -> Any:
        async with stream:
            async for event in stream:
                if event.kind in ("tool_start", "tool_end", "tool_approval", "agent_start", "agent_end"):
                    kinds.append((event.kind, event.agent))
            return await stream.result()

    result = await seen(agent.run_events("go"))
    assert kinds[-4:] == [
        ("tool_approval", "payer"),
        ("agent_end", "payer"),
        ("tool_end", "clerk"),
        ("agent_end", "clerk"),
    ]
    model = agent.descriptor.tools.normalized_tools[1].handler.agent.model
    while result.pending:
        result = await seen(agent.run_events(Resume(decisions=[each.approve() for each in result.pending])))
    assert [kinds.count((kind, "clerk")) for kind in ("tool_start", "tool_end")] == [4, 4]
    assert hooks.said.count("+payer") == hooks.said.count("-payer") == 3
    assert [each["content"] for each in model.seen[-1].messages if each["role"] == "tool"][1:] == [
        "paid Ann",
        "paid Bo",
    ]
    assert [len(ctx.messages) for ctx in model.seen] == [1, 3, 5, 7]


async def test_several_agents_that_wait_are_decided_together() -> None:
    """A request of each; one that is not decided is named, and nothing runs."""
    desk = Desk()
    turns = (asks(call("payer", "c1"), call("payer", "c2")), says("Paid."))
    agent = office(desk, (turns, ()), parallel=True)
    handler = agent.descriptor.tools.normalized_tools[1].handler
    handler.agent.model.turns = [asks(call("pay", "p", to="Ann")), asks(call("pay", "p", to="Bo")), says("ok")]
    stopped = await agent.run("go")
    assert [each.arguments["to"] for each in stopped.pending] == ["Ann", "Bo"]
    assert len({each.run for each in stopped.pending}) == 2
    with pytest.raises(ApprovalError, match="no decision"):
        await agent.resume(decisions=[stopped.pending[0].approve()])
    with pytest.raises(ApprovalError, match="is of run"):
        await agent.resume(decisions=[replace(each.approve(), run="other") for each in stopped.pending])
    assert desk.done == []
    result = await agent.resume(decisions=[stopped.pending[0].approve(), stopped.pending[1].refuse("no")])
    assert (result.text, desk.done) == ("Paid.", ["pay Ann"])


async def test_an_agent_whose_own_call_waited_first() -> None:
    """Leave for the agent, with other arguments, then leave for what it does: each is asked once."""

    class Whom(BaseModel):
        who: str

    desk = Desk()
    payer = AgentDescriptor(
        name="payer",
        model=Turns(asks(call("pay", to="Ann")), says("ok")),
        tools=[desk.pay],
        shims=[ApprovalShim({"pay": "ask"})],
    )
    model = Turns(asks(call("payer", "c1", who="Ann")), says("Paid."))
    tool = payer.as_tool(args_model=Whom)
    made = AgentDescriptor(name="clerk", model=model, tools=[tool], shims=[ApprovalShim({"payer": "ask"})])
    agent = DefaultAgent(descriptor=made)
    first = await agent.run("go")
    second = await agent.resume(decisions=[first.pending[0].approve({"who": "Bo"})])
    assert payer.model.seen[0].messages[0]["content"] == '{"who":"Bo"}'
    assert [each.tool for each in second.pending] == ["pay"]
    result = await agent.resume(decisions=[second.pending[0].approve()])
    assert (result.text, desk.done) == ("Paid.", ["pay Ann"])
    assert '{"who":"Bo"}' in answers(result.messages)[0][1]


async def test_an_agent_that_waits_survives_a_crash() -> None:
    """With a journal: before its decision it waits again, after it nothing that is recorded happens twice."""
    desk, tape = Desk(), Tape()
    agent = office(desk, (OF_CLERK, OF_PAYER[1:2] + OF_PAYER[3:]), journal=tape)
    stopped = await agent.run(begin())
    assert "start" in tape.kinds(RUN)
    whole = len(tape.load(RUN))
    again = office(Desk(), (OF_CLERK[1:], OF_PAYER[3:]), journal=tape.cut(RUN, whole - 1))
    waits = await again.resume(RUN)
    assert [each.tool for each in waits.pending] == ["pay"]
    assert waits.pending == stopped.pending
    result = await again.resume(RUN, decisions=[waits.pending[0].approve()])
    assert (result.text, answers(result.messages)[-1]) == ("Paid.", ("c2", "Both are paid."))
    ended = await agent.resume(decisions=[stopped.pending[0].approve()])
    assert (ended.text, desk.done) == ("Paid.", ["look bill", "pay Ann"])
    for count in range(whole + 1, len(tape.load(RUN)) + 1):
        journal = tape.cut(RUN, count)
        kinds = journal.kinds(RUN)[whole:]
        calm = Desk()
        left = (OF_CLERK[1:], OF_PAYER[3:])
        third = office(calm, left, journal=journal, run_state=RunState(revision=2))
        result = await third.resume(RUN)
        if result.pending:
            assert ([each.why for each in result.pending], kinds[-1]) == (["unknown"], "start")
            assert calm.done == []
        else:
            assert result.messages == ended.messages
            assert calm.done == (["pay Ann"] if "result" not in kinds else [])


async def test_an_agent_works_for_a_run_that_is_taken_up() -> None:
    """What a resumed run is told is not told to those who work for it."""
    desk = Desk()
    helper = AgentDescriptor(name="helper", model=Turns(says("helped")), tools=None)
    made = AgentDescriptor(
        name="clerk",
        model=Turns(asks(call("helper", "c1")), says("done")),
        tools=[desk.look, helper.as_tool()],
        shims=[ApprovalShim({"helper": "ask"})],
    )
    agent = DefaultAgent(descriptor=made)
    stopped = await agent.run("go")
    result = await agent.resume(decisions=[stopped.pending[0].approve()])
    assert answers(result.messages) == [("c1", "helped")]


async def test_the_tokens_of_all_runs_that_are_told_add_up_to_what_was_spent() -> None:
    """A run that others work for tells its own share; its outcome has all of it."""
    told: list[Any] = []
    with hooks.sink(told.append):
        helper = AgentDescriptor(name="helper", model=Turns(says("x", usage=spent(1))), tools=None)
        other = AgentDescriptor(name="other", model=Turns(says("y", usage=spent(100))), tools=None)
        model = Turns(
            asks(call("helper", "c1"), usage=spent(10)),
            asks(call("other", "c2"), usage=spent(1000)),
        )
        made = AgentDescriptor(name="clerk", model=model, tools=[helper.as_tool()], handoffs=[other])
        result = await DefaultAgent(descriptor=made).run("go")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (1111, 2222)
    ends = [each for each in told if isinstance(each, hooks.TurnEnded)]
    assert [(each.agent, each.usage.input_tokens) for each in ends] == [("helper", 1), ("clerk", 1110)]
    assert [each.agent for each in told if isinstance(each, hooks.TurnStarted)] == ["clerk", "helper"]
    assert len({each.run_id for each in ends}) == 2


async def test_a_resumed_run_is_told_under_the_name_of_the_agent_that_began_it() -> None:
    """Whoever had the conversation: one run, one name."""
    tape, told = Tape(), []
    await Team(Desk(), journal=tape).agent.run(begin())
    place = tape.kinds(RUN).index("handoff") + 1
    with hooks.sink(told.append):
        await Team(Desk(), (2, 0, 0), journal=tape.cut(RUN, place)).agent.resume(RUN)
    turns = [each for each in told if isinstance(each, hooks.TurnStarted | hooks.TurnEnded)]
    assert [(each.agent, each.run_id) for each in turns] == [("clerk", RUN)] * 2


async def test_what_agents_spent_before_a_crash_is_said_to_be_missing() -> None:
    """The journal has their answers, not their tokens."""
    tape = Tape()

    def clerk(*turns: Any, **settings: Any) -> DefaultAgent:
        helper = AgentDescriptor(name="helper", model=Turns(says("x", usage=spent(1))), tools=None)
        made = AgentDescriptor(name="clerk", model=Turns(*turns), tools=[helper.as_tool()])
        return DefaultAgent(descriptor=made, **settings)

    turns = (
        asks(call("helper", "c1"), usage=spent(10)),
        says("done", usage=spent(100)),
    )
    whole = await clerk(*turns, journal=tape).run(begin())
    assert (whole.usage.input_tokens, whole.outcome.usage_missing) == (111, False)
    place = tape.kinds(RUN).index("result") + 1
    result = await clerk(turns[1], journal=tape.cut(RUN, place)).resume(RUN)
    assert (result.usage.input_tokens, result.outcome.usage_missing) == (110, True)


TALK = [{"role": role, "content": "x" * 1600} for _ in range(9) for role in ("user", "assistant")]


def summarised(*turns: Any) -> tuple[Turns, Turns]:
    """A model with a small window, and one that writes its summaries."""
    model = Turns(*turns)
    model.window_tokens = 8000  # type: ignore[attr-defined]
    return model, Turns(says("They talked.", usage=spent(1)))


class WatchingShim(Shim):
    """Notes what a shim sees."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.repeated: list[bool] = []

    async def bind(self, run: Any) -> BoundShim:
        """What attends the run."""
        shim = self

        class Bound(BoundShim):
            async def on_run_start(self, state: Any, transient_state: Any) -> None:
                shim.began.append(len(state.history))

            async def prepare_turn(self, turn: Any) -> None:
                shim.repeated.append(turn.repeated)

        return Bound()


async def test_a_resumed_run_writes_no_summary_that_nobody_reads() -> None:
    """While calls wait nothing is compacted: that turn is prepared anew for its tools alone."""
    desk, watching = Desk(), WatchingShim()
    model, writer = summarised(asks(call("pay", to="Ann")), says("Paid."))
    shims = [CompactionShim(writer), ApprovalShim({"pay": "ask"}), watching]
    made = AgentDescriptor(name="clerk", model=model, tools=[desk.pay], shims=shims)
    stopped = await DefaultAgent(descriptor=replace(made, shims=shims[1:])).run([*TALK, *begin().history])
    assert writer.seen == []
    agent = DefaultAgent(descriptor=made, run_state=stopped.run_state)
    result = await agent.resume(decisions=[each.approve() for each in stopped.pending])
    assert (result.text, watching.repeated, len(writer.seen)) == ("Paid.", [False, True, False], 1)


async def test_what_a_shim_spent_and_noted_is_in_the_journal() -> None:
    """A run that is taken up has the tokens and the notes of its summaries."""

    def clerk(*turns: Any, journal: Any) -> DefaultAgent:
        model, writer = summarised(*turns)
        made = AgentDescriptor(name="clerk", model=model, tools=[Desk().look], shims=[CompactionShim(writer)])
        return DefaultAgent(descriptor=made, journal=journal)

    turns = (asks(call("look", what="x"), usage=spent(10)), says("done", usage=spent(100)))
    tape = Tape()
    whole = await clerk(*turns, journal=tape).run(RunState(history=[*TALK, *begin().history], task_id=RUN))
    assert whole.usage == spent(111)
    place = tape.kinds(RUN).index("result") + 1
    result = await clerk(turns[1], journal=tape.cut(RUN, place)).resume(RUN)
    assert (result.usage, result.outcome.notes) == (whole.usage, whole.outcome.notes)
    assert result.messages == whole.messages


async def test_a_shim_of_an_agent_that_takes_over_begins_with_the_transcript_as_it_is() -> None:
    """What it sees when it begins is what its agent will read, not what the run began with."""
    watching = WatchingShim()
    other = AgentDescriptor(name="other", model=Turns(says("x")), shims=[watching])
    made = AgentDescriptor(name="clerk", model=Turns(asks(call("other"))), handoffs=[other], shims=[watching])
    await DefaultAgent(descriptor=made).run("go")
    assert watching.began == [1, 4]
