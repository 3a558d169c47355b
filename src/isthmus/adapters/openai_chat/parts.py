"""Content parts as this dialect spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note, NoteCode
from isthmus.models.neutral import Spell
from isthmus.models.parts import AudioContent, Content, FileContent, ImageContent, OtherContent
from isthmus.models.reading import remarks

_OWN = frozenset({"text", "refusal", "image_url", "file", "input_audio"})
_FOREIGN = frozenset({"input_text", "output_text", "input_image", "input_file", "image", "document", "audio"})
_SOUNDS = {"audio/wav": "wav", "audio/mpeg": "mp3"}


def spell_for(notes: list[Note]) -> Spell:
    """How a part is said here; Chat Completions, 2026-11.

    What is in this dialect's own spelling goes as it is, for servers that take more than the first one of them did;
    a kind that is not known here too. Text files go as text, which all of them take; a part that contradicts itself by
    what it holds.

    Args:
        notes: takes a note of each change.
    """

    def spell(part: Content, place: str) -> Mapping[str, Any]:
        if isinstance(part, OtherContent):
            if part.spelled in _FOREIGN:
                raise InvalidRequestError(f"{place}: {part.problem}")
            return part.value
        said = [*remarks(part)]
        made = _text_file(part, place) if isinstance(part, FileContent) else None
        lost = [*part.beside]
        if isinstance(part, FileContent) and made is not None:
            lost = [f"its name {part.media.name!r}", *lost] if part.media.name else lost
            if part.spelled != "document":
                said.append("a text file was sent as text")
        elif part.spelled in _OWN and not said:
            return part.to_dict()
        if lost:
            said.append(f"{', '.join(lost)} left out")
        made = _neutral(part, place) if made is None else made
        notes.extend(Note(NoteCode.HISTORY_CHANGED, f"{place}: {remark}") for remark in said)
        return made

    return spell


def _text_file(part: FileContent, place: str) -> dict[str, Any] | None:
    """A text file as text; None where it is another file or stands elsewhere."""
    media = part.media
    if not media.is_text or (media.text is None and media.data is None):
        return None
    try:
        return {"type": "text", "text": media.as_text()}
    except ValueError as error:
        raise InvalidRequestError(f"{place}: a text file: {error}") from None


def _neutral(part: Any, place: str) -> dict[str, Any]:
    check = _CHECKS.get(type(part))
    if check is not None:
        check(part, place)
    made: dict[str, Any] = part.neutral()
    if isinstance(part, FileContent) and part.media.file_id is None:
        made["file"] = {"filename": "document", **made["file"]}
    return made


def _image(part: ImageContent, place: str) -> None:
    if part.media.file_id is not None:
        raise InvalidRequestError(
            f"{place}: an image by its file id {part.media.file_id!r} cannot be said here: send its bytes or a url"
        )
    if part.media.url is None and part.media.media_type is None:
        raise InvalidRequestError(f"{place}: an image without a media type: write it into the data URL")


def _file(part: FileContent, place: str) -> None:
    if part.media.url is not None:
        raise InvalidRequestError(f"{place}: a document by its address cannot be said here: send its bytes")
    if part.media.file_id is None and part.media.media_type is None:
        raise InvalidRequestError(f"{place}: a document without a media type: write it into the data URL")


def _audio(part: AudioContent, place: str) -> None:
    if part.media.data is None:
        raise InvalidRequestError(f"{place}: a sound by its address cannot be said here: send its bytes")
    if part.media.media_type not in _SOUNDS:
        ways = ", ".join(_SOUNDS)
        raise InvalidRequestError(f"{place}: a sound must be {ways}, not {part.media.media_type}: convert it first")


_CHECKS: Mapping[type, Callable[[Any, str], None]] = {ImageContent: _image, FileContent: _file, AudioContent: _audio}
