"""Histories of old or foreign making reach each provider in its own form."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from isthmus.adapters.registry import load_adapter
from isthmus.models import to_neutral
from isthmus.models.contract import GenerateContext

PROVIDERS: dict[str, dict[str, Any]] = {
    "openai": {},
    "anthropic": {},
    "openai-responses": {},
    "bedrock": {"aws_region": "us-east-1"},
    "langserve": {},
}
ASK = {"role": "user", "content": "Hi"}
F, G = ({"name": name, "arguments": "{}"} for name in "fg")
NO_IDS = (
    ASK,
    {"role": "assistant", "content": None, "tool_calls": [{"id": None, "function": F}, {"function": G}]},
    {"role": "tool", "name": "g", "tool_call_id": None, "content": "of g"},
    {"role": "tool", "content": "of f"},
)
LEGACY = (
    ASK,
    {"role": "assistant", "content": None, "function_call": F},
    {"role": "function", "name": "f", "content": "of f"},
)


def sent(provider: str, messages: Any) -> tuple[str, list[str]]:
    """The body of a request, and the codes of what was noted."""
    pytest.importorskip("botocore" if provider == "bedrock" else "isthmus")
    settings = {"model": "m", "api_key": "k", "base_url": "http://nowhere.invalid", **PROVIDERS[provider]}
    request = load_adapter(provider, **settings).codec.encode(GenerateContext(messages=messages), stream=False)
    return request.call.body.decode(), [str(note.code) for note in request.notes]


def answers(body: str) -> dict[str, str]:
    """What is said to have answered the call of each name, in any dialect."""
    calls, results = {}, {}

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            inner = value.get("function") if isinstance(value.get("function"), dict) else value
            call_id = value.get("call_id") or value.get("id") or value.get("toolUseId")
            if "name" in inner and call_id and not {"content", "output"} & value.keys():
                calls[call_id] = inner["name"]
            answered = value.get("tool_call_id") or value.get("tool_use_id") or value.get("toolUseId")
            answered = answered or (value.get("call_id") if "output" in value else None)
            found = re.search(r"of \w", json.dumps(value))
            if answered and found and {"content", "output"} & value.keys():
                results[answered] = found[0]
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            visit(inner)

    visit(json.loads(body))
    assert calls.keys() == results.keys()
    return {calls[call_id]: said for call_id, said in results.items()}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_without_ids_are_paired_with_their_results(provider: str) -> None:
    """F14: ids that a history lacks are made, noted, and stand with call and result."""
    body, codes = sent(provider, NO_IDS)
    assert answers(body) == {"f": "of f", "g": "of g"}
    assert codes.count("call-id-made") == 2


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "openai"])
def test_the_legacy_call_and_its_result_keep_their_meaning(provider: str) -> None:
    """F14: `function_call` and role "function" are a call and its result wherever they are not the dialect's own."""
    body, codes = sent(provider, LEGACY)
    assert answers(body) == {"f": "of f"}
    assert codes.count("call-id-made") == 1


def test_the_legacy_form_stays_in_the_dialect_that_has_it() -> None:
    """F14: a server of Chat Completions gets its own old form as it is."""
    body, codes = sent("openai", LEGACY)
    assert json.loads(body)["messages"] == list(LEGACY)
    assert codes == []


def test_to_neutral_gives_todays_form() -> None:
    """Both become calls with ids and tool messages; a second time changes nothing."""
    for history in (NO_IDS, LEGACY):
        once = to_neutral(history)
        assert {message["role"] for message in once} == {"user", "assistant", "tool"}
        assert answers(json.dumps(once))["f"] == "of f"
        assert to_neutral(once) == once
