"""Recorded tool loops: each next request, built from our own decoded turn, is the recorded one."""

from __future__ import annotations

import pytest

from support.corpus import REASON, corpus_root
from support.loop_dialects import BEDROCK, CHAT, MESSAGES, RESPONSES
from support.loops import Dialect, compare

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(corpus_root() is None, reason=REASON)]

APIS: dict[str, tuple[Dialect, tuple[str, ...]]] = {
    "chat": (CHAT, ("openai-chat",)),
    "responses": (RESPONSES, ("openai-responses",)),
    "messages": (MESSAGES, ("anthropic-messages",)),
    "bedrock": (BEDROCK, ("bedrock-converse", "bedrock-converse-stream", "bedrock-invoke", "bedrock-invoke-stream")),
}
# How many recorded requests go on with a recorded turn.
TURNS = {"chat": 51, "responses": 25, "messages": 8, "bedrock": 20}
# Field paths at which a recorded client sent something else, with how often, by reason.
REASONS: dict[str, dict[str, int]] = {
    "the client left out members of the provider's own turn, which may be left out": {
        "chat: assistant.reasoning: only ours": 1,
        "chat: assistant.reasoning_content: only ours": 2,
        "chat: assistant.reasoning_details: only ours": 1,
        "chat: assistant.extra_content: only ours": 1,
        "chat: assistant.thought_signature: only ours": 1,
        "responses: function_call.id: only ours": 10,
        "responses: function_call.status: only ours": 10,
        "responses: reasoning.status: only ours": 8,
        "responses: reasoning.id: only ours": 7,
        "responses: reasoning.content: only ours": 4,
        "responses: message.status: only ours": 4,
        "responses: message.id: only ours": 2,
        "responses: message.phase: only ours": 1,
        "responses: code_interpreter_call.outputs: only ours": 1,
        "messages: assistant.content[].citations: only ours": 1,
        "messages: assistant.content[].caller: only ours": 1,
        "bedrock: assistant.content[].toolUse.type: only ours": 2,
    },
    "the client writes a default out": {
        "chat: .parallel_tool_calls: only theirs": 1,
        "chat: .tools[].function.description: only theirs": 2,
        "responses: function_call_output.status: only theirs": 7,
        "messages: user.content[].is_error: only theirs": 2,
        "bedrock: user.content[].toolResult.status: only theirs": 4,
    },
    "the client names the reasoning by the names of two servers at once": {
        "chat: assistant.reasoning: only theirs": 2,
        "chat: assistant.reasoning_content: only theirs": 5,
    },
    "the client puts the reasoning into the text, in tags, or says what the reply lacked": {
        "chat: assistant.content: other": 3,
    },
    "the client keeps the place that a call had in the stream": {"chat: assistant.tool_calls[].index: only theirs": 3},
    "the client writes null for no arguments": {"chat: assistant.tool_calls[].function.arguments: only ours": 2},
    "the client made the server's repeated, empty or searched call ids its own": {
        "chat: assistant.tool_calls[].id: other": 1,
        "responses: function_call: only ours": 3,
        "responses: function_call: only theirs": 3,
        "responses: function_call_output: only ours": 3,
        "responses: function_call_output: only theirs": 3,
        "responses: tool_search_call: only ours": 1,
        "responses: tool_search_call: only theirs": 1,
        "responses: tool_search_output: only ours": 1,
    },
    "the client makes two turns of text and calls": {
        "chat: assistant.tool_calls: only ours": 1,
        "chat: tool: only ours": 1,
        "chat: assistant: only theirs": 1,
        "chat: tool: only theirs": 1,
    },
    "the client sends the texts of a turn without its hosted calls, or joined": {
        "messages: assistant.content: other": 1,
        "bedrock: assistant.content: other": 1,
    },
    "the client marks what a gateway should keep of the prompt": {"chat: .tools[].cache_control: only theirs": 1},
    "an object that a tool gave is sent as JSON text": {
        "bedrock: user.content[].toolResult.content[].json: only theirs": 9,
        "bedrock: user.content[].toolResult.content[].text: only ours": 9,
    },
    "strict is written out, as the provider takes it for true where it is not said": {
        "responses: .tools[].strict: only ours": 10,
    },
    "the recorder shortened paths of files in the request, and not in the reply": {
        "chat: assistant.tool_calls[].function.arguments.context: other": 1,
        "chat: assistant.tool_calls[].function.arguments.goal: other": 1,
    },
}
# Requests of a sequence that begin a conversation of their own: repeated calls, other questions, edited histories.
ANEW = {
    "chat": {
        "ai21/chat-json--agentops-test-ai21-provider-02",
        "ai21/chat-sse--agentops-test-ai21-provider-01",
        "braintrust-proxy/chat-sse--braintrust-sdk-langchain-py-src-test-streaming-ttft-01",
        "cloudflare/chat-sse--chatlas-test-cloudflare-respects-turns-interface-01",
        "cloudflare/chat-sse--chatlas-test-cloudflare-respects-turns-interface-02",
        "copilot/chat-sse--rig-streaming-tools-raw-followup-uses-tool-result-without-new-tool-calls-01",
        "dashscope/chat-sse--loongsuite-pyt-test-multi-agent-collaboration-example-01",
        "doubleword/chat-sse--rig-prompt-caching-streaming-probe-01",
        "huggingface/chat-sse--chatlas-test-huggingface-respects-turns-interface-01",
        "huggingface/chat-sse--chatlas-test-huggingface-respects-turns-interface-02",
        "huggingface/chat-sse--chatlas-test-provider-huggingface-test-huggingface-images-01",
        "llama-cpp/chat-sse--rig-prompt-caching-streaming-probe-01",
        "openai/chat-json-400--ollmetry-test-vision-test-vision-base64-03",
        "openai/chat-sse--chatlas-test-provider-openai-completions-test-openai-images-01",
        "openai/chat-sse--crewai-test-openai-streaming-cached-prompt-tokens-01",
        "openai/chat-sse--ollmetry-test-open-ai-function-calls-tools-streaming-parallel-01",
        "openrouter/chat-json--pyai-test-openrouter-cache-all-settings-real-api-02",
        "venice/chat-json--rig-prompt-caching-cache-key-stable-02",
        "venice/chat-sse--rig-prompt-caching-streaming-probe-01",
    },
    "responses": {
        "openai/responses-json--crewai-testagentmultimodalopenairesponses-test-pdf-file-openai-o4-mini-respon-01",
        "openai/responses-sse--chatlas-test-provider-openai-test-openai-images-01",
        "openrouter/responses-json--pyai-test-openrouter-responses-prompt-cache-e2e-01",
    },
    "messages": {
        "anthropic/messages-json--crewai-testagentmultimodalanthropic-test-mixed-files-anthropic-claude-3-5-hai-01",
        "anthropic/messages-sse--agentops-test-anthropic-provider-01",
        "anthropic/messages-sse--ollmetry-test-anthropic-prompt-caching-async-stream-legacy-01",
    },
    "bedrock": {
        "bedrock/converse-json--dd-trace-py-bedrock-converse-prompt-caching-01",
        "bedrock/converse-json--pyai-test-bedrock-single-tool-choice-preserves-cache-nova-02",
        "bedrock/invoke-json--ollmetry-test-bedrock-prompt-caching-metrics-test-prompt-cache-01",
        "bedrock/invoke-stream--opentelemetry-bedrock-invokemodelwithstreams-adds-amazon-nova-model-attributes-to-sp-01",
        "bedrock/invoke-stream--opentelemetry-bedrock-invokemodelwithstreams-adds-amazon-titan-model-attributes-to-s-01",
        "bedrock/invoke-stream--opentelemetry-bedrock-invokemodelwithstreams-adds-claude-model-attributes-to-span-01",
    },
}


@pytest.mark.parametrize("name", APIS)
def test_requests_built_from_our_turns_are_the_recorded_ones(name: str) -> None:
    """F03: turns, blocks, ids, arguments, signatures, results and tools are equal, but for the listed field paths."""
    dialect, apis = APIS[name]
    seen = compare(dialect, *apis)
    listed = {path: count for paths in REASONS.values() for path, count in paths.items()}
    expected = {path.partition(": ")[2]: count for path, count in listed.items() if path.startswith(f"{name}: ")}
    assert seen.found == expected
    assert seen.anew == ANEW[name]
    assert seen.turns == TURNS[name]


def test_few_reasons_account_for_all_differences() -> None:
    """There are at most 15 reasons, over all providers and gateways."""
    assert len(REASONS) <= 15
