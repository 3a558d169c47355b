"""What goes wrong around a run: with a conversation that is kept, a file, a shim."""

from __future__ import annotations

from isthmus.errors import IsthmusError


class SnapshotError(IsthmusError, ValueError):
    """A conversation that has no plain JSON form, or a stored one that cannot be read; names the place."""


class StateConflictError(IsthmusError, ValueError):
    """A store does not hold the revision that a change was made from; it is left as it is.

    Args:
        message: which place, and what to do.
        expected: the revision that the change was made from; None for an empty place.
        held: the revision that is there; None if it is empty.
    """

    def __init__(self, message: str, *, expected: int | None = None, held: int | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.held = held


class AgentFileError(IsthmusError, ValueError):
    """A file that describes no agent; names place, line and remedy."""


class SkillFileError(IsthmusError, ValueError):
    """A folder that holds no skill as it must be; names place, line and remedy."""


class ToolNameCollisionError(IsthmusError, ValueError):
    """A shim adds a tool under a name that is taken; names it."""


class ApprovalError(IsthmusError, ValueError):
    """A run that waits for decisions and did not get them, or a decision of something else; nothing was run."""


class JournalError(IsthmusError, RuntimeError):
    """A journal that cannot be written or read, or does not fit the run; says what to do."""


class McpServerError(IsthmusError, ConnectionError):
    """An MCP server that cannot be started or reached, or that went away; names it, its place and what it said."""
