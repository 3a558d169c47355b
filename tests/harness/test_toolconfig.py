"""Which of an agent's tools another one has that works for it or takes over from it."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import ToolDefinitionError
from isthmus.harness import (
    INHERIT_TOOLS,
    OVERRIDE_TOOLS,
    RESTRICT_TOOLS,
    AgentDescriptor,
    BoundShim,
    DefaultAgent,
    DefaultAgentTool,
    Shim,
)
from isthmus.models import Tools, as_tool
from support.turns import Turns, asks, call, says


def tool(name: str, says: str = "parent's") -> Any:
    """A tool that says whose it is."""

    @as_tool(name=name, description=says)
    async def made() -> str:
        return says

    return made


READ, WRITE = tool("read"), tool("write")
OWN = tool("read", "child's"), tool("note", "child's")


def offered(tools: Tools) -> dict[str, str]:
    """Names, and whose they are."""
    return {each.name: each.description for each in tools.normalized_tools}


@pytest.mark.parametrize(
    ("config", "has"),
    [
        (INHERIT_TOOLS, {"read": "parent's", "write": "parent's"}),
        (INHERIT_TOOLS.with_tools(OWN), {"read": "parent's", "write": "parent's", "note": "child's"}),
        (OVERRIDE_TOOLS, {}),
        (OVERRIDE_TOOLS.with_tools(Tools(OWN)), {"read": "child's", "note": "child's"}),
        (RESTRICT_TOOLS.only("write", "absent"), {"write": "parent's"}),
        (RESTRICT_TOOLS.only("write", tools=OWN), {"write": "parent's", "read": "child's", "note": "child's"}),
        (RESTRICT_TOOLS.only("write").with_tools(OWN), {"write": "parent's", "read": "child's", "note": "child's"}),
        (RESTRICT_TOOLS, {}),
        (Tools(OWN), {"read": "child's", "note": "child's"}),
        (list(OWN), {"read": "child's", "note": "child's"}),
        ((), {}),
        (None, {}),
    ],
)
@pytest.mark.parametrize("way", ["tool", "handoff", "helper"])
async def test_the_rule_holds_for_whoever_works_for_an_agent(config: Any, has: dict[str, str], way: str) -> None:
    """The first of two with one name stays, whether it is called, handed to or started."""
    child = Turns(says("done"))
    made = AgentDescriptor(name="child", model=child, tools=config)
    extra = {
        "tool": {"tools": [READ, WRITE, made.as_tool()]},
        "handoff": {"tools": [READ, WRITE], "handoffs": [made]},
        "helper": {"tools": [READ, WRITE, DefaultAgentTool(model=child, tools=config)]},
    }[way]
    asked = call("agent", "a", name="One", task="x") if way == "helper" else call("child", "a")
    parent = AgentDescriptor(name="parent", model=Turns(asks(asked), says("done")), **extra)
    await DefaultAgent(descriptor=parent).run("go")
    seen = {each.name: each.description for each in child.seen[0].tools if each.name != "agent"}
    assert seen == has


def test_the_policy_is_the_parents_as_far_as_its_tools_are_there() -> None:
    """Its knobs, and the limits of what is left; where nothing is inherited the agent's own policy stands."""
    parent = Tools(
        [READ, WRITE],
        tool_choice="read",
        parallel_tool_calls=True,
        tool_call_timeout=3,
        tool_call_limits={"read": 1, "write": 2},
        max_tool_round_trips=4,
    )
    own = Tools(OWN, max_tool_round_trips=9)
    merged = RESTRICT_TOOLS.only("write", tools=own).resolved(parent)
    assert (merged.parallel_tool_calls, merged.tool_call_timeout, merged.max_tool_round_trips) == (True, 3, 4)
    assert (merged.tool_choice, merged.tool_call_limits) == ("auto", {"write": 2})
    assert INHERIT_TOOLS.resolved(parent) is parent
    assert RESTRICT_TOOLS.only("absent", tools=own).resolved(parent) is own
    assert INHERIT_TOOLS.with_tools(own).resolved(Tools()) is own


def test_an_agent_that_works_for_nobody_has_its_own_tools() -> None:
    """Whatever the rule: there is nothing to inherit."""
    for config in (INHERIT_TOOLS, OVERRIDE_TOOLS, RESTRICT_TOOLS.only("write")):
        agent = DefaultAgent(descriptor=AgentDescriptor(model=Turns(), tools=config.with_tools(OWN)))
        assert offered(agent.tools) == {"read": "child's", "note": "child's"}
    assert DefaultAgent(descriptor=AgentDescriptor(model=Turns(), tools=None)).tools.tools == ()
    with pytest.raises(ToolDefinitionError, match="must be a list of tools"):
        INHERIT_TOOLS.with_tools(READ)


class Adds(Shim):
    """Adds a tool, and withholds one."""

    def __init__(self, name: str, *, inherit: bool, withheld: str = "") -> None:
        self.name, self.inherit, self.withheld = name, inherit, withheld

    async def bind(self, run: Any) -> BoundShim:
        bound = BoundShim()
        bound.inherit_tools = self.inherit

        async def prepare(turn: Any) -> None:
            turn.add_tools([tool(self.name, "shim's")])
            if self.withheld:
                turn.exclude_tools(self.withheld)

        bound.prepare_turn = prepare  # type: ignore[method-assign]
        return bound


async def test_a_shims_tools_go_on_if_it_says_so_and_what_is_withheld_does_not() -> None:
    """A child has the tools of shims that pass them on; nothing that the parent may not call just now."""
    child = Turns(says("done"))
    parent = AgentDescriptor(
        name="parent",
        model=Turns(asks(call("child", "a")), says("done")),
        tools=[READ, WRITE, AgentDescriptor(name="child", model=child).as_tool()],
        shims=[Adds("shared", inherit=True), Adds("private", inherit=False, withheld="write")],
    )
    await DefaultAgent(descriptor=parent).run("go")
    assert {each.name for each in child.seen[0].tools} == {"read", "shared"}


async def test_an_inherited_tool_runs_for_the_child() -> None:
    """What a shim of the parent added is called by the child."""
    child = Turns(asks(call("shared", "s")), says("done"))
    parent = AgentDescriptor(
        name="parent",
        model=Turns(asks(call("child", "a")), says("done")),
        tools=[AgentDescriptor(name="child", model=child).as_tool()],
        shims=[Adds("shared", inherit=True)],
    )
    await DefaultAgent(descriptor=parent).run("go")
    assert child.seen[1].messages[-1]["content"] == "shim's"


async def test_an_agent_does_not_inherit_the_tool_that_it_is() -> None:
    """It would call itself; others that are agents it has."""
    child, other = Turns(says("done")), AgentDescriptor(name="other", model=Turns(says("x")))
    parent = AgentDescriptor(
        name="parent",
        model=Turns(asks(call("child", "a")), says("done")),
        tools=[AgentDescriptor(name="child", model=child).as_tool(), other.as_tool(), READ],
    )
    await DefaultAgent(descriptor=parent).run("go")
    assert [each.name for each in child.seen[0].tools] == ["other", "read"]
