"""Replies of both routes, decoded: whose text is the answer, which calls are whole, and when a stream is complete."""

from __future__ import annotations

import json

import pytest

from isthmus.adapters.base import ToolCall
from isthmus.errors import AdapterError, ProtocolError, TransientError, UnavailableError
from isthmus.models.events import Call, CallDelta, NoteCode, Reasoning, StepResult, Text
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support.langserve_frames import (
    DONE,
    END,
    FAILED,
    ONE,
    ROOT,
    SPENT,
    TWO,
    body,
    chain_run,
    decoded,
    event,
    message,
    model_run,
    piece,
    reply,
    said,
)

HELLO = message("Hello", response_metadata=DONE, usage_metadata=SPENT)
CALL = {"name": "get_weather", "args": {"city": "Rome"}, "id": "call_1", "type": "tool_call"}
TOOLS = message("Let me.", tool_calls=[CALL], response_metadata={"finish_reason": "tool_calls"}, usage_metadata=SPENT)
NESTED = {"run": ONE, "parents": [ROOT]}


def texts(frames: list[Frame], **how: object) -> list[str]:
    """The pieces of text, one by one."""
    return [item.text for item in decoded(frames, **how) if isinstance(item, Text)]  # type: ignore[arg-type]


def codes(step: StepResult) -> list[str]:
    """What was noted."""
    return [str(note.code) for note in step.notes]


def test_text_is_shown_as_it_arrives_and_the_end_tells_the_rest() -> None:
    """Deltas are the pieces of the root model; reason and tokens are those of its end event."""
    frames = [*model_run(said("Hel"), said("lo"), output=HELLO), END]
    step = reply(frames)
    assert texts(frames) == ["Hel", "lo"]
    assert (step.text, step.finish, step.raw_reason) == ("Hello", "stop", "stop")
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (20, 6)


def test_a_stream_and_a_body_give_the_same_reply() -> None:
    """Promise 3: text, calls, finish and usage of both routes are the same reply."""
    streamed = reply(model_run(said("Let me."), output=TOOLS))
    assert streamed == body(TOOLS)
    assert [call.input for call in streamed.calls] == [{"city": "Rome"}]
    assert streamed.finish == "tool-calls"


def test_two_models_in_one_chain_are_not_glued_together() -> None:
    """Only what the root run streams and returns is the answer, whatever the models in it said before."""
    first = model_run(said("A draft."), output=message("A draft."), **NESTED)
    second = model_run(said("Hello"), run=TWO, parents=[ROOT], output=HELLO)
    for chunks in ((), (said("Hel"), said("lo")), ("Hel", "lo")):
        step = reply(chain_run(*first, *second, output=HELLO, chunks=chunks))
        assert (step.text, step.finish) == ("Hello", "stop")
        assert any("2 models" in note.detail for note in step.notes)


def test_models_that_run_at_the_same_time_are_not_mixed() -> None:
    """The pieces of parallel models stay apart: the root run's output is what counts."""
    a = model_run(said("left"), output=message("left"), **NESTED)
    b = model_run(said("right"), run=TWO, parents=[ROOT], output=message("right", response_metadata=DONE))
    mixed = [a[0], b[0], b[1], a[1], a[2], b[2]]
    assert reply(chain_run(*mixed, output=message("right", response_metadata=DONE))).text == "right"


def test_a_text_output_takes_calls_and_reason_from_its_model() -> None:
    """A chain that returns its model's text says no reason and no calls: the terminal model event does."""
    inner = model_run(said("Let me."), output=TOOLS, **NESTED)
    step = reply(chain_run(*inner, output="Let me.", chunks=("Let ", "me.")))
    assert (step.text, step.finish, len(step.calls)) == ("Let me.", "tool-calls", 1)


def test_an_agents_own_calls_are_not_run_again() -> None:
    """Calls that the server has run itself are no calls of the reply, on either route."""
    output = {"messages": [TOOLS, {"type": "tool", "content": "18C", "tool_call_id": "call_1"}, HELLO]}
    inner = model_run(output=TOOLS, **NESTED)
    ran = event("on_tool_start", TWO, [ROOT], input={})
    step = reply(chain_run(*inner, ran, *model_run(output=HELLO, run="r3", parents=[ROOT]), output=output))
    assert (step.text, step.calls) == ("Hello", ())
    assert body(output).calls == ()
    cut_off = {"messages": [TOOLS, {"type": "tool", "content": "18C", "tool_call_id": "call_1"}]}
    assert body(cut_off).calls == ()
    assert reply(chain_run(*inner, ran, output="Let me.")).calls == ()


def test_pieces_of_calls_are_joined_by_index() -> None:
    """F15: interleaved `tool_call_chunks` join by their index, and the guesses beside them are never read."""
    pieces = [
        piece(0, "", "f", "a"),
        piece(1, "", "g", "b"),
        piece(0, '{"x": 1'),
        piece(1, '{"y":'),
        piece(0, "}"),
        piece(1, " 2}"),
    ]
    ours = [{"name": "f", "args": {"x": 1}, "id": "a"}, {"name": "g", "args": {"y": 2}, "id": "b"}]
    end = message("", tool_calls=ours)
    events = decoded(model_run(*pieces, output=end))
    calls = [item for item in events if isinstance(item, Call)]
    seen = [(call.tool, call.call_id, call.arguments) for call in calls]
    assert seen == [("f", "a", '{"x": 1}'), ("g", "b", '{"y": 2}')]
    for at, call in enumerate(calls):
        deltas = [item for item in events if isinstance(item, CallDelta) and item.index == at]
        assert "".join(item.arguments_delta for item in deltas) == call.arguments


def test_a_call_that_was_cut_is_no_call() -> None:
    """F15: arguments that LangChain completed after the limit never run, on either route; they stay as native."""
    guess = {"name": "rm", "args": {"path": "/"}, "id": "c"}
    chunk = {"name": "rm", "args": '{"path": "/', "id": "c", "index": 0}
    limit = {"finish_reason": "length"}
    end = message(tool_calls=[guess], response_metadata=limit)
    for step in (reply(model_run(said("", tool_call_chunks=[chunk]), output=end)), body(end)):
        assert (step.calls, step.finish) == ((), "length")
        assert NoteCode.CALL_CUT in codes(step)
        assert [native.event_type for native in step.native] == ["tool_call"]


def test_a_whole_call_runs_whatever_the_reason() -> None:
    """A call whose text is there and whole runs, at the limit too."""
    beside = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]}
    guess = {"name": "f", "args": {"x": 1}, "id": "c"}
    limit = {"finish_reason": "length"}
    step = body(message(tool_calls=[guess], additional_kwargs=beside, response_metadata=limit))
    assert [call.arguments for call in step.calls] == ['{"x": 1}']
    assert (step.finish, step.raw_reason) == ("tool-calls", "length")
    assert body(message(tool_calls=[CALL], response_metadata={"stop_reason": "end_turn"})).finish == "tool-calls"


def test_arguments_that_are_no_json_are_kept_with_the_problem() -> None:
    """F15: what LangChain calls an invalid call is a call with its text and a problem, for the model to mend."""
    broken = {"name": "f", "args": "{oops", "id": "c", "error": None}
    step = body(message(invalid_tool_calls=[broken], response_metadata={"finish_reason": "tool_calls"}))
    assert [(call.input, call.arguments) for call in step.calls] == [(None, "{oops")]
    assert step.calls[0].problem


def test_a_missing_id_is_made_and_differs_from_turn_to_turn() -> None:
    """Ids that the server left out are made from the reply, so that two turns never share one."""
    unnamed = {**CALL, "id": None}
    done = {"finish_reason": "tool_calls"}
    ids = {body(message(tool_calls=[unnamed], response_metadata=done, id=turn)).calls[0].call_id for turn in "ab"}
    assert len(ids) == 2


@pytest.mark.parametrize("where", ["response_metadata", "additional_kwargs", None])
@pytest.mark.parametrize("name", ["stop_reason", "stopReason", "finish_reason"])
def test_the_reason_is_read_from_the_metadata_of_the_message(where: str | None, name: str) -> None:
    """F12: `stop_reason`, `stopReason` and `finish_reason` are found in either metadata or on the message itself."""
    told = {where: {name: "max_tokens"}} if where else {name: "max_tokens"}
    step = body(message("Hi", **told))
    assert (step.finish, step.raw_reason) == ("length", "max_tokens")


def test_a_reply_without_a_reason_is_other_and_noted() -> None:
    """F12: no reason becomes no "stop"."""
    step = body("Hello")
    assert (step.text, step.finish, codes(step)) == ("Hello", "other", ["no-finish-reason", "usage-missing"])


def test_usage_is_told_in_disjoint_buckets() -> None:
    """LangChain's input is the sum: cache reads and writes are taken out of it; reasoning is part of the output."""
    into = {"cache_read": 8, "cache_creation": 4}
    usage = {**SPENT, "input_token_details": into, "output_token_details": {"reasoning": 3}}
    found = body(message("Hi", usage_metadata=usage)).usage
    assert found is not None
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (8, 8, 4)
    assert (found.output_tokens, found.reasoning_tokens, found.raw) == (6, 3, usage)


@pytest.mark.parametrize(
    "output",
    [
        {"generations": [[{"text": "Hello", "type": "ChatGeneration", "message": HELLO}]], "llm_output": None},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "AIMessage"], "kwargs": {**HELLO, "type": "ai"}},
        {"messages": [{"type": "human", "content": "?"}, HELLO]},
        [{"type": "human", "content": "?"}, HELLO],
    ],
    ids=["generations", "constructor", "messages", "list"],
)
def test_the_message_is_found_in_every_wrapping(output: object) -> None:
    """The older `generations`, the constructor's envelope, a chain's messages and a list give the same reply."""
    expected = body(HELLO)
    assert body(output) == expected
    assert reply(model_run(said("Hello"), output=output)) == expected


@pytest.mark.parametrize("key", ["output", "answer", "result", "response", "text"])
def test_a_chains_dict_gives_its_text(key: str) -> None:
    """The usual names of a chain's text are read; what else the dict holds is no part of the reply."""
    assert body({"input": "?", key: "Hello"}).text == "Hello"


def test_a_chain_that_adds_to_a_dict_streams_its_answer() -> None:
    """What a model has just said is shown as the root hands it on; what lies beside it in the dict is not."""
    frames = [event("on_chain_start", input={}), event("on_chain_stream", chunk={"context": ["a page"]})]
    for text in ("Hel", "lo"):
        frames.append(event("on_chat_model_stream", ONE, [ROOT], chunk=said(text)))
        frames.append(event("on_chain_stream", chunk={"answer": text}))
    frames.append(event("on_chain_end", output={"context": ["a page"], "answer": "Hello"}))
    assert texts(frames) == ["Hel", "lo"]


def test_a_dict_that_grows_is_not_repeated() -> None:
    """A parser that says all that there is so far in each piece gives its text once, whole at the end."""
    frames = [event("on_chain_start", input={})]
    for raw, text in (('{"answer": "', ""), ("Hel", "Hel"), ('lo"}', "Hello")):
        frames.append(event("on_chat_model_stream", ONE, [ROOT], chunk=said(raw)))
        frames.append(event("on_chain_stream", chunk={"answer": text}))
    frames.append(event("on_chain_end", output={"answer": "Hello"}))
    assert "".join(texts(frames)) == "Hello"


def test_data_without_a_text_is_given_as_json_and_noted() -> None:
    """An output that is data alone is not lost."""
    step = body({"city": "Paris", "population": 2102650})
    assert json.loads(step.text) == {"city": "Paris", "population": 2102650}
    assert NoteCode.UNKNOWN_CONTENT in codes(step)


def test_blocks_keep_their_reasoning_and_survive() -> None:
    """F03: thinking is shown, and the message with its signature is kept as it came."""
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln", "index": 0}, {"type": "text", "text": "Hi"}]
    pieces = [said([{"type": "thinking", "thinking": "Hm."}]), said([{"type": "text", "text": "Hi"}])]
    for step in (body(message(blocks)), reply(model_run(*pieces, output=message(blocks)))):
        assert (step.text, step.reasoning) == ("Hi", "Hm.")
        assert step.message is not None
        assert step.message.payload["content"] == blocks
    events = decoded(model_run(*pieces, output=message(blocks)))
    assert [item.text for item in events if isinstance(item, Reasoning)] == ["Hm."]


def test_an_error_event_is_an_error() -> None:
    """F01: `event: error` fails the reply with its class, and the text before it is no answer."""
    with pytest.raises(TransientError, match="Internal Server Error"):
        reply([*model_run(said("Par"), output=HELLO)[:-1], FAILED])
    busy = Frame(b'{"status_code": 503, "message": "overloaded"}', "error")
    with pytest.raises(UnavailableError):
        reply([busy])


@pytest.mark.parametrize("ended", list(Ended))
def test_only_the_root_end_event_completes_a_stream(ended: Ended) -> None:
    """F01: cut before it, wherever, a stream is an error; after it, complete without `event: end`."""
    inner = model_run(said("Hello"), output=HELLO, **NESTED)
    frames = chain_run(*inner, output=HELLO, chunks=(said("Hello"),))
    for count in range(len(frames)):
        with pytest.raises(TransientError):
            reply(frames[:count], ended=ended)
    assert reply(frames, ended=ended).text == "Hello"


def test_an_end_mark_before_the_root_end_is_a_cut() -> None:
    """F01: `event: end` alone is no completion."""
    with pytest.raises(TransientError):
        reply([*model_run(said("Hel"), output=HELLO)[:-1], END])


def test_nothing_is_read_after_the_root_end() -> None:
    """F32: the reply is done at the root's end event, whether or not an end mark follows."""
    frames = [*model_run(said("Hello"), output=HELLO), FAILED]
    assert reply(frames).text == "Hello"


def test_filtered_streams_end_with_their_mark() -> None:
    """Where the root run was filtered out, the last model is the answer, and only the end mark completes the stream."""
    one = model_run(said("Draft"), output=message("Draft"), **NESTED)
    two = model_run(said("Hello"), run=TWO, parents=[ROOT], output=HELLO)
    assert reply([*one, *two, END]).text == "Hello"
    with pytest.raises(TransientError):
        reply(one)


def test_servers_that_name_no_parents_are_not_glued_either() -> None:
    """The first version of the protocol has no parents: a model that comes first may be one of several."""
    frames = [
        *model_run(said("Draft"), run=ONE, parents=None, output=message("Draft")),
        *model_run(said("Hello"), run=TWO, parents=None, output=HELLO),
        END,
    ]
    assert reply(frames).text == "Hello"
    nameless = [event("on_chat_model_stream", None, None, chunk=said(text)) for text in ("Hel", "lo")]
    ends = [*nameless, event("on_chat_model_end", None, None, output=HELLO), END]
    assert (texts(ends), reply(ends).finish) == (["Hel", "lo"], "stop")


def test_older_completion_models_stream_too() -> None:
    """`on_llm_stream` with text pieces and its end event with generations are read."""
    piece_ = {"text": "Hel", "generation_info": None, "type": "GenerationChunk"}
    end = {"generations": [[{"text": "Hello", "generation_info": {"finish_reason": "stop"}}]]}
    frames = [
        event("on_llm_start", input={}),
        event("on_llm_stream", chunk=piece_),
        event("on_llm_stream", chunk="lo"),
        event("on_llm_end", output=end),
    ]
    assert texts(frames) == ["Hel", "lo"]
    assert (reply(frames).text, reply(frames).finish) == ("Hello", "stop")


def test_malformed_frames_are_a_breach_or_a_cut() -> None:
    """F01: what is no JSON is a protocol error inside a stream, a cut at the end of one that was broken off."""
    good = model_run(said("Hello"), output=HELLO)
    bad = Frame(b'{"event": "on_ch', "data")
    with pytest.raises(ProtocolError):
        reply([good[0], bad, *good[1:]])
    with pytest.raises(TransientError):
        reply([good[0], bad], ended=Ended.BROKEN)
    with pytest.raises(ProtocolError):
        reply([good[0], Frame(b"[1]", "data")])


def test_an_error_or_a_page_in_a_body_is_no_answer() -> None:
    """F01: a body with an error, or without an output, fails."""
    for value in ({"error": {"message": "Overloaded"}}, {"detail": "gone"}, {}):
        with pytest.raises((ProtocolError, UnavailableError, TransientError)):
            reply([Frame(json.dumps(value).encode())], whole=True)


def test_an_authors_reading_holds_on_both_routes() -> None:
    """`_parse_output` decides text, calls and usage of `/invoke` and of `/stream_events` alike."""

    def parse(output: dict) -> tuple:
        return output["content"].upper(), [ToolCall("own", "f", {"x": 1})], {"input_tokens": 1, "output_tokens": 2}

    streamed = reply(model_run(said("Hel"), said("lo"), output=HELLO), parse=parse)
    for step in (streamed, body(HELLO, parse=parse)):
        assert (step.text, step.finish, step.raw_reason) == ("HELLO", "tool-calls", "stop")
        assert [(call.tool, call.input, call.call_id) for call in step.calls] == [("f", {"x": 1}, "own")]
        assert step.usage is not None
        assert (step.usage.input_tokens, step.usage.output_tokens) == (1, 2)


def test_an_authors_reading_that_keeps_the_text_still_streams() -> None:
    """Pieces that he reads as the library does are shown as they arrive; what differs waits for the end."""

    def same(output: dict) -> tuple:
        return output["content"], [], {}

    def trimmed(output: dict) -> tuple:
        return output["content"].strip(), [], {}

    frames = model_run(said("Hello"), said(" you"), output=message("Hello you ", response_metadata=DONE))
    assert texts(frames, parse=same) == ["Hello", " you", " "]
    assert texts(frames, parse=trimmed) == ["Hello", " you"]


def test_an_authors_reading_may_fail_on_pieces() -> None:
    """A reading that takes whole outputs alone is asked for the whole one at the end."""

    def whole(output: dict) -> tuple:
        return output["usage_metadata"]["said"], [], {}

    end = message("Hello", usage_metadata={"said": "own"})
    assert reply(model_run(said("Hel"), output=end), parse=whole).text == "own"


def test_an_output_that_contradicts_what_was_streamed_is_a_breach() -> None:
    """What was shown cannot be taken back: another text at the end is an error that names the remedy."""
    with pytest.raises(ProtocolError, match="stream_events"):
        reply(model_run(said("Hello"), output=message("Good bye")))


@pytest.mark.parametrize("output", ["42", {"output": "42"}, {"messages": [message("42")]}, message("42")])
def test_calls_that_a_chain_used_up_are_no_finish(output: object) -> None:
    """A model that asked for a tool inside a chain says nothing of how the chain's own answer ended (F12)."""
    inner = model_run(
        said("", tool_call_chunks=[]),
        output=message("", tool_calls=[CALL], response_metadata={"stop_reason": "tool_use"}),
        **NESTED,
    )
    step = reply([*chain_run(*inner, output=output), END])
    assert (step.text, step.calls, step.finish) == ("42", (), "other")


def test_the_older_shape_has_its_tokens_beside_the_generations() -> None:
    """`generations` with a message: its reason and the tokens in `llm_output` are read."""
    held = {"text": "Hello", "generation_info": {"finish_reason": "length"}, "message": message("Hello")}
    spent = {"token_usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    step = body({"generations": [[held]], "llm_output": spent})
    assert (step.text, step.finish) == ("Hello", "length")
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (3, 2)


@pytest.mark.parametrize("returned", [None, ("x", []), "text"])
def test_a_reading_of_the_wrong_form_is_named(returned: object) -> None:
    """A hook that does not return its three parts is told so, not passed over."""
    with pytest.raises(AdapterError, match="_parse_output must return"):
        body(HELLO, parse=lambda output: returned)


def test_f01_output_that_the_provider_could_not_read_is_no_answer() -> None:
    """F01: a model behind the server whose call made no sense has said nothing; text that the chain gave stands."""
    reason = {"finish_reason": "MALFORMED_FUNCTION_CALL"}
    broken = message("", response_metadata=reason, usage_metadata=SPENT)
    for made in (lambda: reply([*model_run(output=broken), END]), lambda: body(broken)):
        with pytest.raises(ProtocolError, match=r"could not be read.*MALFORMED_FUNCTION_CALL") as caught:
            made()
        assert caught.value.usage is not None
        assert caught.value.usage.output_tokens == 6
    assert body(message("Sorry.", response_metadata=reason)).text == "Sorry."
