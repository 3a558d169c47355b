"""Why the decoders read some recordings otherwise than an independent reader does: each difference with its reason."""

from __future__ import annotations

import re

# A pattern over "recording: difference", and what accounts for it. A difference that none accounts for is a fault.
REASONS: tuple[tuple[str, str], ...] = (
    (
        r": finish: ours 'refusal', \w+.* 'stop'$",
        "the message holds a refusal: the contract has a finish for that, the wire has none",
    ),
    (
        r": finish: ours 'other', \w+.* 'stop'$",
        "the reply waits for its caller (a command to run, an approval): the contract has no finish for that",
    ),
    (
        r"truncation-matrix-.*: calls: ",
        "the reply stopped at its limit inside a call's arguments: such a call is no call and never runs",
    ),
    (
        r"truncation-matrix-.*: finish: ours 'length', sdk 'tool-calls', walk 'tool-calls'$",
        "the only call was cut at the limit, so the reply ended by length",
    ),
    (
        r"langserve-badtool-.*: (?:calls: ours \[\]|finish: ours 'length')",
        "the call was cut at the limit: LangChain completes its arguments with a partial parser, here it never runs",
    ),
    (
        r"incomplete-partial-json-response: (?:calls: ours \[\]|finish: ours 'length')",
        "the call was cut at the limit: the SDK mends its arguments with a partial parser, here it never runs",
    ),
    (
        r"cloudflare/.*: text: ours '\{",
        "content came as an object: its JSON is the text, here without white space",
    ),
    (
        r"gpustack/.*streams-thinking.*: expected a result, got error-post: failed to decode",
        "the stream ends in an `error:` line, which is no data line: the plain walk does not see it",
    ),
    (
        r"openai-moderation-stream: cut after \d+ frames, framed",
        "a chunk with the moderation's results follows the finish reason: a framed end between them looks whole",
    ),
    (
        r"pyai-test-openrouter-stream-error: cut after \d+ frames, framed",
        "the error frame follows a finish reason: a framed end between them looks whole",
    ),
    (
        r"gemini-2-5-flash-lite-object-streaming: cut after \d+ frames, framed",
        "every chunk has a finish reason: a framed end after one of them looks whole",
    ),
    (
        r"together/.*function-call-attributes-in-span-for-stream-compl: cut after \d+ frames, framed",
        "each of the two calls ends with a finish reason: a framed end between them looks whole",
    ),
    (
        r"^xai/.*: output: ours \d+, sdk \d+$",
        "the server counts reasoning apart from completion tokens: its total shows it, and the output is both",
    ),
    (r"^groq/.*: output: ours \d+, sdk None$", "usage stands in `x_groq`, which the SDK's chunk does not read"),
    (r"^openai/.*: calls: ours .*, sdk \[\]$", "the legacy `function_call` is a call too"),
    (
        r"async-parallel-function-call: calls: ours ",
        "the server repeats one index for two calls: the SDK's reader joins them, ids and names tell them apart",
    ),
    (
        r"titan-invoke-stream-guardrail: cut (?:after \d+ frames|at byte \d+), framed",
        "a guardrail that blocks the prompt leaves no reason, so a framed end after its first chunk looks whole",
    ),
)
_COMPILED = tuple((re.compile(pattern), reason) for pattern, reason in REASONS)


def reason_for(path: str, difference: str) -> str | None:
    """What accounts for a difference; None where nothing does."""
    line = f"{path}: {difference}"
    return next((reason for pattern, reason in _COMPILED if pattern.search(line)), None)
