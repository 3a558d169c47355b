"""Whether what an agent is given is what it must be; an error names the argument, what it was, and what to give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.harness.descriptor import AgentDescriptor, Runner
from isthmus.harness.journal import Journal
from isthmus.harness.limits import Limits
from isthmus.harness.runnerhooks import RunnerHooks
from isthmus.harness.snapshot import AgentSnapshot
from isthmus.harness.state import RunState
from isthmus.harness.stores import StateStore
from isthmus.models.cancellation import CancellationToken

_KINDS: Mapping[str, tuple[Any, str]] = {
    "descriptor": (AgentDescriptor, "an AgentDescriptor(model=…)"),
    "limits": (Limits, "a Limits(max_steps=…)"),
    "runner": (Runner, "a Runner(max_turns=…)"),
    "run_state": (RunState, "a RunState(history=…), as result.run_state is one"),
    "snapshot": (AgentSnapshot, "an AgentSnapshot, as AgentSnapshot.from_json(text) makes one"),
    "state_store": (StateStore, "a StateStore, as SqliteStateStore(path) is one"),
    "journal": (Journal, "a Journal, as SqliteJournal(path) is one"),
    "metadata": (Mapping, "a dict"),
    "cancellation_token": (CancellationToken, "a CancellationToken()"),
}


def check_given(**given: Any) -> None:
    """Whether arguments are of their kinds; None is what was not given.

    Raises:
        TypeError: one is not.
    """
    for name, value in given.items():
        if value is not None and not isinstance(value, _KINDS[name][0]):
            raise TypeError(f"{name}={value!r:.60}: must be {_KINDS[name][1]}, not {_kind_of(value)}")


def told_of_runs(hooks: Any) -> tuple[RunnerHooks, ...]:
    """The hooks that were given, one or several.

    Raises:
        TypeError: something among them is no hook.
    """
    if isinstance(hooks, RunnerHooks):
        return (hooks,)
    several = hooks if isinstance(hooks, Iterable) and not isinstance(hooks, str | bytes | Mapping) else (hooks,)
    told = tuple(several)
    for each in told:
        if not isinstance(each, RunnerHooks):
            raise TypeError(f"hooks={each!r:.60}: must be an instance of RunnerHooks, or a list, not {_kind_of(each)}")
    return told


def _kind_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
