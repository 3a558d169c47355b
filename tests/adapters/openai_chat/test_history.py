"""F14 and F03: the neutral history as messages of this dialect."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isthmus.adapters.openai_chat.history import render
from isthmus.errors import InvalidRequestError
from isthmus.models.events import NoteCode
from isthmus.models.jsontext import Raw, loads
from isthmus.models.messages import assistant_message, fingerprint
from support.chat_frames import chunk, sse, step, tc


def _render(*messages: Any) -> tuple[list[Any], list[str]]:
    before = copy.deepcopy(messages)
    sent, notes = render(messages, "openai-chat")
    assert messages == before
    return [loads(bytes(item)) if isinstance(item, Raw) else item for item in sent], [note.code for note in notes]


def test_neutral_messages_pass_unchanged() -> None:
    """Messages of this shape, their images, files and audio included, are sent as they are."""
    messages = [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
        },
        {
            "role": "user",
            "content": [{"type": "file", "file": {"file_id": "f"}}, {"type": "input_audio", "input_audio": {}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [tc_("a", "f", '{"id": 2512292042121000001, "n": 1.0}')]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
        {"role": "user", "content": "", "name": "n"},
    ]
    assert _render(*messages) == (messages, [])


def tc_(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call of the history."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_bookkeeping_is_never_sent() -> None:
    """The reserved key, and any other private one, stays here; an internal message itself is sent."""
    message = {"role": "user", "content": "c", "_isthmus": {"visibility": "internal", "origin": "o"}, "_raw": object()}
    sent, notes = render([message], "openai-chat")
    assert (sent, notes) == ([{"role": "user", "content": "c"}], [])


def test_own_native_form_goes_back_verbatim() -> None:
    """F03: the native message of a reply, signatures and number texts included, is in the next request as it came."""
    details = b'[{"type":"reasoning.text","signature":"S+/=","n":1.50}]'
    raw = b'{"choices":[{"index":0,"delta":{"reasoning_details":' + details + b"}}]}"
    body = sse(
        raw, chunk({"content": "Hi"}), chunk({"tool_calls": [tc(0, "a", "f", '{"x": 1}')]}), chunk(finish="stop")
    )
    seen = step([body])
    assert seen.message is not None
    sent, notes = render([assistant_message(seen)], "openai-chat")
    (native,) = sent
    assert isinstance(native, Raw)
    assert bytes(native) == seen.message.json
    assert b'"signature":"S+/=","n":1.50' in bytes(native)
    assert notes == []


def test_foreign_and_stale_native_forms_are_noted() -> None:
    """Another dialect's native form, and one that no longer fits, give way to the neutral message, with a note."""
    message = {"role": "assistant", "content": "Hi"}
    held = {"dialect": "anthropic-messages", "of": fingerprint(message), "json": "{}"}
    assert _render({**message, "_isthmus": {"native": held}}) == ([message], [NoteCode.NATIVE_DROPPED])
    stale = {"dialect": "openai-chat", "of": "other", "json": "{}"}
    assert _render({**message, "_isthmus": {"native": stale}}) == ([message], [NoteCode.NATIVE_STALE])
    public = {**message, "openai_responses_input": [{"type": "reasoning"}]}
    assert _render(public) == ([message], [NoteCode.NATIVE_DROPPED])


def test_an_item_without_role_is_refused() -> None:
    """A native item of another provider without a role has no form here: an error names it and the remedy."""
    with pytest.raises(InvalidRequestError, match=r"messages\[1\].*reasoning.*to_neutral"):
        render([{"role": "user", "content": "c"}, {"type": "reasoning", "id": "rs_1"}], "openai-chat")


def test_block_turns_are_translated() -> None:
    """Turns of `tool_use` and `tool_result` blocks become calls and tool messages, results first, in order."""
    turns = [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "S"},
                {"type": "text", "text": "Let me see"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "and now?"},
            ],
        },
    ]
    sent, notes = _render(*turns)
    assert sent == [
        {"role": "assistant", "content": "Let me see", "tool_calls": [tc_("a", "f", '{"x":1}'), tc_("b", "g", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "user", "content": "and now?"},
    ]
    assert notes == [NoteCode.NATIVE_DROPPED]


def test_a_turn_of_results_alone_leaves_no_empty_turn() -> None:
    """A user turn of results alone becomes tool messages and nothing else."""
    turn = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": {"k": 1}}]}
    assert _render(turn) == ([{"role": "tool", "tool_call_id": "a", "content": '{"k":1}'}], [])


def test_block_images_become_image_parts() -> None:
    """F19: an image block with its media type and bytes, or an address, becomes an image part."""
    data = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    link = {"type": "image", "source": {"type": "url", "url": "https://example.com/x.png"}}
    sent, notes = _render({"role": "user", "content": [data, link]})
    assert [part["image_url"]["url"] for part in sent[0]["content"]] == [
        "data:image/png;base64,AA==",
        "https://example.com/x.png",
    ]
    assert notes == []


def test_block_documents_become_file_parts() -> None:
    """F19: a document block becomes a file part with its media type, or a text part; a bare address is refused."""
    pdf = {
        "type": "document",
        "title": "t.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
    }
    text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    sent, _ = _render({"role": "user", "content": [pdf, text]})
    assert sent[0]["content"] == [
        {"type": "file", "file": {"filename": "t.pdf", "file_data": "data:application/pdf;base64,AA"}},
        {"type": "text", "text": "words"},
    ]
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        _render({"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "https://e.com"}}]})


@pytest.mark.parametrize(
    ("message", "sent", "codes"),
    [
        ({"role": "assistant", "content": "Hi", "tool_calls": []}, [{"role": "assistant", "content": "Hi"}], []),
        ({"role": "assistant", "content": None}, [], [NoteCode.HISTORY_CHANGED]),
        ({"role": "assistant", "content": ""}, [], [NoteCode.HISTORY_CHANGED]),
        (
            {"role": "assistant", "content": [{"type": "text", "text": " "}, {"type": "text", "text": "Hi"}]},
            [{"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}],
            [NoteCode.HISTORY_CHANGED],
        ),
        (
            {"role": "tool", "tool_call_id": "a", "content": {"k": 1}},
            [{"role": "tool", "tool_call_id": "a", "content": '{"k":1}'}],
            [NoteCode.HISTORY_CHANGED],
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [tc_("a", "f", {"x": 1})]},
            [{"role": "assistant", "content": None, "tool_calls": [tc_("a", "f", '{"x":1}')]}],
            [NoteCode.HISTORY_CHANGED],
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [tc_("a", "f", '{"x": bad')]},
            [{"role": "assistant", "content": None, "tool_calls": [tc_("a", "f", '{"x": bad')]}],
            [],
        ),
    ],
)
def test_history_is_made_valid_where_there_is_one_way(message: Any, sent: list[Any], codes: list[str]) -> None:
    """F14: what this dialect refuses is put right where that is unambiguous, each change with a note."""
    assert _render(message) == (sent, codes)


@pytest.mark.parametrize("content", [None, "", "said"])
@pytest.mark.parametrize("ids", [("a",), ("a", "b"), ("a", "a"), ("", "b"), (None, None)])
@pytest.mark.parametrize("named", [True, False])
def test_what_a_loop_of_tools_wrote_is_sent_as_any_other_message(
    content: str | None, ids: tuple[Any, ...], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls and results in their usual form go a shorter way, and are the same at its end."""
    name = {"name": "f"} if named else {}
    messages: list[Any] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": content, "tool_calls": [tc_(each, "f", "{}") for each in ids]},
        *({"role": "tool", "tool_call_id": each, "content": "r", **name} for each in ids),
        {"role": "user", "content": [{"type": "text", "text": "and"}]},
    ]
    short = _render(*messages)
    monkeypatch.setattr("isthmus.adapters.openai_chat.history._is_usual", lambda message: False)
    assert _render(*messages) == short


@pytest.mark.parametrize(
    "calls",
    [
        [tc_("a", "f", {"n": 1})],
        [{**tc_("a", "f", "{}"), "index": 0}],
        [{"id": "a", "type": "function", "function": {"name": "f"}}],
        (tc_("a", "f", "{}"),),
        [],
    ],
)
def test_what_is_not_quite_the_usual_form_goes_the_long_way(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments that are no text, members of a call's own, other sequences, no calls at all."""
    message = {"role": "assistant", "content": "x", "tool_calls": calls}
    given = _render(message)
    monkeypatch.setattr("isthmus.adapters.openai_chat.history._is_usual", lambda message: False)
    assert _render(message) == given
