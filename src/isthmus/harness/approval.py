"""Which calls need a person's leave: a shim that says so, call by call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias

from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import BoundShim, PreparedTurn, Ruling, Shim
from isthmus.models.events import Call

Policy: TypeAlias = Mapping[str, str | Ruling] | Callable[[Call], str | Ruling | Awaitable[str | Ruling | None] | None]


class ApprovalShim(Shim):
    """Asks a person before certain calls run.

    A run that has such a call stops: none of the calls of that reply runs, its outcome is cut, "approval", and its
    `pending` says what is asked. `agent.resume(decisions=…)` goes on. Of several shims the strictest is heard.

    Args:
        policy: by the name of a tool, or as a function of the `Call`, sync or async: "run", "ask", "refuse", or a
            `Ruling` with a reason; None is "run".
        otherwise: what becomes of tools that a mapping does not name.

    Raises:
        ValueError: a word is none of these.
        TypeError: the policy is neither a mapping nor a function.
    """

    name = "approval"

    def __init__(self, policy: Policy, *, otherwise: str | Ruling = "run") -> None:
        if not callable(policy) and not isinstance(policy, Mapping):
            raise TypeError(f"policy must map tools to words, or be a function of a call, not {type(policy).__name__}")
        self._policy = policy
        self._otherwise = _ruling(otherwise)
        self._by_tool = {} if callable(policy) else {name: _ruling(each) for name, each in policy.items()}

    async def rule(self, call: Call) -> Ruling:
        """What the policy says of a call."""
        if not callable(self._policy):
            return self._by_tool.get(call.tool, self._otherwise)
        said = self._policy(call)
        return _ruling(await said if isawaitable(said) else said)

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What attends this run."""
        return _Bound(self)


class _Bound(BoundShim):
    def __init__(self, shim: ApprovalShim) -> None:
        self._shim = shim

    async def review_calls(self, turn: PreparedTurn, calls: Sequence[Call]) -> Mapping[str, Ruling]:
        """What the policy says of each call."""
        return {call.call_id or "": await self._shim.rule(call) for call in calls}


def _ruling(said: Any) -> Ruling:
    if said is None:
        return Ruling("run")
    return said if isinstance(said, Ruling) else Ruling(said)
