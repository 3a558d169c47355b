"""Content parts as this dialect spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note, NoteCode
from isthmus.models.neutral import Spell
from isthmus.models.parts import AudioContent, Content, FileContent, ImageContent, OtherContent, TextContent
from isthmus.models.reading import remarks

_OWN = frozenset(("input_text", "output_text", "refusal", "input_image", "input_file", "input_audio"))
_KNOWN = frozenset(("text", "image_url", "file", "image", "document", "audio", *_OWN))


def spell_for(notes: list[Note]) -> Spell:
    """How a part is said to this API; the API reference of Responses, 2026-11.

    What is in this dialect's own spelling goes as it is, and so does a kind that is not known here. Text files go as
    text, which every model takes.

    Args:
        notes: takes a note of each change.
    """

    def spell(part: Content, place: str) -> Mapping[str, Any]:
        if isinstance(part, OtherContent):
            if part.spelled in _KNOWN and part.problem:
                raise InvalidRequestError(f"{place}: {part.problem}")
            return part.value
        said = [*remarks(part)]
        if part.spelled in _OWN and not said:
            return part.to_dict()
        made = _SPELLED[type(part)](part, place, said)
        if part.beside:
            said.append(f"{', '.join(part.beside)} left out")
        notes.extend(Note(NoteCode.HISTORY_CHANGED, f"{place}: {remark}") for remark in said)
        return made

    return spell


def _text(part: TextContent, place: str, said: list[str]) -> dict[str, Any]:
    return {"type": "input_text", "text": part.text}


def _image(part: ImageContent, place: str, said: list[str]) -> dict[str, Any]:
    detail = {} if part.detail is None else {"detail": part.detail}
    if part.media.file_id is not None:
        return {"type": "input_image", "file_id": part.media.file_id, **detail}
    if part.media.url is None and part.media.media_type is None:
        raise InvalidRequestError(f"{place}: an image without a media type: write it into the data URL")
    return {"type": "input_image", "image_url": part.media.as_url(), **detail}


def _file(part: FileContent, place: str, said: list[str]) -> dict[str, Any]:
    media = part.media
    if media.name and (media.data is None or media.is_text):
        said.append(f"its name {media.name!r} left out")
    if media.file_id is not None:
        return {"type": "input_file", "file_id": media.file_id}
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    if media.is_text:
        if part.spelled != "document":
            said.append("a text file was sent as text")
        try:
            return {"type": "input_text", "text": media.as_text()}
        except ValueError as error:
            raise InvalidRequestError(f"{place}: a text file: {error}") from None
    if media.media_type is None:
        raise InvalidRequestError(f"{place}: a document without a media type: write it into the data URL")
    return {"type": "input_file", "filename": media.name or "document", "file_data": media.as_url()}


def _audio(part: AudioContent, place: str, said: list[str]) -> dict[str, Any]:
    if part.media.data is None:
        raise InvalidRequestError(f"{place}: a sound by its address cannot be said here: send its bytes")
    return part.neutral()


_SPELLED: Mapping[type, Callable[[Any, str, list[str]], dict[str, Any]]] = {
    TextContent: _text,
    ImageContent: _image,
    FileContent: _file,
    AudioContent: _audio,
}
