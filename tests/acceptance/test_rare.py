"""Rare shapes of replies: our adapters keep every law over them, and readers give the frames beside them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from isthmus.adapters.registry import resolve
from isthmus.conformance import conform
from support import fuzzing, mutant_judges, mutants, mutation
from support.rare import unpacked

ADAPTERS = [name for name in mutants.DECODERS if name not in mutants.READERS]


@pytest.mark.parametrize("name", ADAPTERS)
async def test_our_adapters_keep_every_law_over_rare_shapes(name: str) -> None:
    """F01, F02, F04, F06, F12, F16: no law finds anything, and each shape is read as what stands beside it.

    The slow laws, split and cut, get a few; `scripts/mutants` holds the decoder to them over every shape first.
    """
    decoder = mutants.DECODERS[name]
    assert await mutant_judges.judge_of(decoder.judge, decoder.settings).broken([unpacked(name)]) == ""


@pytest.mark.parametrize("name", ADAPTERS)
async def test_the_kit_itself_finds_nothing_in_a_sample_of_them(name: str) -> None:
    """`conform` reports no broken law at wire level, and judges results and events."""
    decoder = mutants.DECODERS[name]
    make: Any = resolve(decoder.judge).factory

    def adapter(*, transport: Any, api_key: str = "", max_tokens: int = 100) -> Any:
        return make(model="m", transport=transport, api_key=api_key, max_tokens=max_tokens, **decoder.settings)

    places = sorted(unpacked(name).iterdir())
    report = await conform(adapter, recordings=random.Random(name).sample(places, 20))
    assert not [found for found in report.errors if found.law.startswith("wire-")], report.table()
    assert report.standing("wire-golden") == report.standing("wire-events") == "pass"


@pytest.mark.parametrize("name", mutant_judges.READERS)
def test_a_reader_gives_the_frames_beside_the_bytes(name: str) -> None:
    """F06: the same frames for any split, and a refusal at the same byte."""
    make = getattr(mutant_judges.READERS[name], name)
    for row in json.loads((mutation.FRAMES / f"{name}.json").read_text(encoding="utf-8")):
        assert not mutant_judges.wrong_frames(make, row)


def test_survivors_are_mutants_that_exist() -> None:
    """Each reason why a mutant survives belongs to one that can still be made."""
    kept = mutants.reasons()
    modules = {key.partition(":")[0].removeprefix("isthmus.") for key in kept}
    assert not kept.keys() - {mutant.key for module in modules for mutant in mutants.mutants(module)}


_NAN = '{\\"q\\":NaN}'
_WITH_NAN = {
    "openai": f'{{"choices":[{{"message":{{"content":null,"tool_calls":[{{"id":"c","type":"function","function":'
    f'{{"name":"f","arguments":"{_NAN}"}}}}]}},"finish_reason":"tool_calls"}}]}}',
    "anthropic": '{"type":"message","role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":'
    '{"q":NaN}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}',
    "openai-responses": f'{{"id":"r","status":"completed","output":[{{"id":"i","type":"function_call","call_id":"c",'
    f'"name":"f","arguments":"{_NAN}"}}]}}',
    "bedrock": '{"output":{"message":{"role":"assistant","content":[{"toolUse":{"toolUseId":"t","name":"f","input":'
    '{"q":NaN}}}]}},"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}',
    "langserve": '{"output":{"type":"ai","content":"","tool_calls":[{"name":"f","args":{"q":NaN},"id":"c"}],'
    '"response_metadata":{"finish_reason":"tool_calls"}}}',
}


@pytest.mark.parametrize("provider", _WITH_NAN)
def test_no_call_runs_with_what_is_no_json(provider: str) -> None:
    """F15, F30: a NaN in the arguments is a problem of the call in every dialect, and never a number or a null."""
    adapter = fuzzing.adapter_of(provider, [_WITH_NAN[provider].encode()], kind="application/json")
    step = fuzzing.run(fuzzing.heard, adapter, whole=True)
    assert [(call.input, "NaN" in str(call.problem)) for call in step.calls] == [(None, True)]
