"""A context as Converse's request."""

from __future__ import annotations

import copy
import json

import pytest

from isthmus.adapters.anthropic.encode import Target
from isthmus.adapters.bedrock.codec import ConverseCodec
from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.messages import assistant_message, tool_message
from isthmus.wire.frame import Frame
from support.anthropic_fold import call, calls, user
from support.anthropic_fold import whole as whole_message
from support.bedrock_kit import codes, decode, document, folded, read_whole, request, result, stop, tail, text, tool

ADD = ToolSpec(name="add", description="Adds.", parameters_schema={"type": "object", "properties": {}})
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQK"


class Form:
    """A form of reply."""

    def name(self):
        return "city"

    def json_schema(self):
        return {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    def response_format(self):
        return {"type": "json_schema"}


def test_the_plain_request():
    """A brief, a message and the ceiling; the model stands in the path and not in the body."""
    body, made = request(user(), brief="Be brief.")
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 8192},
    }
    assert (made.call.path, made.call.framing, made.notes) == ("/model/amazon.m/converse", "eventstream", ())


def test_a_stream_is_asked_for_by_its_path():
    """Streaming changes the path and the accepted type, and nothing of the body."""
    ctx = GenerateContext(messages=(user(),))
    whole, streamed = (ConverseCodec("m").encode(ctx, stream=stream).call for stream in (False, True))
    assert whole.body == streamed.body
    assert streamed.path == "/model/m/converse-stream"
    assert streamed.headers["accept"] == "application/vnd.amazon.eventstream"


def test_sampling_and_options():
    """Portable settings have their places; options stand at the top and are merged into those that are tables."""
    body, made = request(
        user(),
        max_output_tokens=5,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        options={
            "inferenceConfig": {"maxTokens": 6},
            "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            "additionalModelRequestFields": {"top_k": 3},
        },
    )
    assert body["inferenceConfig"] == {"maxTokens": 6, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]}
    assert body["guardrailConfig"]["guardrailIdentifier"] == "g"
    assert body["additionalModelRequestFields"] == {"top_k": 3}
    assert codes(made) == ["parameter-changed"]


def test_what_converse_cannot_say_is_noted_or_refused():
    """A seed, and the wish for one call at a time, have no place: a note, or an error where that is asked for."""
    _, made = request(user(), seed=7, tools=(ADD,), parallel_tool_calls=False)
    assert codes(made) == ["parameter-dropped"] * 2
    with pytest.raises(InvalidRequestError, match="seed 7"):
        request(user(), seed=7, on_unsupported="error")


@pytest.mark.parametrize(
    ("choice", "sent"),
    [(None, None), ("auto", {"auto": {}}), ("required", {"any": {}}), ("add", {"tool": {"name": "add"}})],
)
def test_tools_and_choices(choice, sent):
    """Each tool is a toolSpec, and each choice has its word."""
    config = request(user(), tools=(ADD,), tool_choice=choice)[0]["toolConfig"]
    spec = {"name": "add", "description": "Adds.", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    assert config["tools"] == [{"toolSpec": spec}]
    assert config.get("toolChoice") == sent


def test_an_unknown_choice_is_refused():
    """A tool that isn't there can't be forced: the error lists those that are."""
    with pytest.raises(InvalidRequestError, match="use one of auto, required, none, add"):
        request(user(), tools=(ADD,), tool_choice="subtract")


def test_tool_names_are_legal_and_told_back():
    """F26: a name that Converse refuses is sent as another, and calls come back under its own."""
    codec = ConverseCodec("m")
    body, made = request(user(), codec=codec, tools=(ToolSpec(name="a b.c", parameters_schema={"type": "object"}),))
    sent = body["toolConfig"]["tools"][0]["toolSpec"]["name"]
    assert sent != "a b.c"
    assert codes(made) == ["parameter-changed"]
    decoder = codec.decoder(whole=True)

    value = document([{"toolUse": {"toolUseId": "t", "name": sent, "input": {"x": 1}}}], "tool_use")
    assert [event.tool for event in decoder.feed(Frame(json.dumps(value).encode())) if event.type == "call"] == [
        "a b.c"
    ]


HISTORY = (user(), calls(call("t1", "add", '{"a": 1}')), tool_message("t1", "2"))


def test_a_history_with_tools_has_a_tool_config():
    """F14: Converse refuses calls in a history without toolConfig, so the history's own tools are declared."""
    body, made = request(*HISTORY)
    assert body["toolConfig"] == {"tools": [{"toolSpec": {"name": "add", "inputSchema": {"json": {"type": "object"}}}}]}
    assert codes(made) == ["history-changed"]


def test_no_tool_is_no_choice_of_converse():
    """F14: "none" leaves the tools out; with calls in the history they stay, and the note says so."""
    assert "toolConfig" not in request(user(), tools=(ADD,), tool_choice="none")[0]
    body, made = request(*HISTORY, tools=(ADD,), tool_choice="none")
    assert "toolChoice" not in body["toolConfig"]
    assert codes(made) == ["parameter-dropped"]


def test_a_tool_turn():
    """Calls and results are toolUse and toolResult, arguments verbatim; a failed tool says so."""
    turns = request(user(), calls(call("t1", "add", '{"a": 1.50}')), tool_message("t1", "2") | {"is_error": True})
    sent = turns[1].call.body
    assert b'{"toolUse":{"toolUseId":"t1","name":"add","input":{"a": 1.50}}}' in sent
    result = {"toolUseId": "t1", "content": [{"text": "2"}], "status": "error"}
    assert turns[0]["messages"][2] == {"role": "user", "content": [{"toolResult": result}]}


def test_a_tool_may_return_images_and_documents():
    """F19: an image or a document in a tool's result is one there too."""
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "file", "file": {"filename": "a_b.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
    ]
    body, made = request(user(), calls(call("t1", "add")), tool_message("t1", parts))
    content = body["messages"][2]["content"][0]["toolResult"]["content"]
    assert content == [
        {"text": "see"},
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "pdf", "name": "a b", "source": {"bytes": PDF}}},
    ]
    assert "parameter-changed" in codes(made)


def test_turns_alternate_and_empty_texts_are_left_out():
    """F14: blank texts go, neighbours of one role become one turn, results stand first; each change is a note."""
    body, made = request(
        user(),
        user(" "),
        user("again"),
        calls(call("t1", "add"), call("t2", "add")),
        tool_message("t2", "two"),
        tool_message("t1", "one"),
        user("go on"),
    )
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"] == [{"text": "hi"}, {"text": "again"}]
    last = body["messages"][2]["content"]
    assert [block.get("toolResult", {}).get("toolUseId") for block in last] == ["t1", "t2", None]
    assert set(codes(made)) == {"history-changed"}


def test_a_conversation_begins_with_the_user():
    """F14: Converse refuses a conversation that the assistant begins, so it is refused here, with the remedy."""
    with pytest.raises(InvalidRequestError, match="begin with the user"):
        request({"role": "assistant", "content": "hi"})
    with pytest.raises(InvalidRequestError, match="at least one message"):
        request()


def test_system_messages_are_lifted():
    """F14: system messages stand in `system`, wherever they were."""
    body, made = request(user(), {"role": "system", "content": "Rules."}, brief="Brief.")
    assert body["system"] == [{"text": "Brief."}, {"text": "Rules."}]
    assert codes(made) == ["history-changed"]


def test_cache_markers_become_cache_points():
    """F25: a marker on a part is a cache point behind it, its lifetime kept; none stands inside a result."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body, _ = request(
        {"role": "system", "content": [{"type": "text", "text": "s", **mark}]},
        user([{"type": "text", "text": "a", **mark}, {"cachePoint": {"type": "default"}}]),
        calls(call("t1", "add")),
        tool_message("t1", [{"type": "text", "text": "2", **mark}]),
    )
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "s"}, point]
    assert body["messages"][0]["content"] == [{"text": "a"}, point, {"cachePoint": {"type": "default"}}]
    result = body["messages"][2]["content"]
    assert result == [{"toolResult": {"toolUseId": "t1", "content": [{"text": "2"}]}}, point]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, "image"),
        ({"type": "image_url", "image_url": {"url": "s3://bucket/a.jpg"}}, "image"),
        ({"type": "file", "file": {"filename": "x.md", "file_data": "data:text/markdown;base64,IyBo"}}, "document"),
        ({"type": "document", "source": {"type": "text", "data": "hi"}}, "document"),
        ({"guardContent": {"text": {"text": "x"}}}, "guardContent"),
        ({"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v.mp4"}}}}, "video"),
    ],
)
def test_each_kind_of_part_has_its_block(part, block):
    """F19: images and documents in any spelling, and Converse's own blocks as they are."""
    (sent,) = request(user([part]))[0]["messages"][0]["content"]
    assert list(sent) == [block]
    assert sent.get("image", {}).get("format", "png") in ("png", "jpeg")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "AAAA"}},
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "hologram"},
    ],
)
def test_what_converse_takes_in_no_form_is_refused_before_it_is_sent(part):
    """F19: an address, a format or a kind of part that Converse has no block for is an error with its place."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        request(user([part]))


def test_a_result_in_the_words_of_messages_holds_an_image_too():
    """F19: a tool_result block of another dialect with an image in it becomes a toolResult with that image."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "see"}, image]}
    body, _ = request(user(), calls(call("t1", "add")), user([answer, {"type": "text", "text": "well?"}]))
    result = {"toolUseId": "t1", "content": [{"text": "see"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]}
    assert body["messages"][2]["content"] == [{"toolResult": result}, {"text": "well?"}]


def test_a_documents_citations_and_context_stay():
    """F19: what a document in another dialect says of citations and context, Converse can say too."""
    source = {"type": "text", "data": "hi"}
    part = {"type": "document", "source": source, "title": "t", "citations": {"enabled": True}, "context": "c", "x": 1}
    body, made = request(user([part]))
    document_sent = body["messages"][0]["content"][0]["document"]
    assert (document_sent["citations"], document_sent["context"], document_sent["name"]) == (
        {"enabled": True},
        "c",
        "t",
    )
    assert codes(made) == ["parameter-dropped"]


def test_errors_name_the_part():
    """The place in an error is the part's own."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[1\]"):
        request(user([{"type": "text", "text": "a"}, {"type": "hologram"}]))


def test_the_native_form_goes_back_verbatim():
    """F03: reasoning with its signature, number texts and unknown members stand in the next request as they came."""
    raw = (
        b'{"output":{"message":{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"so",'
        b'"signature":"c2ln"}}},{"toolUse":{"toolUseId":"t1","name":"add","input":{"a":1.50},"type":"tool_use"}}]}},'
        b'"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":1}}'
    )

    step = folded(decode([Frame(raw)], whole=True))
    _, made = request(user(), assistant_message(step), tool_message("t1", "2"), tools=(ADD,))
    content = raw[raw.index(b"[") + 1 : raw.index(b"]}}")]
    assert content in made.call.body
    assert made.notes == ()


SERVER_TOOL = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}


def signed_turn(*more):
    """An assistant message whose native form is of the Messages dialect: signed thinking and a call."""
    thinking = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    return assistant_message(whole_message([thinking, *more, use], "tool_use"))


def test_what_a_model_signed_at_its_own_endpoint_goes_back_by_converse():
    """F03: thinking signed in the Messages dialect keeps its signature when the same vendor's model is asked here."""
    history = (user(), signed_turn(), tool_message("t1", "2"))
    body, made = request(*history, codec=ConverseCodec("us.anthropic.m"), tools=(ADD,))
    assert body["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "so", "signature": "c2ln"}}},
        {"toolUse": {"toolUseId": "t1", "name": "add", "input": {"a": 1}}},
    ]
    assert made.notes == ()


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("amazon.m", ()),
        ("us.anthropic.m", ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},)),
    ],
)
def test_other_native_forms_are_left_out_with_a_note(model, more):
    """F03: another vendor's model, or a block that Converse has no words for, gets the projection, and a note."""
    history = (user(), signed_turn(*more), tool_message("t1", "2"))
    body, made = request(*history, codec=ConverseCodec(model), tools=(ADD,))
    assert body["messages"][1]["content"] == [{"toolUse": {"toolUseId": "t1", "name": "add", "input": {"a": 1}}}]
    assert codes(made) == ["native-dropped"]


def test_reasoning_without_a_signature_at_the_end_is_not_sent():
    """F03: reasoning that was cut before its signature, or that a model does not take back, is left out with a note."""
    content = [{"text": "x"}, {"reasoningContent": {"reasoningText": {"text": "so"}}}]
    step = read_whole(document(content))
    body, made = request(user(), assistant_message(step), user("on"))
    assert body["messages"][1]["content"] == [{"text": "x"}]
    assert codes(made) == ["history-changed"]


def test_a_streamed_tool_turn_goes_back_as_it_came():
    """A decoded turn of text and call, and its result, make the request that Converse expects next."""
    step = result(text("a"), stop(0), *tool(1, '{"n": 1}'), *tail("tool_use"))
    body, _ = request(user(), assistant_message(step), tool_message("t1", "ok"), tools=(ADD,))
    use = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"n": 1}}}
    assert body["messages"][1]["content"] == [{"text": "a"}, use]


def test_a_form_of_reply():
    """A schema is sent as the text format of outputConfig, its JSON as a string."""
    output = request(user(), output=Form())[0]["outputConfig"]["textFormat"]
    held = output["structure"]["jsonSchema"]
    assert (output["type"], held["name"]) == ("json_schema", "city")
    assert json.loads(held["schema"])["required"] == ["name"]


def test_effort_by_vendor():
    """Effort is outputConfig's; Anthropic's models by Converse think adaptively too; off sends nothing elsewhere."""
    assert request(user(), effort="high")[0]["outputConfig"] == {"effort": "high"}
    assert "outputConfig" not in request(user(), effort="off")[0]
    codec = ConverseCodec("us.anthropic.m", Target(capabilities=ModelCapabilities(thinking_default_on=True)))
    body, made = request(user(), codec=codec, effort="low", tools=(ADD,), tool_choice="required")
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "adaptive"}}
    assert body["outputConfig"] == {"effort": "low"}
    assert body["toolConfig"]["toolChoice"] == {"auto": {}}
    assert codes(made) == ["parameter-changed"]
    off = request(user(), codec=codec, effort="off")[0]
    assert off["additionalModelRequestFields"] == {"thinking": {"type": "disabled"}}


def test_the_callers_context_is_left_alone():
    """Messages, tools and options are never changed."""
    messages = (user([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]),)
    options = {"inferenceConfig": {"topP": 0.1}}
    before = copy.deepcopy((messages, options))
    request(*messages, options=options)
    assert (messages, options) == before


def test_a_text_in_converses_own_form_is_one():
    """Blocks given in Converse's words go as they are, a text beside a cache point too."""
    said = [{"text": "x"}, {"cachePoint": {"type": "default"}}]
    body, _ = request({"role": "user", "content": said})
    assert body["messages"] == [{"role": "user", "content": said}]


def test_the_models_ceiling_and_its_thinking_are_followed_by_converse():
    """`max_output_tokens` lowers what any vendor's model is asked for; without adaptive thinking no effort is sent."""
    caps = ModelCapabilities(max_output_tokens=5000, adaptive_thinking=False)
    for model in ("amazon.m", "anthropic.m"):
        codec = ConverseCodec(model, Target(capabilities=caps))
        body, made = request({"role": "user", "content": "q"}, codec=codec, effort="high")
        assert body["inferenceConfig"] == {"maxTokens": 5000}
        assert not {"outputConfig", "additionalModelRequestFields"} & body.keys()
        assert "parameter-changed" in codes(made)
