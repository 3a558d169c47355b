"""Content parts in every spelling, and the one reading of them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from isthmus.models import (
    AudioContent,
    CallContent,
    FileContent,
    ImageContent,
    Media,
    OtherContent,
    ResultContent,
    TextContent,
    ThinkingContent,
    read_part,
)
from isthmus.models.jsontext import Raw, dumps, loads
from isthmus.models.reading import read_result, remarks
from support.media_samples import PARTS, VALUES, b64, data_url

PNG = Media(media_type="image/png", data=b64("image/png"))
PDF = Media(media_type="application/pdf", data=b64("application/pdf"))
WAV = Media(media_type="audio/wav", data=b64("audio/wav"))
LINK = Media(url="https://e.org/a")

SPELLINGS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "text", "text": "a"}, TextContent("a")),
    ({"type": "input_text", "text": "a"}, TextContent("a")),
    ({"type": "output_text", "text": "a"}, TextContent("a")),
    ({"type": "refusal", "refusal": "No."}, TextContent("No.")),
    ({"type": "image_url", "image_url": {"url": data_url("image/png"), "detail": "low"}}, ImageContent(PNG, "low")),
    ({"type": "image_url", "image_url": "https://e.org/a"}, ImageContent(LINK)),
    ({"type": "input_image", "image_url": data_url("image/png"), "detail": "high"}, ImageContent(PNG, "high")),
    ({"type": "input_image", "file_id": "f1"}, ImageContent(Media(file_id="f1"))),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64("image/png")}},
        ImageContent(PNG),
    ),
    ({"type": "image", "source": {"type": "base64", "data": b64("image/png")}}, ImageContent(PNG)),
    ({"type": "image", "source": {"type": "url", "url": "https://e.org/a"}}, ImageContent(LINK)),
    ({"type": "image", "source": {"type": "file", "file_id": "f1"}}, ImageContent(Media(file_id="f1"))),
    ({"type": "image", "data": b64("image/png"), "mimeType": "image/png"}, ImageContent(PNG)),
    (
        {"type": "file", "file": {"file_data": data_url("application/pdf"), "filename": "a.pdf"}},
        FileContent(replace(PDF, name="a.pdf")),
    ),
    (
        {"type": "file", "file": {"file_data": b64("application/pdf"), "filename": "a.pdf"}},
        FileContent(replace(PDF, name="a.pdf")),
    ),
    ({"type": "file", "file": {"file_id": "f1"}}, FileContent(Media(file_id="f1"))),
    ({"type": "input_file", "file_data": data_url("application/pdf")}, FileContent(PDF)),
    ({"type": "input_file", "file_url": "https://e.org/a"}, FileContent(LINK)),
    ({"type": "input_file", "file_id": "f1", "filename": "a"}, FileContent(Media(file_id="f1", name="a"))),
    (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": b64("application/pdf")},
            "title": "a",
        },
        FileContent(replace(PDF, name="a")),
    ),
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        FileContent(Media(text="words", media_type="text/plain")),
    ),
    ({"type": "input_audio", "input_audio": {"data": b64("audio/wav"), "format": "wav"}}, AudioContent(WAV)),
    (
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        AudioContent(Media(data="AAAA", media_type="audio/mpeg")),
    ),
    ({"type": "audio", "data": b64("audio/wav"), "mimeType": "audio/wav"}, AudioContent(WAV)),
    ({"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}, CallContent("c", "f", '{"x":1}')),
    (
        {"type": "function", "id": "c", "function": {"name": "f", "arguments": '{ "x": 1.0 }'}},
        CallContent("c", "f", '{ "x": 1.0 }'),
    ),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, CallContent("c", "f", "{}")),
    ({"type": "tool_result", "tool_use_id": "c", "content": "out"}, ResultContent("c", "out")),
    ({"type": "tool_result", "tool_use_id": "c", "is_error": True}, ResultContent("c", "", is_error=True)),
    ({"type": "function_call_output", "call_id": "c", "output": "out"}, ResultContent("c", "out")),
    ({"type": "thinking", "thinking": "Hm", "signature": "S"}, ThinkingContent("Hm", "S")),
    ({"type": "redacted_thinking", "data": "X"}, ThinkingContent(encrypted="X")),
    (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "X"},
        ThinkingContent("Hm", encrypted="X"),
    ),
]


@pytest.mark.parametrize(("part", "content"), SPELLINGS, ids=lambda item: str(item)[:60])
def test_each_spelling_has_the_one_reading(part: dict[str, Any], content: Any) -> None:
    """F19: however a part is spelled, its reading is the same value, and gives the very spelling back."""
    read = read_part(part)
    assert read == content
    assert read.to_dict() == part
    assert list(read.to_dict()) == list(part)


@pytest.mark.parametrize("content", [content for _, content in SPELLINGS], ids=lambda item: str(item)[:60])
def test_a_part_made_here_is_read_as_itself(content: Any) -> None:
    """The neutral spelling of a part reads back as the same part; a text as the same bytes."""
    again = read_part(content.to_dict())
    text = getattr(getattr(content, "media", None), "text", None)
    assert again == (content if text is None else replace(content, media=Media.of(text.encode(), "text/plain")))


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        ({"type": "image_url", "image_url": {"url": data_url("application/pdf")}}, FileContent, "read as a document"),
        ({"type": "image_url", "image_url": {"url": "data:text/plain,hi"}}, FileContent, "read as a document"),
        ({"type": "file", "file": {"file_data": data_url("image/png")}}, ImageContent, "read as an image"),
        ({"type": "input_file", "file_data": data_url("audio/wav")}, AudioContent, "read as a sound"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64("application/pdf")}},
            FileContent,
            "declared as image/png, its content is application/pdf",
        ),
    ],
)
def test_a_part_is_what_it_holds(part: dict[str, Any], kind: type, words: str) -> None:
    """F19 rows 218, 221: a document is never an image for being called one, and what was wrong about it is said."""
    read = read_part(part)
    assert isinstance(read, kind)
    assert any(words in remark for remark in remarks(read))
    assert read.to_dict() == part


def test_a_right_part_needs_no_remark() -> None:
    """Nothing is said of a part that holds what it says."""
    assert [remarks(read_part(part)) for part, _ in SPELLINGS] == [()] * len(SPELLINGS)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "text", "text": 5}, "must be a string, not int"),
        ({"type": "image_url", "image_url": {}}, "needs a url"),
        ({"type": "image_url", "image_url": {"url": "data:x"}}, "not a data URL"),
        ({"type": "file", "file": {}}, "needs file_data .a data URL., file_url or file_id"),
        ({"type": "input_audio", "input_audio": {}}, "needs input_audio with data"),
        ({"type": "image", "source": {}}, "needs its data or a url"),
        ({"type": "tool_use", "input": {}}, "needs an id and a name"),
        ({"type": "tool_result"}, "needs the id of the call"),
        ({"type": "thinking", "thinking": 5}, "needs its text as a string, not int"),
    ],
)
def test_a_part_that_does_not_hold_what_it_must_is_kept_with_its_problem(part: dict[str, Any], problem: str) -> None:
    """A broken part is read as another one that says what is missing; it is never lost and never an exception."""
    read = read_part(part)
    assert isinstance(read, OtherContent)
    assert read.to_dict() == part
    with pytest.raises(ValueError, match=problem):
        raise ValueError(read.problem)


def test_a_part_of_an_unknown_kind_is_kept() -> None:
    """A kind that nobody here knows comes back whole, without a problem."""
    part = {"type": "video_url", "video_url": {"url": "u"}, "x": [1]}
    assert read_part(part) == OtherContent(part)
    assert read_part(part).to_dict() == part


def test_strangers_members_survive_a_change() -> None:
    """A changed part is in the neutral spelling, with the members that were not read."""
    part = {"type": "input_image", "image_url": data_url("image/png"), "cache_control": {"type": "ephemeral"}}
    read = read_part(part)
    assert isinstance(read, ImageContent)
    assert replace(read, detail="low").to_dict() == {
        "type": "image_url",
        "image_url": {"url": data_url("image/png"), "detail": "low"},
        "cache_control": {"type": "ephemeral"},
    }


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))])
def test_a_copy_keeps_the_spelling(copier: Any) -> None:
    """Copied or pickled, a part still gives back what it was read from."""
    part = {"type": "input_text", "text": "a", "x": 1}
    assert copier(read_part(part)).to_dict() == part


def test_numbers_in_arguments_stay_exact() -> None:
    """F30: integers of any size, and raw JSON text to the letter."""
    read = read_part({"type": "tool_use", "id": "c", "name": "f", "input": {"id": 2512292042121000001}})
    assert isinstance(read, CallContent)
    assert read.arguments == '{"id":2512292042121000001}'
    raw = read_part({"type": "tool_use", "id": "c", "name": "f", "input": Raw(b'{"n": 1.10}')})
    assert isinstance(raw, CallContent)
    assert raw.arguments == '{"n": 1.10}'


def test_a_key_of_ours_in_a_models_arguments_is_removed() -> None:
    """The reserved key that a model wrote into a call is no part of its arguments."""
    read = read_part({"type": "tool_use", "id": "c", "name": "f", "input": {"_isthmus": {}, "x": {"_isthmus": 1}}})
    assert isinstance(read, CallContent)
    assert read.arguments == '{"x":{}}'


IMAGE_PART = {"type": "image_url", "image_url": {"url": data_url("image/png")}}


@pytest.mark.parametrize(
    ("given_", "content"),
    [
        (None, ""),
        ("text", "text"),
        ([{"type": "text", "text": "a"}, IMAGE_PART], (TextContent("a"), ImageContent(PNG))),
        (IMAGE_PART, (ImageContent(PNG),)),
        (["a", IMAGE_PART, {"k": 1}], (TextContent("a"), ImageContent(PNG), TextContent('{"k":1}'))),
        (["a", "b"], (TextContent("a"), TextContent("b"))),
        ({"type": "circle", "r": 1}, '{"type":"circle","r":1}'),
        ({"type": "image", "id": 3}, '{"type":"image","id":3}'),
        ({"type": "function", "id": "c", "name": "f"}, '{"type":"function","id":"c","name":"f"}'),
        ([1, 2], "[1,2]"),
        ({"id": 2512292042121000001}, '{"id":2512292042121000001}'),
        (1.5, "1.5"),
    ],
)
def test_what_a_tool_gave_is_parts_or_json_text(given_: Any, content: Any) -> None:
    """F19 row 220: images and files in a result are parts; an object with a `type` of its own is JSON text."""
    assert read_result(given_) == content


@settings(max_examples=300, deadline=None)
@given(PARTS)
def test_dict_to_part_to_dict_is_the_identity(part: dict[str, Any]) -> None:
    """Any part, right or wrong, known or not, comes back with all members in order, and is never changed."""
    before = copy.deepcopy(part)
    back = read_part(part).to_dict()
    assert part == before == back
    assert dumps(back) == dumps(before)


@settings(max_examples=200, deadline=None)
@given(PARTS)
def test_spelling_in_the_neutral_way_twice_changes_nothing(part: dict[str, Any]) -> None:
    """The neutral spelling of a reading is read as itself."""
    once = read_part(part).neutral()
    assert read_part(once).neutral() == once


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_any_value_of_a_tool_has_a_content(value: Any) -> None:
    """Whatever a tool returns is text or parts, and plain JSON text holds it exactly."""
    content = read_result(value)
    if isinstance(content, str) and not isinstance(value, str) and value is not None:
        assert loads(content) == value


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,"}},
        {"type": "input_image", "image_url": "data:;base64,"},
    ],
)
def test_a_part_without_any_data_cannot_be_read(part: dict[str, Any]) -> None:
    """F19: an image or a document of no bytes is told from a right one before it is sent."""
    read = read_part(part)
    assert isinstance(read, OtherContent)
    assert "data is empty" in str(read.problem)


@pytest.mark.parametrize(("name", "kind"), [("a.txt", "text/plain"), ("a.PDF", "application/pdf"), ("a", None)])
def test_a_files_name_says_what_its_bare_base64_is(name: str, kind: str | None) -> None:
    """F19: base64 without a data URL is what the ending of its file's name says."""
    read = read_part({"type": "file", "file": {"file_data": "aGVsbG8=", "filename": name}})
    assert isinstance(read, FileContent)
    assert read.media.media_type == kind
