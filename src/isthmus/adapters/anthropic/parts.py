"""Parts of a message's content, as content blocks."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note, NoteCode
from isthmus.models.messages import RESERVED

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]*)*)(;base64)?,", re.I)
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What an image block may hold; Messages API, 2026-11."""
_PDF = "application/pdf"

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
        content = [{"type": "text", "text": content}] if content else []
    elif isinstance(content, Mapping):
        content = [content]
    elif not isinstance(content, list | tuple):
        raise InvalidRequestError(f"{place}.content: must be text or a list of parts, not {type(content).__name__}")
    blocks = [_block(part, f"{place}.content[{number}]", notes) for number, part in enumerate(content)]
    return [block for block in blocks if block]


def _block(part: Any, place: str, notes: list[Note]) -> dict[str, Any]:
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise InvalidRequestError(f"{place}: a part must be a dict with a 'type', not {type(part).__name__}")
    kind = str(part.get("type", ""))
    if is_own(kind):
        return {key: value for key, value in part.items() if key != RESERVED}
    convert = _PARTS.get(kind)
    if convert is None:
        names = ", ".join(_PARTS)
        raise InvalidRequestError(f"{place}: this provider takes no part of type {kind!r}; it takes {names}")
    return convert(part, place, notes)


def _text(part: Mapping[str, Any], place: str, notes: list[Note]) -> dict[str, Any]:
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequestError(f"{place}: a text part's text must be a string, not {type(text).__name__}")
    if not text.strip():
        notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: an empty text was left out"))
        return {}
    return {key: value for key, value in part.items() if key != RESERVED}


def _refusal(part: Mapping[str, Any], place: str, notes: list[Note]) -> dict[str, Any]:
    return _text({"type": "text", "text": part.get("refusal")}, place, notes)


def _image(part: Mapping[str, Any], place: str, notes: list[Note]) -> dict[str, Any]:
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(url, str) or not url:
        raise InvalidRequestError(f"{place}: an image_url part needs a url, as a string")
    detail = given.get("detail") if isinstance(given, Mapping) else None
    if detail not in (None, "auto"):
        notes.append(Note(NoteCode.PARAMETER_DROPPED, f"{place}: the image's detail {detail!r} cannot be said here"))
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}, **_cache(part)}
    media, data, is_base64 = _data_url(url, place)
    if media in _IMAGES and is_base64:
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}, **_cache(part)}
    if media in _IMAGES or media.startswith("image/"):
        ways = ", ".join(sorted(_IMAGES))
        raise InvalidRequestError(f"{place}: an image must be base64 of {ways}, not {media!r}: convert it first")
    notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: {media} in an image_url part was sent as a document"))
    return {"type": "document", "source": _document_source(media, data, is_base64, place), **_cache(part)}


def _file(part: Mapping[str, Any], place: str, notes: list[Note]) -> dict[str, Any]:
    given = part.get("file")
    file: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    block: dict[str, Any] = {"type": "document", "source": _file_source(file, place), **_cache(part)}
    if file.get("filename"):
        block["title"] = file["filename"]
    return block


def _file_source(file: Mapping[str, Any], place: str) -> dict[str, Any]:
    if file.get("file_id"):
        return {"type": "file", "file_id": file["file_id"]}
    data = file.get("file_data") or file.get("file_url")
    if not isinstance(data, str) or not data:
        raise InvalidRequestError(f"{place}: a file part needs file_data (a data URL) or file_id")
    if data.startswith(("http://", "https://")):
        return {"type": "url", "url": data}
    if data.startswith("data:"):
        return _document_source(*_data_url(data, place), place)
    if str(file.get("filename", "")).lower().endswith(".pdf"):
        return {"type": "base64", "media_type": _PDF, "data": data}
    raise InvalidRequestError(f"{place}: file_data must be a data URL, which names the media type")


def _document_source(media: str, data: str, is_base64: bool, place: str) -> dict[str, Any]:
    if media == _PDF and is_base64:
        return {"type": "base64", "media_type": media, "data": data}
    if media.startswith("text/") or media in ("application/json", "application/xml"):
        return {"type": "text", "media_type": "text/plain", "data": _plain_text(data, is_base64, place)}
    raise InvalidRequestError(f"{place}: a document must be {_PDF} or text, not {media!r}: convert it first")


def _plain_text(data: str, is_base64: bool, place: str) -> str:
    if not is_base64:
        return unquote(data)
    try:
        return b64decode(data).decode()
    except ValueError as error:
        raise InvalidRequestError(f"{place}: the text document is not base64 of UTF-8: {error}") from None


def _data_url(url: str, place: str) -> tuple[str, str, bool]:
    """Media type, data, and whether the data is base64."""
    match = _DATA_URL.match(url)
    if match is None:
        raise InvalidRequestError(f"{place}: not a data URL: {url[:40]!r}")
    return (match[1] or "text/plain").lower(), url[match.end() :], match[3] is not None


def _cache(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"cache_control": part["cache_control"]} if "cache_control" in part else {}


_PARTS: Mapping[str, Callable[[Mapping[str, Any], str, list[Note]], dict[str, Any]]] = {
    "text": _text,
    "image_url": _image,
    "file": _file,
    "refusal": _refusal,
}
