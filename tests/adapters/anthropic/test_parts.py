"""F19: images, files, sounds and tool results as blocks of a Messages request."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.jsontext import loads
from support.anthropic_fold import answer, call, calls, request, user
from support.media_samples import IMAGES, MESSAGES, TURNS, b64, data_url


def sent(part: Any) -> tuple[Any, list[str]]:
    """The block that a user's part is sent as, and the details of the notes."""
    body, made = request(user([part]))
    (block,) = body["messages"][0]["content"]
    return block, [note.detail for note in made.notes]


def block(kind: str, media_type: str, declared: str | None = None, **more: Any) -> dict[str, Any]:
    """A block with a base64 source."""
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": declared or media_type, "data": b64(media_type)},
        **more,
    }


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_in_every_spelling_is_one_image_block(kind: str) -> None:
    """PNG, JPEG, GIF and WebP arrive as base64 of their own type, whoever spelled the part."""
    for part in (
        {"type": "image_url", "image_url": {"url": data_url(kind)}},
        {"type": "input_image", "image_url": data_url(kind)},
        {"type": "image", "data": b64(kind), "mimeType": kind},
        block("image", kind),
    ):
        assert sent(part) == (block("image", kind), [])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": "https://e.org/a"},
        {"type": "input_image", "image_url": "https://e.org/a"},
        {"type": "image", "source": {"type": "url", "url": "https://e.org/a"}},
    ],
)
def test_an_image_by_its_address_stays_one(part: Any) -> None:
    """An http address is sent as a url source."""
    assert sent(part) == ({"type": "image", "source": {"type": "url", "url": "https://e.org/a"}}, [])


def test_an_image_and_a_file_by_id_are_sent_by_id() -> None:
    """A file id of the provider stands in a file source."""
    source = {"type": "file", "file_id": "f1"}
    assert sent({"type": "input_image", "file_id": "f1"})[0] == {"type": "image", "source": source}
    assert sent({"type": "input_file", "file_id": "f1"})[0] == {"type": "document", "source": source}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_data": data_url("application/pdf"), "filename": "a.pdf"}},
        {"type": "input_file", "file_data": data_url("application/pdf"), "filename": "a.pdf"},
        block("document", "application/pdf", title="a.pdf"),
    ],
)
def test_a_pdf_in_every_spelling_is_a_document_block(part: Any) -> None:
    """A PDF goes as a document with its name."""
    assert sent(part) == (block("document", "application/pdf", title="a.pdf"), [])


@pytest.mark.parametrize(
    ("part", "made", "words"),
    [
        (block("image", "image/jpeg", "image/png"), block("image", "image/jpeg"), "declared as image/png"),
        (block("image", "image/jpeg", "image/jpg"), block("image", "image/jpeg"), "declared as image/jpg"),
        (block("image", "application/pdf"), block("document", "application/pdf"), "read as a document"),
        (block("document", "image/png"), block("image", "image/png"), "read as an image"),
        (
            {"type": "image", "source": {"type": "base64", "data": b64("image/png")}},
            block("image", "image/png"),
            "the image's source was written as it must be",
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "text/plain", "data": "aGk="},
                "title": "t",
            },
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "t"},
            "the document's source was written as it must be",
        ),
        (
            {"type": "file", "file": {"file_data": data_url("image/png")}},
            block("image", "image/png"),
            "read as an image",
        ),
    ],
)
def test_a_block_is_what_its_bytes_say(part: Any, made: Any, words: str) -> None:
    """Media types that are missing or contradicted are put right, documents are no images, each with a note."""
    seen, notes = sent(part)
    assert seen == made
    assert len(notes) >= 1
    assert any(words in note for note in notes)


def test_what_stands_in_an_own_block_beside_its_source_stays() -> None:
    """Cache marks, citations and context of a block of this API are kept."""
    part = block("document", "application/pdf", title="t", citations={"enabled": True}, cache_control={"type": "e"})
    assert sent(part) == (part, [])
    own = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}}
    assert sent(own) == (own, [])


def test_parts_of_a_tool_result_go_by_the_same_table() -> None:
    """Row 220: images and files inside a result arrive as blocks, in a tool's message and in a result block alike."""
    parts = [
        {"type": "text", "text": "see"},
        {"type": "input_image", "image_url": data_url("image/png")},
        {"type": "file", "file": {"file_data": data_url("application/pdf"), "filename": "b.pdf"}},
    ]
    expected = [parts[0], block("image", "image/png"), block("document", "application/pdf", title="b.pdf")]
    body, _ = request(user(), calls(call("a")), answer("a", parts))
    assert body["messages"][2]["content"][0]["content"] == expected
    turn = user([{"type": "tool_result", "tool_use_id": "a", "content": parts, "is_error": False}])
    body, _ = request(user(), calls(call("a")), turn)
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": expected, "is_error": False}
    ]


def test_an_object_of_a_tool_is_json_text() -> None:
    """A result with a `type` of its own is no part; references of this API inside a list are."""
    body, made = request(user(), calls(call("a")), answer("a", {"type": "circle", "r": 1}))
    assert body["messages"][2]["content"][0]["content"] == '{"type":"circle","r":1}'
    assert any("JSON text" in note.detail for note in made.notes)
    references = [{"type": "tool_reference", "tool_name": "f"}]
    body, _ = request(user(), calls(call("a")), answer("a", references))
    assert body["messages"][2]["content"][0]["content"] == references


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "input_audio", "input_audio": {"data": b64("audio/wav"), "format": "wav"}}, "input_audio.*convert"),
        ({"type": "audio", "data": b64("audio/wav"), "mimeType": "audio/wav"}, "'audio'.*convert it first"),
        ({"type": "file", "file": {"file_data": data_url("audio/wav")}}, "'file'.*convert it first"),
        ({"type": "image", "data": "AAAA", "mimeType": "image/tiff"}, "image/tiff: convert it first"),
        ({"type": "image"}, "needs its data or a url"),
        ({"type": "video_url", "video_url": {}}, "video_url.*it takes text, image_url, file"),
        ({"type": "input_file", "file_data": "AAAA"}, "must be a data URL"),
    ],
)
def test_a_part_that_cannot_be_said_here_is_refused_by_place(part: Any, words: str) -> None:
    """F19: an error before sending names the place, the kind and what to do, in results as in user turns."""
    with pytest.raises(InvalidRequestError, match=rf"messages\[0\]\.content\[0\]: .*{words}"):
        request(user([part]))


def test_members_of_another_dialect_are_noted() -> None:
    """F21: a member that only another dialect knows is left out by name; a cache mark is kept."""
    part = {"type": "input_text", "text": "x", "annotations": [], "cache_control": {"type": "ephemeral"}}
    made, notes = sent(part)
    assert made == {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    assert notes == ["messages[0].content[0]: annotations left out"]


@pytest.mark.parametrize(
    "message", [{"type": "reasoning"}, {"role": "user", "openai_responses_input": [{"type": "message"}]}]
)
def test_anothers_native_items_alone_are_refused_with_the_remedy(message: Any) -> None:
    """What only another provider can read is an error that names the conversion, never an empty message."""
    with pytest.raises(InvalidRequestError, match=r"messages\[1\] has .*to_neutral"):
        request(user(), message)


def test_a_result_block_without_its_call_is_refused() -> None:
    """A result block needs the id of its call."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content\[0\]: .*needs the id of the call"):
        request(user([{"type": "tool_result", "tool_use_id": [], "content": "x"}]))


@settings(max_examples=150, deadline=None)
@given(st.lists(TURNS | MESSAGES, max_size=3))
@example([user([{"type": "tool_result", "tool_use_id": [], "content": None, "output": None, "source": {"data": ""}}])])
def test_any_history_is_sent_or_refused_in_words(messages: list[Any]) -> None:
    """F22: whatever the parts, the request is made without our bookkeeping or refused by place; nothing is changed."""
    before, refused = copy.deepcopy(messages), "messages"
    try:
        body = MessagesCodec("m").encode(GenerateContext(messages=tuple(messages)), stream=False).call.body
        assert isinstance(loads(body), dict)
        assert b'"_isthmus"' not in body
    except InvalidRequestError as error:
        refused = str(error)
    assert "messages" in refused
    assert messages == before
