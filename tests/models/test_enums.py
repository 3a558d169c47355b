"""The shared values of the language."""

from __future__ import annotations

import json
from enum import Enum, StrEnum
from typing import get_args

import msgspec
import pytest

from isthmus import models
from isthmus.models import (
    MessageRole,
    ModelContinuation,
    ModelTracing,
    PlanStepState,
    PlanStepStatus,
    ReasoningPhase,
    SteeringStatus,
    ToolChoice,
    ToolErrorKind,
)

TABLE: list[tuple[type[StrEnum], list[str]]] = [
    (MessageRole, ["system", "developer", "user", "assistant", "tool"]),
    (ToolChoice, ["auto", "required", "none"]),
    (ToolErrorKind, ["error", "timeout", "cancelled", "nonzero_exit"]),
    (PlanStepState, ["pending", "in_progress", "completed"]),
    (SteeringStatus, ["submitted", "accepted", "applied", "failed", "unknown"]),
    (ModelContinuation, ["automatic", "explicit"]),
    (ReasoningPhase, ["commentary", "final_answer"]),
]


@pytest.mark.parametrize(("enum", "values"), TABLE, ids=lambda item: getattr(item, "__name__", ""))
def test_a_shared_enum_has_its_values_and_no_other(enum: type[StrEnum], values: list[str]) -> None:
    """Each enum has exactly the values of the table, each named after its value."""
    assert [member.value for member in enum] == values
    assert [member.name for member in enum] == [value.upper() for value in values]


@pytest.mark.parametrize("member", [member for enum, _ in TABLE for member in enum], ids=repr)
def test_a_member_is_its_string(member: StrEnum) -> None:
    """A member equals its string, hashes and prints as it, and JSON of any encoder gives the plain value."""
    assert member == member.value
    assert {member: 1}[member.value] == 1
    assert (str(member), f"{member}", type(member.value)) == (member.value, member.value, str)
    assert json.dumps({"role": member}) == json.dumps({"role": member.value})
    assert msgspec.json.encode(member) == json.dumps(member.value).encode()


def test_the_status_of_a_plan_step_is_a_literal_of_the_same_words() -> None:
    """`PlanStepStatus` stays a Literal, of the values of `PlanStepState`."""
    assert list(get_args(PlanStepStatus)) == [state.value for state in PlanStepState]


def test_tracing_is_a_plain_enum_with_two_questions() -> None:
    """DISABLED 0, ENABLED 1, ENABLED_WITHOUT_DATA 2; only the second includes data, only the first is disabled."""
    assert not issubclass(ModelTracing, str)
    assert issubclass(ModelTracing, Enum)
    seen = [(item.name, item.value, item.is_disabled(), item.include_data()) for item in ModelTracing]
    assert seen == [
        ("DISABLED", 0, True, False),
        ("ENABLED", 1, False, True),
        ("ENABLED_WITHOUT_DATA", 2, False, False),
    ]


def test_the_package_exports_every_shared_value() -> None:
    """Each enum can be imported from `isthmus.models`."""
    for name in (*(enum.__name__ for enum, _ in TABLE), "ModelTracing", "PlanStepStatus"):
        assert name in models.__all__
        assert getattr(models, name) is not None


def test_a_message_may_be_built_with_an_enum_or_a_plain_string() -> None:
    """The value of a role, the member and the plain string make the same message."""
    built = [
        {"role": MessageRole.USER.value, "content": "Hello"},
        {"role": MessageRole.USER, "content": "Hello"},
        {"role": "user", "content": "Hello"},
    ]
    assert built[0] == built[1] == built[2]
    assert len({msgspec.json.encode(message) for message in built}) == 1
