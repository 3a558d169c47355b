"""Steers a reply under way and checks what comes of it; fails where steering is not observed.

Usage: python examples/steering.py [--live [MODEL]]. Without --live a scripted server on this machine answers; with it a
real account does, with the key in OPENAI_API_KEY.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack

from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.conformance.live import Peer, live_server
from isthmus.harness import AgentDescriptor, DefaultAgent
from isthmus.models import Config

INPUT = "From now on, speak of home use alone, and say the word WALLBOX."


async def scripted(peer: Peer) -> None:
    """What a provider does that supports steering."""
    await peer.hear("response.create")
    await peer.begin("resp_1")
    await peer.hear("response.steer")
    await peer.accept("steer_1")
    await peer.text("Batteries", " store")
    await peer.end("steered")
    await peer.begin("resp_2", "resp_1")
    await peer.text(" At home, next to the WALLBOX.")
    await peer.end()


async def main(live: list[str]) -> None:
    """Ask, steer, and check."""
    async with AsyncExitStack() as stack:
        if live:
            config = Config(api_key=os.environ["OPENAI_API_KEY"], model=live[0])
        else:
            server = await stack.enter_async_context(live_server(scripted))
            config = Config(api_key="none", model="scripted", base_url=server.url)
        model = await stack.enter_async_context(ResponsesClient(config, websocket=True))
        agent = DefaultAgent(descriptor=AgentDescriptor(name="Writer", model=model))
        stream = await stack.enter_async_context(agent.run_stream("Explain battery storage in ten paragraphs."))
        receipt, statuses = None, []
        async for event in stream:
            if event.provider_event_type == "response.created" and receipt is None:
                receipt = await stream.steer(INPUT)
                statuses.append(receipt.status)
            statuses += [copy.status for copy in event.steering or ()]
            print(event.text or "", end="", flush=True)
        history = (await stream.result()).messages
    print(f"\n{statuses} {receipt.response_id}")
    if statuses != ["submitted", "accepted", "applied"]:
        sys.exit(f"the receipt should go from submitted by accepted to applied: {receipt}")
    if [message.get("content") for message in history].count(INPUT) != 1:
        sys.exit("the input should stand in the committed history once")
    if "WALLBOX" not in str(history[-1]["content"]):
        sys.exit("the successor should follow the input")


if __name__ == "__main__":
    asyncio.run(main((sys.argv[2:] or ["gpt-6-astra"]) if sys.argv[1:2] == ["--live"] else []))
