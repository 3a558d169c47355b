"""Parts of a message's content, as Converse's content blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note, NoteCode
from isthmus.models.media import Media
from isthmus.models.messages import RESERVED, without_reserved
from isthmus.models.parts import FileContent, ImageContent
from isthmus.models.reading import remarks

OWN = frozenset(
    {
        "audio",
        "cachePoint",
        "citationsContent",
        "document",
        "guardContent",
        "image",
        "reasoningContent",
        "searchResult",
        "toolAddition",
        "toolRemoval",
        "toolResult",
        "toolUse",
        "video",
    }
)
"""Content blocks that may be given as they are; ContentBlock of Converse, 2026-11."""

_IMAGES: Mapping[str, str] = {f"image/{kind}": kind for kind in ("png", "jpeg", "gif", "webp")}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS: Mapping[str, str] = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
"""ImageFormat and DocumentFormat of Converse, 2026-11."""
_KEPT = ("context", "citations")
"""Members of a document in the Messages dialect that Converse has too."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9\-()\[\]]+")
_NAME_CHARACTERS = 200


def own_block(part: Any) -> dict[str, Any] | None:
    """The content block of Converse that a part already is, or None."""
    if not isinstance(part, Mapping) or "type" in part or len(part) != 1 or OWN.isdisjoint(part):
        return None
    block: dict[str, Any] = without_reserved(part)
    return block


def media_block(read: Any, place: str, *, notes: list[Note]) -> dict[str, Any] | None:
    """The block of an image or a document; None where the part is neither.

    Args:
        read: the part, as `isthmus.models.reading.read_part` gave it.
        place: where it stands, for notes and errors.
        notes: takes a note of each change.

    Raises:
        InvalidRequestError: Converse does not take it: its format, or an address; names it.
    """
    make = _MEDIA.get(type(read))
    if make is None:
        return None
    notes += [Note(NoteCode.HISTORY_CHANGED, f"{place}: {remark}") for remark in remarks(read)]
    lost = [str(key) for key in read.extra if key not in (*_KEPT, "cache_control", RESERVED)]
    if lost:
        notes.append(Note(NoteCode.PARAMETER_DROPPED, f"{place}: {', '.join(lost)} left out"))
    return make(read, place, notes)


def _image(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    if read.detail not in (None, "auto"):
        detail = f"{place}: the image's detail {read.detail!r} cannot be said here"
        notes.append(Note(NoteCode.PARAMETER_DROPPED, detail))
    return {"image": {"format": _format(read.media, _IMAGES, place, "an image"), "source": _source(read.media, place)}}


def _document(read: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    media: Media = read.media
    kind = _DOCUMENTS.get(media.media_type or "") or ("txt" if media.is_text else None)
    kind = kind or _format(media, _DOCUMENTS, place, "a document")
    given = (media.name or "document").rpartition(".")[0] or media.name or "document"
    name = _NOT_IN_A_NAME.sub(" ", given).strip()[:_NAME_CHARACTERS] or "document"
    if media.name and name != media.name:
        notes.append(Note(NoteCode.PARAMETER_CHANGED, f"{place}: the document {media.name!r} is called {name!r} here"))
    kept = {key: read.extra[key] for key in _KEPT if key in read.extra}
    return {"document": {"format": kind, "name": name, "source": _source(media, place), **kept}}


def _format(media: Media, formats: Mapping[str, str], place: str, what: str) -> str:
    address = media.url or ""
    ending = address.rpartition(".")[2].lower() if address.startswith("s3://") else ""
    ending = "jpeg" if ending == "jpg" else ending
    found = formats.get(media.media_type or "") or (ending if ending in formats.values() else None)
    if found is None and not (address and not ending):
        ways = ", ".join(formats)
        raise InvalidRequestError(f"{place}: {what} must be one of {ways}, not {media.media_type}: convert it first")
    return found or ""


def _source(media: Media, place: str) -> dict[str, Any]:
    data = media.as_base64()
    if data is not None:
        return {"bytes": data}
    if media.url is not None and media.url.startswith("s3://"):
        return {"s3Location": {"uri": media.url}}
    raise InvalidRequestError(
        f"{place}: this API takes bytes or an s3:// address, not {media.url or media.file_id!r}: send the content"
    )


_MEDIA: Mapping[type, Callable[[Any, str, list[Note]], dict[str, Any]]] = {
    ImageContent: _image,
    FileContent: _document,
}
