"""Parts of a message's content, as content blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note, NoteCode
from isthmus.models.media import PDF, Media
from isthmus.models.messages import RESERVED
from isthmus.models.parts import FileContent, ImageContent, OtherContent, ResultContent, TextContent
from isthmus.models.reading import read_part, read_result, remarks

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What an image block may hold; Messages API, 2026-11."""
_SOUNDS = frozenset({"input_audio", "audio"})
# Own blocks whose content is looked into; the others go as they are.
_LOOKED_INTO = frozenset({"image", "document", "tool_result"})

_OWN = frozenset(
    {
        "image",
        "document",
        "search_result",
        "tool_use",
        "tool_result",
        "tool_reference",
        "thinking",
        "redacted_thinking",
        "container_upload",
        "compaction",
        "fallback",
        "tool_addition",
        "tool_removal",
    }
)


def is_own(kind: str) -> bool:
    """Whether a part is a content block of this API already, other than text."""
    return kind in _OWN or kind.endswith(("_tool_use", "_tool_result"))


def blocks_of(content: Any, place: str, *, notes: list[Note]) -> list[dict[str, Any]]:
    """The content blocks of a message's content: a string, a list of parts, or None.

    Args:
        content: what stands under `content`.
        place: where it stands, for notes and errors, e.g. "messages[3]".
        notes: takes a note of each change.

    Raises:
        InvalidRequestError: a part that this API has no block for; names it.
    """
    if content is None:
        return []
    if isinstance(content, str):
        if content.strip():
            return [{"type": "text", "text": content}]
        content = [{"type": "text", "text": content}] if content else []
    elif isinstance(content, Mapping):
        content = [content]
    elif not isinstance(content, list | tuple):
        raise InvalidRequestError(f"{place}.content: must be text or a list of parts, not {type(content).__name__}")
    blocks = [block_of(part, f"{place}.content[{number}]", notes=notes) for number, part in enumerate(content)]
    return [block for block in blocks if block]


def block_of(part: Any, place: str, *, notes: list[Note]) -> dict[str, Any]:
    """The content block of one part; empty for a text that is blank.

    Args:
        part: a string, or a part in any spelling.
        place: where it stands, e.g. "messages[3].content[0]".
        notes: takes a note of each change.

    Raises:
        InvalidRequestError: this API has no block for it; names it.
    """
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise InvalidRequestError(f"{place}: a part must be a dict with a 'type', not {type(part).__name__}")
    kind = str(part.get("type", ""))
    if is_own(kind) and kind not in _LOOKED_INTO:
        return _bare(part)
    read = read_part(part)
    convert = _BLOCKS.get(type(read))
    if isinstance(read, OtherContent):
        if kind in _LOOKED_INTO and isinstance(part.get("source"), Mapping):
            return _bare(part)
        if read.problem and kind not in _SOUNDS:
            raise InvalidRequestError(f"{place}: {read.problem}")
    if convert is None:
        raise InvalidRequestError(
            f"{place}: this provider takes no part of type {kind!r}; it takes {', '.join(_TAKEN)}: convert it first"
        )
    notes += [Note(NoteCode.HISTORY_CHANGED, f"{place}: {remark}") for remark in remarks(read)]
    return convert(read, place, notes)


def result_of(content: Any, place: str, *, notes: list[Note]) -> list[dict[str, Any]] | str:
    """What a tool gave, as the content of a result block: blocks, or its text where it gave no parts.

    Args:
        content: any value.
        place: where it stands.
        notes: takes a note of each change.

    Raises:
        InvalidRequestError: a part that this API has no block for; names it.
    """
    if isinstance(content, list | tuple) and any(map(_is_result_block, content)):
        return blocks_of(content, place, notes=notes)
    read = read_result(content)
    if not isinstance(read, str):
        return blocks_of([part.to_dict() for part in read], place, notes=notes)
    if not isinstance(content, str):
        notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: a tool result was written as JSON text"))
    return read


def _is_result_block(item: Any) -> bool:
    """Whether something in a result can only be a block of this API, and no object that a tool happens to return."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    return kind in ("search_result", "tool_reference") or (
        kind in ("image", "document") and isinstance(item.get("source"), Mapping)
    )


def _bare(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != RESERVED}


def _text(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    if not read.text.strip():
        notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: an empty text was left out"))
        return {}
    if read.spelled == "text":
        return _bare(read.to_dict())
    return {"type": "text", "text": read.text, **_rest(read, place, notes)}


def _image(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    media: Media = read.media
    if read.detail not in (None, "auto"):
        notes.append(
            Note(NoteCode.PARAMETER_DROPPED, f"{place}: the image's detail {read.detail!r} cannot be said here")
        )
    source = _elsewhere(media)
    if source is None:
        if media.media_type not in _IMAGES:
            ways = ", ".join(sorted(_IMAGES))
            raise InvalidRequestError(
                f"{place}: an image must be one of {ways}, not {media.media_type}: convert it first"
            )
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    return _block_of("image", source, read, place, notes)


def _document(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    media: Media = read.media
    source = _elsewhere(media)
    if source is None:
        source = _document_source(media, place)
    block = _block_of("document", source, read, place, notes)
    if media.name and read.spelled != "document":
        block["title"] = media.name
    return block


def _document_source(media: Media, place: str) -> dict[str, Any]:
    if media.media_type == PDF:
        return {"type": "base64", "media_type": PDF, "data": media.data}
    if media.is_text:
        try:
            return {"type": "text", "media_type": "text/plain", "data": media.as_text()}
        except ValueError as error:
            raise InvalidRequestError(f"{place}: the text document: {error}") from None
    if media.media_type is None:
        raise InvalidRequestError(f"{place}: a document must be a data URL, or have a media type that says what it is")
    raise InvalidRequestError(f"{place}: a document must be {PDF} or text, not {media.media_type!r}: convert it first")


def _elsewhere(media: Media) -> dict[str, Any] | None:
    """The source of what is not here; None where it is."""
    if media.file_id is not None:
        return {"type": "file", "file_id": media.file_id}
    return None if media.url is None else {"type": "url", "url": media.url}


def _result(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    block = _bare(read.to_dict())
    if not isinstance(block.get("content"), str | None):
        block["content"] = result_of(block["content"], place, notes=notes)
    return block


def _block_of(kind: str, source: dict[str, Any], read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    """A block with its source; what stood in a block of this kind beside it stays."""
    if read.spelled == kind and "source" in (origin := read.to_dict()):
        if not remarks(read) and source != origin["source"]:
            notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: the {kind}'s source was written as it must be"))
        return {**_bare(origin), "source": source}
    return {"type": kind, "source": source, **_rest(read, place, notes)}


def _rest(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    """The members that another spelling's part may bring along; the others are noted."""
    lost = [name for name in read.beside if name not in ("cache_control", RESERVED)]
    if lost:
        notes.append(Note(NoteCode.PARAMETER_DROPPED, f"{place}: {', '.join(lost)} left out"))
    return {"cache_control": read.extra["cache_control"]} if "cache_control" in read.extra else {}


_BLOCKS: Mapping[type, Callable[[Any, str, list[Note]], dict[str, Any]]] = {
    TextContent: _text,
    ImageContent: _image,
    FileContent: _document,
    ResultContent: _result,
}
_TAKEN = ("text", "image_url", "file", "and its own blocks")
