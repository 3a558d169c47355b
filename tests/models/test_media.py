"""Media types and where the content of a part stands."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.models.media import Media, from_base64, from_url, sniff
from support.media_samples import SAMPLES, b64, data_url


@pytest.mark.parametrize("media_type", SAMPLES)
def test_the_first_bytes_tell_what_it_is(media_type: str) -> None:
    """F19: each format is known by its own first bytes, whether or not somebody declared it."""
    assert sniff(b64(media_type)) == media_type
    assert Media.of(SAMPLES[media_type]).media_type == media_type
    assert from_base64(b64(media_type), "application/octet-stream").media_type == media_type


@pytest.mark.parametrize(
    ("seen", "declared", "read"),
    [
        ("image/jpeg", "image/png", "image/jpeg"),
        ("image/png", "image/x-png", "image/png"),
        ("application/pdf", "image/png", "application/pdf"),
        ("application/pdf", "text/plain", "application/pdf"),
        ("image/webp", "application/pdf", "image/webp"),
    ],
)
def test_an_image_or_a_pdf_is_what_its_bytes_say(seen: str, declared: str, read: str) -> None:
    """F19: where declaration and first bytes contradict each other the bytes win, and what was declared is kept."""
    media = from_base64(b64(seen), declared)
    assert (media.media_type, media.declared) == (read, declared)


@pytest.mark.parametrize(
    ("data", "declared"),
    [(b64("audio/ogg"), "audio/opus"), (b64("audio/mpeg"), "text/plain"), ("AAAA", "image/tiff"), ("AAAA", None)],
)
def test_what_the_bytes_do_not_settle_stays_as_declared(data: str, declared: str | None) -> None:
    """A container's bytes and unknown ones never overrule a declaration."""
    media = from_base64(data, declared)
    assert (media.media_type, media.declared) == (declared, None)


def test_a_common_misspelling_is_put_right() -> None:
    """`image/jpg` is `image/jpeg`; what was declared is kept for a note."""
    media = from_base64("AAAA", "image/jpg")
    assert (media.media_type, media.declared) == ("image/jpeg", "image/jpg")


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("https://e.org/a.png", {"url": "https://e.org/a.png"}),
        (data_url("image/png"), {"data": b64("image/png"), "media_type": "image/png"}),
        (data_url("image/png", ""), {"data": b64("image/png"), "media_type": "image/png"}),
        ("data:text/csv;charset=utf-8,a%2Cb", {"text": "a,b", "media_type": "text/csv"}),
        ("data:,hello", {"text": "hello", "media_type": "text/plain"}),
        ("DATA:text/plain;base64,aGk=", {"data": "aGk=", "media_type": "text/plain"}),
        ("data:image/svg+xml,%3Csvg%3E", {"data": b64encode(b"<svg>").decode(), "media_type": "image/svg+xml"}),
    ],
)
def test_a_data_url_is_taken_apart(url: str, fields: dict[str, Any]) -> None:
    """An address stays one; a data URL gives its type and its data, percent-encoded text as text."""
    assert from_url(url) == Media(**fields)


def test_media_gives_its_content_in_each_form() -> None:
    """Base64, text and URL of the same content agree; what stands elsewhere has only its address."""
    text = Media(text="hé", media_type="text/plain")
    same = Media.of("hé".encode(), "text/plain")
    assert text.as_base64() == same.as_base64() == same.data
    assert text.as_text() == same.as_text() == "hé"
    assert text.as_url() == same.as_url() == f"data:text/plain;base64,{same.data}"
    away = Media(url="https://e.org/a")
    assert (away.as_base64(), away.as_url()) == (None, "https://e.org/a")
    assert Media(file_id="f").as_url() is None


def test_the_type_comes_from_the_name_where_bytes_do_not_tell() -> None:
    """A file name's ending is the last resort."""
    assert Media.of(b"a,b\n", name="t.csv").media_type == "text/csv"


def test_bytes_never_show_in_a_repr() -> None:
    """The content itself is no part of the repr."""
    assert b64("image/png") not in repr(Media.of(SAMPLES["image/png"]))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Media(media_type="image/png"), ValueError, "exactly one of data, text, url and file_id, not none"),
        (lambda: Media(data="AA", url="u"), ValueError, "not data and url"),
        (lambda: Media.of(b"\0\1"), ValueError, "give a media_type"),
        (lambda: Media.of("text"), TypeError, "takes bytes, not str; base64 goes to"),
        (lambda: from_url("data:nonsense"), ValueError, "not a data URL.*write data:<media type>;base64,"),
        (lambda: Media(url="https://e.org").as_text(), ValueError, "the content is not here but at https://e.org"),
        (lambda: Media(data="/w==").as_text(), ValueError, "not base64 of UTF-8"),
    ],
)
def test_wrong_uses_say_what_to_do(make: Any, error: type[Exception], words: str) -> None:
    """Each wrong use is an error that names what was wrong and what is right."""
    with pytest.raises(error, match=words):
        make()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.sampled_from([None, "image/png", "text/plain", "application/x-own"]))
def test_bytes_come_back_as_they_were(content: bytes, declared: str | None) -> None:
    """Whatever the bytes, their base64 and data URL hold exactly them, and reading never fails."""
    data = b64encode(content).decode()
    media = from_base64(data, declared)
    assert media.as_base64() == data
    again = from_url(media.as_url() or "")
    assert again.as_base64() == data
    assert again.media_type == media.media_type


@pytest.mark.parametrize(
    ("declared", "told"),
    [("image/png; q=1", "image/png; q=1"), ("picture", "picture"), ("image/png", None), ("", None)],
)
def test_the_first_bytes_stand_for_what_is_no_media_type(declared: str, told: str | None) -> None:
    """A word that is no media type, or one with parameters, gives way to what the bytes show, and is told."""
    media = from_base64(b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode(), declared)
    assert (media.media_type, media.declared) == ("image/png", told)


def test_what_is_no_media_type_is_refused_where_the_bytes_tell_nothing() -> None:
    """The error shows the value and what it must be like; parameters are no fault."""
    with pytest.raises(ValueError, match=r"media_type must be like 'image/png', not 'text'"):
        from_base64("AAAA", "text")
    media = from_base64("AAAA", "text/plain; charset=utf-8")
    assert (media.media_type, media.declared) == ("text/plain", "text/plain; charset=utf-8")
