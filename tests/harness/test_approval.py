"""F13: calls that need a person's leave: asked, kept, decided, and run once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import CutReason
from isthmus.harness import (
    AgentDescriptor,
    AgentSnapshot,
    ApprovalError,
    ApprovalShim,
    BoundShim,
    Decision,
    DefaultAgent,
    DelegatingShim,
    JsonFileStateStore,
    Limits,
    MemoryStateStore,
    Resume,
    Ruling,
    RunEvent,
    RunIdentity,
    Shim,
    SnapshotError,
    SqliteStateStore,
    StateConflictError,
)
from isthmus.models import Tools, internal_message
from isthmus.models.events import NoteCode
from isthmus.models.messages import RESERVED
from isthmus.models.normalise import make_call
from support.turns import Turns, asks, call, says


class Desk:
    """Tools with an effect, and the list of what they did."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def pay(self, to: str, amount: int) -> str:
        """Pay somebody."""
        self.done.append(("pay", to, amount))
        return f"paid {amount} to {to}"

    def look(self, what: str) -> str:
        """Look at something."""
        self.done.append(("look", what))
        return f"{what} is fine"


TURN = (asks(call("look", "c1", what="the bill"), call("pay", "c2", to="Ann", amount=5)), says("done"))


def teller(
    desk: Desk, *turns: Any, policy: Any = None, limits: Limits | None = None, tools: Any = None, **settings: Any
) -> DefaultAgent:
    """An agent that must ask before it pays."""
    shims = settings.pop("shims", (ApprovalShim(policy or {"pay": "ask"}),))
    described = AgentDescriptor(
        name="teller", model=Turns(*(turns or TURN)), tools=tools or [desk.pay, desk.look], shims=shims
    )
    return DefaultAgent(descriptor=described, limits=limits, **settings)


def results(messages: Any) -> list[Any]:
    """What the tools said, by call, in order."""
    return [(each["tool_call_id"], each["content"]) for each in messages if each.get("role") == "tool"]


async def test_a_run_stops_before_a_call_that_needs_leave() -> None:
    """The outcome is cut, "approval"; what is asked is whole, and nothing of that reply has run."""
    desk = Desk()
    result = await teller(desk).run("pay the bill")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", CutReason.APPROVAL)
    (request,) = result.pending
    assert (request.call_id, request.tool, request.why) == ("c2", "pay", "approval")
    assert request.arguments == {"to": "Ann", "amount": 5}
    assert request.run == result.run_state.task_id
    assert len(request.digest) == 64
    assert desk.done == []


async def test_an_approved_call_runs_and_the_run_goes_on() -> None:
    """All calls of the reply run in their order, each once, and the model reads each result once."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    result = await agent.resume(decisions=[stopped.pending[0].approve()])
    assert (result.text, result.outcome.outcome) == ("done", "completed")
    assert desk.done == [("look", "the bill"), ("pay", "Ann", 5)]
    assert results(result.messages) == [("c1", "the bill is fine"), ("c2", "paid 5 to Ann")]
    assert RESERVED not in json.dumps(result.messages)
    assert result.pending == ()
    assert result.run_state.task_id == stopped.run_state.task_id
    assert (stopped.turn_count, result.turn_count, result.run_state.turn_count) == (1, 1, 2)


async def test_a_refused_call_is_answered_with_the_reason() -> None:
    """The model reads why; the others of the reply run."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    result = await agent.resume(decisions=[stopped.pending[0].refuse("too much")])
    assert desk.done == [("look", "the bill")]
    assert "was not run" in results(result.messages)[1][1]
    assert "too much" in results(result.messages)[1][1]


async def test_a_call_may_run_with_other_arguments() -> None:
    """The tool gets the new ones, and the model is told."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    result = await agent.resume(decisions=[stopped.pending[0].approve({"to": "Ann", "amount": 3})])
    assert desk.done == [("look", "the bill"), ("pay", "Ann", 3)]
    assert '{"to":"Ann","amount":3}' in results(result.messages)[1][1]
    assert "paid 3 to Ann" in results(result.messages)[1][1]


async def test_a_call_may_be_answered_in_place_of_its_tool() -> None:
    """What the person says stands as the result; nothing is run."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    result = await agent.resume(decisions=[stopped.pending[0].answer("paid by cheque")])
    assert desk.done == [("look", "the bill")]
    assert results(result.messages)[1] == ("c2", "paid by cheque")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("run", "another", "of run 'another'"), ("call_id", "c9", "'c9'"), ("digest", "0" * 64, "other arguments")],
)
async def test_a_decision_of_something_else_is_refused(field: str, value: str, words: str) -> None:
    """A decision holds for one run, one call and one set of arguments; another leaves all as it is."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    fields = {**stopped.pending[0].approve().to_dict(), field: value}
    with pytest.raises(ApprovalError, match=words):
        await agent.resume(decisions=[Decision(**fields)])
    assert desk.done == []
    assert (await agent.resume(decisions=[stopped.pending[0].approve()])).text == "done"


async def test_arguments_that_changed_in_the_store_are_not_run() -> None:
    """The digest that was asked about is held against the calls: a snapshot that was edited is refused."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    text = agent.snapshot().to_json().replace('\\"amount\\":5', '\\"amount\\":500')
    again = teller(desk, snapshot=AgentSnapshot.from_json(text))
    with pytest.raises(ApprovalError, match="no longer the one"):
        await again.resume(decisions=[stopped.pending[0].approve()])
    assert desk.done == []


async def test_a_missing_decision_is_named() -> None:
    """All calls that wait are decided together."""
    desk = Desk()
    turn = asks(call("pay", "c1", to="Ann", amount=1), call("pay", "c2", to="Bo", amount=2))
    agent = teller(desk, turn, says("done"))
    stopped = await agent.run("pay")
    assert [each.call_id for each in stopped.pending] == ["c1", "c2"]
    assert len({each.digest for each in stopped.pending}) == 2
    with pytest.raises(ApprovalError, match="'c2' \\(pay\\)"):
        await agent.resume(decisions=[stopped.pending[0].approve()])
    assert desk.done == []


async def test_a_decision_counts_once() -> None:
    """The same one twice in a list is one; a second resume finds nothing that waits; two that differ are none."""
    desk = Desk()
    agent = teller(desk)
    (request,) = (await agent.run("pay the bill")).pending
    with pytest.raises(ApprovalError, match="decided twice"):
        await agent.resume(decisions=[request.approve(), request.refuse()])
    await agent.resume(decisions=[request.approve(), request.approve()])
    with pytest.raises(ApprovalError, match="no call waits"):
        await agent.resume(decisions=[request.approve()])
    assert desk.done.count(("pay", "Ann", 5)) == 1


async def test_of_two_processes_with_one_decision_one_runs_the_call(tmp_path: Path) -> None:
    """Both have loaded the waiting conversation; the store lets one of them take the decision, before anything runs."""
    desk = Desk()
    path = tmp_path / "state.json"
    (request,) = (await teller(desk, state_path=path).run("pay the bill")).pending
    first, second = (teller(desk, says("done"), state_path=path) for _ in range(2))
    await first.resume(decisions=[request.approve()])
    with pytest.raises(StateConflictError):
        await second.resume(decisions=[request.approve()])
    assert desk.done.count(("pay", "Ann", 5)) == 1


async def test_a_run_that_fails_after_its_decision_does_not_ask_again() -> None:
    """What was decided was used: the next run hears that the outcome is unknown, and nothing runs twice."""
    desk = Desk()
    agent = teller(desk, TURN[0], [ValueError("broken")], says("well"))
    (request,) = (await agent.run("pay the bill")).pending
    with pytest.raises(Exception, match="broken"):
        await agent.resume(decisions=[request.approve()])
    result = await agent.run("and now?")
    assert desk.done.count(("pay", "Ann", 5)) == 1
    assert [("unknown" in said) for _, said in results(result.messages)] == [True, True]
    assert [note.code for note in result.outcome.notes] == [NoteCode.HISTORY_CHANGED] * 2


@pytest.mark.parametrize("kind", ["memory", "json", "sqlite", "snapshot"])
async def test_a_pending_call_survives_every_store(kind: str, tmp_path: Path) -> None:
    """Another agent, made from what was kept, finds the same request, and goes on."""
    desk = Desk()
    stores = {
        "memory": MemoryStateStore(),
        "json": JsonFileStateStore(tmp_path / "state.json"),
        "sqlite": SqliteStateStore(tmp_path / "state.sqlite"),
    }
    first = teller(desk, state_store=stores.get(kind))
    stopped = await first.run("pay the bill")
    kept = {"snapshot": AgentSnapshot.from_json(first.snapshot().to_json())} if kind == "snapshot" else {}
    second = teller(desk, says("done"), state_store=stores.get(kind), **kept)
    assert second.run_state is not None
    assert second.run_state.pending == stopped.pending
    assert second.snapshot().schema_version == 1
    told = Decision(**json.loads(json.dumps(stopped.pending[0].approve().to_dict())))
    assert (await second.resume(decisions=[told])).text == "done"
    assert desk.done == [("look", "the bill"), ("pay", "Ann", 5)]


async def test_an_older_reader_refuses_a_pending_call() -> None:
    """The mark is a visibility that an earlier version does not know, and it refused those: nothing gets lost there."""
    agent = teller(Desk())
    await agent.run("pay the bill")
    snapshot = agent.snapshot().to_dict()
    visibility = [each[RESERVED]["visibility"] for each in snapshot["state"]["history"] if RESERVED in each]
    assert visibility == ["pending"]
    snapshot["state"]["history"][-1][RESERVED]["visibility"] = "waiting"
    with pytest.raises(SnapshotError, match="visibility"):
        AgentSnapshot.from_json(json.dumps(snapshot))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run",), 1),
        (("calls",), []),
        (("calls", "c2"), "x"),
        (("calls", "c2", "digest"), None),
        (("used", "steps"), "1"),
        (("used", "tools"), {"pay": "1"}),
        (("left",), [["x", 1]]),
    ],
)
async def test_a_mark_that_is_not_understood_is_refused(place: tuple[str, ...], value: Any) -> None:
    """A snapshot whose pending calls are not what they must be cannot be read."""
    agent = teller(Desk())
    await agent.run("pay the bill")
    snapshot = agent.snapshot().to_dict()
    holder = snapshot["state"]["history"][-1][RESERVED]["pending"]
    for name in place[:-1]:
        holder = holder[name]
    holder[place[-1]] = value
    with pytest.raises(SnapshotError, match="pending"):
        AgentSnapshot.from_json(json.dumps(snapshot))


async def test_two_restores_of_a_pending_call_share_nothing() -> None:
    """What one of them decides is nothing to the other."""
    desk = Desk()
    agent = teller(desk)
    (request,) = (await agent.run("pay the bill")).pending
    snapshot = agent.snapshot()
    first, second = (teller(desk, says("done"), snapshot=snapshot) for _ in range(2))
    await first.resume(decisions=[request.refuse()])
    assert second.run_state is not None
    assert second.run_state.pending == (request,)


async def test_a_conversation_that_waits_takes_nothing_else() -> None:
    """An ordinary run is refused, with what to do; so are a fork, and a transcript that goes on behind the calls."""
    desk = Desk()
    agent = teller(desk)
    stopped = await agent.run("pay the bill")
    for run in (agent.run, agent.fork):
        with pytest.raises(ApprovalError, match="'c2' \\(pay\\)"):
            await run("never mind")
    behind = [*stopped.messages, {"role": "user", "content": "never mind"}]
    with pytest.raises(ApprovalError, match="goes on behind"):
        await DefaultAgent(model=Turns(says("x"))).run("and?", behind)
    agent.reset()
    await agent.run("hello")
    assert desk.done == []


async def test_streams_and_events_go_on_too() -> None:
    """`Resume` stands where an input does; what the model says after it streams."""
    desk = Desk()
    agent = teller(desk)
    (request,) = (await agent.run("pay the bill")).pending
    async with agent.run_stream(Resume(decisions=[request.approve()])) as stream:
        assert [each.text async for each in stream if each.kind == "text_delta"] == ["done"]


async def test_the_reader_of_events_is_told_what_waits() -> None:
    """An event of the kind "tool_approval" has the call and the request, and no tool starts."""
    agent = teller(Desk())
    seen: list[RunEvent] = []
    async with agent.run_events("pay the bill") as events:
        seen = [event async for event in events]
        result = await events.result()
    kinds = [event.kind for event in seen]
    assert kinds[-4:] == ["llm_end", "tool_approval", "state_snapshot", "agent_end"]
    (asked,) = [event for event in seen if event.kind == "tool_approval"]
    assert asked.call is not None
    assert (asked.call.call_id, asked.detail) == ("c2", result.pending[0].to_dict())


async def test_a_policy_may_be_a_function() -> None:
    """It sees each call; it may be async, give a reason, refuse, or leave it."""
    desk = Desk()

    async def policy(made: Any) -> Any:
        amount = made.input.get("amount", 0)
        return None if amount < 10 else Ruling("ask", "above 10") if amount < 100 else Ruling("refuse", "never")

    turn = asks(*(call("pay", f"c{amount}", to="Ann", amount=amount) for amount in (1, 50, 500)))
    agent = teller(desk, turn, says("done"), policy=policy)
    stopped = await agent.run("pay")
    assert [(each.call_id, each.reason) for each in stopped.pending] == [("c50", "above 10")]
    assert desk.done == []
    result = await agent.resume(decisions=[stopped.pending[0].approve()])
    assert desk.done == [("pay", "Ann", 1), ("pay", "Ann", 50)]
    assert "never" in dict(results(result.messages))["c500"]


async def test_the_strictest_of_several_shims_is_heard() -> None:
    """One that would run a call does not outvote one that asks, nor that one who refuses; a wrapper passes it on."""
    desk = Desk()
    shims = [ApprovalShim({}), DelegatingShim(ApprovalShim({"pay": "ask"})), ApprovalShim({"pay": "run"})]
    assert len((await teller(desk, shims=shims).run("pay")).pending) == 1
    refusing = await teller(desk, shims=[*shims, ApprovalShim({}, otherwise="refuse")]).run("pay")
    assert refusing.pending == ()
    assert desk.done == []


async def test_a_policy_that_is_none_is_refused() -> None:
    """At once where it is a word, and before anything runs where it is a function."""
    with pytest.raises(ValueError, match="'maybe'"):
        ApprovalShim({"pay": "maybe"})
    with pytest.raises(TypeError, match="policy"):
        ApprovalShim("ask")  # type: ignore[arg-type]
    desk = Desk()
    with pytest.raises(ValueError, match="'maybe'"):
        await teller(desk, policy=lambda made: "maybe").run("pay")
    assert desk.done == []


async def test_what_cannot_run_is_not_asked_about() -> None:
    """Arguments that are no JSON get their error, and the model its chance."""
    desk = Desk()
    agent = teller(desk, asks(make_call("pay", "{", call_id="c1")), says("sorry"))
    assert (await agent.run("pay")).text == "sorry"


async def test_limits_count_the_whole_run() -> None:
    """Steps, rounds, calls and the uses of a tool that were spent before a pause are spent after it."""
    desk = Desk()
    twice = (TURN[0], asks(call("pay", "c3", to="Bo", amount=1)), says("done"))
    agent = teller(desk, *twice, limits=Limits(max_steps=1))
    (request,) = (await agent.run("pay")).pending
    assert (await agent.resume(decisions=[request.approve()])).outcome.reason == CutReason.BUDGET_STEPS

    once = Tools([desk.pay, desk.look], tool_call_limits={"pay": 1})
    agent = teller(desk, *twice, tools=once)
    (request,) = (await agent.run("pay")).pending
    stopped = await agent.resume(decisions=[request.approve()])
    result = await agent.resume(decisions=[each.approve() for each in stopped.pending])
    assert "limit of 1" in results(result.messages)[-1][1]
    assert ("pay", "Bo", 1) not in desk.done

    agent = teller(desk, *twice, limits=Limits(max_calls=2))
    (request,) = (await agent.run("pay")).pending
    assert (await agent.resume(decisions=[request.approve()])).outcome.reason == CutReason.BUDGET_CALLS


async def test_ephemeral_context_is_taken_again() -> None:
    """It is in no snapshot of the pause; given again it stands where it stood; missing, the outcome says so."""
    view = internal_message({"role": "user", "content": "sees the bill"}, origin="ui", ephemeral=True)
    rounds = []
    for context in ([view], []):
        desk = Desk()
        agent = teller(desk)
        (request,) = (await agent.run([view, {"role": "user", "content": "pay"}])).pending
        assert "sees the bill" not in agent.snapshot().to_json()
        result = await agent.resume(decisions=[request.approve()], context=context)
        sent = agent.model.seen[-1].messages
        rounds.append(([each.get("content") for each in sent][:2], [note.detail for note in result.outcome.notes]))
        assert "sees the bill" not in agent.snapshot().to_json()
    assert rounds[0] == (["sees the bill", "pay"], [])
    assert rounds[1][0][0] == "pay"
    assert "'ui'" in rounds[1][1][0]
    with pytest.raises(ValueError, match="ephemeral"):
        Resume(context=[{"role": "user", "content": "x"}])


async def test_a_transcript_alone_is_enough() -> None:
    """An agent that keeps no conversation goes on from the messages of the result."""
    desk = Desk()
    stopped = await teller(desk).run("pay the bill")
    plain = DefaultAgent(model=(model := Turns(says("done"))), tools=[desk.pay, desk.look])
    saved = json.loads(json.dumps(stopped.messages))
    result = await plain.resume(history=saved, decisions=[stopped.pending[0].approve()])
    assert result.text == "done"
    assert desk.done == [("look", "the bill"), ("pay", "Ann", 5)]
    assert [each["role"] for each in model.seen[0].messages] == ["user", "assistant", "tool", "tool"]


async def test_tools_of_shims_are_there_when_a_run_is_taken_up() -> None:
    """A tool that a shim adds each turn runs after a pause; what the shim keeps is not kept twice."""
    desk = Desk()

    class Adding(BoundShim):
        async def prepare_turn(self, turn: Any) -> None:
            turn.add_tools([desk.pay, desk.look])
            turn.run_state.shim_state["adding:turns"] = turn.run_state.shim_state.get("adding:turns", 0) + 1

    class Adds(Shim):
        name = "adding"

        async def bind(self, run: RunIdentity) -> BoundShim:
            return Adding()

    described = AgentDescriptor(name="teller", model=Turns(*TURN), shims=[Adds(), ApprovalShim({"pay": "ask"})])
    agent = DefaultAgent(descriptor=described)
    (request,) = (await agent.run("pay the bill")).pending
    result = await agent.resume(decisions=[request.approve()])
    assert desk.done == [("look", "the bill"), ("pay", "Ann", 5)]
    assert result.run_state.shim_state == {"adding:turns": 2}


@pytest.mark.parametrize(
    "arguments",
    [[1], "abc", 5, {"amount": float("nan")}, {1: 2}, {"amount": object()}, {"amount": {1, 2}}, {"amount": b"5"}],
)
async def test_other_arguments_that_are_none_use_no_decision_up(arguments: Any) -> None:
    """What cannot be arguments is refused where the decision is made; the call still waits, and may be decided."""
    desk = Desk()
    agent = teller(desk)
    (asked,) = (await agent.run("pay the bill")).pending
    with pytest.raises((TypeError, ValueError), match="arguments"):
        asked.approve(arguments)
    await agent.resume(decisions=[asked.approve()])
    assert desk.done == [("look", "the bill"), ("pay", "Ann", 5)]


async def test_a_decision_is_not_changed_by_what_it_was_made_of() -> None:
    """The arguments are the decision's own; a tool runs with those that were decided."""
    desk, given = Desk(), {"to": "Ann", "amount": 3}
    agent = teller(desk)
    (asked,) = (await agent.run("pay the bill")).pending
    decided = asked.approve(given)
    given["amount"] = 3000
    await agent.resume(decisions=[decided])
    assert desk.done[-1] == ("pay", "Ann", 3)


async def test_other_arguments_that_the_tool_does_not_take_are_not_said_to_have_run() -> None:
    """The model reads what the person changed and what is wrong with it, and no word of a run."""
    desk = Desk()
    agent = teller(desk)
    (asked,) = (await agent.run("pay the bill")).pending
    result = await agent.resume(decisions=[asked.approve({"to": "Ann", "amount": "much"})])
    assert desk.done == [("look", "the bill")]
    said = results(result.messages)[1][1]
    assert '{"to":"Ann","amount":"much"}' in said
    assert "It was not run" in said
    assert "ran with" not in said


@pytest.mark.parametrize("field", ["run", "call_id", "digest", "text"])
def test_the_words_of_a_decision_are_text(field: str) -> None:
    """A text that is none would stand in a transcript, which no provider takes."""
    fields = {"run": "r", "call_id": "c", "digest": "d", "verdict": "answer", "text": "t", field: None}
    with pytest.raises(TypeError, match=f"{field}=None: must be text"):
        Decision(**fields)


def test_what_is_no_decision_is_refused() -> None:
    """A verdict that is none, arguments of a refusal, a bare dict."""
    fields = {"run": "r", "call_id": "c", "digest": "d"}
    with pytest.raises(ValueError, match="verdict"):
        Decision(**fields, verdict="maybe")
    with pytest.raises(ValueError, match="arguments"):
        Decision(**fields, verdict="refuse", arguments={})
    with pytest.raises(TypeError, match="Decision"):
        Resume(decisions=[fields])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="uncertain"):
        Resume(uncertain="maybe")
