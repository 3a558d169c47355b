"""How a run ended is typed: a pause, a refusal and withheld content are told apart from an answer, over sockets."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.conformance import Play, serve
from isthmus.errors import CutReason
from isthmus.harness import AgentDescriptor, DefaultAgent, Limits, Runner, RunResult
from isthmus.models import Model
from isthmus.models.events import FinishReason
from isthmus.models.responses import Choice, Message, ModelResponse
from support.turns import Turns, says

ADAPTERS = {
    "messages": lambda url: AnthropicAdapter(model="m", base_url=url, api_key="k"),
    "chat": lambda url: OpenAIChatAdapter(model="m", base_url=f"{url}/v1", api_key="k"),
}


async def ran(dialect: str, *steps: Any, streamed: bool = False, **more: Any) -> tuple[RunResult, int]:
    """The result of a run on a server that says these steps, and how often it was asked."""
    async with serve(*Play.steps(*steps)) as server, ADAPTERS[dialect](server.url) as model:
        agent = DefaultAgent(descriptor=AgentDescriptor(model=model), **more)
        if not streamed:
            return await agent.run("go"), len(server.requests)
        async with agent.run_events("go") as stream:
            async for _ in stream:
                pass
            return await stream.result(), len(server.requests)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", ADAPTERS)
async def test_a_refusal_is_an_answer_that_says_so(dialect: str, streamed: bool) -> None:
    """Its words stand in the conversation; `finish` tells it from an answer."""
    step = {"text": "I cannot help with that.", "finish": "refusal"}
    result, _ = await ran(dialect, step, streamed=streamed)
    assert result.finish is FinishReason.REFUSAL
    assert result.outcome.outcome == "completed"
    assert result.text == result.final_output == "I cannot help with that."
    assert result.run_state.history[-1]["content"] == "I cannot help with that."


@pytest.mark.parametrize("streamed", [False, True])
async def test_withheld_content_cuts_the_run(streamed: bool) -> None:
    """What came before stands, as far as it came; the reason says why there is no more."""
    result, _ = await ran("chat", {"text": "It begins", "finish": "content-filter"}, streamed=streamed)
    assert result.finish is FinishReason.CONTENT_FILTER
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", CutReason.REFUSED)
    assert "content_filter" in result.outcome.detail
    assert result.text == "It begins"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_pause_gives_the_turn_back_until_the_model_is_done(streamed: bool) -> None:
    """The same turn is sent again, as a step of the run; what was said before the pause stands once."""
    pause, rest = {"text": "First. ", "finish": "pause"}, {"text": "Second."}
    result, asked = await ran("messages", pause, rest, streamed=streamed)
    assert (result.outcome.outcome, result.finish, result.text) == ("completed", FinishReason.STOP, "First. Second.")
    assert (asked, result.turn_count) == (2, 2)
    assert [reply.finish for reply in result.replies] == [FinishReason.PAUSE, FinishReason.STOP]


async def test_a_run_that_ends_in_a_pause_says_so() -> None:
    """Where the steps are used up, `finish` is the pause itself and the reason the budget."""
    pause = {"text": "Wait. ", "finish": "pause"}
    result, asked = await ran("messages", pause, pause, limits=Limits(max_steps=2))
    assert (result.finish, asked) == (FinishReason.PAUSE, 2)
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", CutReason.BUDGET_STEPS)


async def test_a_refusal_of_the_model_face_is_told_too() -> None:
    """A strange client's refusal has the finish "stop" and no content there; here it is typed."""

    class Refuses(Model):
        async def get_response(self, messages: Any, **kwargs: Any) -> ModelResponse:
            return ModelResponse(choices=[Choice(message=Message(refusal="No."), finish_reason="stop")])

    result = await DefaultAgent(model=Refuses()).run("go")
    assert (result.finish, result.text) == (FinishReason.REFUSAL, "No.")


async def test_without_a_reply_there_is_no_finish() -> None:
    """A run that was cut before any model was called has none."""
    stream = DefaultAgent(model=Turns(says("never"))).run_stream("go")
    await stream.aclose()
    assert (await stream.result()).finish is None


async def test_the_limit_of_turns_counts_one_run_however_long_the_conversation() -> None:
    """With two turns a run, ten runs of one agent all answer; the reference library fails from the third on."""
    agent = DefaultAgent(descriptor=AgentDescriptor(model=Turns(says("a"))), runner=Runner(max_turns=2))
    for _ in range(10):
        result = await agent.run("go")
        assert (result.outcome.outcome, result.turn_count) == ("completed", 1)
    assert result.run_state.turn_count == 10
