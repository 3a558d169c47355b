"""One reply as each face shows it, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.adapters.views import (
    events_of,
    from_chat,
    from_model_event,
    from_response,
    to_chat,
    to_model_event,
    to_response,
)
from isthmus.errors import TransientError
from isthmus.models.aside import Aside
from isthmus.models.events import (
    Call,
    CallDelta,
    Finish,
    Native,
    Note,
    NoteCode,
    Reasoning,
    StepResult,
    Text,
    Usage,
    framed,
)
from isthmus.models.fold import Fold
from isthmus.models.messages import native_of
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent
from isthmus.models.responses import Usage as ModelUsage
from isthmus.wire.frame import Frame
from support.face_kit import CTX, HELLO

FULL = StepResult(
    events=(Text("hm"), Call("look", {"q": 1.0}, "c1", '{ "q": 1.0 }'), Text("so")),
    finish="tool-calls",
    raw_reason="why",
    usage=Usage(input_tokens=1, cache_read_tokens=2, output_tokens=3, reasoning_tokens=1),
    reasoning="because",
    native=(Native("d", "block", {"a": 1}), Native("d", "message", {"m": 1})),
    notes=(Note("no-end-mark"),),
)


def test_a_reply_comes_back_whole_from_either_face() -> None:
    """Promise 2: what a face cannot say is not lost while nobody changed the reply."""
    assert from_chat(to_chat(FULL), "d") == FULL
    assert from_response(to_response(FULL)) == FULL


def test_a_changed_reply_keeps_the_rest_and_loses_its_native_form_with_a_note() -> None:
    """New text is what was said; usage, reasoning and other blocks stay; the stale form goes."""
    response = to_chat(FULL)
    response.text = "other"
    step = from_chat(response, "d")
    assert (step.text, step.usage, step.reasoning) == ("other", FULL.usage, "because")
    assert step.native == FULL.native[:1]
    assert NoteCode.NATIVE_DROPPED in [note.code for note in step.notes]
    copied = replace(to_chat(FULL), text="other")
    assert from_chat(copied, "d").text == "other"


words = st.text(max_size=3)
calls = st.builds(Call, st.just("t"), st.dictionaries(words, st.integers(), max_size=2), st.uuids().map(str))


@given(st.lists(words.filter(bool).map(Text) | calls, max_size=5), words)
def test_the_events_of_a_whole_reply_fold_into_it(content: list[Any], reasoning: str) -> None:
    """F16: `events_of` and the fold are inverse for any normalised reply."""
    finish = "tool-calls" if any(isinstance(event, Call) for event in content) else "stop"
    fold = Fold()
    for event in (Reasoning(reasoning), *content, Finish(finish)):
        fold.add(event)
    step, again = fold.result(), Fold()
    for event in events_of(step):
        again.add(event)
    assert again.result() == step


NAMES = {
    "stop": ("end_turn", "stop"),
    "length": ("max_tokens", "length"),
    "content-filter": ("content_filter", "content_filter"),
    "refusal": ("refusal", "stop"),
    "pause": ("pause_turn", "stop"),
    "other": ("end_turn", "stop"),
}


@pytest.mark.parametrize("finish", NAMES)
async def test_a_finish_has_its_name_on_every_face_and_comes_back(finish: str) -> None:
    """F12: the table of finish names, from a step-face author out and from chat- and model-face layers back."""

    class Ends(ModelAdapter):
        async def generate(self, ctx: Any) -> Any:
            return StepResult(events=(Text("x"),), finish=finish, raw_reason="raw")

    class Chat(Ends):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return await super().chat(messages, tools)

    class Model(Ends):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().get_response(messages, *args, **kwargs)

    chat, model = NAMES[finish]
    assert (await Ends().chat(HELLO, [])).stop_reason == chat
    response = await Ends().get_response(HELLO)
    assert response.choices[0].finish_reason == model
    assert response.model_extra["raw_reason"] == "raw"
    for adapter in (Chat(), Model()):
        step = await adapter.generate(CTX)
        assert (step.finish, step.raw_reason) == (finish, "raw")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content-filter"), ("tool_calls", "tool-calls")],
)
def test_a_strangers_finish_reason_is_read(reason: str, finish: str) -> None:
    """The names of the model face become finishes, the raw reason kept."""
    call = {"id": "c", "function": {"name": "t", "arguments": ""}}
    message = {"content": "x", "tool_calls": [call] if finish == "tool-calls" else None}
    step = from_response({"choices": [{"message": message, "finish_reason": reason}]})
    assert (step.finish, step.raw_reason) == (finish, reason)


def test_error_post_is_raised_by_both_faces() -> None:
    """A cut reply is no reply there: the failure is raised with the part that arrived."""
    error = TransientError("cut")
    step = StepResult(events=(Text("half"),), finish="error-post", error=error)
    for show in (to_chat, to_response):
        with pytest.raises(TransientError) as caught:
            show(step)  # type: ignore[operator]
        assert caught.value is error
        assert error.partial is step


def test_usage_of_the_model_face_holds_cached_and_reasoning_tokens() -> None:
    """prompt_tokens counts cached ones too, with the details beside it; read back the buckets are disjoint."""
    usage = to_response(FULL).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 3, 6)
    again = from_response(ModelResponse(id="x", choices=[Choice(message=Message(content="x"))], usage=usage)).usage
    assert again is not None
    assert (again.input_tokens, again.cache_read_tokens, again.reasoning_tokens) == (1, 2, 1)
    assert to_response(StepResult()).usage is None


def test_a_live_native_form_hangs_only_where_there_is_something_to_keep() -> None:
    """A reply without `_raw` leaves nothing on its message; a plain `_raw` is JSON, any other is only held."""
    assert from_chat(ChatResponse("x", [], "stop"), "d").native == ()
    for raw, saved in (({"id": 1}, b'{"id":1}'), (object(), b"null")):
        response = ChatResponse("x", [], "stop", raw)
        (native,) = from_chat(response, "d").native
        assert (native.provider, native.event_type, native.json) == ("d", "message", saved)
        assert native.held is response


counts = st.none() | st.integers(0, 50)
usages = st.none() | st.builds(
    Usage,
    input_tokens=st.integers(0, 50),
    output_tokens=st.integers(0, 50),
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    reasoning_tokens=counts,
    estimated=st.booleans(),
)
FINISHES = ["stop", "length", "content-filter", "refusal", "pause", "other"]


@st.composite
def steps(draw: st.DrawFn) -> StepResult:
    """Any reply that a fold may give."""
    content: tuple[Any, ...] = tuple(draw(st.lists(calls, max_size=2)))
    text = draw(words)
    return StepResult(
        events=(Text(text), *content) if text else content,
        finish="tool-calls" if content else draw(st.sampled_from(FINISHES)),
        raw_reason=draw(st.sampled_from([None, "why", "pause_turn"])),
        usage=draw(usages),
        reasoning=draw(words),
        notes=tuple(draw(st.lists(st.builds(Note, st.sampled_from(NoteCode).map(str), words), max_size=2))),
    )


def essence(step: StepResult) -> Any:
    """What a model face must keep of a reply."""
    said = [(call.tool, call.input, call.call_id) for call in step.calls]
    usage = None if step.usage is None else msgspec.structs.replace(step.usage, raw=None)
    return step.text, said, step.finish, step.raw_reason, usage, step.reasoning


@given(steps())
def test_a_reply_survives_the_model_face_and_its_json(step: StepResult) -> None:
    """F11, F16: text, calls, finish, usage and reasoning come back from a response, and from its JSON, too."""
    response = to_response(step, "m")
    assert from_response(response) is step
    saved = json.loads(json.dumps(response.to_dict()))
    for form in (ModelResponse.from_dict(saved), saved):
        again = from_response(form)
        expected = step if step.raw_reason else replace_reason(step, again)
        assert essence(again) == essence(expected)
        assert set(step.notes) <= set(again.notes)


def replace_reason(step: StepResult, again: StepResult) -> StepResult:
    """Where nobody gave a reason, the face's own name of the finish is one."""
    return msgspec.structs.replace(step, raw_reason=again.raw_reason)


def test_a_response_says_all_that_its_reply_says() -> None:
    """Promise 2: usage in detail, reasoning, the raw reason, notes and the provider's blocks stand in its dict."""
    usage = Usage(
        input_tokens=1,
        output_tokens=9,
        cache_read_tokens=2,
        cache_write_tokens=3,
        cache_write_1h_tokens=1,
        reasoning_tokens=4,
        estimated=True,
        raw={"their": "counts"},
    )
    shown = to_response(msgspec.structs.replace(FULL, usage=usage), "m").to_dict()
    assert shown["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 9,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3, "cache_write_1h_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 4},
        "estimated": True,
        "raw": {"their": "counts"},
    }
    assert from_response(shown).usage == usage
    assert (shown["reasoning_content"], shown["raw_reason"]) == ("because", "why")
    assert shown["notes"] == [{"code": "no-end-mark", "detail": ""}]
    assert shown["native"] == [{"provider": "d", "type": "block", "json": '{"a":1}'}]
    assert json.loads(json.dumps(shown)) == shown


def test_a_number_that_nobody_said_is_noted() -> None:
    """A count that the shape needs and nobody gave is 0 with a note; without any count there is no usage."""
    response = to_response(StepResult(usage=Usage(input_tokens=5)))
    assert response.usage is not None
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (5, 0)
    assert response.notes == [{"code": "usage-missing", "detail": "completion_tokens is not known and shown as 0"}]
    assert to_response(StepResult(usage=Usage(reasoning_tokens=5))).usage is None


@pytest.mark.parametrize("finish", ["tool-calls", "stop", "refusal"])
def test_the_message_of_a_response_is_the_entry_for_the_history(finish: str) -> None:
    """Promise 2: `message.to_dict()` carries the native form, which still fits the message that it hangs on."""
    events = FULL.events if finish == "tool-calls" else (Text("no"),)
    step = msgspec.structs.replace(FULL, events=events, finish=finish)
    message = json.loads(json.dumps(to_response(step).choices[0].message.to_dict()))
    native, note = native_of(message, "d")
    assert note is None
    assert native == FULL.message


def test_the_native_form_of_a_stranger_is_not_believed() -> None:
    """A `_isthmus` key in a reply that came from elsewhere makes no native form and no block."""
    saved = to_response(FULL).to_dict()
    assert "_isthmus" in saved["choices"][0]["message"]
    assert from_response(saved).native == ()


def test_events_keep_the_frame_and_its_name() -> None:
    """`raw` is the undecoded frame and `provider_event_type` its name, out and back."""
    frame = Frame(b"{}", "content_block_delta")
    for event in (Text("a"), Reasoning("r"), CallDelta(0, "c", None, "{")):
        shown = to_model_event(framed(event, frame))
        assert shown is not None
        assert (shown.raw, shown.provider_event_type) == (frame, "content_block_delta")
        back = from_model_event(shown)
        assert back == event
        assert back is not None
        assert back.raw is frame
    plain = to_model_event(Text("a"))
    assert plain is not None
    assert (plain.raw, plain.provider_event_type) == (None, None)
    block = to_model_event(Native("p", "citation", {"a": 1}))
    assert block is not None
    assert (block.kind, block.provider_event_type, block.raw) == ("provider", "citation", {"a": 1})


def test_what_the_step_face_has_no_word_for_passes_as_an_aside() -> None:
    """Every event of a provider's own passes through both faces as the object that it was."""
    shown = ModelStreamEvent(kind="provider", raw=Frame(b"{}", "response.created"), steering=[])
    aside = from_model_event(shown)
    assert isinstance(aside, Aside)
    assert aside.raw is shown.raw
    assert to_model_event(aside) is shown
    alike = SimpleNamespace(kind="provider", provider_event_type="ping", raw={"a": 1})
    again = from_model_event(alike)
    assert isinstance(again, Aside)
    assert again.event == ModelStreamEvent(kind="provider", provider_event_type="ping", raw={"a": 1})


def test_what_an_author_changes_on_a_response_is_heard() -> None:
    """Text, usage, reasoning and finish of a response that was edited are his; the rest stays, notes once."""
    step = StepResult(
        (Text("a"),), "pause", "pause_turn", Usage(input_tokens=1, output_tokens=2), "r", notes=FULL.notes
    )

    def edited(change: Any) -> StepResult:
        response = to_response(step)
        change(response)
        return from_response(response)

    def reword(response: ModelResponse) -> None:
        response.choices[0].message.content = "b"

    def recount(response: ModelResponse) -> None:
        response.usage = ModelUsage(prompt_tokens=5, completion_tokens=6, total_tokens=11)

    def cut(response: ModelResponse) -> None:
        response.choices[0].finish_reason = "length"

    assert edited(lambda response: None) is step
    assert edited(reword) == msgspec.structs.replace(step, events=(Text("b"),))
    again = edited(recount)
    assert again.usage is not None
    assert (again.usage.input_tokens, again.usage.output_tokens, again.finish) == (5, 6, "pause")
    assert msgspec.structs.replace(again, usage=step.usage) == step
    thought = edited(lambda response: response.model_extra.update(reasoning_content="s"))
    assert thought == msgspec.structs.replace(step, reasoning="s")
    assert edited(cut) == msgspec.structs.replace(step, finish="length", raw_reason="length")


def test_native_items_of_the_dialect_with_a_public_spelling_stand_on_the_message() -> None:
    """The message of such a reply shows its items, each time anew, and the reply is still the same one."""
    native = Native("openai-responses", "message", [{"type": "item_reference", "id": "m"}])
    step = StepResult(events=(Text("x"),), native=(native,))
    response = to_response(step)
    shown = response.choices[0].message.to_dict()["openai_responses_input"]
    assert shown == native.payload
    assert shown is not native.payload
    assert from_response(response) is step
    other = StepResult(events=(Text("x"),), native=(Native("other", "message", [1]),))
    assert "openai_responses_input" not in to_response(other).choices[0].message.to_dict()
