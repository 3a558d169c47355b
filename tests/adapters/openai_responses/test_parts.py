"""Parts in any spelling as this API takes them."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.openai_responses.parts import spell_for
from isthmus.errors import InvalidRequestError
from isthmus.models.events import Note
from isthmus.models.reading import read_part

PNG = "data:image/png;base64,aGk="
PDF = "data:application/pdf;base64,aGk="


def spelled(part: dict[str, Any]) -> tuple[dict[str, Any], list[Note]]:
    """A part as it is sent."""
    notes: list[Note] = []
    return dict(spell_for(notes)(read_part(part), "here")), notes


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        ({"type": "text", "text": "a"}, {"type": "input_text", "text": "a"}),
        (
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "input_image", "image_url": PNG, "detail": "low"},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}},
            {"type": "input_image", "image_url": "https://e.org/a.png"},
        ),
        (
            {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
            {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        ),
        ({"type": "file", "file": {"file_id": "file_1"}}, {"type": "input_file", "file_id": "file_1"}),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "input_image", "image_url": PNG},
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://e.org/a.pdf"}},
            {"type": "input_file", "file_url": "https://e.org/a.pdf"},
        ),
    ],
)
def test_parts_are_converted(part: dict[str, Any], sent: dict[str, Any]) -> None:
    """Chat parts and blocks become input parts, without a note."""
    assert spelled(part) == (sent, [])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {}},
        {"type": "input_image", "file_id": "file_1", "detail": "auto"},
        {"type": "input_file", "file_url": "https://e.org/a.pdf"},
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "no"},
        {"type": "never_seen", "x": 1},
    ],
)
def test_its_own_and_unknown_parts_pass_unchanged(part: dict[str, Any]) -> None:
    """What is in this API's spelling, cache marks and all, and what nobody knows, goes as it is (F25)."""
    assert spelled(part) == (part, [])


def test_a_text_file_is_sent_as_text() -> None:
    """Every model takes text; notes say what was done to a file, and that its name has no place."""
    part = {"type": "file", "file": {"file_data": "data:text/plain;base64,aGk=", "filename": "a.txt"}}
    sent, notes = spelled(part)
    assert sent == {"type": "input_text", "text": "hi"}
    assert [note.detail for note in notes] == [
        "here: its name 'a.txt' left out",
        "here: a text file was sent as text",
    ]


def test_what_another_spelling_alone_has_is_noted() -> None:
    """A cache mark of another API has no place in a converted part."""
    sent, notes = spelled({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}})
    assert sent == {"type": "input_text", "text": "a"}
    assert "cache_control" in notes[0].detail
    image = {"type": "image_url", "image_url": {"url": "https://e.org", "format": "png"}}
    assert [note.detail for note in spelled(image)[1]] == ["here: image_url.format left out"]


@pytest.mark.parametrize("part", [{"type": "image_url"}, {"type": "file", "file": {}}, {"type": "input_audio"}])
def test_a_part_without_its_content_is_refused(part: dict[str, Any]) -> None:
    """The place is named."""
    with pytest.raises(InvalidRequestError, match="here"):
        spelled(part)
