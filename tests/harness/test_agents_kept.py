"""Agents that keep their conversation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import ChainExhausted, TransientError
from isthmus.harness import (
    AgentDescriptor,
    AgentId,
    AgentSnapshot,
    DefaultAgent,
    JsonFileStateStore,
    MemoryStateStore,
    Runner,
    RunState,
    SqliteStateStore,
    StateConflictError,
)
from isthmus.harness.conversation import Queue
from isthmus.models import PromptSpec, PromptTemplate, ToolExecutionContext, internal_message
from isthmus.models.events import Native, Text
from isthmus.models.responses import ModelResponse
from isthmus.sync import run_sync
from support.turns import Turns, asks, call, says, tasks

VIEW = internal_message({"role": "user", "content": "sees a"}, origin="ui", ephemeral=True)
HIDDEN = internal_message({"role": "user", "content": "files"}, origin="files")
ME = AgentId("scout", "7")


def agent(model: Any, **settings: Any) -> DefaultAgent:
    """An agent from a descriptor."""
    parts = {key: settings.pop(key) for key in ("instructions", "tools", "output") if key in settings}
    return DefaultAgent(descriptor=AgentDescriptor(name="scout", model=model, **parts), **settings)


def contents(messages: Any) -> list[Any]:
    """What the messages say."""
    return [message["content"] for message in messages]


async def test_a_conversation_goes_on_by_itself() -> None:
    """Each run begins from what the last one left, and its result holds the state that was committed."""
    model = Turns(says("A"), says("B"))
    kept = agent(model, instructions="Be kind.")
    first = await kept.run("one")
    second = await kept.run("two")
    assert [contents(ctx.messages) for ctx in model.seen] == [["one"], ["one", "A", "two"]]
    assert contents(second.run_state.history) == ["one", "A", "two", "B"]
    assert second.run_state == kept.run_state
    assert (first.run_state.revision, second.run_state.revision) == (1, 2)
    assert (second.turn_count, second.run_state.turn_count) == (1, 2)
    assert second.run_state.instructions == "Be kind."
    assert [type(each) for each in second.responses] == [ModelResponse]
    assert [each["choices"][0]["message"]["content"] for each in second.run_state.responses] == ["A", "B"]


async def test_keywords_alone_keep_no_conversation() -> None:
    """The plain form takes its history from the caller; there is nothing to reset or to store."""
    plain = DefaultAgent(model=(model := Turns(says("A"))))
    result = await plain.run("one")
    await plain.run("two")
    assert contents(model.seen[1].messages) == ["two"]
    assert (plain.run_state, plain.agent_id) == (None, None)
    assert contents(result.run_state.history) == ["one", "A"]
    for use in (plain.snapshot, plain.reset):
        with pytest.raises(RuntimeError, match="descriptor"):
            use()


async def test_a_history_beside_a_conversation_is_refused() -> None:
    """Two transcripts cannot both come first."""
    with pytest.raises(ValueError, match="history"):
        await agent(Turns(says("A"))).run("x", [{"role": "user", "content": "y"}])
    with pytest.raises(ValueError, match="history"):
        await DefaultAgent(model=Turns(says("A"))).run(RunState(), [{"role": "user", "content": "y"}])


async def test_a_subclass_may_hold_the_descriptor() -> None:
    """The class attribute is the descriptor of all its agents, each with a conversation of its own."""

    class Scout(DefaultAgent):
        descriptor = AgentDescriptor(name="scout", model=Turns(says("A")))

    one, two = Scout(), Scout()
    await one.run("x")
    assert (one.name, one.run_state.revision, two.run_state.revision) == ("scout", 1, 0)  # type: ignore[union-attr]
    assert one.agent_id != two.agent_id
    assert one.descriptor is Scout.descriptor


async def test_ephemeral_context_lives_through_one_run() -> None:
    """Each call of its run receives it; neither the result's state, nor the agent's, nor a snapshot, nor a store."""
    model = Turns(asks(call("look")), says("A"), says("B"))
    store = MemoryStateStore()

    def look() -> str:
        """Look."""
        return "seen"

    kept = agent(model, tools=[look], state_store=store)
    result = await kept.run([HIDDEN, VIEW, {"role": "user", "content": "hi"}])
    assert [VIEW in ctx.messages for ctx in model.seen] == [True, True]
    for history in (
        result.run_state.history,
        kept.run_state.history,  # type: ignore[union-attr]
        kept.snapshot().state["history"],
        store.load().state["history"],  # type: ignore[union-attr]
    ):
        assert contents(history) == ["files", "hi", None, "seen", "A"]
        assert history[0] == HIDDEN
    await kept.run("more")
    assert VIEW not in model.seen[2].messages


async def test_a_state_takes_the_place_of_the_conversation() -> None:
    """`run(RunState)` goes on from it alone, under its instructions and its identity, and the next run from there."""
    seen: list[ToolExecutionContext] = []

    def look(context: ToolExecutionContext) -> str:
        """Look."""
        seen.append(context)
        return "seen"

    model = Turns(says("A"), asks(call("look")), says("B"), says("C"))
    kept = agent(model, tools=[look], instructions="Be kind.")
    await kept.run("one")
    given = RunState(
        "Be firm.", [{"role": "user", "content": "other"}], shim_state={"x": 1}, revision=9, task_id="task 7"
    )
    result = await kept.run(given)
    await kept.run("on")
    assert [contents(ctx.messages)[0] for ctx in model.seen] == ["one", "other", "other", "other"]
    assert [ctx.brief for ctx in model.seen] == ["Be kind.", "Be firm.", "Be firm.", "Be kind."]
    assert (seen[0].run_id, str(seen[0].run_state.task_id)) == ("task 7", "task 7")  # type: ignore[union-attr]
    assert seen[0].run_state.shim_state == {"x": 1}  # type: ignore[union-attr]
    assert (result.run_state.task_id, result.run_state.revision) == ("task 7", 2)
    assert contents(given.history) == ["other"]
    assert kept.run_state.shim_state == {"x": 1}  # type: ignore[union-attr]
    assert kept.run_state.task_id not in (None, "task 7")  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", ["error", "cancel", "close", "break"])
async def test_a_run_that_does_not_return_leaves_the_conversation(fault: str) -> None:
    """F10: a failure, a cancellation, an early close or a `break` commit nothing, and the next run is served."""
    hang = asyncio.Event()
    bad = {"error": [TransientError("down")], "break": [Text("par"), hang], "close": [Text("par"), hang]}
    model = Turns(says("A"), bad.get(fault, [hang]), says("B"))
    kept = agent(model)
    await kept.run("one")
    before = kept.run_state
    if fault == "error":
        with pytest.raises(ChainExhausted, match="down") as caught:
            await kept.run("two")
        assert isinstance(caught.value.__cause__, TransientError)
    elif fault == "cancel":
        task = asyncio.create_task(kept.run("two"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        stream = await kept.run_stream("two")
        async for _ in stream:
            break
        if fault == "close":
            await stream.aclose()
        del stream
        await asyncio.sleep(0)
    assert kept.run_state == before
    await asyncio.wait_for(kept.run("three"), 5)
    assert contents(model.seen[2].messages) == ["one", "A", "three"]
    assert (model.open, tasks()) == (0, set())


async def test_an_answer_that_was_cut_is_kept() -> None:
    """A run that returns is committed, whatever its outcome: its tools have run, and its text was read."""
    model = Turns([Text("par"), TransientError("gone")], says("B"))
    kept = agent(model)
    first = await kept.run("one")
    assert first.outcome.outcome == "cut"
    await kept.run("two")
    assert contents(model.seen[1].messages) == ["one", "par", "two"]
    assert [each["choices"][0]["message"]["content"] for each in kept.run_state.responses] == ["B"]  # type: ignore[union-attr]


async def test_runs_are_served_in_the_order_of_their_coming() -> None:
    """Runs and streams that come while one is under way wait for it, first come, first served."""
    model = Turns([0.02, *says("a")])
    kept = agent(model)

    async def streamed(text: str) -> None:
        async with kept.run_stream(text) as stream:
            await stream.result()

    await asyncio.gather(*(kept.run(text) if text in "13" else streamed(text) for text in "12345"))
    assert contents(kept.run_state.history)[::2] == list("12345")  # type: ignore[union-attr]
    assert [len(ctx.messages) for ctx in model.seen] == [1, 3, 5, 7, 9]
    assert kept.run_state.revision == 5  # type: ignore[union-attr]


async def test_one_that_gives_up_waiting_holds_up_nobody() -> None:
    """A run that is cancelled, or a stream that is closed, while it waits is passed over."""
    gate = asyncio.Event()
    model = Turns([gate, *says("A")], says("B"))
    kept = agent(model)
    first = asyncio.create_task(kept.run("1"))
    await asyncio.sleep(0)
    second = asyncio.create_task(kept.run("2"))
    stream = kept.run_stream("3")
    third = asyncio.create_task(stream.result())
    fourth = asyncio.create_task(kept.run("4"))
    await asyncio.sleep(0.01)
    second.cancel()
    await stream.aclose()
    gate.set()
    await asyncio.wait_for(asyncio.gather(first, fourth), 5)
    assert (await third).outcome.reason == "aborted"
    assert contents(kept.run_state.history) == ["1", "A", "4", "B"]  # type: ignore[union-attr]
    assert second.cancelled()


def test_an_agent_serves_one_event_loop_after_another() -> None:
    """F10: `run_sync` twice in a process goes on with the conversation, also after runs that waited for each other."""
    kept = agent(Turns([0.01, *says("A")]))

    async def two() -> None:
        await asyncio.gather(kept.run("x"), kept.run("y"))

    run_sync(two)
    run_sync(two)
    assert kept.run_state.revision == 4  # type: ignore[union-attr]


def test_an_agent_serves_event_loops_in_several_threads_at_once() -> None:
    """F10: whoever waits in another loop than the one that runs is let in as well, and no run is lost."""
    kept = agent(Turns([0.005, *says("A")]))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                asyncio.run(asyncio.wait_for(kept.run("x"), 5))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6)
    assert not failed
    assert kept.run_state.revision == 12  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ["cancelled first", "let in first"])
async def test_who_gives_up_in_the_moment_of_its_turn_passes_it_on_once(order: str) -> None:
    """F10: a turn that comes together with a cancellation is neither lost nor given to two."""
    queue = Queue()
    await queue.enter()
    second, third, fourth = (asyncio.create_task(queue.enter()) for _ in range(3))
    await asyncio.sleep(0)
    for step in (second.cancel, queue.leave) if order == "cancelled first" else (queue.leave, second.cancel):
        step()
    await asyncio.wait((second, third), timeout=1)
    assert (second.cancelled(), third.done(), fourth.done()) == (True, True, False)
    queue.leave()
    await asyncio.wait_for(fourth, 1)
    queue.leave()
    assert not queue.busy


async def test_a_stream_that_is_forgotten_while_it_waits_holds_up_nobody() -> None:
    """F10: whoever is collected in the queue leaves it."""
    queue = Queue()
    await queue.enter()
    waiting = queue.enter()
    waiting.send(None)
    waiting.close()
    queue.leave()
    await asyncio.wait_for(queue.enter(), 1)


async def test_a_fork_commits_nothing() -> None:
    """It begins from the conversation or a given state, has an identity of its own, and runs beside a run."""
    gate = asyncio.Event()
    model = Turns(says("A"), [gate, *says("B")], says("C"), says("D"))
    kept = agent(model, state_store=(store := MemoryStateStore()))
    first = await kept.run("one")
    running = asyncio.create_task(kept.run("two"))
    await asyncio.sleep(0.01)
    branch = await asyncio.wait_for(kept.fork("what if"), 5)
    other = await kept.fork(RunState(history=[{"role": "user", "content": "else"}]))
    gate.set()
    await running
    assert contents(branch.run_state.history) == ["one", "A", "what if", "C"]
    assert contents(other.run_state.history) == ["else", "D"]
    assert contents(kept.run_state.history) == ["one", "A", "two", "B"]  # type: ignore[union-attr]
    assert len({first.run_state.task_id, branch.run_state.task_id, kept.run_state.task_id}) == 3  # type: ignore[union-attr]
    assert store.load().revision == 2  # type: ignore[union-attr]


async def test_reset_forgets_the_conversation_and_what_was_stored(tmp_path: Path) -> None:
    """During a run it is a RuntimeError; afterwards the agent begins anew, its place too."""
    gate = asyncio.Event()
    model = Turns([gate, *says("A")], says("B"))
    kept = agent(model, state_path=tmp_path / "state.json")
    running = asyncio.create_task(kept.run("one"))
    await asyncio.sleep(0.01)
    with pytest.raises(RuntimeError, match="running"):
        kept.reset()
    gate.set()
    await running
    kept.reset()
    assert JsonFileStateStore(tmp_path / "state.json").load() is None
    await kept.run("two")
    assert contents(model.seen[1].messages) == ["two"]
    assert JsonFileStateStore(tmp_path / "state.json").load().revision == 1  # type: ignore[union-attr]


Place = Callable[[Path], dict[str, Any]]


@pytest.mark.parametrize(
    "place",
    [
        lambda folder: {"state_path": folder / "s.json"},
        lambda folder: {"state_store": SqliteStateStore(folder / "s.db")},
    ],
    ids=["json", "sqlite"],
)
async def test_an_agent_goes_on_in_another_process_where_it_was(place: Place, tmp_path: Path) -> None:
    """A new agent over the same place has the conversation, its identity, and native forms as they came."""
    native = Native("turns", "message", json=b'{"signature":"s\\u0000","n":1.10}')
    model = Turns([native, *says("A")], says("B"))
    first = agent(model, agent_id=ME, **place(tmp_path))
    await first.run([HIDDEN, {"role": "user", "content": "one"}])
    second = agent(model, **place(tmp_path))
    assert second.agent_id == ME
    assert second.run_state == first.run_state
    await second.run("two")
    assert contents(model.seen[1].messages) == ["files", "one", "A", "two"]
    assert model.seen[1].messages[2]["_isthmus"]["native"]["json"] == native.json.decode()
    assert agent(model, **place(tmp_path)).run_state.revision == 2  # type: ignore[union-attr]


async def test_a_snapshot_starts_agents_that_share_nothing() -> None:
    """F13: two agents restored from one snapshot go their own ways."""
    model = Turns(says("A"))
    kept = agent(model, agent_id={"type": "scout", "key": "7"})
    await kept.run("one")
    snapshot = AgentSnapshot.from_json(kept.snapshot().to_json())
    one, two = agent(model, snapshot=snapshot), agent(model, snapshot=snapshot)
    await one.run("two")
    assert (one.agent_id, two.agent_id) == (ME, ME)
    assert [len(each.run_state.history) for each in (one, two)] == [4, 2]  # type: ignore[union-attr]
    assert kept.run_state == two.run_state


async def test_keywords_with_a_conversation_keep_it() -> None:
    """The plain form with a state, a snapshot or a place keeps its conversation, and still shows its own events."""
    kept = DefaultAgent(model=Turns(says("A")), run_state=RunState(history=[VIEW, {"role": "user", "content": "x"}]))
    assert contents(kept.run_state.history) == ["x"]  # type: ignore[union-attr]
    events = [event async for event in kept.run_stream("y")]
    assert events[0] == Text("A")
    assert contents(kept.run_state.history) == ["x", "y", "A"]  # type: ignore[union-attr]


async def test_instructions_are_those_of_the_agent_as_it_is_now() -> None:
    """What was stored gives them only where the agent has none; a prompt is rendered anew for each run."""
    model = Turns(says("A"))
    values = {"tone": "kind"}
    prompt = PromptSpec(PromptTemplate(system_template="Be {{ tone }}."), values)
    kept = agent(model, instructions=prompt)
    await kept.run("1")
    values["tone"] = "firm"
    await kept.run("2")
    snapshot = kept.snapshot()
    await agent(model, snapshot=snapshot, instructions="Be new.").run("3")
    await agent(model, snapshot=snapshot).run("4")
    assert [ctx.brief for ctx in model.seen] == ["Be kind.", "Be firm.", "Be new.", "Be firm."]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"run_state": RunState(), "state_store": MemoryStateStore()}, "run_state and state_path or state_store"),
        ({"state_path": "x.json", "state_store": MemoryStateStore()}, "state_path and state_store"),
        ({"model": Turns()}, "model: the descriptor says"),
        ({"name": "x", "output": int}, "name, output: the descriptor says"),
        ({"agent_id": {"type": "scout", "key": ""}}, "agent_id.key"),
        ({"agent_id": {"type": "scout"}}, "agent_id.key"),
        ({"agent_id": "scout:7"}, "agent_id: must be"),
    ],
)
def test_what_contradicts_itself_is_refused(settings: dict[str, Any], said: str) -> None:
    """Two sources of one fact are a ValueError that names them."""
    with pytest.raises(ValueError, match=said):
        DefaultAgent(descriptor=AgentDescriptor(name="scout", model=Turns(says("A"))), **settings)


def test_the_conversation_of_another_agent_is_refused(tmp_path: Path) -> None:
    """F13: an `agent_id` that is not that of the snapshot, or of the store, fails closed."""
    snapshot = AgentSnapshot.capture(RunState(), agent_id={"type": "scout", "key": "8"})
    store = JsonFileStateStore(tmp_path / "s.json")
    store.save(snapshot, expected_revision=None)
    for settings in ({"snapshot": snapshot}, {"state_store": store}, {"state_path": tmp_path / "s.json"}):
        with pytest.raises(ValueError, match=r"'scout:7'.*'scout:8'"):
            agent(Turns(), agent_id=ME, **settings)


def test_an_agent_needs_a_model() -> None:
    """A descriptor without one makes no agent."""
    for make in (DefaultAgent, lambda: DefaultAgent(descriptor=AgentDescriptor(name="x"))):
        with pytest.raises(TypeError, match="needs a model"):
            make()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_store_that_fails_leaves_the_conversation(streamed: bool) -> None:
    """The store's own error is raised, by the stream and by `result`, and the next run begins from the old state."""

    class Full(MemoryStateStore):
        full = False

        def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
            """Save, if there is room."""
            if self.full:
                raise OSError("no space left")
            super().save(snapshot, expected_revision=expected_revision)

    store = Full()
    model = Turns(says("A"))
    kept = agent(model, state_store=store)
    await kept.run("one")
    before, store.full = kept.run_state, True
    if streamed:
        stream = await kept.run_stream("two")
        with pytest.raises(OSError, match="no space"):
            async for _ in stream:
                pass
        with pytest.raises(OSError, match="no space"):
            await stream.result()
    else:
        with pytest.raises(OSError, match="no space"):
            await kept.run("two")
    assert kept.run_state == before
    store.full = False
    await kept.run("three")
    assert contents(store.load().state["history"]) == ["one", "A", "three", "A"]  # type: ignore[union-attr]


async def test_of_two_agents_over_one_place_the_second_to_commit_has_a_conflict() -> None:
    """Nothing that the first has stored is lost, and the second says so."""
    store = MemoryStateStore()
    model = Turns(says("A"))
    one, two = agent(model, state_store=store), agent(model, state_store=store)
    await one.run("1")
    with pytest.raises(StateConflictError, match="holds revision 1, not nothing"):
        await two.run("2")
    with pytest.raises(StateConflictError):
        two.reset()
    assert store.load().state["history"][0]["content"] == "1"  # type: ignore[union-attr]


async def test_a_state_without_a_json_form_fails_closed_and_changes_nothing() -> None:
    """What cannot be stored is not committed in memory either."""
    kept = agent(Turns(says("A")), state_store=MemoryStateStore())
    with pytest.raises(ValueError, match=r"history\[0\]\.content\[0\]\.x: a object"):
        await kept.run({"role": "user", "content": [{"type": "text", "text": "t", "x": object()}]})
    assert kept.run_state == RunState()


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancellation_while_it_is_stored_leaves_both_the_same(times: int) -> None:
    """Whoever is cancelled while the store writes waits for it; the agent and the store agree afterwards.

    Who is cancelled once more waits no longer, and they agree all the same as soon as it is stored.
    """
    entered, go = threading.Event(), threading.Event()

    class Slow(MemoryStateStore):
        def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
            """Save, when told to."""
            entered.set()
            go.wait(5)
            super().save(snapshot, expected_revision=expected_revision)

    store = Slow()
    kept = agent(Turns(says("A")), state_store=store)
    task = asyncio.create_task(kept.run("one"))
    while not entered.is_set():
        await asyncio.sleep(0.001)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.01)
    assert task.done() is (times > 1)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(2):
        while kept.run_state.revision == 0:
            await asyncio.sleep(0.001)
    assert kept.run_state.revision == store.load().revision == 1  # type: ignore[union-attr]
    await kept.run("two")
    assert store.load().revision == 2  # type: ignore[union-attr]


async def test_the_loop_turns_while_it_is_stored() -> None:
    """A slow store blocks nobody else."""
    main = threading.current_thread()
    seen: list[bool] = []

    class Watched(MemoryStateStore):
        def save(self, snapshot: AgentSnapshot, *, expected_revision: int | None) -> None:
            """Remember the thread."""
            seen.append(threading.current_thread() is main)

    await agent(Turns(says("A")), state_store=Watched()).run("one")
    assert seen == [False]


async def test_metadata_reaches_the_tools() -> None:
    """What the application gives along stands in each context, on runs, streams and forks."""
    seen: list[Any] = []

    def look(context: ToolExecutionContext) -> str:
        """Look."""
        seen.append(dict(context.metadata))
        return "seen"

    turns = [asks(call("look")), says("A")]
    kept = agent(Turns(*turns, *turns, *turns, *turns), tools=[look])
    await kept.run("x", metadata={"tenant": 1})
    async with kept.run_stream("x", metadata={"tenant": 2}) as stream:
        await stream.result()
    await kept.fork("x", metadata={"tenant": 3})
    await kept.run("x")
    assert seen == [{"tenant": 1}, {"tenant": 2}, {"tenant": 3}, {}]


@pytest.mark.parametrize("name", ["max_attempts", "max_turns", "agent_max_depth", "agent_max_threads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_runner_needs_whole_numbers(name: str, value: Any) -> None:
    """A number below 1 is a ValueError that names it."""
    with pytest.raises(ValueError, match=name):
        Runner(**{name: value})


def test_the_defaults_of_a_runner() -> None:
    """One attempt, 128 turns, depth 4, 16 threads."""
    assert Runner() == Runner(max_attempts=1, max_turns=128, agent_max_depth=4, agent_max_threads=16, is_retryable=None)


async def test_the_limit_of_turns_counts_one_run() -> None:
    """A conversation of many runs is never used up; one run that goes on too long is cut."""
    model = Turns(says("A"))
    kept = agent(model, runner=Runner(max_turns=1))
    for text in "123":
        assert (await kept.run(text)).outcome.outcome == "completed"
    assert kept.run_state.turn_count == 3  # type: ignore[union-attr]
    endless = agent(Turns(asks(call("add"))), tools=[add], runner=Runner(max_turns=2))
    result = await endless.run("go")
    assert (result.outcome.reason, result.turn_count) == ("budget-steps", 2)


def add() -> int:
    """Add."""
    return 1


class Flaky(Turns):
    """Leaves retries to whoever calls it; a chain around it tries each call three times."""

    handles_retries = False


async def test_attempts_of_the_runner_come_before_any_content() -> None:
    """A call that failed before content is made anew, as often as was said, if the error is worth it."""
    down = [TransientError("down", retry_after=0.0)]
    model = Flaky(down, down, down, says("A"))
    result = await agent(model, runner=Runner(max_attempts=2)).run("x")
    assert (result.text, len(model.seen), result.turn_count) == ("A", 4, 1)
    never = Flaky(down, down, down, says("A"))
    with pytest.raises(ChainExhausted):
        await agent(never, runner=Runner(max_attempts=2, is_retryable=lambda error: False)).run("x")
    said = Flaky([Text("par"), *down], says("A"))
    assert (await agent(said, runner=Runner(max_attempts=5)).run("x")).text == "par"
    owned = Turns(down, says("A"))
    with pytest.raises(ChainExhausted):
        await agent(owned, runner=Runner(max_attempts=5)).run("x")
    assert len(owned.seen) == 1


async def test_a_tool_may_fork_the_agent_that_runs_it() -> None:
    """A fork waits for nobody, and sees the conversation as it was committed last."""

    async def ask(question: str) -> str:
        """Ask."""
        return (await kept.fork(question)).text

    model = Turns(says("A"), asks(call("ask", question="why?")), says("because"), says("B"))
    kept = agent(model, tools=[ask])
    await kept.run("one")
    result = await asyncio.wait_for(kept.run("two"), 5)
    assert contents(model.seen[2].messages) == ["one", "A", "why?"]
    assert contents(result.run_state.history)[2:] == ["two", None, "because", "B"]
