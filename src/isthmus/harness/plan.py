"""A plan that the model keeps while it works, and that an application can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.harness.history import Message
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import BoundShim, PreparedTurn, Shim, TurnState
from isthmus.harness.view import PLAN_STATE_KEY
from isthmus.models.enums import PlanStepState, PlanStepStatus
from isthmus.models.internal import internal_message, is_internal_message
from isthmus.models.results import ToolError, ToolFailure
from isthmus.models.tools import Tool

_TOOL, _UPDATED = "write_plan", "Plan updated"
_STATES = tuple(state.value for state in PlanStepState)
_FORM: Mapping[str, Any] = {
    "name": _TOOL,
    "description": (
        "Write the plan of this work, or write it anew after each step: all steps in order, each with its status, and "
        "at most one of them in_progress. For work of several steps only."
    ),
    "parameters_schema": {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "description": "What is to be done, in one sentence."},
                        "status": {"type": "string", "enum": list(_STATES)},
                    },
                    "required": ["text", "status"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A step of a plan.

    Args:
        text: what is to be done.
        status: how far it is: "pending", "in_progress" or "completed".
    """

    text: str
    status: PlanStepStatus


def plan_of(shim_state: Mapping[str, Any]) -> tuple[PlanStep, ...]:
    """The plan that stands in the state of the shims, in order; empty where there is none.

    Args:
        shim_state: of a `RunState`, of the view that a tool gets, or of a snapshot.
    """
    held = shim_state.get(PLAN_STATE_KEY)
    steps = held if isinstance(held, list | tuple) else ()
    return tuple(PlanStep(step["text"], step["status"]) for step in steps)


class PlanShim(Shim):
    """Gives the model a tool to write a plan with, and keeps the plan with the conversation.

    The plan is in the transcript as the model wrote it. Where that part was summarised, the plan is told anew as long
    as it is not done.
    """

    name = "plan"

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What attends this run."""
        return _BoundPlan()


class _BoundPlan(BoundShim):
    """The plan of one run."""

    def __init__(self) -> None:
        self._tool = Tool(**_FORM, handler=self._write)
        self._state: dict[str, Any] = {}

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """Remember where the plan is kept."""
        self._state = state.shim_state

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        """Offer the tool; tell the plan where it is in the transcript no more."""
        self._state = turn.run_state.shim_state
        turn.add_tools((self._tool,), require_unique_names=True)
        plan = plan_of(self._state)
        open_ = any(step.status != PlanStepState.COMPLETED.value for step in plan)
        if open_ and not any(map(_tells, turn.run_state.history)):
            lines = "\n".join(f"- [{step.status}] {step.text}" for step in plan)
            message = {"role": "user", "content": f"The plan as it stands:\n{lines}"}
            turn.append_history_item(internal_message(message, origin=PlanShim.name))

    async def _write(self, args: Mapping[str, Any]) -> str:
        steps = [{"text": step["text"].strip(), "status": step["status"]} for step in args["steps"]]
        fault = _fault(steps)
        if fault:
            return ToolFailure(text=f"Error: {fault} The plan is as it was.", error=ToolError(fault))
        self._state[PLAN_STATE_KEY] = steps
        return _UPDATED


def _fault(steps: list[dict[str, str]]) -> str:
    """What is wrong with a plan, for the model; nothing where it is fine."""
    if not steps:
        return "A plan has at least one step."
    empty = [number for number, step in enumerate(steps, 1) if not step["text"]]
    if empty:
        return f"Step {empty[0]} says nothing: say what is to be done."
    under_way = [number for number, step in enumerate(steps, 1) if step["status"] == PlanStepState.IN_PROGRESS]
    if len(under_way) > 1:
        return f"Steps {', '.join(map(str, under_way))} are in_progress: only one may be."
    return ""


def _tells(message: Message) -> bool:
    """Whether the plan stands in a message, or in the call that it answers."""
    written = message.get("name") == _TOOL and message.get("content") == _UPDATED
    return written or is_internal_message(message, PlanShim.name)
