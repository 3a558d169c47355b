"""One content block of a reply while it arrives: its members as they came, and what deltas added to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from isthmus.errors import ProtocolError
from isthmus.models.jsontext import Raw, dumps, fields, loads, strictly
from isthmus.models.jsontext import items as items
from isthmus.models.jsontext import members as members

INVALID_JSON = "INVALID_JSON"
"""The member under which arguments that are not JSON go back; Messages API, fine-grained tool streaming, 2026-11."""

_TEXT_KEYS = frozenset({"type", "text", "citations"})
_CALL_KEYS = frozenset({"type", "id", "name", "input"})
_NOTHING = (b"null", b"[]")


def string(value: msgspec.Raw | None, what: str) -> str:
    """The text of a member; absent and null are empty.

    Raises:
        ProtocolError: it is something else.
    """
    decoded = loads(value) if value is not None else None
    if decoded is None:
        return ""
    if not isinstance(decoded, str):
        raise ProtocolError(f"{what} is {type(decoded).__name__}, not a string")
    return decoded


def object_text(arguments: str) -> Raw | None:
    """Arguments as the JSON object that they are, verbatim; None where they are none.

    Blank arguments and `null` are the empty object. Lone surrogates are let through, respelt; `NaN` and `Infinity`,
    which Python's own reader lets pass too, are no JSON and would spoil the whole request.
    """
    if not arguments.strip() or arguments.strip() == "null":
        return Raw(b"{}")
    with suppress(ValueError):
        fields(arguments)
        return Raw(arguments.encode())
    try:
        value = strictly(arguments)
    except (ValueError, RecursionError):
        return None
    return Raw(json.dumps(value).encode()) if isinstance(value, dict) else None


def input_of(arguments: str) -> Raw:
    """Arguments as the `input` of a block; those that are no JSON object are wrapped so that they can go back."""
    whole = object_text(arguments)
    return Raw(dumps({INVALID_JSON: arguments})) if whole is None else whole


class Block:
    """A content block: `members` as its start gave them, and what its deltas appended.

    Args:
        index: its place in the reply.
        members: the members of `content_block`, undecoded.
    """

    __slots__ = ("_pieces", "arguments", "citations", "closed", "index", "kind", "left_out", "members", "texts")

    def __init__(self, index: int, members: dict[str, msgspec.Raw]) -> None:
        self.index = index
        self.members = members
        self.kind = string(members.get("type"), "a content block's type")
        if not self.kind:
            raise ProtocolError(f"content block {index} has no type")
        self.closed = False
        self.left_out = False
        self.arguments: list[str] = []
        self.citations: list[msgspec.Raw] = []
        self.texts: list[str] = []
        self._pieces: dict[str, list[str]] = {"text": self.texts} if self.kind == "text" else {}

    def text(self, name: str) -> str:
        """What a text member holds so far."""
        start = string(self.members.get(name), f"{self.kind}.{name}")
        return start + "".join(self._pieces.get(name, ()))

    def append(self, name: str, piece: str) -> None:
        """Add to a text member."""
        self._pieces.setdefault(name, []).append(piece)

    def take(self, delta: Mapping[str, msgspec.Raw]) -> None:
        """Merge a delta of unknown type: texts are appended to texts, null changes nothing, anything else replaces."""
        for name, value in delta.items():
            if name == "type":
                continue
            new = loads(value)
            if new is None:
                self.members.setdefault(name, value)
            elif isinstance(new, str) and isinstance(loads(self.members.get(name, Raw(b"null"))), str | None):
                self.append(name, new)
            else:
                self.members[name] = value

    @property
    def call_text(self) -> str:
        """The arguments as the model wrote them: the deltas, else what the start held, else "{}"."""
        joined = "".join(self.arguments)
        if joined:
            return joined
        start = bytes(self.members.get("input", Raw(b"null")))
        whole = str(loads(start)) if start.startswith(b'"') else start.decode()
        return "{}" if whole in ("", "null") else whole

    def unsign(self) -> bool:
        """Take off a signature that may be only a part of one; whether there was any."""
        signed = bool(self.text("signature"))
        self._pieces.pop("signature", None)
        self.members.pop("signature", None)
        return signed

    def whole(self) -> dict[str, Any]:
        """The members of the block as it stands in a whole reply."""
        full: dict[str, Any] = dict(self.members)
        for name, pieces in self._pieces.items():
            if pieces:
                full[name] = self.text(name)
        if self.citations:
            full["citations"] = [*_listed(full.get("citations")), *self.citations]
        if self.arguments or self.kind == "tool_use":
            full["input"] = input_of(self.call_text)
        return full

    def partial(self) -> bytes:
        """The block of a call that was cut: its arguments, as far as they came, stand as text."""
        return dumps({**self.members, "partial_json": "".join(self.arguments)})

    def is_plain(self) -> bool:
        """Whether a text or a call says all there is in it."""
        if self.kind == "text":
            cited = self.citations or bytes(self.members.get("citations", Raw(b"null"))) not in _NOTHING
            return not cited and _TEXT_KEYS.issuperset({*self.members, *self._pieces})
        return self.kind == "tool_use" and _CALL_KEYS.issuperset({*self.members, *self._pieces})


def _listed(value: msgspec.Raw | None) -> list[msgspec.Raw]:
    return [] if value is None or bytes(value) == b"null" else items(value)


def native_form(blocks: Iterable[Block]) -> bytes | None:
    """The content of a reply as it must go back, or None where text and calls alone say the same.

    One text, then calls, is what the neutral form holds; a second text, an empty one, a text after a call, a block of
    another kind and a member of another name are not.
    """
    kept = [block for block in blocks if not block.left_out]
    kinds = [block.kind for block in kept]
    texts = kinds.count("text")
    neutral = all(block.is_plain() for block in kept) and kinds[:texts] == ["text"] * texts and texts <= 1
    if neutral and all(block.text("text") for block in kept[:texts]):
        return None
    return dumps([block.whole() for block in kept])
