"""What a streamed Messages reply costs here, as a ratio to the official `anthropic` SDK, measured in one run.

Prints medians and spreads of alternating rounds; exits 1 when the wanted ratio is missed.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from functools import partial

import anthropic
from responses import CTX, PIECES, ROUNDS, TEXT, cost, run
from stream import Contender, Report, paired, rounds

from isthmus.adapters.anthropic import AnthropicAdapter


def events() -> list[dict[str, object]]:
    """A reply of one text block, as the API tells it."""
    message = {"id": "msg_0123456789abcdef01234567", "type": "message", "role": "assistant", "content": []}
    message |= {"model": "claude-sonnet-4-6", "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 20, "output_tokens": 1}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *([delta] * PIECES),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": PIECES},
        },
        {"type": "message_stop"},
    ]


async def measure(base: str, report: Report) -> None:
    async with (
        anthropic.AsyncAnthropic(api_key="k", base_url=base, max_retries=0) as sdk,
        AnthropicAdapter(model="claude-sonnet-4-6", api_key="k", base_url=base) as adapter,
    ):

        async def by_sdk(_: str) -> AsyncIterator[str]:
            said = [{"role": "user", "content": "hi"}]
            told = await sdk.messages.create(model="claude-sonnet-4-6", max_tokens=900, messages=said, stream=True)
            async with told:
                async for event in told:
                    if event.type == "content_block_delta":
                        yield event.delta.text

        some = [Contender("adapter", lambda _: adapter.stream(CTX)), Contender("sdk", by_sdk)]
        figures = await rounds(some, partial(cost, base), ROUNDS)
    report.table("500 pieces of text at once: CPU a piece", "µs", figures)
    report.want("adapter: times less than the SDK", paired(figures, "sdk", "adapter"), 6.0, at_least=True)


if __name__ == "__main__":
    sys.exit(run(events(), measure))
