"""A conversation as versioned plain JSON: no pickle, no class names, nothing that is not understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from isthmus.harness.errors import ApprovalError, SnapshotError
from isthmus.harness.pending import PENDING, check_pending
from isthmus.harness.plainjson import plain_json
from isthmus.harness.state import RunState
from isthmus.models.internal import is_ephemeral_message
from isthmus.models.jsontext import dumps, loads
from isthmus.models.messages import RESERVED

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AgentId:
    """Which agent: the kind of agent it is, and which one of these.

    Args:
        type: e.g. the name in its descriptor.
        key: e.g. the customer that it talks to.

    Raises:
        ValueError: one is empty.
    """

    type: str
    key: str

    def __post_init__(self) -> None:
        for name in ("type", "key"):
            value: Any = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"agent_id.{name}={value!r}: must be a text that is not empty")

    def __str__(self) -> str:
        return f"{self.type}:{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSnapshot:
    """A committed conversation, to be stored and restored; nothing in it is shared with anybody.

    Args:
        agent_id: whose it is: an `AgentId`, or a dict of `type` and `key`.
        created_at: when it was taken, with a time zone; kept in UTC.
        state: `instructions`, `history`, `responses`, `shim_state`, `turn_count`, `task_id`, all plain JSON.
        revision: how often the conversation was committed.
        schema_version: the version of this form: 1.
        extra: fields of the snapshot that this version does not know; they are kept and mean nothing.

    Raises:
        SnapshotError: a field is not what it must be, or the version is unknown; names the place.
    """

    agent_id: AgentId
    created_at: datetime
    state: Mapping[str, Any]
    revision: int = 0
    schema_version: int = SCHEMA_VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_version(self.schema_version)
        checked = {
            "agent_id": as_agent_id(self.agent_id),
            "created_at": _moment(self.created_at),
            "revision": _count(self.revision, "revision"),
            "state": _state(self.state),
            "extra": _plain(self.extra, "extra"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def capture(
        cls, state: RunState, *, agent_id: AgentId | Mapping[str, str], created_at: datetime | None = None
    ) -> AgentSnapshot:
        """A conversation as it stands, without what was for one run alone.

        Args:
            state: the conversation.
            agent_id: whose it is.
            created_at: with a time zone; None is now.

        Raises:
            SnapshotError: something in it has no plain JSON form; names the place.
        """
        moment = datetime.now(UTC) if created_at is None else created_at
        return cls(agent_id=as_agent_id(agent_id), created_at=moment, state=state.to_dict(), revision=state.revision)

    def to_run_state(self) -> RunState:
        """The conversation; each call gives one of its own."""
        known = {name: self.state[name] for name in _FIELDS}
        return RunState(**known, revision=self.revision)

    def to_dict(self) -> dict[str, Any]:
        """The snapshot as plain JSON values."""
        return {
            **_plain(self.extra, "extra"),
            "schema_version": self.schema_version,
            "agent_id": {"type": self.agent_id.type, "key": self.agent_id.key},
            "revision": self.revision,
            "created_at": self.created_at.isoformat(),
            "state": _plain(self.state, "state"),
        }

    def to_json(self) -> str:
        """The snapshot as compact JSON text."""
        return dumps(self.to_dict()).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> AgentSnapshot:
        """Read what `to_json` wrote; fields that are unknown are kept and mean nothing.

        Raises:
            SnapshotError: it is no snapshot, or one of another version; names the place.
        """
        try:
            given = loads(text)
        except ValueError as error:
            raise SnapshotError(f"the snapshot is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise SnapshotError(f"the snapshot must be a JSON object, not a {type(given).__name__}")
        # What a later version needs is not for this one to ask for.
        _check_version(given.get("schema_version", SCHEMA_VERSION))
        missing = [name for name in _REQUIRED if name not in given]
        if missing:
            raise SnapshotError(f"{missing[0]}: is missing")
        known = {name: given.pop(name) for name in (*_REQUIRED, "revision") if name in given}
        return cls(**known, extra=given)


_REQUIRED = ("schema_version", "agent_id", "created_at", "state")


def _check_version(given: Any) -> None:
    if type(given) is not int or given != SCHEMA_VERSION:
        raise SnapshotError(
            f"schema_version: {given!r:.60} is not known here, only {SCHEMA_VERSION}: "
            "read it with the version of this library that wrote it, or a later one"
        )


def _plain(value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise SnapshotError(f"{place}: must be an object, not {value!r:.60}")
    try:
        return plain_json(value, place)
    except (TypeError, ValueError) as error:
        raise SnapshotError(str(error)) from error


def as_agent_id(given: AgentId | Mapping[str, str]) -> AgentId:
    """Who an agent is, from either way to say it.

    Raises:
        SnapshotError: it is neither.
    """
    if isinstance(given, AgentId):
        return given
    other: Any = given
    if not isinstance(other, Mapping):
        raise SnapshotError(f"agent_id: must be an object with type and key, not {other!r:.60}")
    try:
        return AgentId(other.get("type"), other.get("key"))  # type: ignore[arg-type]
    except ValueError as error:
        raise SnapshotError(str(error)) from None


def _moment(given: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise SnapshotError(f"created_at: {given!r:.60} is no time in ISO 8601") from None
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise SnapshotError(f"created_at: {given!r:.60} must be a time with its time zone")
    return moment.astimezone(UTC)


def _count(given: Any, place: str) -> int:
    if type(given) is not int or given < 0:
        raise SnapshotError(f"{place}: must be a whole number from 0, not {given!r:.60}")
    return given


def _state(given: Any) -> dict[str, Any]:
    state: dict[str, Any] = _plain(given, "state")
    if "history" not in state:
        raise SnapshotError("state.history: is missing")
    for name, check in _FIELDS.items():
        state[name] = check(state.get(name), f"state.{name}")
    return state


def _optional_text(given: Any, place: str) -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise SnapshotError(f"{place}: must be text or null, not {given!r:.60}")


def _object(given: Any, place: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SnapshotError(f"{place}: must be an object, not {given!r:.60}")
    return given


def _objects(given: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise SnapshotError(f"{place}: must be a list, not {given!r:.60}")
    for number, item in enumerate(given):
        if not isinstance(item, dict):
            raise SnapshotError(f"{place}[{number}]: must be an object, not {item!r:.60}")
    return given


def _history(given: Any, place: str) -> list[dict[str, Any]]:
    messages = _objects(given, place)
    for number, message in enumerate(messages):
        _check_message(message, f"{place}[{number}]")
    return [message for message in messages if not is_ephemeral_message(message)]


def _check_message(message: dict[str, Any], place: str) -> None:
    """A message has a role; an item of a provider's own has none, but says what it is, or who put it there."""
    mark = message.get(RESERVED, {})
    if not isinstance(mark, dict):
        raise SnapshotError(f"{place}.{RESERVED}: must be an object, not {mark!r:.60}")
    if mark.get("visibility") == PENDING:
        try:
            check_pending(message, place)
        except ApprovalError as error:
            raise SnapshotError(str(error)) from None
    elif mark.get("visibility", "internal") != "internal":
        raise SnapshotError(f"{place}.{RESERVED}.visibility: {mark['visibility']!r:.60} is not known here")
    native = mark.get("native", {})
    if not isinstance(native, dict) or not isinstance(native.get("json", ""), str):
        raise SnapshotError(f"{place}.{RESERVED}.native: must be an object with its JSON as text, not {native!r:.60}")
    unsaid = isinstance(message.get("type"), str) or mark.get("visibility") == "internal"
    if "role" not in message and unsaid:
        return
    if not isinstance(message.get("role"), str):
        raise SnapshotError(f"{place}.role: must be text, not {message.get('role')!r:.60}")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise SnapshotError(f"{place}.tool_calls: must be a list of objects, not {calls!r:.60}")


_FIELDS: Mapping[str, Callable[[Any, str], Any]] = {
    "instructions": _optional_text,
    "history": _history,
    "responses": lambda given, place: _objects([] if given is None else given, place),
    "shim_state": _object,
    "turn_count": lambda given, place: _count(0 if given is None else given, place),
    "task_id": _optional_text,
}
