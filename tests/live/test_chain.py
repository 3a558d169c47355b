"""Two real tiers: a model in this process behind servers that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from isthmus import Agent
from isthmus.adapters.local import LocalAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.chain import Budget, custom_model, define_chain
from isthmus.conformance import Play, serve
from isthmus.conformance.reply import End
from support.sockets import said

pytestmark = pytest.mark.model


@pytest.fixture
async def local() -> AsyncIterator[LocalAdapter]:
    """A running model."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=2048) as adapter:
        await adapter.start()
        yield adapter


def remote(url: str) -> OpenAIChatAdapter:
    """A tier at that address."""
    size = {"window_tokens": 9_000, "max_output_tokens": 900}
    return custom_model(OpenAIChatAdapter, "m", base_url=f"{url}/v1", api_key="k", id="remote", **size)


async def test_the_model_behind_a_dead_port_answers(local: LocalAdapter):
    """Nobody listens at the first tier: the real model answers, and the ledger has both, with its own tokens."""
    chain = define_chain(id="c", tiers=[remote("http://127.0.0.1:9"), local], budget=Budget(output_tokens=1000))
    result = await Agent(model=chain, max_output_tokens=40).run("Say hello.")
    assert result.text.strip()
    assert result.outcome.tier == local.id
    dead, served = result.attempts[0], result.attempts[-1]
    assert (dead.tier, dead.error_class, dead.next) == ("remote", "unavailable", "fallback")
    assert served.usage is not None
    assert served.usage.output_tokens
    assert {attempt.tier for attempt in result.attempts[1:]} == {local.id}


async def test_a_server_killed_in_the_middle_cuts_the_turn(local: LocalAdapter):
    """After content nobody else is asked: the turn ends "stream-error" with the partial text."""
    async with serve(Play.stream(said("Half an "), said("answer"), End.RESET), repeat=True) as server:
        chain = define_chain(id="c", tiers=[remote(server.url), local])
        result = await Agent(model=chain, max_output_tokens=40).run("Say hello.")
    assert (result.text, result.outcome.outcome, result.outcome.reason) == ("Half an answer", "cut", "stream-error")
    assert [attempt.tier for attempt in result.attempts] == ["remote"]


async def test_a_budget_of_a_real_model_is_kept(local: LocalAdapter):
    """Steps are cut before the model is asked for more tokens than are left; what it says it took is exact."""
    chain = define_chain(id="c", tiers=[local], budget=Budget(output_tokens=100))
    async with chain.open_run() as run:
        agent = Agent(model=run, max_output_tokens=30)
        result = await agent.run("Write a long story about the sea.")
        assert run.spent is not None
        assert 0 < run.spent.output_tokens <= 100
        assert run.spent.estimated is False
    assert result.text.strip()
