"""The server that stands by itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus import connect
from isthmus.conformance import Play, record, serve
from isthmus.conformance.forever import answers_of, serve_forever
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext
from support.rawclient import CHAT_PATH, MESSAGES_PATH, Heard, ask

HI = GenerateContext(messages=({"role": "user", "content": "hi"},))


async def served(source: Path, *requests: dict[str, Any], faults: tuple[str, ...] = ()) -> list[Heard]:
    """What a server that stands for a while answers."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    heard: list[Any] = []
    task = asyncio.create_task(serve_forever(source, faults=faults, ready=url.set_result, heard=heard.append))
    try:
        replies = [await ask(await url, **request) for request in requests]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(heard) == len(requests)
    return replies


async def recordings(folder: Path, *said: str) -> None:
    """Recorded replies to streams."""
    for text in said:
        async with serve(Play.steps(f"reply to {text}")) as server:
            adapter = record(connect("openai:m", api_key="none", base_url=f"{server.url}/v1"), folder)
            await adapter.stream(GenerateContext(messages=({"role": "user", "content": text},))).result()
            await adapter.aclose()


async def test_a_script_is_played_round_and_round(tmp_path: Path) -> None:
    """A JSON list of steps answers any dialect that is known, in turn, and begins again."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["one", {"text": "two"}]))
    chat = {"path": CHAT_PATH, "stream": True}
    replies = await served(script, chat, {"path": MESSAGES_PATH, "stream": False}, chat)
    assert [b"one" in replies[0].body, b"two" in replies[1].body, b"one" in replies[2].body] == [True] * 3


async def test_recordings_are_found_by_the_request(tmp_path: Path) -> None:
    """Of a folder of recordings each request gets its own, wherever it was sent; another is told what differs."""
    await recordings(tmp_path, "a", "b")
    asked = [json.loads(file.read_text())["body"] for file in sorted(tmp_path.rglob("request.json"))]
    other = {**asked[0], "model": "other"}
    first, second, third = await served(
        tmp_path, *[{"path": CHAT_PATH, **body} for body in (asked[1], asked[0], other)]
    )
    assert (b" b" in first.body, b" a" in second.body, third.status) == (True, True, 400)
    assert b"$.body.model" in third.body


async def test_one_recording_answers_everything_with_its_faults(tmp_path: Path) -> None:
    """A folder that is a recording answers any request; faults are done to each reply."""
    await recordings(tmp_path, "a")
    (place,) = tmp_path.iterdir()
    body = (place / "response.body").read_bytes()
    (reply,) = await served(place, {"path": "/anything"}, faults=("split:7", "cut:20"))
    assert (reply.body, reply.ending) == (body[:20], "closed")
    assert [len(chunk) for chunk in reply.chunks] == [7, 7, 6]


@pytest.mark.parametrize(("text", "said"), [("{", "JSON"), ("[]", "list of steps"), ("[3]", "list of steps")])
def test_a_script_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """What holds no steps is an error that names the file."""
    script = tmp_path / "script.json"
    script.write_text(text)
    with pytest.raises(ConfigError, match=said):
        answers_of(script)
    with pytest.raises(ConfigError, match="absent"):
        answers_of(tmp_path / "absent")


async def test_recorded_times_can_be_kept(tmp_path: Path) -> None:
    """A recording plays with the network's own pauses where that is asked for."""
    meta = {"status": 200, "headers": [], "stream": True, "chunk_sizes": [1, 1], "chunk_times": [0.0, 0.03]}
    (tmp_path / "response.meta.json").write_text(json.dumps(meta))
    (tmp_path / "response.body").write_bytes(b"ab")
    async with serve(Play.recording(tmp_path, timed=True), Play.recording(tmp_path)) as server:
        before = asyncio.get_running_loop().time()
        reply = await ask(server.url)
        assert asyncio.get_running_loop().time() - before >= 0.03
        assert reply.chunks == (await ask(server.url)).chunks == [b"a", b"b"]
