"""What an agent is given by mistake is refused where it is given, by name, with what it was and what to give."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.harness import AgentDescriptor, ApprovalShim, DefaultAgent, RunnerHooks
from support.turns import Turns, says


def agent(**given: Any) -> DefaultAgent:
    """An agent with this."""
    return DefaultAgent(model=Turns(says("done")), **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"limits": 5}, r"limits=5: must be a Limits\(max_steps=…\), not int"),
        ({"runner": {}}, r"runner={}: must be a Runner\(max_turns=…\), not dict"),
        ({"run_state": {}}, r"run_state={}: must be a RunState"),
        ({"snapshot": "{}"}, r"snapshot='{}': must be an AgentSnapshot, as AgentSnapshot.from_json\(text\) makes one"),
        ({"state_store": "a.db"}, r"state_store='a.db': must be a StateStore, as SqliteStateStore\(path\) is one"),
        ({"journal": "a.db"}, r"journal='a.db': must be a Journal, as SqliteJournal\(path\) is one, not str"),
        ({"hooks": RunnerHooks}, r"must be an instance of RunnerHooks, or a list, not the class RunnerHooks"),
        ({"hooks": [5]}, r"hooks=5: must be an instance of RunnerHooks, or a list, not int"),
        ({"hooks": 5}, r"hooks=5: must be an instance"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    """When the agent is made, not in its first run."""
    with pytest.raises(TypeError, match=words):
        agent(**given)


def test_a_descriptor_that_is_none_is_refused() -> None:
    """As any other argument."""
    with pytest.raises(TypeError, match=r"descriptor=5: must be an AgentDescriptor\(model=…\), not int"):
        DefaultAgent(descriptor=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shims": ApprovalShim({})}, r"must be a list of shims, \[shim\] for one"),
        ({"shims": [ApprovalShim]}, r"ApprovalShim'> is no Shim; give one"),
        ({"shims": 5}, r"shims=5: must be a list"),
        ({"model_args": 5}, r"model_args=5: must be a dict of request options"),
        ({"max_output_tokens": -1}, r"max_output_tokens=-1: must be a whole number"),
        ({"max_output_tokens": "9"}, r"max_output_tokens='9': must be a whole number"),
    ],
)
def test_a_descriptor_of_something_else_is_refused(given: dict[str, Any], words: str) -> None:
    """When it is made."""
    with pytest.raises((TypeError, ValueError), match=words):
        AgentDescriptor(**given)


async def test_a_run_is_given_a_dict_and_a_token() -> None:
    """Other things are refused before the run begins."""
    made: Any = agent()
    with pytest.raises(TypeError, match=r"metadata=\['a'\]: must be a dict, not list"):
        await made.run("go", metadata=["a"])
    with pytest.raises(TypeError, match=r"cancellation_token=5: must be a CancellationToken\(\), not int"):
        await made.run("go", cancellation_token=5)


def test_what_a_descriptor_says_is_falsy_is_the_default() -> None:
    """A ceiling of 0 leaves it to the adapter."""
    assert AgentDescriptor(max_output_tokens=0).max_output_tokens == 0
