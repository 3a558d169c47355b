"""What the page on the models layer promises of prompts, and its example, changed only in the import root."""

from typing import Any, TypedDict

from isthmus import Agent
from isthmus.models import OutputSchema, PromptSpec, PromptTemplate, Tools, as_tool, render_instruction_text
from support.turns import Turns, asks, call, says


class RiskVars(TypedDict):
    portfolio_tier: str


@as_tool
async def search_risk_policy(question: str) -> str:
    """Search the risk policy library."""
    del question
    return "Single-sector exposure above 35% requires risk review."


async def _answers(instructions: Any) -> None:
    """The pieces of the example answer a question together."""
    model = Turns(asks(call("search_risk_policy", question="limit?")), says("Above 35%."))
    agent = Agent(model=model, instructions=instructions, tools=Tools(tools=[search_risk_policy]))
    result = await agent.run("When is a review due?")
    assert result.text == "Above 35%."
    assert [ctx.brief for ctx in model.seen] == ["You review institutional portfolio risk alerts."] * 2
    assert result.messages[2]["content"] == "Single-sector exposure above 35% requires risk review."
    assert [tool.name for tool in model.seen[0].tools] == ["search_risk_policy"]
    assert model.seen[0].output is None or model.seen[0].output.response_format() is None


async def test_the_example_of_the_page() -> None:
    """The example runs as it is written, and its pieces answer a question."""
    risk_prompt = PromptTemplate[RiskVars, str](
        system_template="You review {{ portfolio_tier }} portfolio risk alerts.",
        output_schema=OutputSchema(str),
    )
    instructions = PromptSpec(
        template=risk_prompt,
        values={"portfolio_tier": "institutional"},
    )
    assert risk_prompt.response_format() is None
    await _answers(instructions)


async def test_the_example_without_a_schema() -> None:
    """The form of the reply is text by default, so the example may leave it out."""
    risk_prompt = PromptTemplate[RiskVars, str](
        system_template="You review {{ portfolio_tier }} portfolio risk alerts."
    )
    await _answers(PromptSpec(template=risk_prompt, values={"portfolio_tier": "institutional"}))


def test_one_prompt_serves_many_runs() -> None:
    """The shape is apart from the values: one template, other values, other texts."""
    risk_prompt = PromptTemplate[RiskVars, str](system_template="You review {{ portfolio_tier }} alerts.")
    tiers = ("retail", "institutional")
    texts = [render_instruction_text(PromptSpec(risk_prompt, RiskVars(portfolio_tier=tier))) for tier in tiers]
    assert texts == ["You review retail alerts.", "You review institutional alerts."]


def test_values_stay_typed_and_explicit() -> None:
    """A prompt holds its values as they were given, and flattens nothing into a message until it is rendered."""
    values = RiskVars(portfolio_tier="retail")
    spec = PromptSpec(PromptTemplate[RiskVars, str](system_template="{{ portfolio_tier }}"), values)
    assert spec.values is values
