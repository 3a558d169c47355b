"""What a model reads of an MCP server's answer to a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from isthmus.models.enums import ToolErrorKind
from isthmus.models.jsontext import dumps, loads
from isthmus.models.media import from_base64
from isthmus.models.parts import AudioContent, Content, FileContent, ImageContent, TextContent
from isthmus.models.results import ToolError, ToolFailure

Block: TypeAlias = Mapping[str, Any]

MOST_TEXT = 100_000
"""Characters of text that a result keeps, unless told otherwise: about 25,000 tokens."""

MOST_DATA = 20_000_000
"""Characters of base64 that a result keeps: more than any provider takes."""

MISSING: Any = object()
"""Stands for structured content where an answer has none: it may be null."""


def rendered(
    content: Sequence[Block], *, structured: Any = MISSING, failed: bool = False, most_text: int = MOST_TEXT
) -> str | list[Content]:
    """The answer as the result of a tool: text, parts where there is more in it, a `ToolFailure` where it failed.

    Args:
        content: the blocks of the answer, as in JSON.
        structured: its structured content; left out where the blocks say the same.
        failed: whether the server says that the call failed.
        most_text: characters of text that are kept; what is cut is said in its place.
    """
    parts: list[Content] = [_part(block) for block in content]
    if structured is not MISSING and not _says(content, structured):
        parts.append(TextContent(dumps(structured).decode()))
    parts = _within(parts, most_text)
    texts = [part.text for part in parts if isinstance(part, TextContent)]
    if failed:
        text = "\n".join(texts) or "the server gave no reason"
        return ToolFailure(text=f"Error: {text}", error=ToolError(text, ToolErrorKind.ERROR.value))
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _part(block: Block) -> Content:
    kind = block.get("type")
    if kind == "text":
        return TextContent(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return _data(str(block.get("data", "")), block.get("mimeType"))
    if kind == "resource":
        return _resource(block.get("resource") or {})
    if kind == "resource_link":
        told = (block.get("title") or block.get("name"), block.get("description"), block.get("mimeType"))
        return TextContent(f"[resource {block.get('uri')}: {'; '.join(str(each) for each in told if each)}]")
    return TextContent(dumps(dict(block)).decode())


def _resource(resource: Mapping[str, Any]) -> Content:
    uri = str(resource.get("uri", ""))
    if "blob" in resource:
        return _data(str(resource["blob"]), resource.get("mimeType"), uri.rpartition("/")[2] or None)
    return TextContent(f"[resource {uri}]\n{resource.get('text', '')}")


def _data(data: str, kind: Any, name: str | None = None) -> Content:
    try:
        media = from_base64(data, kind if isinstance(kind, str) else None, name=name)
    except ValueError:
        # A server's word for it that is no media type says nothing.
        media = from_base64(data, name=name)
    said = media.media_type or ""
    if said.startswith("image/"):
        return ImageContent(media)
    return AudioContent(media) if said.startswith("audio/") else FileContent(media)


def _says(content: Sequence[Block], structured: Any) -> bool:
    """Whether the text of the blocks is the structured content again.

    The protocol wants the same in both for the sake of old clients; servers wrap what is no object as {"result": …},
    and spread a list over a block an item.
    """
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    if len(texts) != len(content):
        return False
    wrapped = isinstance(structured, Mapping) and list(structured) == ["result"]
    return _spell(texts, structured) or (wrapped and _spell(texts, structured["result"]))


def _spell(texts: list[str], value: Any) -> bool:
    if len(texts) == 1 and _is_text_of(texts[0], value):
        return True
    spread = bool(texts) and isinstance(value, list) and len(value) == len(texts)
    return spread and all(map(_is_text_of, texts, value))


def _is_text_of(text: str, value: Any) -> bool:
    return text == value or _same(_read(text), value)


def _read(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return MISSING


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, where true is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _within(parts: list[Content], most_text: int) -> list[Content]:
    """The parts, each counted once, up to the limits; in place of what goes stands what went."""
    kept: list[Content] = []
    text_left, data_left = most_text, MOST_DATA
    for part in parts:
        if isinstance(part, TextContent):
            size = len(part.text)
            cut = size > text_left
            note = f"[cut: {text_left} of {size} characters are shown; ask for less at a time]"
            kept.append(TextContent(f"{part.text[:text_left]}\n{note}") if cut else part)
            text_left -= min(size, text_left)
            continue
        media = part.media if isinstance(part, ImageContent | AudioContent | FileContent) else None
        size = len(media.data or "") if media is not None else 0
        if media is not None and size > data_left:
            kept.append(TextContent(f"[left out: {media.media_type or 'a file'} of about {size * 3 // 4} bytes]"))
            continue
        data_left -= size
        kept.append(part)
    return kept
