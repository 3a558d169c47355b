"""Histories and contexts in both directions: neutral, an author's own turns, block turns."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall, as_adapter
from isthmus.adapters.render import (
    Rendered,
    Turns,
    chat_messages,
    neutral_turns,
    read_context,
    read_tools,
    remembered,
)
from isthmus.errors import InvalidRequestError, ProtocolError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, Finish, Native, Note, NoteCode, Text
from isthmus.models.messages import assistant_message, tool_message
from isthmus.models.model import Model
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent
from support.face_kit import LOOK

USER = {"role": "user", "content": "hi"}


class Own(ModelAdapter):
    """A chat-face author with turns of his own shape."""

    reply: Any = ChatResponse("let me look", [ToolCall("c1", "look", {"q": "x"})], "tool_use", {"id": "r1"})

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.turned: list[Any] = []

    async def chat(self, messages: Any, tools: Any) -> Any:
        self.sent.append(messages)
        return self.reply

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        self.turned.append((response, results))
        return [{"role": "assistant", "own": response._raw}, {"role": "user", "own": [output for _, output in results]}]


async def history(adapter: Any) -> list[dict[str, Any]]:
    """One tool round with an adapter, as the harness keeps it."""
    step = await adapter.generate(GenerateContext(messages=(USER,), tools=(LOOK,)))
    return [USER, assistant_message(step), tool_message("c1", "found it")]


async def test_tool_turns_go_through_the_authors_own_renderer() -> None:
    """Assistant and results become the author's turns; the rest are role dicts without bookkeeping."""
    adapter = Own()
    past = [*await history(adapter), {"role": "user", "content": "more", "_isthmus": {"visibility": "internal"}}]
    await adapter.generate(GenerateContext(messages=tuple(past)))
    assert list(adapter.sent[-1]) == [
        USER,
        {"role": "assistant", "own": {"id": "r1"}},
        {"role": "user", "own": ["found it"]},
        {"role": "user", "content": "more"},
    ]


async def test_the_authors_own_reply_hangs_on_the_message() -> None:
    """`make_tool_turn` gets the very object while the process has it, also after copies of the history."""
    adapter = Own()
    past = copy.deepcopy([dict(message) for message in await history(adapter)])
    await adapter.generate(GenerateContext(messages=tuple(past)))
    response, results = adapter.turned[-1]
    assert response is Own.reply
    assert results == [(Own.reply.tool_calls[0], "found it")]


async def test_a_saved_history_gives_back_a_plain_raw_and_no_other() -> None:
    """After JSON a reply is made of the neutral fields; `_raw` comes back only where it was plain JSON."""
    plain, odd = Own(), Own()
    odd.reply = ChatResponse(None, [ToolCall("c1", "look", {"q": "x"})], "tool_use", object())
    for adapter, raw in ((plain, {"id": "r1"}), (odd, None)):
        saved = json.loads(json.dumps(await history(adapter)))
        await adapter.generate(GenerateContext(messages=tuple(saved)))
        response, _ = adapter.turned[-1]
        assert response == ChatResponse(adapter.reply.text, [ToolCall("c1", "look", {"q": "x"})], "tool_use", raw)


async def test_a_native_form_that_no_longer_fits_is_left_and_noted() -> None:
    """A message that was edited is rendered from its fields, with a note; so is another dialect's form."""
    adapter = Own()
    past = json.loads(json.dumps(await history(adapter)))
    past[1]["content"] = "edited"
    step = await adapter.generate(GenerateContext(messages=tuple(past)))
    assert adapter.turned[-1][0]._raw is None
    assert [note.code for note in step.notes] == [NoteCode.NATIVE_STALE]
    past = json.loads(json.dumps(await history(adapter)))
    past[1]["_isthmus"]["native"]["dialect"] = "other"
    step = await adapter.generate(GenerateContext(messages=tuple(past)))
    assert [note.code for note in step.notes] == [NoteCode.NATIVE_DROPPED]


async def test_a_result_belongs_to_its_call_by_place_where_the_id_was_made() -> None:
    """A call without an id of its own still finds its result."""
    adapter = Own()
    adapter.reply = ChatResponse(None, [ToolCall("", "look", {"q": "x"})], "tool_use", {"id": "r1"})
    step = await adapter.generate(GenerateContext(messages=(USER,), tools=(LOOK,)))
    past = (USER, assistant_message(step), tool_message(step.calls[0].call_id or "", "found it"))
    await adapter.generate(GenerateContext(messages=past))
    assert adapter.turned[-1] == (adapter.reply, [(adapter.reply.tool_calls[0], "found it")])


FOREIGN: tuple[Any, ...] = (
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": None, "type": "function", "function": {"name": name, "arguments": '{"q": "x"}'}}
            for name in ("look", "find")
        ],
    },
    {"role": "tool", "tool_call_id": None, "name": "find", "content": "found"},
    {"role": "tool", "content": "looked"},
    {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
    {"role": "function", "name": "look", "content": "again"},
)


async def test_calls_of_a_foreign_history_without_ids_are_paired_on_the_chat_face() -> None:
    """F14: each call gets an id and its own result, by name and then in order; what was made is noted."""
    adapter = Own()
    step = await adapter.generate(GenerateContext(messages=FOREIGN))
    turned = [[(call.id, call.name, text) for call, text in results] for _, results in adapter.turned]
    assert turned == [[("call_1", "find", "found"), ("call_0", "look", "looked")], [("call_2", "look", "again")]]
    assert [note.code for note in step.notes] == [NoteCode.CALL_ID_MADE] * 3
    assert FOREIGN[3] == {"role": "tool", "content": "looked"}


async def test_calls_of_a_foreign_history_without_ids_are_paired_on_the_model_face() -> None:
    """F14: a client of the model face is told the ids, whole and streamed, and its caller what was made."""

    class Client(Model):
        def __init__(self) -> None:
            self.told: list[Any] = []

        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            self.told = list(messages)
            return ModelResponse(choices=[Choice(message=Message(content="ok"), finish_reason="stop")])

        async def stream_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            yield ModelStreamEvent(kind="completed", response=await self.get_response(messages))

    client = Client()
    adapter = as_adapter(client)
    for ask in (adapter.generate, lambda ctx: adapter.stream(ctx).result()):
        client.told = []
        step = await ask(GenerateContext(messages=FOREIGN))
        assert [turn.get("tool_call_id") for turn in client.told if turn["role"] == "tool"] == [
            *("call_1", "call_0", "call_2")
        ]
        assert [call["id"] for turn in client.told for call in turn.get("tool_calls", ())] == [
            *("call_0", "call_1", "call_2")
        ]
        assert [note.code for note in step.notes] == [NoteCode.CALL_ID_MADE] * 3


async def test_a_renderer_that_returns_no_turns_is_protocol() -> None:
    """F07: a `make_tool_turn` that returns no list of dicts is named."""

    class Wrong(Own):
        def make_tool_turn(self, response: Any, results: Any) -> Any:
            return None

    with pytest.raises(ProtocolError, match="make_tool_turn must return a list of dicts"):
        await Wrong().generate(GenerateContext(messages=tuple(await history(Own()))))


async def test_a_message_without_a_role_is_refused() -> None:
    """A native item of one provider is no role dict: an error that says where it is."""
    with pytest.raises(InvalidRequestError, match=r"messages\[1\].*reasoning"):
        await Own().generate(GenerateContext(messages=(USER, {"type": "reasoning", "id": "x"})))


class Rich(ModelAdapter):
    """A step-face parent that keeps a native form and sees what it is asked."""

    asked: list[GenerateContext]

    def __init__(self) -> None:
        self.asked = []

    async def stream(self, ctx: GenerateContext) -> Any:
        self.asked.append(ctx)
        yield Text("hm")
        yield Call("look", {"q": 1.0}, "c1", '{ "q": 1.0 }')
        yield Finish("tool-calls", native=Native("rich", "message", json=b'{"sig": 1.0}'))


class Layer(Rich):
    """A chat-face layer over it."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        return await super().chat(messages, tools)


async def test_a_chat_layer_keeps_what_its_parent_was_asked() -> None:
    """`super().chat(messages, tools)` keeps effort, options, ceiling, tools, brief, and each message's native form."""
    adapter = Layer()
    past = await history(adapter)
    ctx = GenerateContext(
        brief="be brief",
        messages=tuple(past),
        tools=(LOOK,),
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=77,
        effort="high",
        temperature=0.1,
        stop=("x",),
        options={"a": {"b": 1}},
    )
    step = await adapter.generate(ctx)
    assert adapter.asked[-1] == ctx
    assert step.notes == ()


async def test_a_layer_that_adds_a_message_keeps_the_rest() -> None:
    """A new list made of the messages keeps the remembered context."""

    class Adds(Rich):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return await super().chat([{"role": "user", "content": "first"}, *messages], tools)

    adapter = Adds()
    await adapter.generate(GenerateContext(messages=(USER,), effort="high"))
    assert adapter.asked[-1].effort == "high"
    assert [message["content"] for message in adapter.asked[-1].messages] == ["first", "hi"]


def test_an_empty_or_foreign_list_remembers_nothing() -> None:
    """Only a rendered list, or a list that holds rendered messages, has a context to remember."""
    ctx = GenerateContext(effort="low")
    assert remembered(Rendered([], ctx)) is ctx
    assert remembered([]) is None
    assert remembered([USER]) is None


async def test_neutral_turns_carry_the_native_form_through_a_seed_000_loop() -> None:
    """Without an own renderer, a caller's loop of chat and make_tool_turn keeps native form and argument text."""
    adapter = Rich()
    reply = await adapter.chat([USER], [])
    turns = adapter.make_tool_turn(reply, [(reply.tool_calls[0], "found it")])
    assert [turn["role"] for turn in turns] == ["assistant", "tool"]
    await adapter.chat([USER, *turns], [])
    sent = adapter.asked[-1].messages
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{ "q": 1.0 }'
    assert sent[1]["_isthmus"]["native"]["json"] == '{"sig": 1.0}'
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "found it"}


async def test_default_turns_of_a_plain_reply_are_neutral() -> None:
    """The default `make_tool_turn` gives an assistant message with tool_calls and one tool message a result."""
    call = ToolCall("c1", "look", {"q": "x"})
    turns = Rich().make_tool_turn(ChatResponse("hm", [call], "tool_use"), [(call, "out")])
    assert turns == [
        {
            "role": "assistant",
            "content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":"x"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
    ]


def test_leading_system_messages_are_the_brief() -> None:
    """System and developer messages in front become the brief; later ones stay where they are."""
    later = {"role": "system", "content": "later"}
    ctx = read_context(
        [
            {"role": "system", "content": "a"},
            {"role": "developer", "content": [{"type": "text", "text": "b"}]},
            USER,
            later,
        ]
    )
    assert ctx.brief == "a\n\nb"
    assert ctx.messages == (USER, later)
    assert read_context([USER], own_brief="own").brief == "own"


def test_block_turns_are_read_as_neutral_messages() -> None:
    """tool_use and tool_result blocks become calls and tool messages; what stands beside them stays."""
    ctx = read_context(
        [
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "hm"},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "out"}]},
                    {"type": "text", "text": "and?"},
                ],
            },
        ]
    )
    assert ctx.messages == (
        USER,
        {
            "role": "assistant",
            "content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":"x"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
        {"role": "user", "content": "and?"},
    )


def test_blocks_beside_a_tool_use_are_not_lost() -> None:
    """A block that is neither text nor a call stays in the content for the dialect to judge."""
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    (message,) = read_context([{"role": "assistant", "content": [thinking, use]}]).messages
    assert message["content"] == [thinking]


@pytest.mark.parametrize("bad", ["hi", [1], [["role", "user"]]])
def test_messages_that_are_no_role_dicts_are_refused(bad: Any) -> None:
    """A string or a list of something else is named, with its place."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\] must be a role dict"):
        read_context(bad)


def test_tools_are_read_in_every_shape() -> None:
    """ToolSpec, Anthropic's and Chat Completions' shape, and an object with `normalized_tools` say the same."""
    schema = {"type": "object", "properties": {}}
    spec = ToolSpec(name="t", description="d", parameters_schema=schema)
    anthropic = {"name": "t", "description": "d", "input_schema": schema}
    openai = {"type": "function", "function": {"name": "t", "description": "d", "parameters": schema}}
    held = type("Held", (), {"normalized_tools": (spec,)})()
    for tools in ([spec], [anthropic], [openai], held):
        assert list(read_tools(tools)) == [spec]
    with pytest.raises(InvalidRequestError, match=r"tools\[0\]"):
        list(read_tools([{"description": "nameless"}]))


async def test_what_is_not_text_in_a_result_follows_it_on_the_chat_face() -> None:
    """F19: the chat face takes results as text: an image in one is shown in a user message after all results."""
    image = {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in "cd"]
    history = (
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "see"}, image]},
        {"role": "tool", "tool_call_id": "d", "content": [image]},
        {"role": "user", "content": "And?"},
    )
    notes: list[Note] = []
    made = await chat_messages(GenerateContext(messages=history), Turns(neutral_turns, "d"), notes=notes)
    assert [turn["role"] for turn in made] == ["assistant", "tool", "tool", "user", "user"]
    assert [turn["content"] for turn in made[1:3]] == ["see", "The result is in the user message that follows."]
    assert [part.get("type") for part in made[3]["content"]] == ["text", "image_url", "text", "image_url"]
    leads = [part["text"] for part in made[3]["content"][::2]]
    assert leads == [f"This is what tool call {name} returned beside text:" for name in "cd"]
    moved = "what is not text in the result was moved into a user message after it"
    assert [note.detail for note in notes] == [f"messages[{place}]: {moved}" for place in (1, 2)]
    (*_, last) = await chat_messages(GenerateContext(messages=history[:2]), Turns(neutral_turns, "d"), notes=notes)
    assert last["content"][1] == image


def test_blocks_of_a_tool_turn_lose_nothing() -> None:
    """F16: reasoning, server blocks, members of a text and the failure of a result stay, in dicts and in objects."""
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    server = {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}
    text = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 10**20}}
    failed = {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}
    for wrap in (dict, lambda block: SimpleNamespace(**block)):
        blocks = [wrap(block) for block in (thinking, text, server, use)]
        turns = [{"role": "assistant", "content": blocks}, {"role": "user", "content": [wrap(failed), wrap(text)]}]
        said, result, rest = read_context(turns).messages
        assert said["content"] == [thinking, text, server]
        assert said["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"n":100000000000000000000}'}
        assert result == {"role": "tool", "tool_call_id": "c", "content": "no", "is_error": True}
        assert rest == {"role": "user", "content": [text]}


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "tool_use", "id": 5, "name": "f", "input": {}}, "needs an id and a name"),
        ({"type": "tool_result", "content": "x"}, "needs the id of the call"),
    ],
)
def test_a_block_that_cannot_be_read_is_named(block: dict[str, Any], words: str) -> None:
    """A call without an id, or a result of no call, is refused with its place."""
    with pytest.raises(InvalidRequestError, match=rf"messages\[1\]\.content\[0\]: .*{words}"):
        read_context([{"role": "user", "content": "x"}, {"role": "assistant", "content": [block]}])
