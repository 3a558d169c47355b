"""Hooks, shims and events of a run: who is told what, in which order, and what becomes of their failures."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from isthmus.errors import InvalidRequestError, UnavailableError, UnclassifiedError
from isthmus.harness import (
    AgentDescriptor,
    BoundShim,
    DefaultAgent,
    DelegatingBoundShim,
    DelegatingShim,
    PreparedTurn,
    RunEvent,
    RunnerHooks,
    Shim,
    ToolNameCollisionError,
)
from isthmus.models import Tools, as_tool, internal_message
from isthmus.models.events import CallDelta
from support.turns import Turns, asks, call, says, tasks


@as_tool
async def echo(n: int) -> int:
    """Give it back."""
    return n


@as_tool
async def hang() -> None:
    """Never end."""
    await asyncio.Event().wait()


class Diary(RunnerHooks):
    """Writes down what it is told."""

    def __init__(self, name: str = "app", log: list[str] | None = None) -> None:
        self.name, self.log = name, [] if log is None else log
        self.results: list[Any] = []

    def _write(self, what: str) -> None:
        self.log.append(f"{self.name}.{what}")

    async def on_agent_start(self, run: Any) -> None:
        self._write("agent_start")

    async def on_agent_end(self, run: Any, result: Any) -> None:
        self.results.append(result)
        self._write("agent_end")

    def on_llm_start(self, run: Any, messages: Any) -> None:
        self._write("llm_start")

    def on_llm_end(self, run: Any, response: Any) -> None:
        self._write("llm_end" if response is not None else "llm_end:none")

    async def on_tool_call_start(self, run: Any, call: Any) -> None:
        self._write(f"tool_start:{call.tool}")

    async def on_tool_call_end(self, run: Any, call: Any, *, result: Any) -> None:
        self._write(f"tool_end:{result.outcome}")


class Bound(BoundShim):
    """Writes down its steps."""

    def __init__(self, name: str, log: list[str], hooks: RunnerHooks | None) -> None:
        self.name, self.log, self.runner_hooks = name, log, hooks

    async def on_run_start(self, state: Any, transient_state: Any) -> None:
        self.log.append(f"{self.name}.run_start")

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        self.log.append(f"{self.name}.prepare")

    async def transform_messages(self, messages: Any) -> Any:
        self.log.append(f"{self.name}.transform")
        return messages

    async def on_model_response(self, turn: PreparedTurn, response: Any) -> None:
        self.log.append(f"{self.name}.response")

    async def on_run_end(self, state: Any, transient_state: Any) -> None:
        self.log.append(f"{self.name}.run_end")


class Steps(Shim):
    """Binds one that writes down its steps."""

    def __init__(self, name: str, log: list[str], hooks: RunnerHooks | None = None) -> None:
        self.name, self.log, self.hooks = name, log, hooks

    async def bind(self, run: Any) -> BoundShim:
        return Bound(self.name, self.log, self.hooks)


class Does(Shim):
    """Runs given functions at the steps of the same name."""

    def __init__(self, **steps: Any) -> None:
        self.name = "does"
        self.steps = steps

    async def bind(self, run: Any) -> BoundShim:
        bound = BoundShim()
        for name, step in self.steps.items():
            setattr(bound, name, step)
        return bound


def agent(model: Any, *, hooks: Any = (), shims: Any = (), tools: Any = (echo, hang), **more: Any) -> DefaultAgent:
    """An agent that keeps its conversation."""
    described = AgentDescriptor(name="scout", model=model, tools=tools, shims=shims, instructions="Be brief.")
    return DefaultAgent(descriptor=described, hooks=hooks, **more)


def named(event: RunEvent) -> str:
    """An event by its kind, and what it is more exactly."""
    if event.kind == "model_stream":
        assert event.model_event is not None
        return f"model_stream:{event.model_event.kind}"
    return event.kind if event.state is None else f"snap:{event.state.boundary}"


async def test_the_events_of_one_tool_round_come_in_this_order() -> None:
    """Agent, snapshot, turn, model, tool, snapshot, turn, model, snapshot, agent: in this order alone."""
    written = CallDelta(0, "a", "echo", '{"n":1}')
    model = Turns([written, *asks(call("echo", "a", n=1))], says("do", "ne"))
    events = [event async for event in agent(model).run_events("go")]
    assert [named(event) for event in events] == [
        "agent_start",
        "snap:run_start",
        "snap:turn_prepared",
        "llm_start",
        "model_stream:tool_call_arguments_delta",
        "model_stream:completed",
        "llm_end",
        "tool_start",
        "tool_end",
        "snap:tool_round_end",
        "snap:turn_prepared",
        "llm_start",
        "model_stream:text_delta",
        "model_stream:text_delta",
        "model_stream:completed",
        "llm_end",
        "snap:run_end",
        "agent_end",
    ]
    assert {(event.agent, event.is_root, event.depth) for event in events} == {("scout", True, 0)}
    assert len({event.task_id for event in events}) == 1
    assert [event.result.content for event in events if event.result is not None] == ["1"]
    assert events[-1].output == "done"


async def test_explicit_hooks_come_before_those_of_shims_and_each_start_has_its_end() -> None:
    """The application is told first, then the shims' own hooks; the order of a turn is the documented one."""
    log: list[str] = []
    model = Turns(asks(call("echo", "a", n=1)), says("done"))
    made = agent(model, hooks=[Diary("app", log)], shims=[Steps("one", log, Diary("shim", log)), Steps("two", log)])
    result = await made.run("go")
    assert result.text == "done"
    turn = [
        *("one.prepare", "two.prepare", "one.transform", "two.transform"),
        *("app.llm_start", "shim.llm_start", "app.llm_end", "shim.llm_end", "one.response", "two.response"),
    ]
    assert log == [
        *("one.run_start", "two.run_start", "app.agent_start", "shim.agent_start"),
        *turn,
        *("app.tool_start:echo", "shim.tool_start:echo", "app.tool_end:ok", "shim.tool_end:ok"),
        *turn,
        *("two.run_end", "one.run_end", "app.agent_end", "shim.agent_end"),
    ]


async def test_a_prepared_turn_holds_for_that_turn_and_its_history_for_good() -> None:
    """Instructions, arguments and tools are the turn's; messages that were added stay in the conversation."""

    async def prepare(turn: PreparedTurn) -> None:
        if turn.run_state.turn_count == 1:
            turn.append_system_instruction("Now.")
            turn.model_args["top_k"] = 3
            turn.exclude_tools("hang")
            turn.append_history_item(internal_message({"role": "user", "content": "files: a"}, origin="files"))
            turn.run_state.shim_state["does:seen"] = 1

    model = Turns(asks(call("echo", "a", n=1)), says("done"))
    made = agent(model, shims=[Does(prepare_turn=prepare)])
    result = await made.run("go")
    first, second = model.seen
    assert (first.brief, second.brief) == ("Be brief.\n\nNow.", "Be brief.")
    assert (first.options, second.options) == ({"top_k": 3}, {})
    assert [[tool.name for tool in each.tools] for each in model.seen] == [["echo"], ["echo", "hang"]]
    assert [message["content"] for message in result.run_state.history[:2]] == ["go", "files: a"]
    assert result.run_state.shim_state == {"does:seen": 1}
    assert made.run_state == result.run_state


@pytest.mark.parametrize(
    ("items", "error"),
    [("abc", TypeError), ({"role": "user", "content": "x"}, TypeError), ([{"no": "role"}], InvalidRequestError)],
    ids=["text", "message", "no role"],
)
@pytest.mark.parametrize("how", ["append_history_items", "replace_history"])
async def test_what_is_no_transcript_is_refused_before_the_model_is_called(how: str, items: Any, error: Any) -> None:
    """One text is not its letters, one message not its keys, and what no snapshot could hold is no message."""

    async def prepare(turn: PreparedTurn) -> None:
        getattr(turn, how)(items)

    model = Turns(says("done"))
    with pytest.raises(error):
        await agent(model, shims=[Does(prepare_turn=prepare)]).run("go")
    assert model.seen == []


async def test_without_any_tool_left_the_choice_is_none() -> None:
    """Whatever the policy requires: with every tool withheld, the request says none, and offers none."""

    async def prepare(turn: PreparedTurn) -> None:
        turn.exclude_tools("echo", "hang", "late")
        turn.add_tools([as_tool(name="late")(lambda: None)])

    model = Turns(says("done"))
    await agent(model, tools=Tools([echo, hang], tool_choice="required"), shims=[Does(prepare_turn=prepare)]).run("go")
    assert (model.seen[0].tools, model.seen[0].tool_choice) == ((), "none")


async def test_a_tool_that_a_shim_adds_is_offered_and_runs() -> None:
    """An added tool is called like any other; of two with one name the first stays, or it is an error."""

    @as_tool
    async def extra() -> str:
        """Help."""
        return "helped"

    async def prepare(turn: PreparedTurn) -> None:
        turn.add_tools([extra, echo])
        with pytest.raises(ToolNameCollisionError, match="echo"):
            turn.add_tools([as_tool(name="new")(lambda: None), echo], require_unique_names=True)

    model = Turns(asks(call("extra", "a")), says("done"))
    result = await agent(model, shims=[Does(prepare_turn=prepare)]).run("go")
    assert [tool.name for tool in model.seen[0].tools] == ["echo", "hang", "extra"]
    assert result.messages[2]["content"] == "helped"


async def test_what_a_hook_or_a_shim_changes_in_the_messages_holds_for_one_call() -> None:
    """The model reads the changed messages, the conversation keeps what was said."""

    class Adds(RunnerHooks):
        def on_llm_start(self, run: Any, messages: list[dict[str, Any]]) -> None:
            messages[0]["content"] = "changed"
            messages.append({"role": "user", "content": "hooked"})

    async def transform(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*messages, {"role": "user", "content": "shimmed"}]

    model = Turns(says("done"))
    result = await agent(model, hooks=Adds(), shims=[Does(transform_messages=transform)]).run("go")
    assert [message["content"] for message in model.seen[0].messages] == ["changed", "shimmed", "hooked"]
    assert [message["content"] for message in result.messages] == ["go", "done"]


@pytest.mark.parametrize("where", ["on_agent_start", "on_llm_start", "on_llm_end", "on_tool_call_end", "on_agent_end"])
async def test_a_hook_that_raises_fails_the_run(where: str) -> None:
    """Its error reaches the caller; the conversation is as it was, and shims that began have ended."""

    def fail(*_: Any, **__: Any) -> None:
        raise LookupError(where)

    log: list[str] = []
    hooks = Diary("app", log)
    setattr(hooks, where, fail)
    made = agent(Turns(asks(call("echo", "a", n=1)), says("done")), hooks=hooks, shims=[Steps("one", log)])
    with pytest.raises((LookupError, ExceptionGroup)) as caught:
        await made.run("go")
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert repr(error) == f"LookupError({where!r})"
    assert log.count("one.run_start") == log.count("one.run_end") == 1
    assert log.count("app.llm_start") + (where == "on_llm_start") >= sum("app.llm_end" in line for line in log)
    assert not tasks()


async def test_a_hook_that_raises_at_the_end_lets_the_next_run_in() -> None:
    """Whatever goes wrong there, the conversation is free again."""
    hooks = Diary()
    failing = True

    def fail(*_: Any) -> None:
        if failing:
            raise LookupError("end")

    hooks.on_agent_end = fail  # type: ignore[assignment]
    made = agent(Turns(says("done")), hooks=hooks)
    with pytest.raises(ExceptionGroup):
        await made.run("go")
    failing = False
    async with asyncio.timeout(5):
        assert (await made.run("go")).text == "done"


async def test_a_shim_that_cannot_start_ends_those_that_began() -> None:
    """The first error is the run's; later ones, of the end, are notes on it."""

    async def broken(*_: Any) -> None:
        raise UnavailableError("the server is down")

    async def messy(*_: Any) -> None:
        raise ValueError("and the end failed")

    log: list[str] = []
    model = Turns(says("never"))
    made = agent(model, hooks=Diary("app", log), shims=[Steps("one", log), Does(on_run_start=broken, on_run_end=messy)])
    with pytest.raises(UnavailableError, match="the server is down") as caught:
        await made.run("go")
    assert log == ["one.run_start", "one.run_end"]
    assert any("and the end failed" in note for note in caught.value.__notes__)
    assert not model.seen


async def test_failures_at_the_end_of_a_run_that_went_well_are_raised_together() -> None:
    """All of them, as a group; nothing is committed."""

    async def messy(*_: Any) -> None:
        raise ValueError("no")

    made = agent(Turns(says("done")), shims=[Does(on_run_end=messy), Does(on_run_end=messy)])
    with pytest.raises(ExceptionGroup) as caught:
        await made.run("go")
    assert len(caught.value.exceptions) == 2
    assert made.run_state is not None
    assert made.run_state.history == ()


@pytest.mark.parametrize("way", ["close", "cancel"])
async def test_a_run_that_is_stopped_in_a_tool_tells_everybody(way: str) -> None:
    """Every start has its end: the tool's outcome is unknown, the agent has no result, the shim ends."""
    log: list[str] = []
    hooks = Diary("app", log)
    made = agent(Turns(asks(call("hang", "a"))), hooks=hooks, shims=[Steps("one", log)])
    stream = made.run_stream("go")

    async def read() -> None:
        async for _ in stream:
            pass

    reader = asyncio.create_task(read())
    while "app.tool_start:hang" not in log:
        await asyncio.sleep(0)
    if way == "cancel":
        reader.cancel()
    else:
        await stream.aclose()
    await asyncio.wait((reader,))
    assert log[-4:] == ["app.tool_start:hang", "app.tool_end:unknown", "one.run_end", "app.agent_end"]
    assert hooks.results == [None]
    assert not tasks()


async def test_a_failing_model_ends_its_call_and_the_events_before_the_error_is_raised() -> None:
    """The reader sees the end of the call and of the agent, then the error."""
    made = agent(Turns([UnavailableError("down")]))
    kinds: list[str] = []

    async def read() -> None:
        async for event in made.run_events("go"):
            kinds.append(named(event))

    with pytest.raises(UnavailableError, match="down"):
        await read()
    assert kinds[-4:] == ["llm_start", "llm_end", "snap:run_end", "agent_end"]


async def test_a_delegating_shim_changes_only_what_it_overrides() -> None:
    """Everything else is the inner shim's, its hooks too."""

    class Louder(DelegatingBoundShim):
        async def prepare_turn(self, turn: PreparedTurn) -> None:
            turn.append_system_instruction("Louder.")
            await super().prepare_turn(turn)

    class Wraps(DelegatingShim):
        def wrap(self, bound: BoundShim) -> BoundShim:
            return Louder(bound)

    log: list[str] = []
    model = Turns(says("done"))
    await agent(model, shims=[Wraps(Steps("one", log, Diary("shim", log)))]).run("go")
    assert model.seen[0].brief == "Be brief.\n\nLouder."
    assert [line for line in log if line.startswith("one")] == [
        f"one.{step}" for step in ("run_start", "prepare", "transform", "response", "run_end")
    ]
    assert "shim.agent_end" in log


async def test_parallel_tools_report_as_they_start_and_end() -> None:
    """Both have begun before either has ended, and their events are read while they run."""
    both = asyncio.Event()
    begun = []

    @as_tool
    async def meet(n: int) -> int:
        """Wait for the other."""
        begun.append(n)
        if len(begun) == 2:
            both.set()
        await both.wait()
        return n

    model = Turns(asks(call("meet", "a", n=1), call("meet", "b", n=2)), says("done"))
    made = agent(model, tools=Tools([meet], parallel_tool_calls=True))
    kinds = [event.kind async for event in made.run_events("go") if event.kind.startswith("tool")]
    assert kinds == ["tool_start", "tool_start", "tool_end", "tool_end"]
    assert not tasks()


class Pairs(RunnerHooks):
    """Counts starts without an end; one that `breaks` raises at the step of that name."""

    def __init__(self, breaks: str = "", log: list[str] | None = None) -> None:
        self.breaks, self.open = breaks, Counter[str]()
        self.results: list[str] = []

    def _told(self, name: str, what: str) -> None:
        self.open[what] += 1 if name.endswith("start") else -1
        if name == self.breaks:
            raise LookupError(name)

    def on_agent_start(self, run: Any) -> None:
        self._told("on_agent_start", run.agent)

    def on_agent_end(self, run: Any, result: Any) -> None:
        self._told("on_agent_end", run.agent)

    def on_llm_start(self, run: Any, messages: Any) -> None:
        self._told("on_llm_start", "model")

    def on_llm_end(self, run: Any, response: Any) -> None:
        self._told("on_llm_end", "model")

    def on_tool_call_start(self, run: Any, call: Any) -> None:
        self._told("on_tool_call_start", call.call_id)

    def on_tool_call_end(self, run: Any, call: Any, *, result: Any) -> None:
        self.results.append(result.outcome)
        self._told("on_tool_call_end", call.call_id)


def one_round(hooks: Any, *, shims: Any = (), hands_over: bool) -> DefaultAgent:
    """An agent that calls a tool and answers, or hands over to one that answers."""
    desk = AgentDescriptor(name="desk", model=Turns(says("done")), tools=None)
    turns = [asks(call("desk", "b"))] if hands_over else [asks(call("echo", "a", n=1)), says("done")]
    made = AgentDescriptor(name="scout", model=Turns(*turns), tools=[echo], shims=shims, handoffs=[desk])
    return DefaultAgent(descriptor=made, hooks=hooks)


_TOLD = [f"on_{what}_{step}" for what in ("agent", "llm", "tool_call") for step in ("start", "end")]


@pytest.mark.parametrize("hands_over", [False, True])
@pytest.mark.parametrize("where", [*_TOLD, "transform_messages"])
async def test_whoever_raises_each_start_that_was_told_has_its_end_and_no_end_comes_alone(
    where: str, hands_over: bool
) -> None:
    """Of several hooks one that raises leaves the others neither without an end nor with an end alone."""

    async def fail(_: Any) -> None:
        raise LookupError(where)

    everybody = Pairs(), Pairs(where), Pairs()
    shims = [Does(transform_messages=fail)] if where == "transform_messages" else []
    made = one_round(everybody, shims=shims, hands_over=hands_over)
    kinds: list[str] = []

    async def read() -> None:
        async for event in made.run_events("go"):
            kinds.append(event.kind)

    with pytest.raises((LookupError, ExceptionGroup)):
        await read()
    assert [each.open.total() for each in everybody] == [0, 0, 0]
    assert {value for each in everybody for value in each.open.values()} <= {0}
    for what in ("agent", "llm", "tool", "handoff"):
        assert kinds.count(f"{what}_start") == kinds.count(f"{what}_end"), what
    if where == "on_tool_call_end":
        assert [each.results for each in everybody] == [["ok"]] * 3


@pytest.mark.parametrize("where", _TOLD)
@pytest.mark.parametrize("hands_over", [False, True])
async def test_a_run_that_is_stopped_in_a_hook_tells_each_end_once(where: str, hands_over: bool) -> None:
    """Cancelled while one hook waits: those before it, that one and those behind it have as many ends as starts."""
    reached = asyncio.Event()

    async def wait(*_: Any, **__: Any) -> None:
        told(*_, **__)
        reached.set()
        await asyncio.sleep(3600)

    everybody = Pairs(), Pairs(), Pairs()
    told = getattr(everybody[1], where)
    setattr(everybody[1], where, wait)
    run = asyncio.create_task(one_round(everybody, hands_over=hands_over).run("go"))
    await reached.wait()
    setattr(everybody[1], where, told)
    run.cancel()
    await asyncio.wait((run,))
    assert run.cancelled()
    assert [+each.open or -each.open for each in everybody] == [Counter()] * 3
    assert not tasks()


async def test_a_shim_that_gives_nothing_back_is_named() -> None:
    """What binds a run must be a bound shim, what changes the messages must give messages."""

    class Nobody(Shim):
        name = "nobody"

        async def bind(self, run: Any) -> Any:
            return None

    async def nothing(_: Any) -> None:
        """Forget to return."""

    with pytest.raises(TypeError, match="shim 'nobody': bind gave None: must return a BoundShim"):
        await agent(Turns(says("done")), shims=[Nobody()]).run("go")
    with pytest.raises(TypeError, match=r"transform_messages gave None: must return the messages, as a list"):
        await agent(Turns(says("done")), shims=[Does(transform_messages=nothing)]).run("go")


@pytest.mark.parametrize("where", [*_TOLD, "prepare_turn", "on_run_end"])
async def test_a_cancellation_of_a_hook_or_a_shim_of_its_own_fails_the_run_and_cancels_nobody(where: str) -> None:
    """Who waits for the run is not cancelled, since nobody asked for that: he gets an error, as of any failure."""

    async def wait_for_what_was_cancelled(*_: Any, **__: Any) -> None:
        given_up = asyncio.get_running_loop().create_future()
        given_up.cancel()
        await given_up

    hooks, shims = RunnerHooks(), []
    if where in _TOLD:
        setattr(hooks, where, wait_for_what_was_cancelled)
    else:
        shims = [Does(**{where: wait_for_what_was_cancelled})]
    made = agent(Turns(asks(call("echo", "a", n=1)), says("done")), hooks=hooks, shims=shims)
    with pytest.raises((UnclassifiedError, ExceptionGroup)):
        await made.run("go")
    assert not tasks()
