"""Replies in few bytes with as many of a provider's shapes as there are; nothing of the library is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from support.rare import body_of, rows

_EVENTS: Mapping[str, tuple[str, ...]] = {
    "openai": (
        '{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}',
        '{"choices":[{"index":0,"delta":{"content":"Zürich 🦔"}}]}',
        (
            '{"choices":[{"index":0,"delta":{"reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text",'
            '"text":"hm","signature":"s","index":0}]}}]}'
        ),
        (
            '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":'
            '{"name":"look","arguments":"{\\"q\\":"}}]}}]}'
        ),
        '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}',
        '{"choices":[{"index":0,"delta":{"refusal":"no","annotations":[{}],"audio":{"id":"a","data":"AAAA"}}}]}',
        '{"choices":[{"index":0,"message":{"content":[{"type":"text","text":"x"}],"tool_calls":null}}]}',
        '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}',
        '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}}',
        '{"error":{"message":"busy","code":529}}',
        "[DONE]",
    ),
    "anthropic": (
        '{"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":3}}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQ"}}',
        '{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Zürich 🦔"}}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"x"}}}',
        '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"look","input":{}}}',
        '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\\"q\\":1}"}}',
        '{"type":"content_block_stop","index":2}',
        '{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":4}}',
        '{"type":"message_stop"}',
        '{"type":"error","error":{"type":"overloaded_error","message":"busy"}}',
        '{"type":"message","role":"assistant","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}',
    ),
    "openai-responses": (
        '{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}',
        '{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"i","content":[]}}',
        '{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"i","delta":"Zürich"}',
        (
            '{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"i","content":'
            '[{"type":"output_text","text":"Zürich","annotations":[]}]}}'
        ),
        (
            '{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"f","call_id":"c",'
            '"name":"look","arguments":""}}'
        ),
        '{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"f","delta":"{}"}',
        (
            '{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"f","call_id":"c",'
            '"name":"look","arguments":"{}"}}'
        ),
        (
            '{"type":"response.output_item.done","output_index":2,"item":{"type":"reasoning","id":"r","summary":[],'
            '"encrypted_content":"gAAA"}}'
        ),
        '{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"no"}',
        (
            '{"type":"response.completed","response":{"id":"r","status":"completed","output":[{"type":"message","content":'
            '[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":1,"output_tokens":2}}}'
        ),
        '{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max"}}}',
        '{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"x"}}}',
        '{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null}',
    ),
}


_CHAT_USAGE = (
    '{"prompt_tokens":90,"completion_tokens":40,"total_tokens":130,"prompt_tokens_details":{"cached_tokens":20,'
    '"cache_write_tokens":5,"audio_tokens":1},"completion_tokens_details":{"reasoning_tokens":7},"cost":0.1,'
    '"prompt_cache_hit_tokens":20,"cache_read_input_tokens":20,"cache_creation_input_tokens":5}'
)
_CHAT_USAGES = (
    _CHAT_USAGE,
    '{"prompt_tokens":90,"completion_tokens":40,"total_tokens":140,"completion_tokens_details":{"reasoning_tokens":10}}',
    '{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_cache_hit_tokens":2,"prompt_cache_miss_tokens":7}',
    '{"input_tokens":9,"output_tokens":4}',
    '{"prompt_tokens":9,"total_tokens":12}',
)
_MESSAGES_USAGE = (
    '{"input_tokens":9,"output_tokens":4,"cache_read_input_tokens":3,"cache_creation_input_tokens":8,'
    '"cache_creation":{"ephemeral_1h_input_tokens":5,"ephemeral_5m_input_tokens":3},'
    '"output_tokens_details":{"thinking_tokens":2},"iterations":[{"type":"message","input_tokens":9}]}'
)
_RESPONSES_USAGES = (
    (
        '{"input_tokens":90,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":4},"output_tokens":40,'
        '"output_tokens_details":{"reasoning_tokens":7},"total_tokens":130}'
    ),
    '{"input_tokens":9,"output_tokens":4}',
    '{"input_tokens":9,"input_tokens_details":{"cached_tokens":20},"output_tokens":4,"total_tokens":20}',
    '{"input_tokens":9,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":20}',
)
_WHOLES: Mapping[str, tuple[str, ...]] = {
    "openai": (
        *(
            '{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi",'
            '"reasoning_content":"hm"},"finish_reason":"stop"}],"usage":' + usage + "}"
            for usage in _CHAT_USAGES
        ),
        '{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":null,"reasoning":"hm","tool_calls":'
        '[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\\"q\\":1}"}},'
        '{"id":"c2","type":"custom","custom":{"name":"run","input":"ls"}},'
        '{"id":"c3","type":"function","function":{"name":"look","arguments":"{\\"q\\":"}}]},'
        '"finish_reason":"tool_calls","logprobs":null}],"usage":' + _CHAT_USAGE + "}",
        '{"choices":[{"message":{"content":null,"refusal":"I will not"},"finish_reason":"content_filter"}]}',
        (
            '{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},'
            '{"type":"text","text":"Hi"}],"function_call":{"name":"look","arguments":"{}"}},"finish_reason":"length"}]}'
        ),
    ),
    "anthropic": (
        '{"type":"message","id":"m","role":"assistant","model":"x","content":[{"type":"thinking","thinking":"hm",'
        '"signature":"EqQ"},{"type":"redacted_thinking","data":"gAA"},{"type":"text","text":"Hi","citations":[]},'
        '{"type":"tool_use","id":"t1","name":"look","input":{"q":1}},{"type":"server_tool_use","id":"s1","name":'
        '"web_search","input":{"q":1}},{"type":"web_search_tool_result","tool_use_id":"s1","content":[]}],'
        '"stop_reason":"tool_use","stop_sequence":null,"usage":' + _MESSAGES_USAGE + "}",
        (
            '{"type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"stop_sequence",'
            '"stop_sequence":"END","usage":{"input_tokens":9,"output_tokens":4}}'
        ),
        (
            '{"type":"message","role":"assistant","content":[],"stop_reason":"refusal","stop_details":{"type":"refusal",'
            '"category":"x","explanation":"no"},"usage":{"input_tokens":9,"output_tokens":4}}'
        ),
        (
            '{"type":"message","role":"assistant","content":[{"type":"tool_use","id":"t","name":"look","input":{}}],'
            '"stop_reason":"max_tokens","usage":{"input_tokens":9,"output_tokens":4}}'
        ),
        '{"type":"message","role":"assistant","content":[],"stop_reason":"pause_turn","container":{"id":"c"}}',
    ),
    "openai-responses": (
        *(
            '{"id":"r","object":"response","status":"completed","error":null,"incomplete_details":null,"output":'
            '[{"id":"m","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text",'
            '"text":"Hi","annotations":[],"logprobs":[]}]}],"usage":' + usage + "}"
            for usage in _RESPONSES_USAGES
        ),
        (
            '{"id":"r","object":"response","status":"completed","output":[{"id":"rs","type":"reasoning","summary":'
            '[{"type":"summary_text","text":"hm"}],"content":[{"type":"reasoning_text","text":"so"}],'
            '"encrypted_content":"gAAA"},{"id":"f","type":"function_call","status":"completed","call_id":"c1","name":"look",'
            '"arguments":"{\\"q\\":1}"},{"id":"w","type":"web_search_call","status":"completed","action":{}}]}'
        ),
        (
            '{"id":"r","object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},'
            '"output":[{"id":"f","type":"function_call","status":"incomplete","call_id":"c1","name":"look","arguments":"{"}]}'
        ),
        (
            '{"id":"r","object":"response","status":"completed","output":[{"id":"m","type":"message","role":"assistant",'
            '"content":[{"type":"refusal","refusal":"no"}]}]}'
        ),
        '{"id":"r","object":"response","status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}',
    ),
}
_ENDS: Mapping[str, tuple[str, ...]] = {
    "openai": tuple('{"choices":[],"usage":' + usage + "}" for usage in _CHAT_USAGES),
    "anthropic": (
        '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":'
        + _MESSAGES_USAGE
        + "}",
    ),
    "openai-responses": tuple(
        '{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":' + usage + "}}"
        for usage in _RESPONSES_USAGES
    ),
}
_LAST: Mapping[str, tuple[str, ...]] = {
    "openai": ("[DONE]",),
    "anthropic": ('{"type":"message_stop"}',),
    "openai-responses": (),
}


@cache
def seeds(provider: str) -> list[bytes]:
    """Replies of a provider: some of its events as a stream, whole replies, and each event as a document."""
    if provider not in _EVENTS:
        return [body_of(row) for row in rows(provider) if body_of(row)]
    events = _EVENTS[provider]
    smooth = [event for event in events if not any(word in event for word in _ABRUPT)]
    streams = [events[:5], events[:8], events, *([*smooth, end, *_LAST[provider]] for end in _ENDS[provider])]
    return [
        *(b"".join(b"data: " + event.encode() + b"\n\n" for event in stream) for stream in streams),
        *(whole.encode() for whole in (*_WHOLES[provider], *events)),
    ]


_ABRUPT = (
    *('"error"', "[DONE]", '"message":{"content"', '"type":"message",', "message_delta", "message_stop"),
    *("response.completed", "response.incomplete", "response.failed"),
)
