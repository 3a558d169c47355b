"""Events as JSON that loses nothing, or an error that says what has no such form."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from isthmus.models.internal import public_messages
from isthmus.models.jsontext import dumps
from isthmus.models.plainjson import plain_json
from isthmus.secret import redact
from isthmus.wire.frame import Frame

_MESSAGES = frozenset({"messages", "input_messages"})


class JsonEvent:
    """An event that says itself as JSON; a struct with a `kind` derives from it."""

    __slots__ = ()

    def to_dict(self, *, include_internal: bool = False) -> dict[str, Any]:
        """The event as `{"type": kind, "payload": …}`, complete and nested; what is None is left out, empty is not.

        Args:
            include_internal: whether messages that are no part of the public conversation stand in it.

        Raises:
            TypeError: something in it has no JSON form: bytes, sets, dates, templates, keys that are no strings; names
                its place.
            ValueError: something in it holds itself, or is a number that is not finite; names its place.
        """
        payload = plain_json(self, "payload", also=_forms(include_internal))
        return {"type": payload["kind"], "payload": payload}

    def dumps(self, *, include_internal: bool = False) -> str:
        """The same as compact JSON text.

        Args:
            include_internal: as for `to_dict`.

        Raises:
            TypeError: as for `to_dict`.
            ValueError: as for `to_dict`.
        """
        return dumps(self.to_dict(include_internal=include_internal)).decode()


def _forms(include_internal: bool) -> Callable[[Any], Any]:
    def shown(name: str, value: Any) -> Any:
        listed = name in _MESSAGES and isinstance(value, Sequence) and not include_internal
        return public_messages(value) if listed else value

    def form(value: Any) -> Any:
        if isinstance(value, type):
            return value
        if isinstance(value, Frame):
            return _frame(value)
        if isinstance(value, BaseException):
            return {"type": type(value).__name__, "message": redact(str(value))}
        for known in (_own_form, _shape, _model):
            made = known(value)
            if made is not None:
                return {name: shown(name, each) for name, each in made.items() if each is not None}
        return value

    return form


def _own_form(value: Any) -> Mapping[str, Any] | None:
    """The form that an event, a reply, a prompt or a receipt gives itself."""
    made = getattr(value, "to_dict", None)
    return made() if callable(made) and not hasattr(value, "kind") else None


def _shape(value: Any) -> Mapping[str, Any] | None:
    """The fields of a struct, with its tag, or of a dataclass."""
    if isinstance(value, msgspec.Struct):
        tag = {"type": str(value.__struct_config__.tag)} if value.__struct_config__.tag else {}
        return {**tag, **{name: getattr(value, name) for name in value.__struct_fields__}}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return None


def _model(value: Any) -> Mapping[str, Any] | None:
    """What a pydantic model, an SDK's own event among them, says of itself."""
    dump = getattr(value, "model_dump", None)
    made = dump(mode="json") if callable(dump) else None
    return made if isinstance(made, Mapping) else None


def _frame(frame: Frame) -> dict[str, Any]:
    try:
        return {"event": frame.event, "data": frame.data.decode()}
    except UnicodeDecodeError:
        return {"event": frame.event, "base64": b64encode(frame.data).decode()}
