"""Adapters that record what they exchange, and adapters that play it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus import connect, define_chain
from isthmus.conformance import Play, record, replay, replayed, scripted, serve
from isthmus.conformance.faults import faulty
from isthmus.errors import ConfigError, InvalidRequestError, TierError, TransientError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, Finish, Native, Note, Reasoning, StepResult, Text, Usage
from support.turns import says

KEY = "sk-CANARY-0123456789abcdef"
STEP = {
    "text": "one two",
    "reasoning": "hm",
    "calls": [{"tool": "look", "input": {"q": 1}, "call_id": "c1"}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def ask(said: str, **more: Any) -> GenerateContext:
    """A context."""
    return GenerateContext(messages=({"role": "user", "content": said},), **more)


@pytest.mark.parametrize(("provider", "base"), [("openai", "/v1"), ("anthropic", "")])
async def test_what_an_adapter_exchanged_plays_back(tmp_path: Path, provider: str, base: str) -> None:
    """Streamed and whole replies are the same from the recording, without a network or a key, and by `replay`."""
    async with serve(Play.steps(STEP, STEP, TransientError("slow", status=429, retry_after=3))) as server:
        url = server.url + base
        async with connect(f"{provider}:m", api_key=KEY, base_url=url) as adapter:
            kept = record(adapter, tmp_path)
            live = [await kept.stream(ask(KEY)).result(), await kept.generate(ask("b"))]
            with pytest.raises(TransientError):
                await kept.generate(ask("c"))
            assert type(kept) is type(adapter)
            assert adapter.transport is not kept.transport
    offline = replayed(connect(f"{provider}:m", base_url=url, api_key="other"), tmp_path)
    again = [await offline.stream(ask(KEY)).result(), await offline.generate(ask("b"))]
    assert again == live
    with pytest.raises(TransientError) as caught:
        await offline.generate(ask("c"))
    assert caught.value.retry_after == 3
    with pytest.raises(InvalidRequestError, match=r"\$\.body\.messages\[0\]\.content"):
        await offline.generate(ask("d"))
    assert [replay(place).error for place in sorted(tmp_path.iterdir())][:2] == [None, None]
    assert replay(sorted(tmp_path.iterdir())[0]) == live[0]
    assert not [file for file in tmp_path.rglob("*.*") if "CANARY" in file.read_text()]


async def test_split_replays_are_the_same(tmp_path: Path) -> None:
    """F06: played byte by byte the reply is the same."""
    async with serve(Play.steps(STEP)) as server:
        adapter = connect("openai:m", api_key=KEY, base_url=server.url)
        async with record(adapter, tmp_path) as kept:
            live = await kept.stream(ask("a")).result()
    offline = replayed(connect("openai:m", api_key=KEY, base_url=server.url), tmp_path, split=1)
    assert await offline.stream(ask("a")).result() == live


async def test_a_reader_that_leaves_early_leaves_no_recording(tmp_path: Path) -> None:
    """F10: a break in a stream keeps nothing, and closes the socket as without the recorder."""
    play = Play.stream(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', 60.0)
    async with (
        serve(play) as server,
        record(connect("openai:m", api_key=KEY, base_url=server.url), tmp_path / "kept") as kept,
    ):
        async with kept.stream(ask("a")) as events:
            async for _ in events:
                break
        await server.until(lambda: server.open == 0)
    assert not (tmp_path / "kept").exists()


class Stranger:
    """An adapter with nothing of ours in it."""

    id = "stranger"
    supports = frozenset({"tools"})

    def __init__(self, *turns: list[Any]) -> None:
        self.api_key = KEY
        self.turns = list(turns)

    async def stream(self, ctx: GenerateContext) -> Any:
        for item in self.turns.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item


EVERYTHING: list[Any] = [
    Reasoning("hm", signature="sig"),
    Native("d", "thinking", {"x": [1, "é"]}),
    Text("one "),
    {"type": "text", "text": "two"},
    Call("look", {"q": 1}, "c1", '{"q": 1}'),
    Finish(
        "tool-calls",
        Usage(input_tokens=3, raw={"a": 1}),
        "why",
        native=Native("d", "message", [1]),
        notes=(Note("x", "y"),),
    ),
]


async def test_of_a_stranger_the_events_are_kept(tmp_path: Path) -> None:
    """Every field of every event is the same when played back, and keys are in no file."""
    tools = (ToolSpec(name="look", description="Look.", parameters_schema={"type": "object"}),)
    ctx = ask(f"my key is {KEY}", tools=tools, options={"a": 1})
    kept = record(Stranger(EVERYTHING, [*says("bye")[:1], TransientError("cut", status=500)]), tmp_path)
    live = [event async for event in kept.stream(ctx)]
    assert isinstance((await kept.stream(ask("b")).result()).error, TransientError)
    offline = replayed(Stranger(), tmp_path)
    assert [event async for event in offline.stream(ctx)] == live
    cut = await offline.stream(ask("b")).result()
    assert (cut.text, cut.error and cut.error.to_dict()) == ("bye", TransientError("cut", status=500).to_dict())
    assert not [file for file in tmp_path.rglob("*.*") if "CANARY" in file.read_text()]
    first, second = sorted(tmp_path.iterdir())
    assert replay(first) == await folded(live)
    assert (replay(second).text, replay(second).finish) == ("bye", "error-post")


async def folded(events: list[Any]) -> StepResult:
    """A stream's reply."""
    from isthmus.models.fold import consume_stream

    return await consume_stream(iter(events))


async def test_whole_replies_of_a_stranger_are_kept_too(tmp_path: Path) -> None:
    """`generate` is recorded and played back, its failures included; a chain is such a stranger."""
    chain = define_chain(id="c", tiers=[scripted([STEP, "two"], id="s")])
    kept = record(chain, tmp_path)
    live = await kept.generate(ask("a"))
    assert kept.id == "c"
    with pytest.raises(TierError):
        await record(faulty(scripted(["x"]), "credentials"), tmp_path).generate(ask("b"))
    offline = replayed(chain, tmp_path)
    again = await offline.generate(ask("a"))
    assert (again.text, again.calls, again.finish) == (live.text, live.calls, live.finish)
    with pytest.raises(TierError) as caught:
        await offline.generate(ask("b"))
    assert caught.value.error_class == "credentials"
    with pytest.raises(InvalidRequestError, match=r'\$\.context\.messages\[0\]\.content: recorded ".", asked "z"'):
        await offline.generate(ask("z"))


async def test_half_a_stream_of_a_stranger_is_not_kept(tmp_path: Path) -> None:
    """A stream that its reader leaves keeps nothing."""
    kept = record(Stranger(EVERYTHING), tmp_path / "kept")
    async with kept.stream(ask("a")) as events:
        async for _ in events:
            break
    assert not (tmp_path / "kept").exists()


def test_a_folder_without_recordings_is_an_error(tmp_path: Path) -> None:
    """Playing back from nothing is refused at once, for bytes and for events; so are events that are none."""
    for adapter in (connect("openai:m", api_key=KEY), Stranger()):
        with pytest.raises(ConfigError, match="no recording"):
            replayed(adapter, tmp_path)
    (tmp_path / "events.jsonl").write_text('{"at": 0}\n')
    with pytest.raises(ConfigError, match=r"events\.jsonl"):
        replay(tmp_path)
