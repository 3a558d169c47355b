from __future__ import annotations

import logging
from typing import Any

import pytest

from isthmus.models.events import Usage
from isthmus.observability import hooks
from isthmus.observability.log import LogSink, start


@pytest.fixture
def wire(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All that the sink writes with the wire switched on."""
    caplog.set_level(logging.DEBUG, "isthmus")
    return caplog


def emit(*records: hooks.Record, wire: bool = True) -> None:
    """Send records through a sink."""
    with hooks.sink(LogSink(wire=wire)):
        for record in records:
            hooks.emit(record)


URL = "https://me:CANARY-9@host/v1/chat?key=CANARY-8&x=1"


def sent(body: bytes = b"{}", **headers: str) -> hooks.WireSent:
    """A request."""
    return hooks.WireSent(method="POST", url=URL, headers=headers, body=body)


def chunk(data: bytes) -> hooks.WireChunk:
    """A piece of a reply."""
    return hooks.WireChunk(url=URL, data=data)


def ended(**fields: Any) -> hooks.ChainEvent:
    """The end of a try."""
    return hooks.ChainEvent(type="attempt.finished", chain="c", tier="a", seconds=1.5, **fields)


def test_the_wire_log_shows_method_address_headers_bodies_and_chunks(wire: pytest.LogCaptureFixture) -> None:
    """A whole exchange can be read in the log."""
    emit(
        sent(b'{"model": "m"}', accept="text/event-stream"),
        hooks.WireReceived(url=URL, status=200, headers={"server": "s"}),
        chunk(b"data: one\n\n"),
        ended(finish="stop", usage=Usage(output_tokens=1)),
    )
    for part in ("POST https://", "host/v1/chat", "accept", '"model": "m"', "< 200", "data: one", "finish=stop"):
        assert part in wire.text
    assert {record.name.split(".")[0] for record in wire.records} == {"isthmus"}


@pytest.mark.parametrize(
    "name", ["authorization", "x-api-key", "api-key", "cookie", "x-goog-token", "proxy-authorization"]
)
def test_no_header_shows_a_secret(wire: pytest.LogCaptureFixture, name: str) -> None:
    """F29: headers that carry keys are hidden whatever their value looks like."""
    emit(sent(**{name: "CANARY"}), hooks.WireReceived(url=URL, status=401, headers={name: "CANARY"}))
    assert name in wire.text
    assert "CANARY" not in wire.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"api_key": "CANARY"}',
        b'{"client_secret" : "CAN\\"CANARY"}',
        b'{"error": "Incorrect API key provided: sk-CANARY12345"}',
        b"authorization: Bearer CANARY12345",
    ],
)
def test_no_body_shows_a_secret(wire: pytest.LogCaptureFixture, body: bytes) -> None:
    """F29: keys in bodies are hidden, by the member's name or by their shape."""
    emit(sent(body), chunk(body), ended())
    assert "CANARY" not in wire.text


@pytest.mark.parametrize("at", range(1, 38))
def test_a_key_cut_in_two_by_chunks_is_hidden(wire: pytest.LogCaptureFixture, at: int) -> None:
    """F29: a key is recognised wherever the network cut it."""
    body = b'{"error": "key sk-abcdefCANARY wrong"}'
    emit(chunk(body[:at]), chunk(body[at:]), ended())
    assert "CANARY" not in wire.text
    assert "efCAN" not in wire.text
    assert "wrong" in wire.text


def test_what_was_held_back_is_written_at_the_end(wire: pytest.LogCaptureFixture) -> None:
    """The last word of a body is not lost."""
    emit(chunk(b"data: [DONE]"), chunk(b" last-word"), ended())
    assert "last-word" in wire.text


def test_without_the_wire_switch_no_body_is_written(wire: pytest.LogCaptureFixture) -> None:
    """At "debug" heads of replies are shown, and no content."""
    emit(sent(b"prompt-text"), hooks.WireReceived(url=URL, status=200, headers={}), chunk(b"reply-text"), wire=False)
    assert "prompt-text" not in wire.text
    assert "reply-text" not in wire.text
    assert "< 200" in wire.text


def test_turns_chains_and_tools_are_written_under_their_names(wire: pytest.LogCaptureFixture) -> None:
    """Each kind of record has a logger of its own; no key is in any."""
    emit(
        hooks.ChainEvent(type="attempt.failed", chain="c", tier="a", message="bad key sk-CANARY12345"),
        hooks.TurnEnded(agent="agent", run_id="1", outcome="cut", reason="exhausted", steps=2),
        hooks.ToolEnded(tool="t", call_id="1", seconds=0.1, outcome="ok"),
        wire=False,
    )
    assert {record.name for record in wire.records} == {"isthmus.turn", "isthmus.chain", "isthmus.tool"}
    assert "agent: cut (exhausted) after 2 steps" in wire.text
    assert "CANARY" not in wire.text


def test_the_switch_can_be_turned_off_again(capsys: pytest.CaptureFixture[str]) -> None:
    """`start` writes to stderr until what it returned is called."""
    stop = start("info")
    hooks.emit(hooks.ChainEvent(type="seen", chain="c"))
    stop()
    hooks.emit(hooks.ChainEvent(type="unseen", chain="c"))
    err = capsys.readouterr().err
    assert "seen" in err
    assert "unseen" not in err


def test_an_unknown_level_is_refused() -> None:
    """The error lists the levels."""
    with pytest.raises(ValueError, match="info, debug, wire"):
        start("loud")
