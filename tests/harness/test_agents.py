"""The agent as an application holds it."""

from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall
from isthmus.chain import define_chain
from isthmus.errors import InvalidRequestError, PromptError, ToolDefinitionError, TransientError
from isthmus.harness import DefaultAgent, Limits, RunResult
from isthmus.models import (
    ImagePart,
    MultiPartPromptTemplate,
    PromptSpec,
    PromptTemplate,
    TextPart,
    ToolExecutionContext,
    Tools,
)
from isthmus.models.events import Finish, Text, Usage
from isthmus.models.output import OutputSchema
from support.turns import Turns, asks, call, says


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_run_answers_with_tools() -> None:
    """A run gives the answer, the transcript, the tokens of all steps, and the instructions go along as the brief."""
    usage = Usage(input_tokens=1, output_tokens=2)
    model = Turns(asks(call("add", a=2, b=3), usage=usage), says("It is 5.", usage=usage))
    result = await DefaultAgent(model=model, instructions="Be brief.", tools=[add], max_output_tokens=7).run("2+3?")
    assert isinstance(result, RunResult)
    assert (result.final_output, result.text, result.outcome.steps) == ("It is 5.", "It is 5.", 2)
    assert result.usage == Usage(input_tokens=2, output_tokens=4)
    assert [message["content"] for message in result.messages] == ["2+3?", None, "5", "It is 5."]
    assert [(ctx.brief, ctx.max_output_tokens) for ctx in model.seen] == [("Be brief.", 7)] * 2


async def test_a_conversation_goes_on_with_the_messages_of_the_last_run() -> None:
    """`history` goes in front of the input and is never changed."""
    agent = DefaultAgent(model=(model := Turns(says("A"), says("B"))))
    first = await agent.run("one")
    history = list(first.messages)
    second = await agent.run("two", history)
    assert [message["content"] for message in model.seen[1].messages] == ["one", "A", "two"]
    assert [message["content"] for message in second.messages] == ["one", "A", "two", "B"]
    assert history == list(first.messages)


@pytest.mark.parametrize(
    "given", ["hi", {"role": "user", "content": "hi"}, [{"role": "user", "content": "hi"}]], ids=["text", "one", "many"]
)
async def test_input_is_text_a_message_or_several(given: Any) -> None:
    """All forms become the same transcript."""
    model = Turns(says("A"))
    await DefaultAgent(model=model).run(given)
    assert model.seen[0].messages == ({"role": "user", "content": "hi"},)


@pytest.mark.parametrize("given", [None, 3, b"hi"], ids=str)
def test_other_input_is_refused(given: Any) -> None:
    """Anything else is a TypeError before any call."""
    with pytest.raises(TypeError, match="input must be"):
        DefaultAgent(model=Turns(says("A"))).run_stream(given)


async def test_a_chain_is_a_model() -> None:
    """A chain falls back as it does alone, and later steps begin with the tier that served, whose id is told."""
    first = Turns([TransientError("down")], id="first")
    second = Turns(asks(call("add", a=1, b=1)), says("2"), id="second")
    chain = define_chain(id="c", tiers=[first, second])
    result = await DefaultAgent(model=chain, tools=[add]).run("go")
    assert (result.text, result.outcome.tier) == ("2", "second")
    assert len(second.seen) == 2


async def test_an_object_with_generate_alone_is_a_model() -> None:
    """The least of an adapter is enough, sync and in dicts."""

    class Greeting:
        id = "greeting"

        def generate(self, ctx: Any) -> Any:
            return {"events": [{"type": "text", "text": "Hello."}], "finish": "stop"}

    assert (await DefaultAgent(model=Greeting()).run("hi")).text == "Hello."


def test_tools_need_a_model_that_supports_them() -> None:
    """An agent with tools and a text-only model is refused when it is made, before any call."""

    class TextOnly(Turns):
        supports = frozenset()

    model = TextOnly(says("A"))
    with pytest.raises(InvalidRequestError, match="tools"):
        DefaultAgent(model=model, tools=[add])
    DefaultAgent(model=model)
    assert model.seen == []


def test_tools_are_checked_when_the_agent_is_made() -> None:
    """A tool that cannot be offered fails there."""
    with pytest.raises(ToolDefinitionError, match="two tools"):
        DefaultAgent(model=Turns(), tools=[add, add])


async def test_the_limits_are_the_agents() -> None:
    """A policy and limits reach the loop."""
    model = Turns(asks(call("add", a=1, b=1)))
    agent = DefaultAgent(model=model, tools=Tools([add], max_tool_round_trips=1), limits=Limits(max_steps=3))
    result = await agent.run("go")
    assert (result.outcome.reason, len(model.seen)) == ("budget-steps", 3)
    assert [len(ctx.tools) for ctx in model.seen] == [1, 0, 0]


async def test_tools_are_told_which_run_they_serve() -> None:
    """All calls of a run share its id, runs do not, and the agent's name is there."""
    seen: list[Any] = []

    def look(context: ToolExecutionContext) -> None:
        """Look."""
        seen.append((context.run_id, context.agent_name, context.tool_call_id))

    agent = DefaultAgent(
        model=Turns(asks(call("look", "1"), call("look", "2")), says("x"), asks(call("look", "3")), says("x")),
        tools=[look],
        name="scout",
    )
    await agent.run("a")
    await agent.run("b")
    assert [each[1:] for each in seen] == [("scout", "1"), ("scout", "2"), ("scout", "3")]
    assert seen[0][0] == seen[1][0] != seen[2][0]


async def test_closing_closes_the_model_only_if_it_is_owned() -> None:
    """F10: a model that was handed in stays open unless the agent owns it."""
    model = Turns(says("x"))
    async with DefaultAgent(model=model):
        pass
    assert model.closed == 0
    async with DefaultAgent(model=model, owns_model=True):
        pass
    assert model.closed == 1


async def test_a_refusal_is_visible() -> None:
    """F20: a refusal completes the run, and its finish says what it is."""
    result = await DefaultAgent(model=Turns([Text("I will not."), Finish("refusal")])).run("go")
    assert (result.outcome.outcome, result.outcome.finish, result.text) == ("completed", "refusal", "I will not.")


async def test_an_author_of_the_chat_face_gets_his_own_response_back() -> None:
    """A class that writes `chat` and `make_tool_turn` renders its own tool turns, from its own response objects."""
    made: list[Any] = []
    turned: list[Any] = []

    class Corporate(ModelAdapter):
        """A gateway's adapter, as the chat face has it."""

        def __init__(self) -> None:
            self.model = "corp"
            self.seen: list[Any] = []

        async def chat(self, messages: Any, tools: Any) -> ChatResponse:
            """Ask for a tool, then answer."""
            self.seen.append(list(messages))
            if len(self.seen) > 1:
                return ChatResponse(text="5", tool_calls=[], stop_reason="end_turn")
            response = ChatResponse(
                text=None,
                tool_calls=[ToolCall(id="t1", name="add", input={"a": 2, "b": 3})],
                stop_reason="tool_use",
                _raw=object(),
            )
            made.append(response)
            return response

        def make_tool_turn(self, response: Any, results: Any) -> list[dict[str, Any]]:
            """Turns of its own shape."""
            turned.append(response)
            return [{"role": "corp", "results": [(each.id, text) for each, text in results]}]

    model = Corporate()
    result = await DefaultAgent(model=model, tools=[add]).run("2+3?")
    assert result.text == "5"
    assert turned == made
    assert turned[0]._raw is made[0]._raw
    assert model.seen[1][-1] == {"role": "corp", "results": [("t1", "5")]}
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ("text", "history"),
        ({"role": "user", "content": "x"}, "history"),
        (None, "history"),
        ([3], r"history\[0\]"),
        ([{"role": "assistant", "tool_calls": [3]}], r"history\[0\]"),
    ],
)
def test_a_history_that_is_none_is_refused_by_place(history: Any, said: str) -> None:
    """What is no transcript is refused before anything runs, with the place of the message that is none."""
    with pytest.raises((TypeError, InvalidRequestError), match=said):
        DefaultAgent(model=Turns(says("x"))).run_stream("hi", history)


ASK: PromptTemplate[Any, str] = PromptTemplate(system_template="Be {{ tone }}.", user_template="Ask {{ name }}.")


async def test_instructions_may_be_a_prompt() -> None:
    """Its system messages are the brief of every call, rendered when a run begins: new values are seen by the next."""
    values = {"tone": "kind", "name": "Ann"}
    model = Turns(asks(call("add", a=1, b=1)), says("2"), says("3"))
    agent = DefaultAgent(model=model, instructions=PromptSpec(ASK, values), tools=[add])
    stream = agent.run_stream("go")
    values["tone"] = "firm"
    async with stream:
        await stream.result()
    await agent.run("on")
    assert [ctx.brief for ctx in model.seen] == ["Be kind.", "Be kind.", "Be firm."]
    assert [message["content"] for message in model.seen[0].messages] == ["go"]


async def test_an_input_may_be_a_prompt_or_hold_prompts() -> None:
    """Only the user messages of a prompt become part of the transcript, at its place, parts and all."""
    shown: MultiPartPromptTemplate[Any, str] = MultiPartPromptTemplate(
        user_parts=[TextPart("What is {{ what }}?"), ImagePart("iVBO", "image/png")]
    )
    model = Turns(says("A"))
    agent = DefaultAgent(model=model)
    first = await agent.run(PromptSpec(ASK, {"tone": "kind", "name": "Ann"}))
    assert model.seen[0].messages == ({"role": "user", "content": "Ask Ann."},)
    assert model.seen[0].brief == ""
    await agent.run([{"role": "user", "content": "x"}, PromptSpec(shown, {"what": "this"})], first.messages)
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "high"}
    assert [message["content"] for message in model.seen[1].messages] == [
        "Ask Ann.",
        "A",
        "x",
        [{"type": "text", "text": "What is this?"}, image],
    ]
    await agent.run("y", [PromptSpec(ASK, {"tone": "", "name": "Bob"})])
    assert [message["content"] for message in model.seen[2].messages] == ["Ask Bob.", "y"]


@pytest.mark.parametrize(
    ("agents", "inputs", "instructions", "asked"),
    [
        (None, None, None, None),
        (None, None, "c", "c"),
        (None, "b", "c", "b"),
        (None, "", "c", "c"),
        ("a", "b", "c", "a"),
        ("a", None, None, "a"),
    ],
)
async def test_the_form_of_the_answer_is_asked_for_wherever_it_is_given(
    agents: str | None, inputs: str | None, instructions: str | None, asked: str | None
) -> None:
    """The agent's own form comes first, then that of the input's prompt, then that of the instructions'."""

    def form(called: str | None) -> OutputSchema[Any] | None:
        if called is None:
            return None
        return OutputSchema({"type": "object"}, name=called) if called else OutputSchema(str)

    brief: PromptTemplate[Any, Any] = PromptTemplate(system_template="x", output_schema=form(instructions))
    ask: PromptTemplate[Any, Any] = PromptTemplate(user_template="y", output_schema=form(inputs))
    model = Turns(says("{}"))
    model.supports = frozenset({"output-schema"})
    await DefaultAgent(model=model, instructions=PromptSpec(brief), output=form(agents)).run(PromptSpec(ask))
    output = model.seen[0].output
    assert (None if output is None or output.response_format() is None else output.name()) == asked


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: DefaultAgent(model=Turns(), instructions=ASK), "PromptSpec"),  # type: ignore[arg-type]
        (lambda: DefaultAgent(model=Turns(), instructions=None), "NoneType"),  # type: ignore[arg-type]
        (lambda: DefaultAgent(model=Turns()).run_stream(ASK), "a prompt or a sequence"),  # type: ignore[arg-type]
    ],
)
def test_a_bare_template_is_no_prompt(wrong: Any, said: str) -> None:
    """A template without its values is refused where it is given."""
    with pytest.raises(TypeError, match=said):
        wrong()


@pytest.mark.parametrize("history", [[], [PromptSpec(ASK, {"name": "x"})]], ids=["instructions", "history"])
def test_a_prompt_that_cannot_be_rendered_fails_before_any_call(history: Any) -> None:
    """A missing variable is an error where the run is started, wherever the prompt stands."""
    model = Turns(says("x"))
    agent = DefaultAgent(model=model, instructions="" if history else PromptSpec(ASK, {"name": "x"}))
    with pytest.raises(PromptError, match="'tone'"):
        agent.run_stream("go", history)
    assert model.seen == []


def test_a_prompt_without_a_message_for_its_place_is_refused() -> None:
    """Instructions need a system message, an input a user message: a ValueError says what to add."""
    system: PromptTemplate[Any, str] = PromptTemplate(system_template="x")
    user: PromptTemplate[Any, str] = PromptTemplate(user_template="x")
    with pytest.raises(ValueError, match="no user message"):
        DefaultAgent(model=Turns()).run_stream(PromptSpec(system))
    with pytest.raises(ValueError, match="no system message"):
        DefaultAgent(model=Turns(), instructions=PromptSpec(user)).run_stream("x")


@pytest.mark.parametrize("tools", [len, "search", 7])
def test_tools_that_are_no_list_are_refused_with_the_remedy(tools: Any) -> None:
    """One function, a name and a number are no list of tools; the error says what to write."""
    with pytest.raises(ToolDefinitionError, match=r"must be a list of tools, \[tool\] for one"):
        DefaultAgent(model=Turns(), tools=tools)
