"""What a tool may see of the run that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX = ":active-skill-names"
"""How a key of the shim state ends under which the names of active skills stand, as a list."""

PLAN_STATE_KEY = "plan:steps"
"""Under which key of the shim state the plan of the work stands; each update puts a new list there."""


class LiveRunView:
    """A read-only view of a live run: each look shows the run as it is then.

    Args:
        task_id: the run's identity.
        shim_state: the run's own state of its shims, which this looks through at.
    """

    __slots__ = ("_shim_state", "_task_id")

    def __init__(self, task_id: Any, shim_state: dict[str, Any]) -> None:
        self._task_id = task_id
        self._shim_state = MappingProxyType(shim_state)

    @property
    def task_id(self) -> Any:
        """The run's identity; as text it is the context's `run_id`."""
        return self._task_id

    @property
    def shim_state(self) -> Mapping[str, Any]:
        """The state that shims keep; setting or deleting a key of it is a `TypeError`, its values are the owner's."""
        return self._shim_state

    @property
    def active_skill_names(self) -> tuple[str, ...]:
        """The names of the skills that are active, in order and once each."""
        lists = (value for key, value in self._shim_state.items() if key.endswith(ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX))
        names = (name for value in lists if isinstance(value, list) for name in value if isinstance(name, str))
        return tuple(dict.fromkeys(names))
