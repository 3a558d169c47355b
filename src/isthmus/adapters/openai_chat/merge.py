"""Joins what a stream delivers in pieces, keeping number texts and unknown fields as they came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus.models.jsontext import dumps, loads

# Strings that name something: a later one stands in the place of an earlier one instead of continuing it.
_LABELS = frozenset(
    (
        *("type", "id", "index", "format", "provider", "signature", "thought_signature"),
        *("name", "channel", "role", "url", "title", "status"),
    )
)


def _number(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode("ascii"))


_decode = msgspec.json.Decoder(float_hook=_number).decode


def exact(data: bytes) -> Any:
    """Decode JSON with every fractional number kept as the text it came as.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data, parse_float=_number, parse_constant=_number)


def plain(value: Any) -> Any:
    """The value with ordinary numbers, for those who calculate."""
    return loads(dumps(value))


def hollow(value: Any) -> bool:
    """Whether a value says nothing: null, empty, or an object of such values and zeros."""
    if isinstance(value, dict):
        return all(hollow(item) or (item == 0 and not isinstance(item, msgspec.Raw)) for item in value.values())
    return value is None or value in ("", [])


class Pieces(list[str]):
    """A text that arrives in pieces."""


def merge(old: Any, new: Any, *, key: str | None = None) -> Any:
    """What a field amounts to once its next piece has come: texts and lists are continued, objects field by field.

    Args:
        old: what there is; may be changed.
        new: the next piece; null changes nothing.
        key: the field's name; names and types are replaced, not continued.
    """
    if new is None:
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        for name, item in new.items():
            old[name] = merge(old.get(name), item, key=name)
        return old
    if isinstance(old, str | Pieces) and isinstance(new, str) and key not in _LABELS:
        pieces = old if isinstance(old, Pieces) else Pieces([old])
        pieces.append(new)
        return pieces
    if isinstance(old, list) and isinstance(new, list):
        if isinstance(old, Pieces):
            return [joined(old), *new]
        old.extend(new)
        return old
    return new


def replaced(old: Any, new: Any) -> Any:
    """What a field amounts to where each piece is a newer state: objects field by field, the rest as a whole."""
    if hollow(new):
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: item for name, item in new.items() if item is not None}}
    return new


def merge_details(old: Any, new: list[Any]) -> list[Any]:
    """The reasoning blocks, continued: same type and index belong together, until one is signed or sealed."""
    items: list[Any] = old if isinstance(old, list) and not isinstance(old, Pieces) else [] if hollow(old) else [old]
    for item in new:
        block = _continued(items, item)
        if block is None:
            items.append(item)
        else:
            merge(block, item)
    return items


def _continued(items: list[Any], item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict) or "data" in item:
        return None
    for block in reversed(items):
        if not isinstance(block, dict) or "data" in block:
            continue
        if block.get("type") != item.get("type") or block.get("index") != item.get("index"):
            continue
        renamed = block.get("id") and item.get("id") and block["id"] != item["id"]
        return None if renamed or block.get("signature") else block
    return None


# The kinds of content part that hold reasoning, and where each keeps its list of texts.
REASONED = {"thinking": "thinking", "reasoning": "summary"}


def merge_part(parts: list[Any], part: dict[str, Any]) -> None:
    """Add a content part; reasoning right after reasoning continues it where both hold lists of text."""
    last = parts[-1] if parts else None
    name = REASONED.get(str(part.get("type")))
    if name is not None and isinstance(last, dict) and last.get("type") == part["type"]:
        inner, more = last.get(name), part.get(name)
        if isinstance(inner, list) and isinstance(more, list) and not last.get("signature"):
            for piece in more:
                _merge_text(inner, piece)
            last.update({key: item for key, item in part.items() if key != name})
            return
    parts.append(part)


def _merge_text(inner: list[Any], piece: Any) -> None:
    last = inner[-1] if inner else None
    if not (isinstance(last, dict) and isinstance(piece, dict) and {"type", "text"} <= last.keys() & piece.keys()):
        inner.append(piece)
    elif last["type"] == piece["type"] and not last.get("signature"):
        last["text"] = merge(last["text"], piece["text"])
        last.update({key: item for key, item in piece.items() if key != "text" and not hollow(item)})
    else:
        inner.append(piece)


def signature_of(part: Mapping[str, Any]) -> str | None:
    """The signature of a reasoning part: its own, or that of a text in it."""
    inner = part.get(REASONED[part["type"]])
    held = [part, *(item for item in (inner if isinstance(inner, list) else ()) if isinstance(item, Mapping))]
    found = (item.get("signature") for item in held)
    return next((value for value in found if isinstance(value, str) and value), None)


def joined(value: Any) -> Any:
    """The value with every text in one piece."""
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: joined(item) for key, item in value.items()}
    if isinstance(value, list):
        return [joined(item) for item in value]
    return value


def text_in(value: Any) -> str:
    """The readable text in a field that may be a string, a list or an object."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join([text_in(item) for item in value])
    if isinstance(value, Mapping):
        for key in ("text", "content", "thinking", "summary"):
            if value.get(key):
                return text_in(value[key])
    return ""


def shown(value: Any) -> str:
    """The first characters of a value's JSON, for an error to quote."""
    return dumps(value)[:200].decode("utf-8", "replace")
