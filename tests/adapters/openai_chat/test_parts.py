"""F19: images, files, sounds and tool results as parts of a Chat Completions request."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import NoteCode
from isthmus.models.jsontext import loads
from support.media_samples import IMAGES, MESSAGES, TURNS, b64, data_url


def sent(*messages: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The messages of the request for these, and the details of its notes; the messages stay as they were."""
    before = copy.deepcopy(messages)
    request = ChatCodec("m").encode(GenerateContext(messages=messages), stream=False)
    assert messages == before
    return loads(request.call.body)["messages"], [note.detail for note in request.notes]


def user(*parts: Any) -> dict[str, Any]:
    """A user's message of parts."""
    return {"role": "user", "content": list(parts)}


def image(url: str, **more: Any) -> dict[str, Any]:
    """An image part of this dialect."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def block(kind: str, media_type: str, declared: str | None = None, **more: Any) -> dict[str, Any]:
    """A block with a base64 source."""
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": declared or media_type, "data": b64(media_type)},
        **more,
    }


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_in_every_spelling_is_one_image_part(kind: str) -> None:
    """PNG, JPEG, GIF and WebP arrive as the data URL of their own type, whoever spelled the part."""
    url = data_url(kind)
    parts = [
        image(url),
        {"type": "input_image", "image_url": url},
        block("image", kind),
        {"type": "image", "data": b64(kind), "mimeType": kind},
    ]
    made, notes = sent(user(*parts))
    assert made[0]["content"] == [image(url)] * 4
    assert notes == []


def test_an_image_by_its_address_stays_one() -> None:
    """An http address is passed on, its detail with it."""
    link = "https://e.org/a.png"
    parts = [
        image(link, detail="low"),
        {"type": "input_image", "image_url": link, "detail": "low"},
        {"type": "image", "source": {"type": "url", "url": link}},
    ]
    assert sent(user(*parts))[0][0]["content"] == [image(link, detail="low")] * 2 + [image(link)]


def test_a_pdf_in_every_spelling_is_a_file_part() -> None:
    """A PDF goes as a file with its name, also out of an image part, and never as an image."""
    url = data_url("application/pdf")
    own = {"type": "file", "file": {"filename": "a.pdf", "file_data": url}}
    flat = {"type": "input_file", "filename": "a.pdf", "file_data": url}
    made, notes = sent(user(own, flat, block("document", "application/pdf", title="a.pdf"), image(url)))
    nameless = {"type": "file", "file": {"filename": "document", "file_data": url}}
    assert made[0]["content"] == [own, own, own, nameless]
    assert notes == [
        "messages[0].content[3]: application/pdf in a part of type image_url was read as a document",
    ]


@pytest.mark.parametrize(
    ("part", "read"),
    [
        (image(data_url("image/jpeg", "image/png")), "image/jpeg"),
        (block("image", "image/webp", "image/gif"), "image/webp"),
        (image(data_url("image/gif", "application/octet-stream")), "image/gif"),
    ],
)
def test_a_media_type_that_the_bytes_contradict_is_put_right_with_a_note(part: Any, read: str) -> None:
    """The first bytes decide what an image is called, and the note says what it was declared as."""
    made, notes = sent(user(part))
    assert made[0]["content"][0]["image_url"]["url"].startswith(f"data:{read};base64,")
    assert len(notes) == 1
    assert f"its content is {read}" in notes[0]


def test_a_missing_media_type_is_read_off_the_bytes() -> None:
    """A block without a media type is sent with the one that its bytes show."""
    part = {"type": "image", "source": {"type": "base64", "data": b64("image/png")}}
    assert sent(user(part))[0][0]["content"] == [image(data_url("image/png"))]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"filename": "t.csv", "file_data": "data:text/csv;base64,YSxi"}},
        {"type": "input_file", "file_data": "data:text/csv,a%2Cb"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
        image("data:text/plain;base64,YSxi"),
    ],
)
def test_a_text_file_is_sent_as_text(part: Any) -> None:
    """Row 221: text is sent as text, decoded, and not as base64 of anything."""
    assert sent(user(part))[0][0]["content"] == [{"type": "text", "text": "a,b"}]


def test_a_sound_in_every_spelling_is_an_input_audio_part() -> None:
    """Sounds go with their format; a file that holds one too."""
    own = {"type": "input_audio", "input_audio": {"data": b64("audio/wav"), "format": "wav"}}
    mcp = {"type": "audio", "data": b64("audio/wav"), "mimeType": "audio/wav"}
    file = {"type": "input_file", "file_data": data_url("audio/wav")}
    made, notes = sent(user(own, mcp, file))
    assert made[0]["content"] == [own] * 3
    assert [note.partition(": ")[2] for note in notes] == ["audio/wav in a part of type input_file was read as a sound"]


CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ("a", "b")
    ],
}


@pytest.mark.parametrize("form", ["neutral", "blocks"])
def test_an_image_in_a_tool_result_follows_in_a_user_message(form: str) -> None:
    """Row 220: a tool's message takes text alone here, so its images follow once all results stand, with a note."""
    picture = image(data_url("image/png"))
    if form == "neutral":
        answers = [
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}, picture]},
            {"role": "tool", "tool_call_id": "b", "content": [block("document", "application/pdf", title="b.pdf")]},
        ]
    else:
        answers = [
            user(
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "see"}, block("image", "image/png")],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": [block("document", "application/pdf", title="b.pdf")],
                },
            )
        ]
    made, notes = sent({"role": "user", "content": "go"}, CALLS, *answers, {"role": "user", "content": "so?"})
    assert [message["role"] for message in made] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert made[2]["content"] == [{"type": "text", "text": "see"}]
    assert "follows" in made[3]["content"]
    file = {"type": "file", "file": {"filename": "b.pdf", "file_data": data_url("application/pdf")}}
    assert [part for part in made[4]["content"] if part["type"] != "text"] == [picture, file]
    assert [part["text"] for part in made[4]["content"] if part["type"] == "text"] == [
        "This is what tool call a returned beside text:",
        "This is what tool call b returned beside text:",
    ]
    assert sum("moved into a user message" in note for note in notes) == 2


def test_a_history_that_ends_with_results_sends_their_images_last() -> None:
    """The results close the history: what they hold beside text stands behind them."""
    answers = [{"role": "tool", "tool_call_id": name, "content": [image(data_url("image/png"))]} for name in "ab"]
    made, _ = sent(CALLS, *answers)
    assert [message["role"] for message in made] == ["assistant", "tool", "tool", "user"]


def test_an_object_of_a_tool_is_json_text() -> None:
    """A result with a `type` of its own is no part: it is sent as its JSON text, integers exact, with a note."""
    made, notes = sent(CALLS, {"role": "tool", "tool_call_id": "a", "content": {"type": "circle", "id": 1 << 70}})
    assert made[1]["content"] == '{"type":"circle","id":1180591620717411303424}'
    assert notes == ["messages[1]: a tool result was written as JSON text"]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "input_image", "file_id": "f1"}, "an image by its file id 'f1' cannot be said here: send its bytes"),
        (
            {"type": "input_file", "file_url": "https://e.org/a.pdf"},
            "by its address cannot be said here: send its bytes",
        ),
        ({"type": "audio", "data": b64("audio/ogg"), "mimeType": "audio/ogg"}, "must be audio/wav, audio/mpeg, not"),
        ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "without a media type: write it into"),
        ({"type": "document", "source": {"type": "base64", "data": "AAAA"}}, "without a media type: write it into"),
        ({"type": "image"}, "needs its data or a url: send its bytes"),
        ({"type": "input_image"}, "needs a url, as a string, or a data URL"),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64,/w=="}}, "a text file: .*not base64 of UTF-8"),
    ],
)
def test_a_part_that_cannot_be_said_here_is_refused_by_place(part: Any, words: str) -> None:
    """F19: an error before sending names the place, what it is, and what to do."""
    with pytest.raises(InvalidRequestError, match=rf"messages\[1\]\.content\[1\]: .*{words}"):
        sent({"role": "user", "content": "x"}, user({"type": "text", "text": "y"}, part))


def test_kinds_that_only_a_server_knows_pass() -> None:
    """Servers of this dialect have parts of their own: what is not known here is sent as it is."""
    part = {"type": "video_url", "video_url": {"url": "https://e.org/a.mp4"}}
    assert sent(user(part)) == ([user(part)], [])


def test_members_of_another_dialect_are_noted() -> None:
    """F21: what a foreign part says beside its content is left out by name."""
    part = block("image", "image/png", cache_control={"type": "ephemeral"})
    made, notes = sent(user(part))
    assert made[0]["content"] == [image(data_url("image/png"))]
    assert notes == ["messages[0].content[0]: cache_control left out"]


def test_a_failed_result_says_so_in_its_text_alone() -> None:
    """`is_error` has no member here and is noted."""
    request = ChatCodec("m").encode(
        GenerateContext(messages=(CALLS, {"role": "tool", "tool_call_id": "a", "content": "no", "is_error": True})),
        stream=False,
    )
    assert loads(request.call.body)["messages"][1] == {"role": "tool", "tool_call_id": "a", "content": "no"}
    assert [note.code for note in request.notes] == [NoteCode.PARAMETER_DROPPED]


def test_a_message_of_anothers_native_items_alone_is_refused() -> None:
    """A user's input that only another provider can read is an error with the remedy, never an empty message."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\] has .* alone.*to_neutral"):
        sent({"role": "user", "openai_responses_input": [{"type": "item_reference", "id": "i"}]})


@settings(max_examples=150, deadline=None)
@given(st.lists(TURNS | MESSAGES, max_size=3))
def test_any_history_is_sent_or_refused_in_words(messages: list[Any]) -> None:
    """F22: whatever the parts, the request is made without our bookkeeping or refused by place; nothing is changed."""
    before, refused = copy.deepcopy(messages), "messages"
    try:
        body = ChatCodec("m").encode(GenerateContext(messages=tuple(messages)), stream=False).call.body
        assert isinstance(loads(body), dict)
        assert b'"_isthmus"' not in body
    except InvalidRequestError as error:
        refused = str(error)
    assert "messages" in refused
    assert messages == before


def test_what_text_cannot_say_of_a_file_is_noted() -> None:
    """Promise 2: a text file that is sent as text leaves its name and its other members behind, with a note."""
    document = {"type": "document", "source": {"type": "text", "data": "hello"}, "title": "T", "citations": {}}
    assert sent(user(document)) == (
        [user({"type": "text", "text": "hello"})],
        ["messages[0].content[0]: its name 'T', citations left out"],
    )
    named = {"type": "file", "file": {"file_data": "aGVsbG8=", "filename": "a.txt"}}
    assert sent(user(named))[1][-1] == "messages[0].content[0]: its name 'a.txt' left out"
