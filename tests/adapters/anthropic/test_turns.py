"""Histories of this dialect: roles, merging, tool results, native forms, parts."""

from __future__ import annotations

import pytest

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.errors import InvalidRequestError
from isthmus.models.messages import fingerprint
from isthmus.wire.call import WireReply
from support.anthropic_fold import answer, call, calls, codes, request, user


def turns(*messages, **fields):
    """The turns that these messages are sent as, and the request."""
    body, made = request(*messages, **fields)
    return body["messages"], made


def text(words):
    """A text block."""
    return {"type": "text", "text": words}


def native(content, json, dialect="anthropic-messages", **more):
    """An assistant message with a native form."""
    message = {"role": "assistant", "content": content, **more}
    return {**message, "_isthmus": {"native": {"dialect": dialect, "of": fingerprint(message), "json": json}}}


def test_tool_results_are_one_user_turn_in_call_order_before_the_text():
    """F14: results that came in another order, and a user text after them, make one turn, results first."""
    history = [user(), calls(call("a"), call("b"), call("c")), answer("c"), answer("a"), answer("b"), user("next")]
    made, sent = turns(*history)
    assert [turn["role"] for turn in made] == ["user", "assistant", "user"]
    assert [block.get("tool_use_id") for block in made[2]["content"]] == ["a", "b", "c", None]
    assert "history-changed" in codes(sent)


def test_results_in_order_need_no_note():
    """F14: the natural tool turn is no change to anything."""
    assert request(user(), calls(call("a"), call("b")), answer("a"), answer("b"), tools=())[1].notes[1:] == ()


def test_a_text_between_calls_and_results_is_put_behind_them():
    """F14: a user text before the tool's result would be refused; it is moved, with a note."""
    made, sent = turns(user(), calls(call("a")), user("hurry"), answer("a"))
    assert [block["type"] for block in made[2]["content"]] == ["tool_result", "text"]
    assert any("first" in note.detail for note in sent.notes)


def test_adjacent_turns_of_one_role_are_merged_without_losing_anything():
    """F14 rows 184, 185: texts and calls of two assistant messages, and user texts around a system message."""
    made, sent = turns(
        user("a"),
        {"role": "system", "content": "S"},
        user("b"),
        {"role": "assistant", "content": "c"},
        calls(call("x"), text="d"),
        answer("x"),
    )
    assert [turn["role"] for turn in made] == ["user", "assistant", "user"]
    assert made[0]["content"] == [text("a"), text("b")]
    assert made[1]["content"] == [text("c"), text("d"), {"type": "tool_use", "id": "x", "name": "f", "input": {}}]
    assert codes(sent)[:3] == ["history-changed"] * 3


def test_a_later_system_message_is_lifted_with_a_note():
    """F14: a system message inside the conversation goes to the system text behind the others."""
    body, made = request(user("a"), {"role": "developer", "content": "D"}, brief="B")
    assert body["system"] == [text("B"), text("D")]
    assert [note.detail for note in made.notes if "lifted" in note.detail]


def test_a_system_message_of_this_apis_own_blocks_stays_where_it_is():
    """A system turn that holds more than text is this API's own and is sent in its place."""
    block = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    made, _ = turns(user("a"), {"role": "system", "content": [block]})
    assert made[1] == {"role": "system", "content": [block]}


def test_empty_texts_are_left_out_with_a_note():
    """F14: empty and blank texts, and messages of nothing else, are not sent."""
    made, sent = turns(user("a"), {"role": "assistant", "content": " \n"}, user([text(""), text("b")]))
    assert made == [{"role": "user", "content": [text("a"), text("b")]}]
    assert set(codes(sent)) == {"history-changed"}


def test_an_echoed_empty_text_block_is_left_out_but_never_a_signed_one():
    """F14 row 176, F03: the empty text of a native form goes, the signed empty thinking stays, exactly."""
    json = (
        '[{"type":"thinking","thinking":"","signature":"S"},{"type":"text","text":""},'
        '{"type":"tool_use","id":"t","name":"f","input":{"n":1.0}}]'
    )
    made, sent = turns(user(), native(None, json, tool_calls=[call("t", "f", '{"n":1.0}')]), answer("t"))
    assert [block["type"] for block in made[1]["content"]] == ["thinking", "tool_use"]
    assert b'{"type":"thinking","thinking":"","signature":"S"}' in sent.call.body
    assert "history-changed" in codes(sent)


def test_a_native_form_is_sent_to_the_byte():
    """F03: blocks of this dialect go back with their own spacing, key order, escapes and number texts."""
    json = (
        '[{"signature":"S","type":"thinking","thinking":"\\u00e9"},{"type":"text", "text":"x"},{"type":"odd","n":1E2}]'
    )
    body = request(user(), native("x", json), user("y"))[1].call.body
    assert json.encode() in body


def test_native_forms_of_others_and_stale_ones_give_the_projection_and_a_note():
    """F03: another dialect's form, and one whose message was changed, are not sent; the text is."""
    foreign = native("x", '[{"type":"reasoning"}]', dialect="openai-responses")
    stale = {**native("x", '[{"type":"text","text":"x"}]'), "content": "changed"}
    broken = native("x", '{"no": "list"}')
    for message, code, words in (
        (foreign, "native-dropped", "x"),
        (stale, "native-stale", "changed"),
        (broken, "native-stale", "x"),
    ):
        made, sent = turns(user(), message, user("y"))
        assert made[1]["content"] == [text(words)]
        assert codes(sent) == [code]


def test_thinking_that_was_cut_is_not_sent_back_but_unsigned_thinking_of_a_whole_reply_is():
    """F03: the last block without a signature was cut and would be refused; before a call its server never signs."""
    cut = native("x", '[{"type":"text","text":"x"},{"type":"thinking","thinking":"Hm"}]')
    made, sent = turns(user(), cut, user("y"))
    assert made[1]["content"] == [text("x")]
    assert codes(sent) == ["history-changed"]
    unsigned = native("x", '[{"type":"thinking","thinking":"Hm","signature":""},{"type":"text","text":"x"}]')
    assert turns(user(), unsigned, user("y"))[0][1]["content"][0]["thinking"] == "Hm"


def test_turns_in_this_apis_own_shape_are_accepted():
    """Block turns (tool_use, tool_result, thinking) written by hand or by a tool turn pass as they are."""
    mine = [
        user(),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "S"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok", "is_error": True}]},
    ]
    made, _ = turns(*mine)
    assert made[1:] == mine[1:]


@pytest.mark.parametrize("arguments", [None, "", "  ", "null", "{}", {}])
def test_absent_arguments_are_sent_as_the_empty_object(arguments):
    """F15: whatever way a history says "no arguments", the API gets {}."""
    made, _ = turns(user(), calls(call("a", "f", arguments)), answer("a"))
    assert made[1]["content"][0]["input"] == {}


def test_arguments_are_sent_in_the_models_own_words():
    """F30: argument text stands in the request verbatim: spacing, big integers and number texts."""
    arguments = '{"id": 2512292042121000001, "x": 1.10, "big": 1e400}'
    body = request(user(), calls(call("a", "f", arguments)), answer("a"))[1].call.body
    assert arguments.encode() in body


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "NaN", '{"a": NaN}', "hello"])
def test_arguments_that_are_no_object_are_sent_wrapped_with_a_note(arguments):
    """F15: text that is no JSON object does not spoil the request, and the model still sees what it wrote."""
    made, sent = turns(user(), calls(call("a", "f", arguments)), answer("a"))
    assert made[1]["content"][0]["input"] == {"INVALID_JSON": arguments}
    assert "call-arguments-invalid" in codes(sent)


def test_ids_that_this_api_refuses_are_replaced_on_both_sides():
    """F14: an id with other characters is sent as a legal one in call and result, the same each time, noted."""
    first, sent = turns(user(), calls(call("functions.f:0")), answer("functions.f:0"))
    again, _ = turns(user(), calls(call("functions.f:0")), answer("functions.f:0"))
    assert first == again
    sent_id = first[1]["content"][0]["id"]
    assert sent_id.replace("_", "").replace("-", "").isalnum()
    assert first[2]["content"][0]["tool_use_id"] == sent_id
    assert "call-id-changed" in codes(sent)


def test_an_id_used_in_two_turns_is_sent_as_two():
    """F14: servers that begin to count anew each turn give ids twice; each result stays with its own call."""
    made, sent = turns(
        user(), calls(call("call_0")), answer("call_0", "1"), calls(call("call_0")), answer("call_0", "2")
    )
    ids = [made[1]["content"][0]["id"], made[3]["content"][0]["id"]]
    assert len(set(ids)) == 2
    assert [made[2]["content"][0]["tool_use_id"], made[4]["content"][0]["tool_use_id"]] == ids
    assert "call-id-changed" in codes(sent)


def test_results_without_an_id_answer_the_calls_in_turn():
    """A history without ids pairs results with calls in order; a result with nothing to answer is refused."""
    made, _ = turns(user(), calls(call(""), call("")), answer(None, "1"), answer(None, "2"))
    ids = [block["id"] for block in made[1]["content"]]
    assert [(block["tool_use_id"], block["content"]) for block in made[2]["content"]] == list(
        zip(ids, "12", strict=True)
    )
    with pytest.raises(InvalidRequestError, match=r"messages\[1\].*tool_call_id"):
        turns(user(), answer(None))


def test_what_a_tool_result_can_hold():
    """F19: a result may be empty, an error, or parts of the same kinds as a user message."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    made, _ = turns(
        user(),
        calls(call("a"), call("b"), call("c")),
        answer("a", ""),
        answer("b", "no", is_error=True),
        answer("c", [text("see"), image]),
    )
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    assert made[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c", "content": [text("see"), {"type": "image", "source": source}]},
    ]


def test_white_space_at_the_end_of_a_prefill_is_left_out():
    """A closing assistant text may not end in white space here; it is trimmed, with a note."""
    made, sent = turns(user(), {"role": "assistant", "content": "The answer is \n"})
    assert made[1]["content"] == [text("The answer is")]
    assert codes(sent) == ["history-changed"]


def test_members_that_cannot_be_said_here_are_noted():
    """F21: a message's members of another dialect are left out, by name."""
    _, sent = turns({**user(), "name": "Ann"}, {"role": "assistant", "content": "x", "reasoning_content": "Hm"}, user())
    assert [note.detail for note in sent.notes] == [
        "messages[0]: name left out",
        "messages[1]: reasoning_content left out",
    ]


@pytest.mark.parametrize("message", [{"type": "reasoning", "id": "rs_1"}, {"role": "critic", "content": "x"}])
def test_an_item_without_a_role_of_this_contract_is_refused_by_place(message):
    """A native item of another dialect, or an unknown role, is an error that names the message."""
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]"):
        turns(user(), message)


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                "title": "a.pdf",
            },
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/plain;base64,aMOp"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hé"}},
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/csv;charset=utf-8,a%2Cb"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
        ),
        (
            {"type": "file", "file": {"file_id": "file_1"}},
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        ),
        (
            {"type": "image_url", "image_url": "https://example.org/a.png"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:application/pdf;base64,JVBERi0="}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        ),
        ({"type": "refusal", "refusal": "No."}, {"type": "text", "text": "No."}),
        ("bare", {"type": "text", "text": "bare"}),
    ],
)
def test_parts_become_blocks_of_the_right_kind(part, block):
    """F19 rows 218, 221: each part goes by its media type; a document in an image part is a document."""
    assert turns(user([part]))[0][0]["content"] == [block]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "input_audio", "input_audio": {}}, "input_audio"),
        ({"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AA=="}}, "image/tiff"),
        ({"type": "image_url", "image_url": {}}, "url"),
        ({"type": "file", "file": {"file_data": "data:application/msword;base64,AA=="}}, "application/msword"),
        ({"type": "file", "file": {"file_data": "AAAA"}}, "data URL"),
        ({"type": "file", "file": {}}, "file_data"),
        ({"type": "text", "text": None}, "string"),
        (5, "dict"),
    ],
)
def test_a_part_that_cannot_be_said_here_is_refused_by_place(part, words):
    """F19 row 223: an unsupported part is an error before sending that names its place and kind."""
    with pytest.raises(InvalidRequestError, match=rf"messages\[0\]\.content\[0\].*{words}"):
        turns(user([part]))


def test_statuses_are_classified_with_the_headers_wait():
    """F18: the codec hands an HTTP error to the one table, with code, status and wait."""
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
    error = MessagesCodec("m").classify(WireReply(429, {"retry-after": "7"}, body))
    assert (str(error.error_class), error.status, error.code, error.retry_after) == (
        "transient",
        429,
        "rate_limit_error",
        7,
    )
