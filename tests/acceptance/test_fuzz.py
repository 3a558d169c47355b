"""Any bytes at all: no exception outside the tree of errors, no hang, and memory within the adapter's limit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import ErrorClass, TierError
from isthmus.models.events import StepResult
from isthmus.models.jsontext import dumps
from isthmus.wire.call import Ended
from isthmus.wire.partial_json import PartialJson
from support import floods, fuzzing

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
CHANCES = st.integers(0, 2**32).map(random.Random)
MUCH = 40


@pytest.mark.parametrize("provider", fuzzing.SETTINGS)
@QUICK
@given(data=st.data(), chance=CHANCES)
def test_a_decoder_gives_a_reply_or_an_error_of_the_tree(
    provider: str, data: st.DataObject, chance: random.Random
) -> None:
    """A reply made worse is a usable reply or a classified error, the same however it is split."""
    body = fuzzing.worse(data.draw(st.sampled_from(fuzzing.seeds(provider))), chance, most=20_000)
    kind, ended = data.draw(st.sampled_from(fuzzing.KINDS)), data.draw(st.sampled_from(list(Ended)))
    size = data.draw(st.sampled_from((1, 7, 64))) if len(body) < 3000 else 997
    fuzzing.run(fuzzing.check_decoder, provider, body, size=size, kind=kind, ended=ended)


@QUICK
@given(body=st.binary(max_size=400) | st.text(alphabet='{}[]":,\\ua1e-\r\n dtervn', max_size=200).map(str.encode))
def test_the_readers_take_any_bytes(body: bytes) -> None:
    """A reader gives the same frames for any split, and none that it would not give without a limit."""
    for size in (1, 3, 50):
        fuzzing.check_readers(body, size)


@QUICK
@given(provider=st.sampled_from([*fuzzing.SETTINGS]), chance=CHANCES)
def test_the_readers_take_damaged_streams(provider: str, chance: random.Random) -> None:
    """The same of streams that were made worse."""
    fuzzing.check_readers(
        fuzzing.worse(chance.choice(fuzzing.seeds(provider)), chance, most=3000), chance.choice((1, 9))
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("provider", fuzzing.PROVIDERS)
def test_a_reply_without_end_ends_at_the_limit(provider: str, whole: bool) -> None:
    """Lines, events, comments, documents and depth without end fail as "protocol", with memory bound by the limit."""
    for name in floods.floods(provider):
        error, peak = floods.flooded(provider, name, whole=whole)
        assert isinstance(error, TierError), name
        assert error.error_class == ErrorClass.PROTOCOL, name
        assert peak < MUCH * floods.LIMIT, f"{name}: {peak} bytes"


@pytest.mark.parametrize("provider", fuzzing.PROVIDERS)
def test_a_reply_within_the_limit_is_read(provider: str) -> None:
    """A reply of just as many bytes as may come is read, one of a byte more is refused."""
    body = next(event for event in fuzzing.seeds(provider) if _is_reply(provider, event))
    for spare, expected in ((0, StepResult), (-1, TierError)):
        adapter = fuzzing.adapter_of(provider, [body], kind=fuzzing.KINDS[1])
        adapter.max_reply_bytes = len(body) + spare
        assert isinstance(fuzzing.run(fuzzing.heard, adapter, whole=True), expected)


def _is_reply(provider: str, body: bytes) -> bool:
    adapter = fuzzing.adapter_of(provider, [body], kind=fuzzing.KINDS[1])
    return isinstance(fuzzing.run(fuzzing.heard, adapter, whole=True), StepResult)


FOUND = {
    "a native item with half a character": (
        "openai-responses",
        (
            b'{"id":"r","object":"response","status":"completed","output":[{"id":"f","type":"function_call",'
            b'"status":"completed","call_id":"\\ud800","name":"\\ud800","arguments":"{}"}]}'
        ),
        "application/json",
    ),
    "a native block that is no UTF-8": (
        "anthropic",
        (
            b'{"type":"message","role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"x","input":'
            b'{"code":"a\xb7b"}},{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{}}'
        ),
        fuzzing.KINDS[1],
    ),
    "blanks that came before what is no stream of the kind that its type says": (
        "bedrock",
        b"\r\n[DONE]\xec",
        fuzzing.KINDS[0],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_fuzzing_found_stays_mended(name: str) -> None:
    """Bytes that once raised another exception, or gave two answers, give one."""
    provider, body, kind = FOUND[name]
    for ended in Ended:
        for size in (2, 5):
            fuzzing.run(fuzzing.check_decoder, provider, body, size=size, kind=kind, ended=ended)


def test_depth_ends_a_preview() -> None:
    """A text that nests deeper than its reader may go is no longer followed; what was shown can be encoded."""
    partial = PartialJson(depth=20)
    partial.feed("[" * 21)
    assert not partial.ok
    partial = PartialJson()
    partial.feed('{"a":' * 100_000)
    assert not partial.ok
    assert dumps(partial.value)
