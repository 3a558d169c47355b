"""Shared values of the language: each member of a string enum is its string, in JSON and under `str` too."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Literal, TypeAlias


class MessageRole(StrEnum):
    """Who speaks; the plain strings are valid everywhere too."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolChoice(StrEnum):
    """Whether a model may, must or must not call a tool."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


class ToolErrorKind(StrEnum):
    """How a tool failed; a `ToolError` takes words of its own too."""

    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NONZERO_EXIT = "nonzero_exit"


class PlanStepState(StrEnum):
    """How far a step of a plan is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


PlanStepStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


class SteeringStatus(StrEnum):
    """What became of an input that was sent into a running reply."""

    SUBMITTED = "submitted"
    ACCEPTED = "accepted"
    APPLIED = "applied"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ModelContinuation(StrEnum):
    """Who goes on after a reply: the provider by itself, or the caller with another request."""

    AUTOMATIC = "automatic"
    EXPLICIT = "explicit"


class ReasoningPhase(StrEnum):
    """Whether a text comments on the work or answers."""

    COMMENTARY = "commentary"
    FINAL_ANSWER = "final_answer"


class ModelTracing(Enum):
    """How much of a call is traced."""

    DISABLED = 0
    ENABLED = 1
    ENABLED_WITHOUT_DATA = 2

    def is_disabled(self) -> bool:
        """Whether nothing is traced."""
        return self is ModelTracing.DISABLED

    def include_data(self) -> bool:
        """Whether inputs and outputs are traced too."""
        return self is ModelTracing.ENABLED
