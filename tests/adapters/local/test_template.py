from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from isthmus.adapters.local import LocalAdapter
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.messages import assistant_message, tool_message

# One worker and one server: what the questions have in common is read by the model once.
pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("template")]


def spec(name: str, argument: str, description: str) -> ToolSpec:
    """A tool that takes one text."""
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return ToolSpec(name=name, description=description, parameters_schema=schema)


TIME = spec("current_time", "zone", "Tell the time of now in a time zone or a large city.")
SUM = spec("calculate", "expression", "Work out an arithmetic expression exactly.")
TOOLS = (TIME, SUM)
ZONES = ("Europe/Paris", "Asia/Kathmandu", "America/Argentina/Salta", "Pacific/Auckland", "Africa/Nairobi")
SUMS = (
    (48213977, 90218834),
    (730019256, 12777301),
    (99999999, 1000003),
    (318600142, 554190087),
    (20481536, 909090909),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local() -> AsyncIterator[LocalAdapter]:
    """A running server."""
    async with LocalAdapter(parallel=1, threads=1, n_ctx=2048, max_tokens=60) as adapter:
        await adapter.start()
        yield adapter


def said(content: str) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": content}


async def solved(local: LocalAdapter, question: str, *, wanted: tuple[str, dict[str, str]], result: str) -> bool:
    """Whether the question leads to one call, the wanted one, and its result to an answer that repeats it."""
    first = await local.generate(GenerateContext(messages=(said(question),), tools=TOOLS))
    if [(call.tool, call.input) for call in first.calls] != [wanted]:
        return False
    messages = (said(question), assistant_message(first), tool_message(first.calls[0].call_id or "", result))
    second = await local.generate(GenerateContext(messages=messages, tools=TOOLS))
    return not second.calls and result in second.text


async def test_questions_for_the_time_lead_to_a_call_and_an_answer(local: LocalAdapter):
    """At least four of five questions for the time lead to the right call, and to an answer with what the tool said."""
    results = [
        await solved(
            local, f"What time is it in {zone}?", wanted=("current_time", {"zone": zone}), result=f"1{place}:3{place}"
        )
        for place, zone in enumerate(ZONES)
    ]
    assert sum(results) >= 4, results


async def test_sums_lead_to_a_call_and_an_answer(local: LocalAdapter):
    """At least four of five sums of large numbers lead to the right call, and to an answer with the tool's number."""
    results = [
        await solved(
            local, f"What is {a} + {b}?", wanted=("calculate", {"expression": f"{a} + {b}"}), result=str(a + b)
        )
        for a, b in SUMS
    ]
    assert sum(results) >= 4, results


@pytest.mark.parametrize("question", ["Say hello.", "Tell me about the sea.", "What is the capital of France?"])
async def test_other_talk_needs_no_tool(local: LocalAdapter, question: str):
    """What needs no tool is answered in words although there are tools."""
    step = await local.generate(GenerateContext(messages=(said(question),), tools=TOOLS))
    assert not step.calls
    assert step.text.strip()


def rendered(local: LocalAdapter, body: dict[str, Any]) -> str:
    """The prompt that the server's template makes of a request."""
    (key,) = local.keys.secrets()
    request = urllib.request.Request(
        local.base_url.removesuffix("/v1") + "/apply-template",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
        return str(json.load(reply)["prompt"])


def declared(tool: ToolSpec) -> dict[str, Any]:
    """A tool in a request."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


async def test_a_prompt_without_tools_holds_no_examples(local: LocalAdapter):
    """Without tools the prompt is the system text and the conversation, nothing else."""
    messages = [{"role": "system", "content": "Be brief."}, said("What time is it?")]
    assert rendered(local, {"messages": messages}) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat time is it?<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_examples_use_tools_that_are_offered(local: LocalAdapter):
    """No example shows one of the known tools when it isn't offered, and a long conversation keeps every message."""
    other = spec("lookup", "word", "Look up a word.")
    messages = [said("What time is 3 o'clock?"), {"role": "assistant", "content": "Late."}, said("Look up 'isthmus'.")]
    prompt = rendered(local, {"messages": messages, "tools": [declared(other)]})
    assert "current_time" not in prompt
    assert "calculate" not in prompt
    assert "- lookup: Look up a word." in prompt
    assert prompt.count("What time is 3 o'clock?") == prompt.count("Late.") == prompt.count("Look up 'isthmus'.") == 1


async def test_every_result_of_a_batch_stands_in_the_prompt(local: LocalAdapter):
    """Two calls and their two results all stand in the prompt, and the question is asked again at the end."""
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "calculate", "arguments": f'{{"expression": "{n}+1"}}'},
        }
        for n in (1, 2)
    ]
    messages = [
        said("Both sums?"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "two"},
        {"role": "tool", "tool_call_id": "c2", "content": "three"},
    ]
    prompt = rendered(local, {"messages": messages, "tools": [declared(SUM)]})
    assert '{"name": "calculate", "arguments": {"expression": "1+1"}}' in prompt
    assert '{"name": "calculate", "arguments": {"expression": "2+1"}}' in prompt
    assert "two" in prompt
    assert "The result is three.\nNow answer in one sentence: Both sums?<|im_end|>\n<|im_start|>assistant\n" in prompt
