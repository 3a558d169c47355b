"""One reply as each face shows it, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.adapters.views import events_of, from_chat, from_response, to_chat, to_response
from isthmus.errors import TransientError
from isthmus.models.events import Call, Finish, Native, Note, NoteCode, Reasoning, StepResult, Text, Usage
from isthmus.models.fold import Fold
from isthmus.models.responses import Choice, Message, ModelResponse
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
