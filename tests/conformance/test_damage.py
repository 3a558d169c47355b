"""What each kind of damage does to a reply."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.conformance import Play, serve
from isthmus.conformance.damage import Cut, Damage, DoubleEnd, ErrorInside, Garbage, NoEnd, Reset, Split, Stall, Status
from isthmus.conformance.forever import damage_of
from isthmus.conformance.plays import Received
from isthmus.conformance.reply import End, Reply
from isthmus.conformance.wire import sse_frames
from isthmus.errors import ConfigError, TierError
from isthmus.models.contract import GenerateContext
from support.cuts import codec
from support.rawclient import CHAT_PATH, MESSAGES_PATH

STREAM = b'{"stream": true}'
CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
PATHS = {"openai": CHAT_PATH, "anthropic": MESSAGES_PATH}


def damaged(path: str, *damages: Damage, stream: bool = True) -> tuple[Reply, Reply]:
    """The reply to a request before and after."""
    (play,) = Play.steps({"text": "one two three", "usage": {"input_tokens": 1, "output_tokens": 2}})
    request = Received("POST", path, {}, STREAM if stream else b"{}")
    return play.answer(request), play.damaged(*damages).answer(request)


@pytest.mark.parametrize("path", PATHS.values())
def test_an_end_may_be_missing_or_come_twice(path: str) -> None:
    """Without its end a stream has all other frames; with a double end it has all, and those of the end again."""
    right, without = damaged(path, NoEnd())
    _, twice = damaged(path, DoubleEnd())
    frames, kept = sse_frames(right.body), sse_frames(without.body)
    assert frames[: len(kept)] == kept
    assert sse_frames(twice.body) == [*frames, *frames[len(kept) :]]
    assert 0 < len(kept) < len(frames)


@pytest.mark.parametrize("path", PATHS.values())
def test_an_error_inside_ends_the_stream(path: str) -> None:
    """An error inside comes after so many frames and is the last one; the status is still 200."""
    right, broken = damaged(path, ErrorInside(2))
    frames = sse_frames(broken.body)
    assert frames[:2] == sse_frames(right.body)[:2]
    assert (len(frames), b"overloaded" in frames[2], broken.status) == (3, True, 200)


@pytest.mark.parametrize("damage", [NoEnd(), DoubleEnd(), ErrorInside()])
def test_what_needs_a_stream_says_so(damage: Damage) -> None:
    """Damage to frames of a whole reply, or of a dialect that nobody knows, is an error and not left out in silence."""
    with pytest.raises(ConfigError, match="event stream"):
        damaged(CHAT_PATH, damage, stream=False)
    with pytest.raises(ConfigError, match="dialect"):
        Play.stream(b"data: 1\n\n").damaged(damage).answer(Received("POST", "/odd", {}))


def test_damage_is_done_in_order() -> None:
    """Each kind of damage meets what the one before left."""
    request = Received("POST", "/", {})
    first = Play.whole(b"abcdef").damaged(Garbage(2, b"XX"), Cut(5), Split(2)).answer(request)
    assert first.pieces == (b"ab", b"XX", b"c", End.CLOSE)
    assert first.declared == 8
    second = Play.whole(b"abcdef").damaged(Cut(5), Garbage(2, b"XX")).answer(request)
    assert second.body == b"abXXcde"


@pytest.mark.parametrize("provider", PATHS)
@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (NoEnd(), "transient"),
        (ErrorInside(2), "unavailable"),
        (Cut(400), "transient"),
        (Reset(400), "transient"),
        (Reset(), "transient"),
        (Garbage(0), "protocol"),
        (Status(429), "transient"),
        (Status(529), "unavailable"),
    ],
    ids=repr,
)
async def test_f01_our_own_adapters_take_none_of_it_for_a_success(provider: str, damage: Damage, kind: str) -> None:
    """F01: over a real socket each of these is an error of its class to an adapter."""
    from isthmus import connect

    async with serve(Play.steps("one two three")[0].damaged(damage)) as server:
        base = server.url + ("/v1" if provider == "openai" else "")
        async with connect(f"{provider}:m", api_key="none", base_url=base) as adapter:
            with pytest.raises(TierError) as caught:
                await folded(adapter)
    assert caught.value.error_class == kind, caught.value
    assert not server.problems


async def folded(adapter: Any) -> None:
    """Read a stream to its end."""
    async for _ in adapter.stream(CTX):
        pass


@pytest.mark.parametrize("provider", PATHS)
@pytest.mark.parametrize("damage", [Split(1), DoubleEnd(), Stall(100, seconds=0.01)], ids=repr)
async def test_harmless_damage_changes_nothing(provider: str, damage: Damage) -> None:
    """F06: a split, a pause and what comes after the end leave the reply as it is."""
    from isthmus import connect

    async with serve(Play.steps("one two three")[0].damaged(damage)) as server:
        base = server.url + ("/v1" if provider == "openai" else "")
        async with connect(f"{provider}:m", api_key="none", base_url=base) as adapter:
            result = await adapter.stream(CTX).result()
    assert (result.text, result.finish, result.error) == ("one two three", "stop", None)


@pytest.mark.parametrize(
    ("spec", "damage"),
    [
        ("split", Split(1)),
        ("split:7", Split(7)),
        ("cut:100", Cut(100)),
        ("cut-framed:100", Cut(100, framed=True)),
        ("reset", Reset()),
        ("reset:3", Reset(3)),
        ("stall:3", Stall(3)),
        ("status:429", Status(429)),
        ("no-end", NoEnd()),
    ],
)
def test_damage_can_be_written(spec: str, damage: Damage) -> None:
    """The command's spelling of each kind of damage."""
    assert damage_of(spec) == damage


@pytest.mark.parametrize("spec", ["", "cut", "cut:x", "explode", "status:"])
def test_what_names_no_damage_lists_what_does(spec: str) -> None:
    """A spelling that is none is an error with the list."""
    with pytest.raises(ConfigError, match="no-end"):
        damage_of(spec)


def test_the_codecs_of_both_dialects_are_here() -> None:
    """The dialects of the plays are those of our codecs."""
    from isthmus.conformance.plays import WIRES

    assert [codec(wire.dialect).dialect for wire in WIRES] == [wire.dialect for wire in WIRES]
