"""What single servers of this dialect do, and what a decoder that trusts the reference page makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.adapters.openai_chat.decode import ChatDecoder
from isthmus.errors import ProtocolError, TierError
from isthmus.models.events import StepResult
from isthmus.models.fold import Fold
from isthmus.models.messages import assistant_message
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support.chat_frames import ABSENT, chunk, sse, step, tc, whole


def streamed(*chunks: object) -> StepResult:
    """The reply of a stream of these chunks."""
    return step([sse(*chunks)])


def sent_back(reply: StepResult) -> Any:
    """The message that the next request holds in this reply's place."""
    return json.loads(assistant_message(reply)["_isthmus"]["native"]["json"])


def test_f01_an_error_in_a_servers_own_field_fails_the_reply() -> None:
    """F01: a stream that a server stopped with `x_groq.error`, even after a reason, is an error."""
    with pytest.raises(TierError, match="over capacity"):
        streamed(chunk({"content": "Hi"}), chunk({}, "stop", x_groq={"id": "r", "error": "over capacity"}))


@pytest.mark.parametrize("nothing", [False, 0, None, "", {}, []])
def test_f01_an_error_field_that_says_nothing_is_no_error(nothing: object) -> None:
    """F01: `"error": false` and the like beside content, or in a choice, do not fail a good reply."""
    first = chunk({"content": "Hi"}, error=nothing)
    first["choices"][0]["error"] = nothing
    assert streamed(first, chunk({}, "stop")).text == "Hi"


def test_f16_a_legacy_text_choice_is_read_streamed_and_whole() -> None:
    """F16: a choice that holds `text` and neither delta nor message loses nothing."""
    pieces = [{"index": 0, "text": "Hi", "finish_reason": None}, {"index": 0, "text": "!", "finish_reason": "stop"}]
    assert streamed(*[{"choices": [piece]} for piece in pieces]).text == "Hi!"
    assert whole({"choices": [{"index": 0, "text": "Hi!", "finish_reason": "stop"}]}).text == "Hi!"
    both = {"index": 0, "text": "Hi", "delta": {"content": "Hi"}, "finish_reason": "stop"}
    assert streamed({"choices": [both]}).text == "Hi"


def test_f02_one_reply_in_two_choices_without_an_index_keeps_its_calls() -> None:
    """F02: text in one choice and the calls in the next, neither with an index, are one reply; alternatives are not."""
    said = {"message": {"role": "assistant", "content": "Let me look"}, "finish_reason": "tool_calls"}
    calls = {
        "message": {"role": "assistant", "tool_calls": [tc(ABSENT, "a", "f", "{}")]},
        "finish_reason": "tool_calls",
    }
    reply = whole({"choices": [said, calls]})
    assert (reply.text, [call.call_id for call in reply.calls], reply.finish) == ("Let me look", ["a"], "tool-calls")
    two = whole({"choices": [said, {**said, "finish_reason": "stop"}]})
    assert two.text == "Let me look"
    assert [native.event_type for native in two.native] == ["choice"]
    numbered = whole({"choices": [{**said, "index": 0}, {**calls, "index": 1}]})
    assert not numbered.calls


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("model_context_window_exceeded", "length"),
        ("token_limit", "length"),
        ("COMPLETE", "stop"),
        ("eos_token", "stop"),
        ("SAFETY", "content-filter"),
        ("RECITATION", "content-filter"),
        ("content_filter: PROHIBITED_CONTENT", "content-filter"),
        ("IMAGE_SAFETY", "content-filter"),
        ("sensitive", "content-filter"),
        ("time_limit", "other"),
    ],
)
def test_f12_f20_a_reason_in_any_servers_spelling(reason: str, finish: str) -> None:
    """F12, F20: the reasons that servers of this dialect pass through have a finish, and keep their own word."""
    reply = streamed(chunk({"content": "Hi"}), chunk({}, reason))
    assert (reply.finish, reply.raw_reason) == (finish, reason)


@pytest.mark.parametrize("nothing", ["", [], {}, None, [None]])
def test_f02_calls_that_say_nothing_are_no_calls(nothing: object) -> None:
    """F02: an empty `tool_calls` of any form neither fails a reply nor makes a call."""
    reply = streamed(chunk({"content": "Hi", "tool_calls": nothing}), chunk({}, "stop"))
    assert (reply.text, reply.calls, reply.finish) == ("Hi", (), "stop")


def test_f16_a_closing_message_adds_what_the_deltas_left_out() -> None:
    """F16: calls that stand only in the message beside the last delta run; text that both hold is said once."""
    last = chunk({}, "tool_calls")
    message = {"role": "assistant", "content": "Hi", "tool_calls": [tc(0, "a", "f", "{}")], "reasoning": "Hm"}
    last["choices"][0]["message"] = message
    reply = streamed(chunk({"content": "Hi", "reasoning_content": "Hm"}), last)
    assert (reply.text, reply.reasoning, [call.call_id for call in reply.calls]) == ("Hi", "Hm", ["a"])
    again = streamed(chunk({"content": "Hi", "tool_calls": [tc(0, "a", "f", "{}")]}), last)
    assert (again.text, len(again.calls)) == ("Hi", 1)


@pytest.mark.parametrize("body", [[{"content": "x"}], "x", 1, True])
@pytest.mark.parametrize("name", ["delta", "message"])
def test_f01_a_message_that_is_no_object_is_no_empty_success(name: str, body: object) -> None:
    """F01: a delta or a message of the wrong form is a breach of protocol, never a success without its text."""
    choice = {"index": 0, name: body, "finish_reason": "stop"}
    with pytest.raises(ProtocolError):
        streamed({"choices": [choice]})
    with pytest.raises(ProtocolError):
        whole({"choices": [choice]})


def test_f03_f16_reasoning_parts_in_pieces_are_one_signed_part() -> None:
    """F03, F16: summary texts that come piece by piece, and their signature after them, go back as the whole part."""

    def part(text: str, **more: str) -> dict[str, object]:
        return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text, **more}]}

    reply = streamed(
        chunk({"content": [part("Th", signature="")]}),
        chunk({"content": [part("ink")]}),
        chunk({"content": [part("", signature="SIG")]}),
        chunk({"content": [{"type": "text", "text": "Hi"}]}),
        chunk({}, "stop"),
    )
    content = [part("Think", signature="SIG"), {"type": "text", "text": "Hi"}]
    once = whole({"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]})
    assert sent_back(reply) == sent_back(once) == {"role": "assistant", "content": content}
    assert (reply.text, reply.reasoning) == (once.text, once.reasoning) == ("Hi", "Think")


@pytest.mark.parametrize("name", ["reasoning_details", "annotations", "reasoning"])
def test_f16_a_field_that_changes_its_form_in_the_middle(name: str) -> None:
    """F16: a field that is a text in some deltas and a list in others breaks nothing and loses no text."""
    reply = streamed(
        chunk({name: "a"}),
        chunk({name: "b"}),
        chunk({name: [{"type": "x", "text": "c"}]}),
        chunk({name: [{"type": "x", "text": "d"}]}),
        chunk({"content": "Hi"}, "stop"),
    )
    assert reply.text == "Hi"
    assert {"ab", "c"} <= set(_texts(sent_back(reply)[name])) or "cd" in _texts(sent_back(reply)[name])


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_f02_servers_that_repeat_the_name_cost_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """F02: with id and name in every fragment, arguments are parsed a few times in all, not once a fragment."""
    from isthmus.adapters.openai_chat import calls

    parsed: list[int] = []
    real = calls.parse_arguments

    def counted(text: object) -> object:
        parsed.append(len(str(text)))
        return real(text)

    monkeypatch.setattr(calls, "parse_arguments", counted)
    pieces = ['{"t":"', *["abcd "] * 500, '"}']
    for call_id in ("a", ABSENT):
        parsed.clear()
        frames = [chunk({"tool_calls": [tc(0, call_id, "f", piece)]}) for piece in pieces]
        decoder, fold = ChatDecoder(whole=False), Fold()
        for frame in [*frames, chunk({}, "tool_calls")]:
            for event in decoder.feed(Frame(json.dumps(frame).encode())):
                fold.add(event)
        for event in decoder.close(Ended.FRAMED):
            fold.add(event)
        assert fold.result().calls[0].arguments == "".join(pieces)
        assert len(parsed) <= 5


def test_f02_an_id_that_changes_with_every_fragment_is_noted_once() -> None:
    """F02: a server that makes up an id for each fragment gives one call, its first id, and one note."""
    frames = [
        chunk({"tool_calls": [tc(0, f"i{n}", "f" if n == 0 else ABSENT, text)]}) for n, text in enumerate('{"a":1}')
    ]
    reply = streamed(*frames, chunk({}, "tool_calls"))
    assert [(call.call_id, call.input) for call in reply.calls] == [("i0", {"a": 1})]
    assert [note.code for note in reply.notes].count("call-id-changed") == 1


def test_f01_an_error_in_a_list_is_the_error_that_it_holds() -> None:
    """F01, F18: `[{"error": …}]` with a success status is classified by what it says."""
    body = [{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}]
    for read in (lambda: whole(body), lambda: streamed(body)):
        with pytest.raises(TierError, match="slow") as caught:
            read()
        assert (caught.value.error_class, caught.value.status) == ("transient", 429)


def test_f04_usage_inside_a_choice_counts() -> None:
    """F04: a server that puts the usage into its last choice has its tokens read, and no block is made of them."""
    last = chunk({}, "stop")
    last["choices"][0]["usage"] = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32}
    reply = streamed(chunk({"content": "Hi"}), last)
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.native) == (19, 13, ())


def test_f03_f16_thinking_blocks_in_pieces_are_one_signed_block() -> None:
    """F03, F16: a gateway's `thinking_blocks` that come piece by piece go back whole and signed, said once."""

    def piece(text: str, signature: str | None = None) -> dict[str, object]:
        block = {"type": "thinking", "thinking": text, "signature": signature}
        return {"reasoning_content": text, "thinking_blocks": [block]}

    sealed = {"thinking_blocks": [{"type": "redacted_thinking", "data": "D"}]}
    deltas = [piece("Th"), piece("ink"), piece("", "SIG"), sealed, {"content": "Hi"}]
    reply = streamed(*map(chunk, deltas), chunk({}, "stop"))
    assert sent_back(reply)["thinking_blocks"] == [
        {"type": "thinking", "thinking": "Think", "signature": "SIG"},
        {"type": "redacted_thinking", "data": "D"},
    ]
    assert (reply.reasoning, reply.text) == ("Think", "Hi")


def test_f03_a_thought_signature_that_is_repeated_is_not_made_longer() -> None:
    """F03: the signature of a call that stands in each of its fragments goes back as it is."""
    extra = {"extra_content": {"google": {"thought_signature": "SIG"}}}
    reply = streamed(
        chunk({"tool_calls": [{**tc(0, "a", "f", '{"a"'), **extra}]}),
        chunk({"tool_calls": [{**tc(0, "a", ABSENT, ":1}"), **extra}]}),
        chunk({}, "tool_calls"),
    )
    assert sent_back(reply)["tool_calls"][0]["extra_content"] == extra["extra_content"]


@pytest.mark.parametrize(
    "reason",
    ["function_call_filter: MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL", "unexpected_tool_call"],
)
def test_f01_output_that_the_server_could_not_read_is_no_answer(reason: str) -> None:
    """F01: a reply that ended because its call made no sense is an error with the usage, never an empty success."""
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    message = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": reason}
    for reply in (
        lambda: streamed(chunk({"content": ""}), {**chunk(finish=reason), "usage": usage}),
        lambda: whole({"choices": [message], "usage": usage}),
    ):
        with pytest.raises(ProtocolError, match=f"could not be read: .*{reason}") as caught:
            reply()
        assert caught.value.usage is not None
        assert caught.value.usage.output_tokens == 4


def test_f26_signatures_of_gemini_stay_with_their_calls() -> None:
    """F02, F26: calls without id and index, or all with the same, are as many calls, each sent back with its signature.

    Source: recorded streams of the compatible endpoint, 2026-04.
    """
    for labels in ({}, {"index": 0, "id": ""}):
        parts = [
            {
                **labels,
                "type": "function",
                "function": {"name": "f", "arguments": arguments},
                "extra_content": {"google": {"thought_signature": signature}},
            }
            for arguments, signature in (('{"a":1}', "SIG1"), ('{"a":1}', "SIG2"), ('{"a":2}', "SIG3"))
        ]
        for chunks in ([chunk({"tool_calls": parts})], [chunk({"tool_calls": [part]}) for part in parts]):
            reply = streamed(*chunks, chunk(finish="stop"))
            assert [call.arguments for call in reply.calls] == ['{"a":1}', '{"a":1}', '{"a":2}']
            assert len({call.call_id for call in reply.calls}) == 3
            back = sent_back(reply)["tool_calls"]
            assert [call["extra_content"]["google"]["thought_signature"] for call in back] == ["SIG1", "SIG2", "SIG3"]
    last = streamed(
        chunk({"content": "Hi"}),
        chunk({"content": "", "extra_content": {"google": {"thought_signature": "SIG"}}}),
        chunk(finish="stop"),
    )
    assert sent_back(last)["extra_content"] == {"google": {"thought_signature": "SIG"}}
