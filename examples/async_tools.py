"""Runs functions while a reply goes on and checks that both overlap; fails where that is not observed.

Usage: python examples/async_tools.py [--live [MODEL]]. Without --live a scripted server on this machine answers; with
it a real account does, with the key in OPENAI_API_KEY.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack

from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.conformance.live import Peer, live_server
from isthmus.models import CancellationToken, Config, Tools, as_tool

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
    request = await peer.hear("response.create")
    assert sorted(item["call_id"] for item in request["input"]) == ["call_1", "call_2"]
    await peer.begin("resp_2", "resp_1")
    await peer.text(" Both are recorded.")
    await peer.end()


async def main(live: list[str]) -> None:
    """Ask, run what is asked for at once, and check."""
    spoke_meanwhile, never = False, CancellationToken()
    async with AsyncExitStack() as stack:
        if live:
            config = Config(api_key=os.environ["OPENAI_API_KEY"], model=live[0])
        else:
            server = await stack.enter_async_context(live_server(scripted))
            config = Config(api_key="none", model="scripted", base_url=server.url)
        client = ResponsesClient(config, websocket=True, async_tools=["lookup"])
        model = await stack.enter_async_context(client)
        run = await stack.enter_async_context(model.open_run())
        question = "Look up storage and prices, both at once. Say something while you wait, then name the results."
        history = [{"role": "user", "content": question}]
        tasks: dict[str, asyncio.Task[object]] = {}
        while True:
            async for event in run.stream_response(history, tools=Tools([lookup])):
                call = event.async_tool_call
                if call is not None and call.id not in tasks:
                    tasks[call.id] = asyncio.create_task(lookup.run(json.loads(call.function.arguments), never))
                spoke_meanwhile = spoke_meanwhile or bool(
                    event.text and any(not task.done() for task in tasks.values())
                )
                print(event.text or "", end="", flush=True)
            history.append(event.response.choices[0].message.to_dict())
            answered = {message.get("tool_call_id") for message in history}
            left = {call_id: task for call_id, task in tasks.items() if call_id not in answered}
            if not left:
                break
            results = zip(left, await asyncio.gather(*left.values()), strict=True)
            history += [{"role": "tool", "tool_call_id": call_id, "content": str(said)} for call_id, said in results]
        print(f"\n{ran}")
        if len(ran) != 2 or not overlapped:
            sys.exit(f"two calls should have run, at the same time: {ran}")
        if not spoke_meanwhile:
            sys.exit("the model should have spoken while they ran")


if __name__ == "__main__":
    asyncio.run(main((sys.argv[2:] or ["gpt-6-astra"]) if sys.argv[1:2] == ["--live"] else []))
