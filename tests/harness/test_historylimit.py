"""What of a long conversation is sent: whole turns, under a limit, with a beginning that stays the same."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.conformance import Play, serve
from isthmus.errors import ConfigError
from isthmus.harness import (
    AgentDescriptor,
    AgentSnapshot,
    BoundShim,
    DefaultAgent,
    HistoryLimitShim,
    RunIdentity,
    Shim,
    keep_whole,
)
from isthmus.harness.pairing import paired
from isthmus.models import internal_message
from support.turns import Turns, asks, call, says

VIEW = internal_message({"role": "user", "content": "sees a.csv"}, origin="ui", ephemeral=True)


def agent(model: Any, *shims: Shim, **more: Any) -> DefaultAgent:
    """An agent that keeps its conversation."""

    async def look(place: str) -> str:
        """Look."""
        return f"{place}: nothing"

    described = AgentDescriptor(name="scout", model=model, tools=[look], instructions="Be brief.", shims=shims)
    return DefaultAgent(descriptor=described, **more)


def contents(messages: Any) -> list[Any]:
    """What the messages say."""
    return [message["content"] for message in messages]


async def test_what_is_sent_is_limited_and_the_conversation_is_whole() -> None:
    """Past the limit the oldest turns are no longer sent, down to half of it; a note says so, once."""
    model = Turns(says("ok"))
    made = agent(model, HistoryLimitShim(max_messages=6))
    notes = []
    for number in range(8):
        result = await made.run(str(number))
        notes.append([note.detail for note in result.outcome.notes if "no longer sent" in note.detail])
    sent = [contents(ctx.messages) for ctx in model.seen]
    assert sent == [
        ["0"],
        ["0", "ok", "1"],
        ["0", "ok", "1", "ok", "2"],
        ["2", "ok", "3"],
        ["2", "ok", "3", "ok", "4"],
        ["4", "ok", "5"],
        ["4", "ok", "5", "ok", "6"],
        ["6", "ok", "7"],
    ]
    assert [len(each) for each in notes] == [0, 0, 0, 1, 0, 1, 0, 1]
    assert notes[3] == ["session: 4 old messages are no longer sent"]
    assert contents(result.run_state.history) == [each for number in range(8) for each in (str(number), "ok")]


async def test_the_beginning_of_requests_is_the_same_to_the_byte() -> None:
    """Over a real wire: between two steps a request begins with the messages of the last, and all else is the same."""

    def answer(request: Any) -> Play:
        last = request.asked["messages"][-1]
        asked = {"tool": "look", "input": {"place": last["content"]}, "call_id": f"c{len(request.body)}"}
        return Play.steps("Nothing is there." if last["role"] == "tool" else {"calls": [asked]})[0]

    async with serve(answer) as server, OpenAIChatAdapter(model="m", base_url=f"{server.url}/v1", api_key="k") as model:
        made = agent(model, HistoryLimitShim(max_tokens=400))
        for number in range(24):
            await made.run(f"Look at place {number}, and tell me what is there.")
        bodies = [request.body for request in server.requests]
    listed = [body[: body.index(b"]", body.rindex(b'"role"'))] for body in bodies]
    heads = [body[: body.index(b'"messages"')] for body in bodies]
    tails = [json.dumps({k: v for k, v in json.loads(body).items() if k != "messages"}) for body in bodies]
    assert len(bodies) == 48
    assert len(set(heads)) == len(set(tails)) == 1
    broken = sum(not later.startswith(sooner) for sooner, later in pairwise(listed))
    assert 3 <= broken <= 8
    assert max(len(json.loads(body)["messages"]) for body in bodies) < 30
    assert len(made.run_state.history) == 96  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 12),
    st.sampled_from([0.1, 0.5, 0.9]),
)
def test_no_call_is_parted_from_its_result(rounds: list[int], most: int, keep: float) -> None:
    """F07: whatever the turns and limits, what is sent is valid and begins where a turn does."""
    script = [turn for count in rounds for turn in (*[asks(call("look", "c", place="x"))] * count, says("ok"))]
    model = Turns(*script)
    made = agent(model, HistoryLimitShim(max_messages=most, keep=keep))

    async def talk() -> None:
        for number in range(len(rounds)):
            await made.run(str(number))

    asyncio.run(talk())
    for ctx in model.seen:
        assert paired(ctx.messages) == (ctx.messages, ())
        assert ctx.messages[0]["role"] == "user"
        users = [message for message in ctx.messages if message["role"] == "user"]
        assert len(ctx.messages) <= most or len(users) == 1


async def test_ephemeral_context_moves_nothing() -> None:
    """It is sent in its run, wherever the limit cuts, and its going changes no later beginning."""
    model = Turns(says("ok"))
    made = agent(model, HistoryLimitShim(max_messages=5))
    for number in range(7):
        await made.run([VIEW, {"role": "user", "content": str(number)}])
    sent = [contents(ctx.messages) for ctx in model.seen]
    assert all("sees a.csv" in each for each in sent)
    firsts = [next(each for each in said if each != "sees a.csv") for said in sent]
    assert firsts == ["0", "0", "2", "2", "4", "4", "6"]


async def test_instructions_and_what_is_kept_whole_stay_in_front() -> None:
    """System messages in the history, and internal messages that another shim needs, are always sent."""

    class Keeps(Shim):
        name = "keeps"

        async def bind(self, run: RunIdentity) -> BoundShim:
            class Bound(BoundShim):
                async def on_run_start(self, state: Any, transient_state: Any) -> None:
                    keep_whole(transient_state, "note")

            return Bound()

    note = internal_message({"role": "user", "content": "a note"}, origin="note")
    other = internal_message({"role": "user", "content": "other"}, origin="other")
    model = Turns(says("ok"))
    made = agent(model, HistoryLimitShim(max_messages=5), Keeps())
    await made.run([{"role": "system", "content": "rules"}, note, other, {"role": "user", "content": "0"}])
    for number in range(1, 4):
        await made.run(str(number))
    assert contents(model.seen[-1].messages)[:2] == ["rules", "a note"]
    assert "other" not in contents(model.seen[-1].messages)


async def test_a_restored_conversation_begins_where_it_did() -> None:
    """The beginning is stored with the conversation, so that the cache of a provider outlives the process."""
    model = Turns(says("ok"))
    made = agent(model, HistoryLimitShim(max_messages=5))
    for number in range(4):
        await made.run(str(number))
    again = agent(model, HistoryLimitShim(max_messages=5), snapshot=AgentSnapshot.from_json(made.snapshot().to_json()))
    await again.run("new")
    await made.run("new")
    assert model.seen[-1].messages == model.seen[-2].messages


async def test_a_history_that_was_replaced_is_measured_anew() -> None:
    """What was said of another transcript cuts nothing from this one."""
    model = Turns(says("ok"))
    made = agent(model, HistoryLimitShim(max_messages=4))
    for number in range(4):
        await made.run(str(number))
    state = made.run_state
    assert state is not None
    state.history = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    restored = agent(model, HistoryLimitShim(max_messages=4), run_state=state)
    await restored.run("c")
    assert contents(model.seen[-1].messages) == ["a", "b", "c"]


async def test_a_turn_that_is_too_long_is_sent_whole() -> None:
    """The present turn is never cut, and none before it is sent then."""
    model = Turns(says("ok"), *[asks(call("look", "c", place="x"))] * 4, says("done"))
    made = agent(model, HistoryLimitShim(max_messages=3))
    await made.run("one")
    await made.run("two")
    assert [message["role"] for message in model.seen[-1].messages] == ["user", *["assistant", "tool"] * 4]
    assert model.seen[-1].messages[0]["content"] == "two"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "max_messages, max_tokens"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_messages": 4, "keep": 1}, "keep"),
        ({"max_messages": 4, "keep": "x"}, "keep"),
    ],
)
def test_numbers_that_make_no_sense(settings: Any, said: str) -> None:
    """Place and remedy are named."""
    with pytest.raises(ConfigError, match=said):
        HistoryLimitShim(**settings)
