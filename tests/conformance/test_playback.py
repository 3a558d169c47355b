from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from isthmus import conformance
from isthmus.adapters import registry
from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.codec import Request
from isthmus.adapters.drive import WireAdapter
from isthmus.errors import ConfigError, ProtocolError, TransientError, tier_error
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Reasoning, Text
from isthmus.wire.call import Ended, WireCall, WireReply
from isthmus.wire.frame import Frame


class Lines:
    """A tiny protocol: each line is a text, `think` a thought, `end` the end; a whole reply is a JSON list of them."""

    dialect = "lines"

    def __init__(self) -> None:
        self.done = False

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: Any = None) -> Request:
        return Request(WireCall(path="/lines", stream=stream, framing="ndjson"))

    def decoder(self, *, whole: bool) -> Lines:
        return Lines()

    def classify(self, reply: WireReply) -> Any:
        return tier_error(
            "credentials" if reply.status == 401 else "transient", f"HTTP {reply.status}", status=reply.status
        )

    def feed(self, frame: Frame) -> list[Any]:
        value = json.loads(frame.data)
        if isinstance(value, list):
            return [Text(item) for item in value]
        if value == "end":
            self.done = True
            return []
        if value == "bad":
            raise ProtocolError("a bad line")
        if value == "bug":
            raise KeyError("x")
        return [Reasoning(value[6:])] if value.startswith("think") else [Text(value)]

    def close(self, ended: Ended) -> list[Any]:
        if not self.done and ended is not Ended.FRAMED:
            raise TransientError("cut")
        return [Finish("stop", raw_reason="end" if self.done else None)]


class NoKeys:
    """No key is needed."""

    refreshable = False

    async def headers(self, *, refresh: bool = False) -> Mapping[str, str]:
        return {}

    def secrets(self) -> list[str]:
        return []


class LinesAdapter(WireAdapter):
    """The adapter of that protocol; knows how it was made and called."""

    provider = "lines"
    made: tuple[Any, ...] = ()
    streamed: bool | None = None

    def __init__(self, *, model: str, api_key: str, transport: Any) -> None:
        self.model = model
        LinesAdapter.made = (model, api_key, type(transport).__name__)
        self._wire(Lines(), transport, NoKeys(), "http://lines")

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        LinesAdapter.streamed = True
        async for event in super().stream(ctx):
            yield event

    async def generate(self, ctx: GenerateContext) -> Any:
        LinesAdapter.streamed = False
        return await super().generate(ctx)


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter under the name `lines`."""
    monkeypatch.setattr(registry, "_registered", {"lines": LinesAdapter})
    LinesAdapter.streamed = None


def record(folder: Path, body: bytes, *, stream: bool = True, status: int = 200, path: str = "/lines") -> Path:
    """A recording."""
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(json.dumps({"path": path, "body": {"model": "m", "stream": stream}}))
    kind = "application/x-ndjson" if stream else "application/json"
    meta = {"status": status, "headers": [["content-type", kind]], "stream": stream and status == 200}
    (folder / "response.meta.json").write_text(json.dumps(meta))
    (folder / "response.body").write_bytes(body)
    return folder


STREAM = b'"think well"\n"one "\n"two"\n"end"\n'


@pytest.mark.parametrize("split", [None, 1, 3, 1000])
def test_a_stream_is_decoded_by_the_adapters_own_codec(tmp_path: Path, split: int | None) -> None:
    """Any split of the recorded bytes gives the same result."""
    result = conformance.replay(record(tmp_path / "r", STREAM), adapter="lines", split=split)
    assert (result.text, result.reasoning, result.finish, result.raw_reason) == ("one two", "well", "stop", "end")
    assert LinesAdapter.streamed is True
    assert LinesAdapter.made == ("m", "replayed", "RecordingTransport")


def test_a_whole_reply_is_decoded_whole(tmp_path: Path) -> None:
    """A recording that was not streamed goes through `generate`."""
    result = conformance.replay(record(tmp_path / "r", b'["one"]', stream=False), adapter="lines")
    assert result.text == "one"
    assert LinesAdapter.streamed is False


def test_a_failure_in_the_middle_keeps_what_had_arrived(tmp_path: Path) -> None:
    """The result is "error-post", with the text and reasoning so far and the classified error."""
    result = conformance.replay(record(tmp_path / "r", b'"think well"\n"one"\n"bad"\n'), adapter="lines")
    assert (result.finish, result.text, result.reasoning) == ("error-post", "one", "well")
    assert result.error is not None
    assert result.to_dict()["error"]["class"] == "protocol"


def test_a_failure_before_any_text_keeps_the_reasoning(tmp_path: Path) -> None:
    """Side events that arrived are in the result too."""
    result = conformance.replay(record(tmp_path / "r", b'"think well"\n"bad"\n'), adapter="lines")
    assert (result.finish, result.text, result.reasoning) == ("error-post", "", "well")


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_status_is_a_result_with_its_class(tmp_path: Path, stream: bool) -> None:
    """A recorded 401 is a "credentials" error, streamed or not."""
    result = conformance.replay(record(tmp_path / "r", b"{}", stream=stream, status=401), adapter="lines")
    assert result.finish == "error-post"
    assert result.to_dict()["error"] == {
        "class": "credentials",
        "message": "HTTP 401",
        "status": 401,
        "code": None,
        "retry_after": None,
    }


def test_a_decoder_that_breaks_is_reported_as_a_result(tmp_path: Path) -> None:
    """An adapter's own defect is a "protocol" error with what had arrived, never a traceback."""
    result = conformance.replay(record(tmp_path / "r", b'"one"\n"bug"\n'), adapter="lines")
    assert result.to_dict()["error"]["class"] == "protocol"
    assert result.text == "one"


async def test_it_works_inside_a_running_loop(tmp_path: Path) -> None:
    """It is a plain function there too."""
    assert conformance.replay(record(tmp_path / "r", STREAM), adapter="lines").text == "one two"


def test_no_adapter_for_a_path_is_an_error(tmp_path: Path) -> None:
    """A path that no built-in adapter uses asks for a name."""
    with pytest.raises(ConfigError, match=r"'/lines'.*name one"):
        conformance.replay(record(tmp_path / "r", STREAM))


def test_an_adapter_without_transport_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that would go to the network instead is not called."""

    class Direct:
        def __init__(self, *, model: str = "") -> None: ...
        def generate(self, ctx: object) -> None:
            raise AssertionError("called")

    monkeypatch.setattr(registry, "_registered", {"direct": Direct})
    with pytest.raises(ConfigError, match="transport"):
        conformance.replay(record(tmp_path / "r", STREAM), adapter="direct")


def test_a_folder_that_is_no_recording_is_named(tmp_path: Path) -> None:
    """A missing or broken file is named."""
    with pytest.raises(ConfigError, match=r"request\.json"):
        conformance.replay(tmp_path, adapter="lines")
    folder = record(tmp_path / "r", STREAM)
    (folder / "response.meta.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"response\.meta\.json"):
        conformance.replay(folder, adapter="lines")


def test_an_adapter_with_a_client_of_its_own_gets_it_at_its_base_url(tmp_path: Path, monkeypatch: Any) -> None:
    """A recording reaches an adapter that takes no transport through a server on loopback, split as asked."""

    class Own(ModelAdapter):
        def __init__(self, *, base_url: str = "") -> None:
            self.base_url = base_url

        async def stream(self, ctx: Any) -> Any:
            async with aiohttp.ClientSession() as session, session.post(f"{self.base_url}/lines") as reply:
                yield Text((await reply.text()).strip())
            yield Finish("stop")

    monkeypatch.setattr(registry, "_registered", {"own": Own})
    for split in (None, 1):
        step = conformance.replay(record(tmp_path / f"r{split}", STREAM), adapter="own", split=split)
        assert step.text.encode() == STREAM.strip()
