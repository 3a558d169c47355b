"""Runs functions while a reply goes on and checks that both overlap; fails where that is not observed.

Usage: python examples/async_tools.py [--live [MODEL]]. Without --live a scripted server on this machine answers; with
it a real account does, with the key in OPENAI_API_KEY.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack

from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.conformance.live import Peer, live_server
from isthmus.harness import AgentDescriptor, DefaultAgent
from isthmus.models import Config, Tools, as_tool

running, overlapped, ran = 0, False, []


@as_tool
async def lookup(topic: str) -> str:
    """Look a topic up; takes a while."""
    global running, overlapped
    running += 1
    overlapped = overlapped or running > 1
    await asyncio.sleep(2.0 if sys.argv[1:] else 0.05)
    running -= 1
    ran.append(topic)
    return f"Recorded topic: {topic}"


async def scripted(peer: Peer) -> None:
    """What a provider does that supports asynchronous calls."""
    await peer.hear("response.create")
    await peer.begin("resp_1")
    for number, topic in enumerate(("storage", "prices"), 1):
        await peer.call("lookup", f'{{"topic": "{topic}"}}', call_id=f"call_{number}", **{"async": True})
    await peer.text("I am looking both up.")
    await peer.end()
    left = ["call_1", "call_2"]
    for number in (2, 3):
        # Results come as they become ready: both with one request, or one by one.
        for item in (await peer.hear("response.create"))["input"]:
            left.remove(item["call_id"])
        await peer.begin(f"resp_{number}", f"resp_{number - 1}")
        if not left:
            await peer.text(" Both are recorded.")
        await peer.end()
        if not left:
            return


async def main(live: list[str]) -> None:
    """Ask, run what is asked for at once, and check."""
    spoke_meanwhile, asked = False, 0
    async with AsyncExitStack() as stack:
        if live:
            config = Config(api_key=os.environ["OPENAI_API_KEY"], model=live[0])
        else:
            server = await stack.enter_async_context(live_server(scripted))
            config = Config(api_key="none", model="scripted", base_url=server.url)
        client = ResponsesClient(config, websocket=True, async_tools=["lookup"])
        model = await stack.enter_async_context(client)
        made = AgentDescriptor(name="Research", model=model, tools=Tools([lookup]))
        question = "Look up storage and prices, both at once. Say something while you wait, then name the results."
        stream = await stack.enter_async_context(DefaultAgent(descriptor=made).run_stream(question))
        async for event in stream:
            asked += event.async_tool_call is not None
            spoke_meanwhile = spoke_meanwhile or bool(event.text and asked > len(ran))
            print(event.text or "", end="", flush=True)
        history = (await stream.result()).messages
        results = [message["content"] for message in history if message["role"] == "tool"]
        print(f"\n{ran}")
        if len(ran) != 2 or not overlapped:
            sys.exit(f"two calls should have run, at the same time: {ran}")
        if asked != 2 or sorted(results) != sorted(f"Recorded topic: {topic}" for topic in ran):
            sys.exit(f"each call should have been asynchronous, and its result in the history once: {results}")
        if not spoke_meanwhile:
            sys.exit("the model should have spoken while they ran")


if __name__ == "__main__":
    asyncio.run(main((sys.argv[2:] or ["gpt-6-astra"]) if sys.argv[1:2] == ["--live"] else []))
