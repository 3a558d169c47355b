"""Streams and whole replies: the same reply, complete or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.adapters.openai_responses.decode import ResponsesDecoder
from isthmus.errors import (
    InvalidRequestError,
    ProtocolError,
    RefusedError,
    TierError,
    TransientError,
    UnclassifiedError,
)
from isthmus.models.events import Call, CallDelta, Finish, Native, NoteCode, Reasoning, Text
from isthmus.models.finish import finish_of
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support.responses_frames import (
    USAGE,
    call,
    decode,
    fold,
    frame,
    message,
    read,
    read_stream,
    reasoning,
    refusal,
    response,
    streamed,
)

FULL = response(reasoning(), message("Let me see."), call(), call("find", '{"y": 2.50}', "call_2"))


def test_a_stream_and_its_response_are_the_same_reply() -> None:
    """Text, reasoning, calls, finish, usage and native items agree (F16)."""
    one, other = read_stream(streamed(FULL)), read(FULL)
    assert one == other
    assert one.text == "Let me see."
    assert one.reasoning == "Hm."
    assert [(each.tool, each.call_id, each.arguments) for each in one.calls] == [
        ("look", "call_1", '{"x":1}'),
        ("find", "call_2", '{"y": 2.50}'),
    ]
    assert one.finish == "tool-calls"
    assert one.raw_reason == "completed"


def test_native_items_are_kept_in_order_and_verbatim() -> None:
    """The reply's own form is its output, byte for byte, whatever a client makes of the numbers in it (F03)."""
    text = json.dumps(response(message())).replace(
        '"annotations": []', '"annotations": [], "logprobs": [{"v": 1.50e-2}]'
    )
    step = fold(decode([Frame(text.encode())], whole=True))
    assert step.message is not None
    assert b'{"v": 1.50e-2}' in step.message.json
    assert step.message.payload[0]["id"] == "msg_1"


def test_encrypted_reasoning_without_a_summary_is_kept() -> None:
    """An item whose only content is encrypted stands in the native form and is told as reasoning (F03)."""
    whole = response(reasoning("", "SECRET"), message())
    for step in (read(whole), read_stream(streamed(whole))):
        assert step.message is not None
        assert step.message.payload[0]["encrypted_content"] == "SECRET"
    assert Reasoning("", encrypted="SECRET") in decode(streamed(whole))


def test_previews_join_to_the_arguments() -> None:
    """The deltas of each call join to the arguments of its `Call`, which comes when its item is done."""
    events = decode(streamed(FULL))
    for index, made in enumerate(event for event in events if isinstance(event, Call)):
        deltas = [event for event in events if isinstance(event, CallDelta) and event.index == index]
        assert "".join(delta.arguments_delta for delta in deltas) == made.arguments
        assert {delta.tool for delta in deltas} == {made.tool}
        assert events.index(made) > events.index(deltas[-1])


@pytest.mark.parametrize(
    "item",
    [
        {"id": "ws", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"id": "ig", "type": "image_generation_call", "status": "completed", "result": "aGk="},
        {"id": "ci", "type": "code_interpreter_call", "status": "completed", "code": "1", "container_id": "c"},
        {"id": "x", "type": "something_new", "payload": [1.10]},
    ],
    ids=lambda item: item["type"],
)
def test_items_of_the_provider_are_native(item: dict[str, Any]) -> None:
    """A hosted tool's item, and one of a kind that nobody knows yet, is told as it is; alone it has no text."""
    step = read_stream(streamed(response(item)))
    assert step.text == ""
    assert step.finish == "stop"
    assert [(native.event_type, native.payload) for native in step.native] == [
        (item["type"], item),
        ("message", [item]),
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"id": "c", "type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select"},
        {"id": "m", "type": "mcp_approval_request", "name": "n", "arguments": "{}", "server_label": "s"},
        {"id": "l", "type": "local_shell_call", "call_id": "l1", "action": {"command": ["ls"]}},
    ],
    ids=lambda item: item["type"],
)
def test_an_item_that_waits_for_its_caller_is_no_stop(item: dict[str, Any]) -> None:
    """A reply that ends in a request to its caller is `other`, with a note that names it (F12)."""
    step = read(response(item))
    assert step.finish == "other"
    (note,) = [note for note in step.notes if note.code == NoteCode.FINISH_CHANGED]
    assert item["type"] in note.detail


def test_what_the_server_ran_waits_for_nobody() -> None:
    """An item whose output stands in the same reply, or after which the model went on, is answered."""
    shell = {"id": "s", "type": "shell_call", "call_id": "s1", "action": {}}
    answer = {"id": "o", "type": "shell_call_output", "call_id": "s1", "output": []}
    assert read(response(shell, answer)).finish == "stop"
    assert read(response(shell, message())).finish == "stop"
    searched = {"id": "t", "type": "tool_search_call", "call_id": None, "execution": "server"}
    assert read(response(searched)).finish == "stop"


def test_annotations_are_told_beside_the_text() -> None:
    """The citations of a message are a native block, and stand in its native form."""
    cited = [{"type": "url_citation", "url": "https://e.org", "title": "t", "start_index": 0, "end_index": 2}]
    step = read_stream(streamed(response(message(annotations=cited))))
    (found,) = [native for native in step.native if native.event_type == "annotations"]
    assert found.payload == cited


def test_a_refusal_is_a_finish_of_its_own() -> None:
    """Refused in a stream or whole, the finish is `refusal` and the text what the model said (F20)."""
    for step in (read(response(refusal())), read_stream(streamed(response(refusal())))):
        assert (step.finish, step.text) == ("refusal", "I can't.")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_output_tokens", "length"), ("content_filter", "content-filter"), ("steered", "other"), (None, "other")],
)
def test_an_incomplete_response_is_never_a_stop(reason: str | None, finish: str) -> None:
    """Length and filter have their finish, any other reason is `other`; its own word is kept (F01, F12, F20)."""
    details = None if reason is None else {"reason": reason}
    whole = response(message("Hel"), status="incomplete", incomplete_details=details)
    for step in (read(whole), read_stream(streamed(whole))):
        assert step.finish == finish
        assert step.raw_reason == (reason or "incomplete")
        assert step.text == "Hel"


def test_a_call_that_was_cut_never_runs() -> None:
    """Arguments that the limit cut are native with a note; the finish stays `length`."""
    cut = call(arguments='{"x": "ab', status="incomplete")
    step = read_stream(streamed(response(cut, status="incomplete", incomplete_details={"reason": "max_output_tokens"})))
    assert step.calls == ()
    assert step.finish == "length"
    assert NoteCode.CALL_CUT in {note.code for note in step.notes}
    assert "function_call" in {native.event_type for native in step.native}


def test_a_whole_call_runs_whatever_the_reason() -> None:
    """A call that was done before the limit makes the finish `tool-calls`, noted."""
    step = read(response(call(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert step.finish == "tool-calls"
    assert step.raw_reason == "max_output_tokens"
    assert NoteCode.FINISH_CHANGED in {note.code for note in step.notes}


def test_a_call_of_a_program_is_in_progress_and_whole() -> None:
    """A completed reply may hold a call whose status is still `in_progress`: it waits for its result."""
    assert len(read(response(call(status="in_progress"))).calls) == 1


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": "server_error", "message": "oops"}, "transient", 500),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, "transient", 429),
        ({"code": "insufficient_quota", "message": "You exceeded your current quota"}, "credentials", 429),
        ({"code": "context_length_exceeded", "message": "too long"}, "overflow", None),
        ({"code": "invalid_prompt", "message": "flagged: our safety system"}, "refused", 400),
    ],
)
def test_a_failed_response_is_a_classified_error(error: dict[str, Any], kind: str, status: int | None) -> None:
    """`response.failed`, the same whole, and an `error` event at 200 are one error, never a short answer (F01, F18)."""
    failed = response(status="failed", error=error)
    frames = streamed(response(message()))[:5]
    for sent, whole in (
        ([*frames, frame("response.failed", response=failed)], False),
        ([*frames, frame("error", **error)], False),
        ([*frames, frame("error", error=error)], False),
        ([Frame(json.dumps(failed).encode())], True),
    ):
        with pytest.raises(TierError) as caught:
            decode(sent, whole=whole)
        assert caught.value.error_class == kind
        assert caught.value.code == error["code"]
        if status is not None:
            assert caught.value.status == status


def test_a_failure_carries_the_usage_so_far() -> None:
    """What a failed response says of tokens spent is on its error."""
    failed = response(status="failed", error={"code": "server_error", "message": "x"})
    with pytest.raises(TransientError) as caught:
        decode([frame("response.failed", response=failed)])
    assert caught.value.usage.output_tokens == 6


@pytest.mark.parametrize(
    ("status", "kind"),
    [("queued", InvalidRequestError), ("in_progress", InvalidRequestError), ("cancelled", UnclassifiedError)],
)
def test_a_response_that_has_not_ended_is_no_answer(status: str, kind: type[TierError]) -> None:
    """Queued, in progress and cancelled are errors that say so (F01)."""
    with pytest.raises(kind, match=status):
        read(response(status=status))


def test_a_queued_stream_goes_on_to_its_end() -> None:
    """`response.queued` and `response.in_progress` are not the end of a stream."""
    frames = [frame("response.queued", response=response(status="queued")), *streamed(response(message()))]
    assert read_stream(frames).text == "Hello"


def test_only_completed_and_incomplete_end_a_stream() -> None:
    """Cut after any event, however the bytes end, a stream is an error (F01)."""
    frames = streamed(FULL)
    for count in range(len(frames)):
        for ended in Ended:
            with pytest.raises(TransientError):
                decode(frames[:count], ended=ended)
            with pytest.raises(TransientError):
                decode([*frames[:count], Frame(b"[DONE]")], ended=ended)


def test_a_frame_that_was_cut_is_a_cut_and_else_malformed() -> None:
    """Half a frame where the bytes broke off is "transient", in a body that arrived whole it is "protocol"."""
    half = Frame(b'{"type":"response.comple')
    with pytest.raises(TransientError):
        decode([*streamed(FULL)[:-1], half], ended=Ended.BROKEN)
    with pytest.raises(ProtocolError):
        decode([*streamed(FULL)[:-1], half])
    with pytest.raises(ProtocolError):
        decode([*streamed(FULL)[:3], half, *streamed(FULL)[3:]])


def test_nothing_after_the_end_is_read() -> None:
    """A second response after the first one's end is not part of the reply."""
    assert read_stream([*streamed(response(message("A"))), *streamed(response(message("B")))]).text == "A"


def test_events_without_a_place_are_told_apart_by_their_item() -> None:
    """A call whose events have no `output_index` is still a call, and the finish `tool-calls` (F01)."""
    frames = []
    for each in streamed(response(call())):
        event = json.loads(each.data)
        event.pop("output_index", None)
        frames.append(Frame(json.dumps(event).encode(), each.event))
    step = read_stream(frames)
    assert [made.arguments for made in step.calls] == ['{"x":1}']
    assert step.finish == "tool-calls"


def test_a_call_that_nothing_closed_counts_by_its_arguments() -> None:
    """Where neither its item nor the response has it, whole arguments in a complete reply are a call; cut ones not."""
    made = call()
    for arguments, count in (('{"x":1}', 1), ('{"x":', 0)):
        frames = [
            frame("response.output_item.added", output_index=0, item={**made, "arguments": ""}),
            frame("response.function_call_arguments.delta", output_index=0, delta=arguments),
            frame("response.completed", response=response()),
        ]
        assert len(read_stream(frames).calls) == count


def test_a_response_that_leaves_its_output_out_ends_the_items_before_it() -> None:
    """Some servers end a stream with an empty output: the items that were done are the reply."""
    frames = [*streamed(FULL)[:-1], frame("response.completed", response=response())]
    assert read_stream(frames) == read_stream(streamed(FULL))


def test_what_the_response_has_beyond_its_events_is_said_at_the_end() -> None:
    """Items and texts that no event told come with the last one, once."""
    (*_, last) = streamed(FULL)
    assert read_stream([last]) == read(FULL)
    frames = streamed(response(message("Hello")))
    last_delta = max(n for n, each in enumerate(frames) if each.event.endswith(".delta"))
    assert read_stream([*frames[:last_delta], *frames[last_delta + 1 :]]).text == "Hello"


def test_the_type_may_be_the_events_name_alone() -> None:
    """A server that names its events in the framing alone is read the same; one that does neither is "protocol"."""
    frames = []
    for each in streamed(FULL):
        event = json.loads(each.data)
        del event["type"]
        frames.append(Frame(json.dumps(event).encode(), each.event))
    assert read_stream(frames) == read(FULL)
    with pytest.raises(ProtocolError, match="without a type"):
        decode([Frame(b'{"delta":"x"}')])


def test_events_that_nobody_knows_change_nothing() -> None:
    """Progress of hosted tools and events of a later API are passed over."""
    frames = streamed(FULL)
    more = [frame("response.web_search_call.searching", output_index=9), frame("keepalive")]
    assert read_stream([*frames[:3], *more, *frames[3:]]) == read(FULL)


@pytest.mark.parametrize("value", [b"[1]", b'"x"', b"null", b"3"])
def test_a_reply_that_is_no_object_is_malformed(value: bytes) -> None:
    """JSON of another kind is "protocol", streamed or whole."""
    for whole in (True, False):
        with pytest.raises(ProtocolError):
            decode([Frame(value)], whole=whole)


def test_an_object_that_is_no_response_is_malformed() -> None:
    """A whole reply without output is none of this API."""
    with pytest.raises(ProtocolError, match="no output"):
        decode([Frame(b'{"id":"resp_1","object":"response.deleted","deleted":true}')], whole=True)
    with pytest.raises(ProtocolError, match="malformed"):
        decode([Frame(b"")], whole=True)


def test_missing_usage_stays_missing() -> None:
    """A reply that says nothing of tokens has no usage, and a note."""
    step = read(response(message(), usage=None))
    assert step.usage is None
    assert NoteCode.USAGE_MISSING in {note.code for note in step.notes}


def test_a_reply_without_a_status_is_other() -> None:
    """A whole reply that does not say how it ended is `other`, noted; with calls it is `tool-calls`."""
    whole = response(message())
    del whole["status"]
    assert read(whole).finish == "other"
    assert NoteCode.NO_FINISH_REASON in {note.code for note in read(whole).notes}
    whole["output"] = [call()]
    assert read(whole).finish == "tool-calls"


def test_events_keep_their_frame() -> None:
    """Each event has the frame that it came from, on the fast path too."""
    texts = [event for event in decode(streamed(response(message("Hello you")))) if isinstance(event, Text)]
    assert len(texts) == 3
    for text in texts:
        assert text.raw is not None
        assert json.loads(text.raw.data)["delta"] == text.text


def test_an_empty_piece_of_text_is_no_event() -> None:
    """What says nothing is not told, in the first piece or later."""
    decoder = ResponsesDecoder(whole=False)
    pieces = [
        frame("response.output_text.delta", output_index=0, item_id="m", delta=text) for text in ("", "a", "", "b")
    ]
    assert [event for piece in pieces for event in decoder.feed(piece)] == [Text("a"), Text("b")]


@given(st.text(max_size=60), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_any_text_in_any_pieces_is_the_text(text: str, size: int) -> None:
    """Whatever the text and wherever it is split, stream and whole say it exactly."""
    from support.responses_frames import text_events

    item = message(text)
    start, end = streamed(response(item))[:3], streamed(response(item))[-2:]
    assert read_stream([*start, *text_events(item, 0, size), *end]).text == text
    assert read(response(item)).text == text


@given(st.permutations(list(FULL["output"])))
@settings(max_examples=24, deadline=None)
def test_any_order_of_items_is_kept(output: list[dict[str, Any]]) -> None:
    """Native items stand in the order of the output, streamed as whole."""
    step = read_stream(streamed(response(*output)))
    assert step.message is not None
    assert step.message.payload == output
    assert step == read(response(*output))


def test_the_decoder_tells_what_a_frame_was() -> None:
    """Type, place and item type of the last frame, and the native response at the end, can be read off it."""
    decoder = ResponsesDecoder(whole=False)
    seen = []
    for each in streamed(response(message())):
        list(decoder.feed(each))
        seen.append((decoder.event_type, *decoder.item))
    assert seen[2:5] == [
        ("response.output_item.added", 0, "message"),
        ("response.output_text.delta", 0, "message"),
        ("response.output_text.delta", 0, "message"),
    ]
    assert json.loads(decoder.response) == response(message())
    assert isinstance(next(iter(decoder.close(Ended.FRAMED))), Finish)
    whole = ResponsesDecoder(whole=True)
    whole.feed(Frame(json.dumps(response(message())).encode()))
    assert json.loads(whole.response) == response(message())


def test_usage_is_in_disjoint_buckets() -> None:
    """Cached tokens are apart from the input's, reasoning part of the output's."""
    usage = read(response(message())).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.reasoning_tokens) == (6, 4, 6, 2)
    assert usage.raw == USAGE


def test_the_reasons_of_this_api_are_known() -> None:
    """Its words for a cut are among those that the library knows."""
    assert finish_of("max_output_tokens") == "length"
    assert finish_of("content_filter") == "content-filter"
    assert isinstance(decode(streamed(FULL))[-1], Finish)
    assert not any(isinstance(event, Native) for event in decode(streamed(FULL)))


@pytest.mark.parametrize("status", ["completed", "in_progress", "incomplete", None])
def test_an_event_of_failure_is_one_whatever_its_status_says(status: str | None) -> None:
    """`response.failed` never passes for an answer (F01)."""
    with pytest.raises(TierError):
        decode([frame("response.failed", response={**response(message()), "status": status})])


@pytest.mark.parametrize("kind", ["response.incomplete", "response.completed"])
@pytest.mark.parametrize("status", ["incomplete", "completed", "in_progress"])
def test_a_response_with_a_reason_to_be_incomplete_is_cut(kind: str, status: str) -> None:
    """Of event, status and reason the worst holds: a cut reply is never a stop, streamed or whole (F01, F12)."""
    cut = {**response(message()), "status": status, "incomplete_details": {"reason": "max_output_tokens"}}
    assert fold(decode([frame(kind, response=cut)])).finish == "length"
    if status != "in_progress":
        assert read(cut).finish == "length"


def test_completed_is_the_end_whatever_the_status_says() -> None:
    """A server that forgets to change the status has ended its reply all the same."""
    assert fold(decode([frame("response.completed", response={**response(message()), "status": "in_progress"})])).text


@pytest.mark.parametrize("value", [None, [], "x", {"status": "completed", "output": "x"}, {"output": [7]}])
def test_a_response_of_no_form_is_malformed(value: Any) -> None:
    """What cannot be read is a breach of protocol, with the usage so far (F01)."""
    frames = [frame("response.in_progress", response=response()), frame("response.completed", response=value)]
    with pytest.raises(ProtocolError) as caught:
        decode(frames)
    assert caught.value.usage is not None


def test_text_without_a_finished_item_stands_in_the_native_form() -> None:
    """Reasoning that was done does not take the place of a text that was not: turn 2 has both (F03)."""
    frames = [
        frame("response.output_item.done", output_index=0, item=reasoning()),
        frame("response.output_text.delta", output_index=1, item_id="msg_1", content_index=0, delta="Hi"),
        frame("response.refusal.delta", output_index=2, item_id="msg_2", content_index=0, delta="No"),
        frame("response.refusal.done", output_index=2, item_id="msg_2", content_index=0, refusal="No"),
        frame("response.completed", response={**response(), "output": []}),
    ]
    step = fold(decode(frames))
    assert step.text == "HiNo"
    assert step.message is not None
    assert step.message.payload == [
        reasoning(),
        {**message("Hi")},
        {**refusal("No"), "id": "msg_2"},
    ]


def test_what_only_its_done_event_says_is_said() -> None:
    """Texts, refusals and arguments that no delta told are told by the event that ends them (F16)."""
    begun = {**call(), "arguments": "", "status": "in_progress"}
    frames = [
        frame("response.output_text.done", output_index=0, item_id="m", content_index=0, text="One. "),
        frame("response.output_text.delta", output_index=0, item_id="m", content_index=1, delta="Tw"),
        frame("response.output_text.done", output_index=0, item_id="m", content_index=1, text="Two."),
        frame("response.output_item.added", output_index=1, item=begun),
        frame("response.function_call_arguments.delta", output_index=1, item_id=begun["id"], delta='{"x"'),
        frame("response.function_call_arguments.done", output_index=1, item_id=begun["id"], arguments='{"x":1}'),
        frame("response.completed", response=response()),
    ]
    events = decode(frames)
    step = fold(events)
    assert step.text == "One. Two."
    assert [(made.tool, made.input, made.call_id) for made in step.calls] == [("look", {"x": 1}, "call_1")]
    assert "".join(each.arguments_delta for each in events if isinstance(each, CallDelta)) == '{"x":1}'


def test_items_that_all_count_as_the_first_are_told_apart_by_id() -> None:
    """Deltas of parallel calls on one index join to their own call's arguments (F02)."""
    calls = [call("f", '{"x":1}', "a"), call("g", '{"y":2}', "b")]
    frames = [frame("response.output_item.added", output_index=0, item={**each, "arguments": ""}) for each in calls]
    for each in calls:
        where = {"output_index": 0, "item_id": each["id"]}
        frames.append(frame("response.function_call_arguments.delta", **where, delta=each["arguments"]))
    frames += [frame("response.output_item.done", output_index=0, item=each) for each in calls]
    events = decode([*frames, frame("response.completed", response=response())])
    deltas = {each.call_id: each.arguments_delta for each in events if isinstance(each, CallDelta) and each.call_id}
    assert deltas == {"a": '{"x":1}', "b": '{"y":2}'}
    assert [made.arguments for made in fold(events).calls] == ['{"x":1}', '{"y":2}']


def test_an_item_that_is_done_twice_is_there_once() -> None:
    """The same event again changes nothing."""
    done = frame("response.output_item.done", output_index=0, item=call())
    step = fold(decode([done, done, frame("response.completed", response=response(call()))]))
    assert [made.call_id for made in step.calls] == ["call_1"]


def test_an_item_that_only_began_is_kept() -> None:
    """What a server never called done stands in the native form, and still waits for its caller (F01, F03)."""
    tool = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c", "name": "f", "input": "abc"}
    step = fold(decode([frame("response.output_item.added", output_index=0, item=tool), streamed(response())[-1]]))
    assert step.finish == "other"
    assert step.message is not None
    assert step.message.payload == [tool]


def test_a_response_that_leaves_items_out_repeats_nothing() -> None:
    """Items are matched by id, place and type: a text that was told is not told again (F16)."""
    frames = [
        frame("response.output_item.done", output_index=0, item=reasoning()),
        frame("response.output_text.delta", output_index=1, item_id="msg_a", content_index=0, delta="Hi"),
        frame("response.completed", response=response(message("Hi", "msg_b"))),
    ]
    assert fold(decode(frames)).text == "Hi"
    frames.insert(2, frame("response.output_item.done", output_index=1, item=message("Hi", "msg_c")))
    assert fold(decode(frames)).text == "Hi"


def test_a_message_whose_content_is_a_text_has_it() -> None:
    """The short form of a message's content is a text like any other."""
    assert read(response({**message(), "content": "Hello"})).text == "Hello"


def test_the_status_beside_an_error_is_its_status() -> None:
    """An error event that has status and error tells the class by both (F18)."""
    with pytest.raises(InvalidRequestError) as caught:
        decode([frame("error", status=400, error={"type": "weird", "message": "no"})])
    assert (caught.value.status, caught.value.message) == (400, "no")


@pytest.mark.parametrize("code", ["bio_policy", "misalignment_policy_violation", "image_content_policy_violation"])
def test_a_policy_is_a_refusal(code: str) -> None:
    """The codes of this API's policies are content policy, which nobody retries (F20)."""
    with pytest.raises(RefusedError):
        read(response(status="failed", error={"code": code, "message": "no"}))


def test_a_second_reply_inside_the_first_is_a_breach() -> None:
    """Two replies are never glued together; the same beginning told again, or before any content, is nothing (F05)."""
    began = [frame("response.created", response={"id": name}) for name in ("r1", "r2")]
    text = frame("response.output_text.delta", output_index=0, content_index=0, item_id="m", delta="Hi")
    end = frame("response.completed", response=response())
    with pytest.raises(ProtocolError, match="second reply"):
        decode([began[0], text, began[1], text, end])
    assert fold(decode([began[0], text, began[0], end])).text == "Hi"
    assert fold(decode([began[0], began[1], text, end])).text == "Hi"


def test_each_call_of_a_reply_has_an_id_of_its_own() -> None:
    """A second call under an id, and one without any, get one; the item that goes back says it too (F07)."""
    items = [call("f", '{"x":1}', "a"), call("f", '{"x":2}', "a"), {**call("g", "{}", "c"), "call_id": None}]
    step = fold(decode([frame("response.completed", response=response(*items))]))
    ids = [made.call_id for made in step.calls]
    assert ids[0] == "a"
    assert len({*ids}) == 3
    assert step.message is not None
    assert [item["call_id"] for item in step.message.payload] == ids
    assert {note.code for note in step.notes} >= {NoteCode.CALL_ID_CHANGED, NoteCode.CALL_ID_MADE}


@pytest.mark.parametrize(("whole", "expected"), [('{"x":2}', '{"x":2}'), ('{"x": 1}', '{"x":1}')])
def test_the_previews_of_a_call_are_its_arguments(whole: str, expected: str) -> None:
    """An item that contradicts its deltas stands, under another preview; its spelling changes nothing (F02, F15)."""
    item, told = call("f", whole), '{"x":1}'
    frames = [
        frame("response.output_item.added", output_index=0, item={**item, "arguments": ""}),
        frame("response.function_call_arguments.delta", output_index=0, item_id=item["id"], delta=told),
        frame("response.output_item.done", output_index=0, item=item),
        frame("response.completed", response=response(item)),
    ]
    events = decode(frames)
    (made,) = fold(events).calls
    last = max(each.index for each in events if isinstance(each, CallDelta))
    shown = [each.arguments_delta for each in events if isinstance(each, CallDelta) and each.index == last]
    assert "".join(shown) == made.arguments == expected


def test_a_frame_without_news_has_its_place_too() -> None:
    """Before the first frame there is nothing to read off; an event that is only passed on has place and type."""
    decoder = ResponsesDecoder(whole=False)
    assert (decoder.response, decoder.event_type, decoder.item, decoder.running) == (b"", "", (None, None), [])
    search = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
    list(decoder.feed(frame("response.output_item.added", output_index=2, item=search)))
    for place, item in (
        ({"output_index": 2}, (2, "web_search_call")),
        ({"output_index": 7}, (7, None)),
        ({}, (None, None)),
    ):
        list(decoder.feed(frame("response.web_search_call.searching", **place)))
        assert (decoder.event_type, decoder.item) == ("response.web_search_call.searching", item)
