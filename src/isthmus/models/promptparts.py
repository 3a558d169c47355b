"""The parts that a prompt's message may consist of: text, images, files."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any, TypeAlias

import msgspec

from isthmus.errors import PromptError
from isthmus.models.media import MEDIA_TYPE


class TextPart(msgspec.Struct, frozen=True):
    """A part of text.

    Args:
        template: what it says, with its variables.
    """

    template: str


class ImagePart(msgspec.Struct, frozen=True):
    """A part that shows an image.

    Args:
        base64_data: the image in base64, without white space.
        media_type: such as "image/png".
        detail: how closely the model looks: "high", "low", "auto".

    Raises:
        PromptError: the data is not base64, or the type is no image's.
    """

    base64_data: str
    media_type: str
    detail: str = "high"

    def __post_init__(self) -> None:
        _check_data(self)
        if not self.media_type.lower().startswith("image/"):
            raise PromptError(f"ImagePart: {self.media_type!r} is no image: use FilePart")
        detail: Any = self.detail
        if not isinstance(detail, str) or not detail:
            raise PromptError(f"ImagePart.detail: must be 'high', 'low' or 'auto', not {detail!r}")

    def __repr__(self) -> str:
        return f"ImagePart(media_type={self.media_type!r}, detail={self.detail!r})"


class FilePart(msgspec.Struct, frozen=True):
    """A part that holds a file.

    Args:
        base64_data: the file in base64, without white space.
        media_type: such as "application/pdf".

    Raises:
        PromptError: the data is not base64, or the type is no media type.
    """

    base64_data: str
    media_type: str

    def __post_init__(self) -> None:
        _check_data(self)

    def __repr__(self) -> str:
        return f"FilePart(media_type={self.media_type!r})"


Part: TypeAlias = TextPart | ImagePart | FilePart


def _check_data(part: ImagePart | FilePart) -> None:
    where, data, media = type(part).__name__, part.base64_data, part.media_type
    if not MEDIA_TYPE.fullmatch(str(media)):
        raise PromptError(f"{where}.media_type: must be like 'image/png', not {media!r}")
    kind = type(data).__name__
    if kind != "str":
        raise PromptError(f"{where}.base64_data: must be text, not {kind}: base64.b64encode(data).decode()")
    if data.startswith("data:"):
        raise PromptError(f"{where}.base64_data: is a data URL: pass what stands after its comma")
    try:
        empty = not b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError(
            f"{where}.base64_data: is not base64 ({error}): base64.b64encode(data).decode() makes it"
        ) from None
    if empty:
        raise PromptError(f"{where}.base64_data: is empty: leave the part out")


def part_content(part: ImagePart | FilePart) -> dict[str, Any]:
    """The part as it stands in a message's content; a new dict at each call."""
    url = f"data:{part.media_type};base64,{part.base64_data}"
    if isinstance(part, ImagePart):
        return {"type": "input_image", "image_url": url, "detail": part.detail}
    return {"type": "file", "file": {"file_data": url}}
