"""The page on the models layer, its sections on tools: what it promises, seen from an application."""

import asyncio
import threading
from typing import Any

import pytest

from isthmus.harness import DefaultAgent
from isthmus.models import (
    CancellationToken,
    ImageContent,
    Media,
    RunStateView,
    Tool,
    ToolExecutionContext,
    ToolExecutor,
    ToolFailure,
    Tools,
    ToolSpec,
    as_tool,
    tool_outcome,
)
from support.turns import Turns, asks, call, says


@as_tool
async def search_risk_policy(question: str) -> str:
    """Search the risk policy library."""
    del question
    return "Single-sector exposure above 35% requires risk review."


async def test_the_pages_tool_reads_as_a_definition_and_runs() -> None:
    """The tool of the page's example, decorated where it stands, is offered, called and answered."""
    tools = Tools(tools=[search_risk_policy])
    assert search_risk_policy.schema["description"] == "Search the risk policy library."
    model = Turns(asks(call("search_risk_policy", question="exposure")), says("Review it."))
    result = await DefaultAgent(model=model, tools=tools).run("40% in one sector?")
    assert result.final_output == "Review it."
    assert model.seen[1].messages[-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "name": "search_risk_policy",
        "content": "Single-sector exposure above 35% requires risk review.",
    }


def test_an_explicit_tool_value_is_the_same_tool() -> None:
    """`Tool.from_function` makes of a function what the decorator makes of it."""

    async def look(question: str) -> str:
        """Look."""
        return question

    made = Tool.from_function(look)
    assert as_tool(look).schema == made.schema == as_tool()(look).schema


def test_the_policy_and_its_defaults() -> None:
    """`Tools` holds choice, parallelism, limits a tool, time-out and retries a call, and the safety limit of rounds."""
    tools = Tools(tools=[search_risk_policy])
    assert tools.tool_choice == "auto"
    assert tools.parallel_tool_calls is False
    assert tools.tool_call_limits is None
    assert tools.tool_call_timeout is None
    assert tools.tool_call_max_retries == 3
    assert tools.max_tool_round_trips == 10
    assert search_risk_policy.retry_on_timeout is True
    assert search_risk_policy.strict is None


@pytest.mark.parametrize("strict", [None, True, False])
async def test_the_model_gets_schema_and_strictness_as_they_were_given(strict: bool | None) -> None:
    """An explicit schema reaches the request unchanged, and the strictness setting with it."""
    explicit = {"type": "object", "properties": {"q": {"type": "string", "x-odd": 1}}}
    tool = Tool(name="t", parameters_schema=explicit, strict=strict, handler=lambda args: args)
    model = Turns(says("done"))
    await DefaultAgent(model=model, tools=[tool]).run("go")
    (told,) = model.seen[0].tools
    assert told.parameters is explicit
    assert told.strict is strict


async def test_a_tool_may_refuse_to_be_tried_again() -> None:
    """With `retry_on_timeout=False` there is one attempt, though the policy allows more."""
    begun: list[str] = []

    @as_tool(retry_on_timeout=False)
    async def once() -> None:
        """Once."""
        begun.append("once")
        await asyncio.Event().wait()

    @as_tool
    async def often() -> None:
        """Often."""
        begun.append("often")
        await asyncio.Event().wait()

    tools = Tools([once, often], tool_call_timeout=0.01, tool_call_max_retries=2)
    messages = await ToolExecutor().execute(tool_calls=[call("once", "a"), call("often", "b")], tools=tools)
    assert begun == ["once", "often", "often", "often"]
    assert "timed out after 0.01s (1 attempts)." in messages[0]["content"]
    assert "timed out after 0.01s (3 attempts)." in messages[1]["content"]


def test_a_copy_that_changes_one_thing_drops_nothing() -> None:
    """`replace` and `with_handler` carry formatter, explicit schema and all else; an unknown field is a TypeError."""
    explicit = {"type": "object"}
    tool = Tool(name="t", parameters_schema=explicit, strict=False, handler=len, formatter=str, retry_on_timeout=False)
    for copy in (tool.replace(description="new"), tool.with_handler(lambda old: lambda args: old(args))):
        assert copy.formatter is str
        assert copy.parameters_schema is explicit
        assert (copy.strict, copy.retry_on_timeout, copy.name) == (False, False, "t")
    assert tool.handler is len
    with pytest.raises(TypeError, match="descripton"):
        tool.replace(descripton="new")


async def test_a_tool_observes_the_run_that_it_serves() -> None:
    """The context has run, agent and call, and a live view of the run; `run_id` is `str(run_state.task_id)`."""
    seen: list[ToolExecutionContext] = []

    @as_tool
    def look(context: ToolExecutionContext) -> None:
        """Look."""
        seen.append(context)

    model = Turns(asks(call("look", "c9")), says("done"))
    await DefaultAgent(model=model, tools=[look], name="risk").run("go")
    (context,) = seen
    assert (context.agent_name, context.tool_call_id, context.metadata) == ("risk", "c9", {})
    state = context.run_state
    assert isinstance(state, RunStateView)
    assert context.run_id == str(state.task_id)
    assert list(state.active_skill_names) == []
    with pytest.raises(TypeError):
        state.shim_state["k"] = 1  # type: ignore[index]


async def test_outside_of_a_run_there_is_no_run_state() -> None:
    """A direct `tool.run` has `run_state` None."""
    seen: list[Any] = []

    @as_tool
    def look(context: ToolExecutionContext) -> None:
        """Look."""
        seen.append(context.run_state)

    await look.run({}, CancellationToken())
    assert seen == [None]


async def test_a_tool_that_fails_ends_no_run() -> None:
    """A raising tool, an unknown one, bad arguments and a declared failure are results that the model can read."""

    @as_tool
    def burn() -> None:
        """Burn."""
        raise ValueError("hot")

    @as_tool
    def shell(command: str) -> Any:
        """Run."""
        return ToolFailure(text="exit status 1", error=tool_outcome({"error": command}).error)  # type: ignore[arg-type]

    calls = asks(call("burn", "1"), call("nobody", "2"), call("shell", "3"), call("shell", "4", command="x"))
    model = Turns(calls, says("done"))
    result = await DefaultAgent(model=model, tools=[burn, shell]).run("go")
    assert result.outcome.outcome == "completed"
    said = [message["content"].partition(":")[0] for message in model.seen[1].messages[-4:]]
    assert said == ["Error", "Error", "Invalid arguments for shell", "exit status 1"]


async def test_an_image_reaches_the_model_as_a_part() -> None:
    """F19: what a tool returns as an image stands in the history as a list of parts."""

    @as_tool
    def draw() -> Any:
        """Draw."""
        return ["here:", ImageContent(Media.of(b"\x89PNG\r\n\x1a\n"))]

    model = Turns(asks(call("draw")), says("done"))
    await DefaultAgent(model=model, tools=[draw]).run("go")
    assert [part["type"] for part in model.seen[1].messages[-1]["content"]] == ["text", "image_url"]


async def test_a_plain_tool_blocks_nobody() -> None:
    """While a sync tool works, the loop goes on."""
    release = threading.Event()

    @as_tool
    def wait() -> bool:
        """Wait."""
        return release.wait(10)

    running = asyncio.ensure_future(ToolExecutor().execute(tool_calls=[call("wait")], tools=Tools([wait])))
    await asyncio.sleep(0.01)
    release.set()
    assert (await running)[0]["content"] == "true"


async def test_a_bare_declaration_is_offered_but_not_run() -> None:
    """A `ToolSpec` describes; a call of it is answered and not executed."""
    messages = await ToolExecutor().execute(tool_calls=[call("far")], tools=Tools([ToolSpec(name="far")]))
    assert messages[0]["content"] == "Error: Tool 'far' has no handler here and was not run."
