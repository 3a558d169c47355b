"""What blocks give: calls, reasoning, native forms, finish."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.models.events import CallDelta, Native, Reasoning
from isthmus.models.messages import assistant_message
from isthmus.wire.frame import Frame
from support.anthropic_fold import (
    codes,
    decode,
    delta,
    folded,
    head,
    request,
    result,
    sse,
    start,
    stop,
    tail,
    user,
    whole,
)


def tool(index=0, *pieces, call_id="toolu_1", name="f", **more):
    """The events of one call."""
    return [
        start(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}),
        *[delta(index, "input_json_delta", partial_json=piece) for piece in pieces],
        stop(index),
    ]


def thinking(index=0, *pieces, signature="SIG"):
    """The events of one thinking block."""
    signed = [delta(index, "signature_delta", signature=signature)] if signature else []
    return [
        start(index, {"type": "thinking", "thinking": "", "signature": ""}),
        *[delta(index, "thinking_delta", thinking=piece) for piece in pieces],
        *signed,
        stop(index),
    ]


def said(index, *pieces):
    """The events of one text block."""
    return [
        start(index, {"type": "text", "text": ""}),
        *[delta(index, "text_delta", text=piece) for piece in pieces],
        stop(index),
    ]


def sent_back(step):
    """The assistant content of the request that follows a reply."""
    body, made = request(user(), assistant_message(step), user("go on"))
    return [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"], made


def test_a_call_comes_at_the_end_of_its_block_with_its_arguments_as_written():
    """F15, F30: fragments are judged once, joined; the text stays, and integers of any size are exact."""
    pieces = ['{"id": 2512292042121', '000001, "x": 1.0', "0}"]
    events = decode(sse(head(), *tool(0, *pieces), *tail("tool_use")))
    call = folded(events).calls[0]
    assert call.arguments == "".join(pieces)
    assert call.input == {"id": 2512292042121000001, "x": 1.0}
    previews = [event for event in events if isinstance(event, CallDelta)]
    assert "".join(preview.arguments_delta for preview in previews) == call.arguments
    assert {(preview.index, preview.call_id, preview.tool) for preview in previews} == {(0, "toolu_1", "f")}


@pytest.mark.parametrize("pieces", [(), ("",), ("", "")])
def test_absent_arguments_are_the_empty_object(pieces):
    """F15: a call without argument text is whole, with input {} and arguments "{}", previewed as such."""
    events = decode(sse(head(), *tool(0, *pieces), *tail("tool_use")))
    call = folded(events).calls[0]
    assert (call.input, call.arguments, call.problem) == ({}, "{}", None)
    assert "".join(event.arguments_delta for event in events if isinstance(event, CallDelta)) == "{}"


@pytest.mark.parametrize("text", ['{"a":', '{"a" 1}', "[1]", "hello"])
def test_arguments_that_are_no_object_make_a_call_that_says_so(text):
    """F15: invalid arguments are kept as text, with a problem and a note, and go back under a name of their own."""
    step = result(head(), *tool(0, text), *tail("tool_use"))
    call = step.calls[0]
    assert (call.input, call.arguments) == (None, text)
    assert call.problem
    assert codes(step) == ["call-arguments-invalid"]
    content, made = sent_back(step)
    assert content == [[{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"INVALID_JSON": text}}]]
    assert "call-arguments-invalid" in codes(made)


def test_arguments_as_a_string_of_json_are_read():
    """F15: a whole reply whose input is a JSON text instead of an object gives the object."""
    step = whole([{"type": "tool_use", "id": "t", "name": "f", "input": '{"a":1}'}], "tool_use")
    assert step.calls[0].input == {"a": 1}


def test_a_call_that_the_limit_left_open_never_runs():
    """F15: a block that never ended is no call: it is kept natively with its argument text, and noted."""
    events = [head(), *said(0, "Writing."), *tool(1, '{"file": "ta', '"x')[:-1], *tail("max_tokens")]
    step = result(*events)
    assert (step.text, step.calls, step.finish) == ("Writing.", (), "length")
    assert codes(step) == ["call-cut"]
    assert [item.event_type for item in step.native] == ["tool_use"]
    assert step.native[0].payload["partial_json"] == '{"file": "ta"x'
    assert sent_back(step)[0] == [[{"type": "text", "text": "Writing."}]]


@pytest.mark.parametrize("pieces", [(), ('{"file": "ta',)])
def test_a_closed_block_with_what_a_limit_left_of_its_arguments_never_runs(pieces):
    """F15: closed, but empty or broken, last, and ended by the limit: cut; not a call with {}."""
    step = result(head(), *tool(0, *pieces), *tail("max_tokens"))
    assert (step.calls, step.finish, codes(step)) == ((), "length", ["call-cut"])


def test_a_whole_call_beside_a_cut_one_runs():
    """F12: whole calls run whatever the finish; the note says what the reason was."""
    events = [head(), *tool(0, '{"a":1}', call_id="a"), *tool(1, '{"b"', call_id="b")[:-1], *tail("max_tokens")]
    step = result(*events)
    assert [call.call_id for call in step.calls] == ["a"]
    assert (step.finish, step.raw_reason) == ("tool-calls", "max_tokens")
    assert sorted(codes(step)) == ["call-cut", "finish-changed"]


def test_a_broken_call_before_another_block_was_not_cut():
    """F15: what is followed by another block was finished by the model, so it is a call with a problem."""
    step = result(head(), *tool(0, '{"a"', call_id="a"), *tool(1, '{"b":1}', call_id="b"), *tail("max_tokens"))
    assert [(call.call_id, call.input) for call in step.calls] == [("a", None), ("b", {"b": 1})]


def test_a_tool_use_reason_without_a_call_is_other():
    """F12: the reason alone makes no call; the finish says `other`, with a note."""
    step = result(head(), *said(0, "x"), *tail("tool_use"))
    assert (step.finish, step.raw_reason, codes(step)) == ("other", "tool_use", ["finish-changed"])


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("brand_new", "other"),
    ],
)
def test_stop_reasons_map_and_stay(reason, finish):
    """F12: each stop reason has one finish in stream and whole reply, and its own word is kept."""
    for step in (result(head(), *said(0, "x"), *tail(reason)), whole([{"type": "text", "text": "x"}], reason)):
        assert (step.finish, step.raw_reason) == (finish, reason)


def test_a_refusal_keeps_its_details_with_text_and_without():
    """F20: the outcome is first class with and without text, in stream and whole reply, and keeps the category."""
    details = {"type": "refusal", "category": "cyber", "explanation": "no"}
    steps = [
        result(head(), *said(0, "I"), *tail("refusal", stop_details=details)),
        result(head(), *tail("refusal", stop_details=details)),
        whole([], "refusal", stop_details=details),
    ]
    for step in steps:
        assert step.finish == "refusal"
        assert Native("anthropic-messages", "stop_details", details) in step.native


def test_thinking_survives_with_its_signature():
    """F03: the blocks of a thinking reply go back exactly, before the call."""
    events = decode(sse(head(), *thinking(0, "Let ", "me."), *tool(1, '{"a": 1}'), *tail("tool_use")))
    step = folded(events)
    assert step.reasoning == "Let me."
    assert [event.signature for event in events if isinstance(event, Reasoning)] == [None, None, "SIG"]
    content, _ = sent_back(step)
    assert content == [
        [
            {"type": "thinking", "thinking": "Let me.", "signature": "SIG"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        ]
    ]


def test_a_signature_without_text_survives():
    """F03: the gate is the signature, never the text."""
    step = result(head(), *thinking(0), *said(1, "Hi"), *tail())
    assert sent_back(step)[0][0][0] == {"type": "thinking", "thinking": "", "signature": "SIG"}


def test_a_thinking_only_reply_survives():
    """F03: a reply of nothing but signed thinking goes back as thinking, never as text."""
    step = result(head(), *thinking(0, "Hm"), *tail())
    assert sent_back(step)[0] == [[{"type": "thinking", "thinking": "Hm", "signature": "SIG"}]]


def test_redacted_thinking_survives():
    """F03: redacted thinking is reasoning with an encrypted payload, and goes back."""
    events = decode(
        sse(head(), start(0, {"type": "redacted_thinking", "data": "EN=="}), stop(0), *said(1, "x"), *tail())
    )
    assert [event.encrypted for event in events if isinstance(event, Reasoning)] == ["EN=="]
    assert sent_back(folded(events))[0][0][0] == {"type": "redacted_thinking", "data": "EN=="}


def test_a_signature_that_may_lack_its_end_is_never_kept():
    """F03: a thinking block that was not closed loses its signature, keeps its text as reasoning, and is noted."""
    events = [head(), *thinking(0, "Hm", signature="SI")[:-1], *tail("max_tokens")]
    step = result(*events)
    assert step.reasoning == "Hm"
    assert step.message is not None
    assert step.message.payload == [{"type": "thinking", "thinking": "Hm"}]
    assert codes(step) == ["native-dropped"]


def test_thinking_without_a_signature_is_kept_as_text_of_the_reasoning():
    """F03 row 46: thinking that no signature followed is not lost."""
    events = decode(sse(head(), *thinking(0, "a", "b", signature=""), *tail("max_tokens")))
    assert [event for event in events if isinstance(event, Reasoning)] == [Reasoning("a"), Reasoning("b")]


def test_a_signature_in_pieces_is_joined_and_a_repeated_one_is_not():
    """F03: the signature is whole whether it comes in pieces or twice."""
    pieces = [*thinking(0, "x", signature="S1")[:-1], delta(0, "signature_delta", signature="S2"), stop(0)]
    again = [*thinking(0, "x", signature="S1")[:-1], delta(0, "signature_delta", signature="S1"), stop(0)]
    for events, signature in ((pieces, "S1S2"), (again, "S1")):
        step = result(head(), *events, *tail())
        assert step.message is not None
        assert step.message.payload[0]["signature"] == signature


CITED = {"type": "char_location", "cited_text": "x", "document_index": 0, "start_char_index": 10, "score": 1.50}


def test_citations_survive():
    """F16 row 196: citations of a stream stand in its text block as in a whole reply, and as events of their own."""
    streamed = result(
        head(),
        start(0, {"type": "text", "text": "", "citations": []}),
        delta(0, "citations_delta", citation=CITED),
        delta(0, "text_delta", text="grass"),
        stop(0),
        *tail(),
    )
    block = {"type": "text", "text": "grass", "citations": [CITED]}
    for step in (streamed, whole([block])):
        assert step.message is not None
        assert step.message.payload == [block]
        assert step.native[0] == Native("anthropic-messages", "citation", CITED)
        assert sent_back(step)[0] == [[block]]


BLOCKS = [
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"encrypted_content": "E", "n": 1.10}]},
    {"type": "mcp_tool_use", "id": "mcp_1", "name": "ask", "server_name": "s", "input": {}},
    {"type": "compaction", "content": "summary"},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
    {"type": "never_seen", "deep": {"n": 12345678901234567890, "s": ""}},
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["type"])
def test_blocks_of_other_kinds_survive_in_order(block):
    """F03, F16: server tools, their results, compaction, fallback and unknown blocks go back where they stood."""
    content = [{"type": "text", "text": "before"}, block, {"type": "text", "text": "after"}]
    streamed = result(head(), *said(0, "before"), start(1, block), stop(1), *said(2, "after"), *tail())
    for step in (streamed, whole(content)):
        assert step.text == "beforeafter"
        assert step.calls == ()
        assert sent_back(step)[0] == [content]


def test_number_texts_and_strings_of_native_blocks_are_as_they_came():
    """F30: a native block's numbers keep their spelling through reply, history and next request."""
    block = (
        '{"type":"web_search_tool_result","tool_use_id":"s","content":[{"n":1.10,"e":1E2,"i":12345678901234567890}]}'
    )
    body = f'{{"type":"message","content":[{block},{{"type":"text","text":"\\u00e9"}}],"stop_reason":"end_turn"}}'
    step = folded(decode([Frame(body.encode())], whole=True))
    _, made = sent_back(step)
    assert b'{"n":1.10,"e":1E2,"i":12345678901234567890}' in made.call.body
    assert b'"text":"\\u00e9"' in made.call.body


def test_server_tool_arguments_are_joined_and_give_no_call():
    """F16: the input of a server tool is put together like a call's, but nothing is to be run."""
    block = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    pieces = [delta(0, "input_json_delta", partial_json=piece) for piece in ("", '{"query":', '"x"}')]
    step = result(head(), start(0, block), *pieces, stop(0), *tail("pause_turn"))
    assert (step.calls, step.finish) == ((), "pause")
    assert step.message is not None
    assert step.message.payload == [{**block, "input": {"query": "x"}}]


def test_deltas_of_unknown_types_are_merged_into_their_block():
    """F16: an unknown delta's texts are appended and its other values set, so nothing of the block is lost."""
    start_block = {"type": "poem", "lines": "", "meter": None}
    step = result(
        head(),
        start(0, start_block),
        delta(0, "poem_delta", lines="Roses "),
        delta(0, "poem_delta", lines="are red", meter={"feet": 5}),
        stop(0),
        *tail(),
    )
    assert step.message is not None
    assert step.message.payload == [{"type": "poem", "lines": "Roses are red", "meter": {"feet": 5}}]


@pytest.mark.parametrize(
    ("content", "native"),
    [
        ([{"type": "text", "text": "a"}], False),
        ([{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}], False),
        ([{"type": "text", "text": "a", "citations": None}], False),
        ([{"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}], True),
        ([{"type": "text", "text": ""}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}], True),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], True),
        ([{"type": "tool_use", "id": "t", "name": "f", "input": {}}, {"type": "text", "text": "a"}], True),
    ],
)
def test_a_native_form_is_kept_where_the_neutral_one_would_lose_something(content, native):
    """Promise 2: a second or an empty text, a text after a call and a member of another name need the native form."""
    step = whole(content, "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn")
    assert (step.message is not None) is native
    if step.message is not None:
        assert step.message.payload == content


def test_usage_snapshots_replace_each_other_field_by_field():
    """F11: a later snapshot replaces what it states, null states nothing, and buckets are disjoint."""
    first = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 12304,
        "cache_read_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 12300},
        "output_tokens": 1,
    }
    last = {"output_tokens": 50, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 20}}
    message = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}
    usage = result(head(**first), *said(0, "x"), message, {"type": "message_stop"}).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (3, 50, 20)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens) == (5, 12304, 12300)
    assert usage.prompt_tokens == 12312
    assert usage.raw["cache_creation"]["ephemeral_5m_input_tokens"] == 4


def test_a_usage_that_never_came_is_none_and_noted():
    """F11: no usage is None, never zeros."""
    message = {"type": "message_start", "message": {"content": []}}
    step = result(message, *said(0, "x"), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    assert step.usage is None
    assert "usage-missing" in codes(step)


def test_a_call_without_an_id_gets_one_that_its_native_form_shares():
    """A missing id is made up, noted, and the same in call and native block."""
    block = {"type": "tool_use", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}}
    step = whole([block], "tool_use")
    assert step.message is not None
    assert step.message.payload == [{**block, "id": step.calls[0].call_id}]
    assert codes(step) == ["call-id-made"]


WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | WORDS, lambda inner: st.lists(inner, max_size=3))
OBJECTS = st.dictionaries(WORDS, VALUES, min_size=1, max_size=3)


@st.composite
def replies(draw):
    """A reply twice: the content of a whole message, and the events of the same reply in pieces."""
    content, events = [], []
    for index in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["text", "thinking", "tool_use", "server_tool_use", "web_fetch_tool_result"]))
        if kind == "text":
            text = draw(WORDS)
            content.append({"type": "text", "text": text})
            events += said(index, *cut(draw, text))
        elif kind == "thinking":
            text, signature = draw(WORDS), draw(WORDS)
            content.append({"type": "thinking", "thinking": text, "signature": signature})
            events += thinking(index, *cut(draw, text), signature=signature)
        elif kind.endswith("tool_use"):
            block = {"type": kind, "id": f"id_{index}", "name": "f"}
            value = draw(OBJECTS)
            content.append({**block, "input": value})
            pieces = [delta(index, "input_json_delta", partial_json=piece) for piece in cut(draw, json.dumps(value))]
            events += [start(index, {**block, "input": {}}), *pieces, stop(index)]
        else:
            block = {"type": kind, "tool_use_id": "x", "content": draw(OBJECTS)}
            content.append(block)
            events += [start(index, block), stop(index)]
    return content, events


def cut(draw, text):
    """The text in one to three pieces."""
    at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=2)))
    return [text[i:j] for i, j in zip([0, *at], [*at, len(text)], strict=True)]


@given(replies(), st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn"]))
def test_a_whole_reply_and_its_stream_are_the_same_reply(reply, reason):
    """F16: whatever the blocks and however they are cut, whole and streamed replies fold to the same result."""
    content, events = reply
    streamed, once = result(head(), *events, *tail(reason)), whole(content, reason)
    for name in ("text", "calls", "finish", "raw_reason", "reasoning", "native", "usage", "notes"):
        if name == "calls":
            assert [(c.tool, c.call_id, c.input) for c in streamed.calls] == [
                (c.tool, c.call_id, c.input) for c in once.calls
            ]
        else:
            assert getattr(streamed, name) == getattr(once, name), name


def test_f02_an_id_that_two_calls_share_is_changed_for_the_second():
    """F02: calls with one id both run, under ids that differ, streamed and whole."""
    step = result(head(), *tool(0, '{"a":1}'), *tool(1, '{"a":2}'), *tail("tool_use"))
    first, second = step.calls
    assert first.call_id == "toolu_1" != second.call_id
    assert "call-id-changed" in codes(step)
    block = {"type": "tool_use", "id": "toolu_1", "name": "f"}
    once = whole([{**block, "input": {"a": 1}}, {**block, "input": {"a": 2}}], "tool_use")
    assert len({call.call_id for call in once.calls}) == 2


def test_f03_null_in_a_delta_of_unknown_type_takes_nothing_away():
    """F03: a null member of a compaction delta leaves what the block holds."""
    step = result(
        head(),
        start(0, {"type": "compaction", "content": "A"}),
        delta(0, "compaction_delta", content="B", encrypted_content="E"),
        delta(0, "compaction_delta", content=None, other=None),
        stop(0),
        *tail(),
    )
    [content], _ = sent_back(step)
    assert content == [{"type": "compaction", "content": "AB", "encrypted_content": "E", "other": None}]


def test_f14_a_server_tools_call_that_a_limit_cut_is_not_sent_back():
    """F14: a closed `server_tool_use` with broken arguments and no result stays native and leaves the history."""
    cut = [
        start(1, {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}),
        delta(1, "input_json_delta", partial_json='{"query": "w'),
        stop(1),
    ]
    step = result(head(), *thinking(0, "Hm"), *cut, *tail("max_tokens"))
    [content], _ = sent_back(step)
    assert [block["type"] for block in content] == ["thinking"]
    assert "server_tool_use" in [native.event_type for native in step.native]
    assert (step.finish, "call-cut" in codes(step)) == ("length", True)


def test_f01_a_block_that_cannot_be_put_together_is_a_breach_of_protocol():
    """F01: citations of a form that has no pieces fail as a classified error, never as another exception."""
    broken = start(0, {"type": "text", "text": "", "citations": {"a": 1}})
    cited = delta(0, "citations_delta", citation={"type": "char_location"})
    with pytest.raises(ProtocolError):
        result(head(), broken, cited, stop(0), *tail())
