"""Recorded tool loops: each next request, built from our own decoded turn, is the recorded one."""

from __future__ import annotations

from collections import Counter

import pytest

from support.corpus import REASON, corpus_root
from support.responses_sequences import differences, items_of, not_one_conversation, rebuilt, sequences, steps

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(corpus_root() is None, reason=REASON)]

# Field paths at which a recorded client sent something else, with how often, by reason.
REASONS: dict[str, dict[str, int]] = {
    "the recorded client left out members of the provider's items that are optional in input": {
        "function_call.id: only ours": 10,
        "function_call.status: only ours": 10,
        "reasoning.status: only ours": 8,
        "reasoning.id: only ours": 7,
        "reasoning.content: only ours": 4,
        "message.status: only ours": 4,
        "message.id: only ours": 2,
        "message.phase: only ours": 1,
        "code_interpreter_call.outputs: only ours": 1,
    },
    "the recorded client gives results a status": {"function_call_output.status: only theirs": 6},
    "the recorded client made the server's repeated call ids unique, or renamed those of a tool search": {
        "function_call: only ours": 3,
        "function_call: only theirs": 3,
        "function_call_output: only ours": 3,
        "function_call_output: only theirs": 3,
        "tool_search_call: only ours": 1,
        "tool_search_call: only theirs": 1,
        "tool_search_output: only ours": 1,
    },
}
NOT_ONE_CONVERSATION = {
    "openai/responses-json--crewai-testagentmultimodalopenairesponses-test-pdf-file-openai-o4-mini-respon-00",
    "openai/responses-sse--chatlas-test-provider-openai-test-openai-images-00",
    "openrouter/responses-json--pyai-test-openrouter-responses-prompt-cache-e2e-00",
}


def test_requests_built_from_our_turns_are_the_recorded_ones() -> None:
    """Items, texts, ids, arguments, encrypted reasoning and results: equal, but for the listed field paths."""
    found: Counter[str] = Counter()
    apart, compared = set(), 0
    for paths in sequences().values():
        for step in steps(paths):
            if not_one_conversation(step) is not None:
                apart.add(step.path)
                continue
            compared += 1
            found.update(differences(rebuilt(step), items_of(step.after)))
    assert compared == 25
    assert apart == NOT_ONE_CONVERSATION
    assert dict(found) == {path: count for paths in REASONS.values() for path, count in paths.items()}
