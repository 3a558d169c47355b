"""Parts of prompts: what they take, and what they refuse."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import PromptError
from isthmus.models.promptparts import FilePart, ImagePart, part_content


def test_an_image_is_looked_at_closely_by_default() -> None:
    """`detail` is "high" unless it is said."""
    assert part_content(ImagePart("iVBO", "image/png"))["detail"] == "high"
    assert part_content(ImagePart("iVBO", "image/png", "low"))["detail"] == "low"


@given(data=st.binary(min_size=1))
def test_any_bytes_travel_unchanged(data: bytes) -> None:
    """F19: type and bytes stand in the data URL exactly as they were given."""
    text = b64encode(data).decode()
    assert part_content(ImagePart(text, "image/webp"))["image_url"] == f"data:image/webp;base64,{text}"
    assert part_content(FilePart(text, "text/csv"))["file"] == {"file_data": f"data:text/csv;base64,{text}"}


WRONG: list[tuple[Any, str]] = [
    (lambda: ImagePart(b"x", "image/png"), r"ImagePart.base64_data: must be text, not bytes: base64"),  # type: ignore[arg-type]
    (lambda: ImagePart("data:image/png;base64,iVBO", "image/png"), r"base64_data: is a data URL: pass what"),
    (lambda: ImagePart("iV\nBO", "image/png"), r"base64_data: is not base64"),
    (lambda: FilePart("ä", "text/csv"), r"FilePart.base64_data: is not base64"),
    (lambda: FilePart("", "text/csv"), r"base64_data: is empty: leave"),
    (lambda: ImagePart("JVBE", "application/pdf"), r"'application/pdf' is no image: use FilePart"),
    (lambda: FilePart("JVBE", "pdf"), r"media_type: must be like 'image/png', not 'pdf'"),
    (lambda: FilePart("JVBE", "text/plain;x=y"), r"media_type: must be like"),
    (lambda: FilePart("JVBE", None), r"media_type: must be like .*None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_part_is_refused_when_it_is_made(wrong: Any, said: str) -> None:
    """F19: a type is never guessed, a document never sent as an image, and the error says what to do."""
    with pytest.raises(PromptError, match=said):
        wrong()


def test_a_repr_does_not_hold_the_data() -> None:
    """Megabytes stay out of logs."""
    assert repr(ImagePart("iVBO", "image/png")) == "ImagePart(media_type='image/png', detail='high')"


def test_the_parts_are_read_as_what_they_are() -> None:
    """F19: the neutral reading of content finds an image and a file, with their types, in the parts of a prompt."""
    reading = pytest.importorskip("isthmus.models.reading")
    parts = pytest.importorskip("isthmus.models.parts")
    image = reading.read_part(part_content(ImagePart("iVBORw0KGgo=", "image/png")))
    file = reading.read_part(part_content(FilePart("JVBERi0=", "application/pdf")))
    assert (type(image), type(file)) == (parts.ImageContent, parts.FileContent)
    assert (image.media.media_type, file.media.media_type) == ("image/png", "application/pdf")


def test_media_types_are_read_in_any_case() -> None:
    """RFC 2045: a media type is the same in capitals."""
    assert ImagePart("iVBO", "IMAGE/PNG").media_type == "IMAGE/PNG"


@pytest.mark.parametrize("detail", [5, None, ""])
def test_a_detail_is_a_word(detail: Any) -> None:
    """How closely to look is text; the error names the field and the words."""
    with pytest.raises(PromptError, match=r"ImagePart\.detail: must be 'high', 'low' or 'auto'"):
        ImagePart("iVBO", "image/png", detail)
