"""The view of a run that a tool gets."""

import pytest

from isthmus.harness.agents import DefaultAgent
from isthmus.harness.view import ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX, LiveRunView
from isthmus.models.tools import RunStateView, Tool, ToolExecutionContext
from support.turns import Turns, asks, call, says


def test_the_view_follows_the_run() -> None:
    """A look through the view shows the state as it is then, not as it was when the view was made."""
    state: dict[str, object] = {}
    view = LiveRunView("agent:7", state)
    assert isinstance(view, RunStateView)
    state["plan"] = [1]
    assert (view.task_id, dict(view.shim_state)) == ("agent:7", {"plan": [1]})


def test_writing_to_the_shim_state_is_a_type_error() -> None:
    """Keys of `shim_state` can be neither set, nor replaced, nor deleted; values stay the owner's own objects."""
    state: dict[str, object] = {"plan": [1]}
    shown = LiveRunView("t", state).shim_state
    with pytest.raises(TypeError):
        shown["new"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        shown["plan"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        del shown["plan"]  # type: ignore[attr-defined]
    assert shown["plan"] is state["plan"]


def test_active_skills_are_those_that_any_shim_recorded() -> None:
    """Names come in order and once each from every key with the suffix; what is no list or no string is left out."""
    end = ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX
    assert end == ":active-skill-names"
    state = {f"a{end}": ["x", "y", 3], "other": ["z"], f"b{end}": ["y", "w"], f"c{end}": "no"}
    assert LiveRunView("t", state).active_skill_names == ("x", "y", "w")


async def test_a_run_gives_its_tools_a_view_of_itself() -> None:
    """Inside of a run `context.run_id` equals `str(context.run_state.task_id)`; each run has its own."""
    seen: list[ToolExecutionContext] = []

    def look(context: ToolExecutionContext) -> None:
        seen.append(context)

    model = Turns(asks(call("look")), says("done"), asks(call("look", "c2")), says("done"))
    agent = DefaultAgent(model=model, tools=[Tool.from_function(look)])
    await agent.run("one")
    await agent.run("two")
    assert all(context.run_state is not None for context in seen)
    assert [context.run_id for context in seen] == [str(context.run_state.task_id) for context in seen]  # type: ignore[union-attr]
    assert seen[0].run_id != seen[1].run_id
