"""The provider-neutral history: OpenAI-chat dicts, with native forms hung on under one reserved key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol

from isthmus.errors import InvalidRequestError
from isthmus.models.enums import MessageRole as MessageRole
from isthmus.models.events import Call, Native, Note, NoteCode
from isthmus.models.jsontext import Raw, dumps, loads, unsayable

RESERVED = "_isthmus"
_KEY = dumps(RESERVED)


class LiveForm(dict[str, Any]):
    """A native form in a message that also holds the live object it was made from: plain JSON to everybody else."""

    __slots__ = ("held",)
    held: Any

    @classmethod
    def of(cls, form: Mapping[str, Any], held: Any) -> LiveForm:
        """The form, with its live object at its side."""
        made = cls(form)
        made.held = held
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> LiveForm:
        return LiveForm.of(self, self.held)

    def __copy__(self) -> LiveForm:
        return LiveForm.of(self, self.held)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def provider_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as a provider may see them: without this library's bookkeeping, contents and order unchanged.

    For adapters of one's own, at the point where the request is made; stored history keeps the bookkeeping.

    Args:
        messages: role dicts and providers' own items; never changed, and nothing of the result is shared with them.

    Raises:
        InvalidRequestError: it is no sequence of dicts; names the place.
    """
    return [_bare(message, f"messages[{place}]") for place, message in enumerate(listed(messages))]


def listed(messages: Any) -> Iterable[Any]:
    """What was given as messages, if it can be gone through one by one.

    Raises:
        InvalidRequestError: it is one message, a text, or nothing of the kind.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequestError(f"messages: must be a list of messages, not {type(messages).__name__}")
    return messages


def _bare(message: Any, place: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{place}: a message must be a dict with a role, not {type(message).__name__}")
    bare: dict[str, Any] = without_reserved(message)
    return bare


def copied(value: Any) -> Any:
    """A copy of plain dicts, lists and tuples all the way down; anything else is the same object."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    return kind(copied(item) for item in value) if kind is list or kind is tuple else value


def without_reserved(value: Any) -> Any:
    """The value without this library's key at any depth; JSON text that has none of it stays verbatim."""
    if type(value) is dict or isinstance(value, Mapping):
        # Text first, which most of a message is.
        return {
            key: item if type(item) is str else without_reserved(item) for key, item in value.items() if key != RESERVED
        }
    if isinstance(value, (list, tuple)):
        return [without_reserved(item) for item in value]
    if isinstance(value, Raw) and _KEY in bytes(value):
        return without_reserved(loads(value))
    return value


def sendable(value: Any, place: str = "request", *, nulls: Callable[[Any], int] | None = None) -> bytes:
    """A request's body, or a value that becomes text in it, as JSON free of this library's bookkeeping.

    Args:
        value: plain JSON values; `Raw` stands in it verbatim.
        place: what it is, for the error.
        nulls: how many values in it are known to be null.

    Raises:
        InvalidRequestError: a number in it has no JSON form; names its place.
    """
    data = dumps(value)
    # The encoder writes null for such a number: only a value with more than are known of needs a look.
    # Not `in`: it takes bytes for a number first, and that refusal costs more than the search.
    found = data.find
    odd = found(b"null") >= 0 and (nulls is None or data.count(b"null") > nulls(value))
    if (odd or found(b"NaN") >= 0 or found(b"Infinity") >= 0) and (unsaid := unsayable(value)) is not None:
        raise InvalidRequestError(f"{place}{unsaid}: NaN and infinities have no JSON form: send null, or text")
    return dumps(without_reserved(value)) if found(_KEY) >= 0 else data


def check_form(message: Any, place: str) -> None:
    """Whether a message is one at all, for a codec to begin with.

    Raises:
        InvalidRequestError: it is no dict, or its calls are no list of dicts; names the place.
    """
    if not isinstance(message, (dict, Mapping)):
        raise InvalidRequestError(f"{place}: a message must be a dict with a role, not {type(message).__name__}")
    calls = message.get("tool_calls")
    if calls and not (isinstance(calls, (list, tuple)) and all(isinstance(call, Mapping) for call in calls)):
        raise InvalidRequestError(f"{place}.tool_calls: must be a list of dicts with a function, not {calls!r:.80}")
    content = message.get("content")
    if isinstance(content, (bytes, bytearray, memoryview)):
        raise InvalidRequestError(f"{place}.content: bytes have no JSON form: send text, or a part that holds base64")


def fingerprint(message: Mapping[str, Any]) -> str:
    """A short hash of a message's content and calls: what its native form was made for."""
    calls = [
        [call.get("id"), (call.get("function") or {}).get("name"), (call.get("function") or {}).get("arguments")]
        for call in message.get("tool_calls") or ()
    ]
    return sha256(dumps([message.get("content"), calls])).hexdigest()[:24]


class _Spoken(Protocol):
    """What a history has of a reply."""

    @property
    def text(self) -> str: ...
    @property
    def calls(self) -> tuple[Call, ...]: ...
    @property
    def message(self) -> Native | None: ...


def assistant_message(step: _Spoken) -> dict[str, Any]:
    """The history entry of a reply: its text and calls, with its native form attached where it has one.

    Calls that were not whole are no part of it; arguments stand as the model wrote them.
    """
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    calls = step.calls
    if calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.tool, "arguments": call.arguments or dumps(call.input or {}).decode()},
            }
            for call in calls
        ]
    native = step.message
    if native is not None:
        form = {
            "dialect": native.provider,
            "of": fingerprint(message),
            "json": native.json.decode("utf-8", "surrogatepass"),
        }
        message[RESERVED] = {"native": form if native.held is None else LiveForm.of(form, native.held)}
    return message


def tool_message(call_id: str, content: str | list[Any], *, name: str | None = None) -> dict[str, Any]:
    """The history entry of a tool's result: its text, or its parts (text, images, files)."""
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    return message if name is None else {**message, "name": name}


def native_of(message: Mapping[str, Any], dialect: str) -> tuple[Native | None, Note | None]:
    """The native form of a message for a dialect, or why it is not used.

    Returns:
        The form, if it is this dialect's and the message is still the one it was made for; else None, and a note
        where something is left behind.
    """
    ours = message.get(RESERVED)
    held = ours.get("native") if isinstance(ours, Mapping) else None
    if not isinstance(held, Mapping):
        return None, None
    if held.get("dialect") != dialect:
        return None, Note(NoteCode.NATIVE_DROPPED, f"a native form of {held.get('dialect')} was left out")
    if held.get("of") != fingerprint(message):
        return None, Note(NoteCode.NATIVE_STALE, "the message was changed after its native form was made")
    live = getattr(held, "held", None)
    if "json" not in held:
        return None, Note(NoteCode.NATIVE_DROPPED, "a native form without its JSON text was left out")
    return Native(dialect, "message", json=str(held["json"]).encode("utf-8", "surrogatepass"), held=live), None


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list, joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping) and "text" in part)
    return ""
