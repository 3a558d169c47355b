from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from isthmus.adapters.local import LocalAdapter, adapter, engine, weights
from isthmus.errors import ConfigError, MissingDependencyError, UnavailableError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text

ROOT = Path(__file__).parents[3]
HELLO = GenerateContext(messages=({"role": "user", "content": "Say hello to Anna."},), max_output_tokens=24)


def get(url: str, key: str = "") -> tuple[int, Any]:
    """Status and JSON of a GET, without any proxy."""
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def key_of(local: LocalAdapter) -> str:
    """The key of a running server."""
    (key,) = local.keys.secrets()
    return str(key)


def test_the_ceiling_is_half_the_window():
    """LocalAdapter's ceiling of a reply is half its window, whatever is asked for."""
    local = LocalAdapter()
    assert (local.id, local.window_tokens, local.max_output_tokens) == ("local:SmolLM2-135M-Instruct", 8192, 4096)
    assert LocalAdapter(n_ctx=1000).max_output_tokens == 500
    assert LocalAdapter(n_ctx=1000, max_tokens=900).max_tokens == 500
    assert LocalAdapter(max_tokens=60).max_tokens == 60
    assert LocalAdapter(max_tokens=0).max_tokens == 4096
    told = LocalAdapter(n_ctx=1000).capabilities()
    assert (told.context_window, told.max_output_tokens) == (1000, 500)


@pytest.mark.parametrize("size", [8193, -1])
def test_a_window_that_the_model_was_not_trained_for_is_refused(size: int):
    """`n_ctx` beyond the trained context is an error that names the limit."""
    with pytest.raises(ConfigError, match=f"n_ctx: {size} is out of range: .* 8192 tokens"):
        LocalAdapter(n_ctx=size)


def test_an_unknown_model_is_refused_when_it_is_named():
    """A model that is neither the default nor a file is an error at once, and says what to name."""
    with pytest.raises(ConfigError, match=r"model: .*SmolLM9.*must name a GGUF file"):
        LocalAdapter("SmolLM9")


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    """Without xllamacpp the adapter says which extra installs it."""
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"isthmus\[local\]"):
        LocalAdapter()


def test_making_an_adapter_loads_nothing():
    """An adapter that was made but not called has loaded no llama.cpp and no HTTP client."""
    code = (
        "import sys; from isthmus.adapters.local import LocalAdapter; LocalAdapter();"
        "print(sorted({'xllamacpp', 'aiohttp', 'rich'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True, text=True)
    assert done.stdout == "[]\n"


async def test_a_start_that_failed_is_classified_and_tried_again():
    """Weights that can't be had are an "unavailable" error for all who wait for them, and the next call tries again."""
    source = _Failing()
    lease = engine.Lease(engine.Settings(model="m", weights=source, window=64, slots=1, threads=1))
    try:
        first, same = lease.engine.start(), lease.engine.start()
        assert first is same
        source.go.set()
        with pytest.raises(UnavailableError, match="try 1"):
            await asyncio.wrap_future(first)
        with pytest.raises(UnavailableError, match="try 2"):
            await asyncio.wrap_future(lease.engine.start())
    finally:
        lease.release()


class _Failing:
    """Weights that are never there, and take until `go` to say so."""

    def __init__(self) -> None:
        self.tries = 0
        self.go = threading.Event()

    def found(self) -> None:
        return None

    def ensure(self) -> Path:
        self.go.wait(30)
        self.tries += 1
        raise UnavailableError(f"try {self.tries}")


def test_the_diagnosis_says_where_the_weights_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`diagnose()` names the file, or says that it is still to be fetched; it fetches nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    assert list(LocalAdapter().diagnose()) == [
        "weights of SmolLM2-135M-Instruct: not here yet: the first call fetches them"
    ]


@pytest.mark.model
async def test_a_file_that_is_no_model_is_unavailable(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """A GGUF file that llama.cpp cannot load is an "unavailable" error that names the model, and prints nothing."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 20) + b"llama.context_length"
    (tmp_path / "broken.gguf").write_bytes(head + struct.pack("<II", 4, 2048))
    local = LocalAdapter(str(tmp_path / "broken.gguf"))
    assert (local.id, local.window_tokens) == ("local:broken", 2048)
    with pytest.raises(UnavailableError, match="broken"):
        await local.generate(HELLO)
    await local.aclose()
    assert capfd.readouterr() == ("", "")


@pytest.mark.model
async def test_equal_settings_share_one_server_until_the_last_is_closed():
    """Adapters with equal settings use one server, started once; it stops with the last, and can start again."""
    one, two = LocalAdapter(threads=1, parallel=1), LocalAdapter(threads=1, parallel=1, max_tokens=9)
    first, second = await asyncio.gather(one.start(), two.start())
    assert first == second == one.base_url
    assert key_of(one) == key_of(two)
    await one.aclose()
    await one.aclose()
    assert get(first + "/models", key_of(two))[0] == 200
    await two.aclose()
    with pytest.raises(urllib.error.URLError):
        get(first + "/models")
    async with one:
        assert (await one.generate(HELLO)).text


@pytest.mark.model
async def test_the_server_wants_its_key_and_gives_each_slot_the_window():
    """The server refuses strangers on the same machine, and each slot has the promised window."""
    async with LocalAdapter(n_ctx=512, threads=1) as local:
        url = await local.start()
        assert url.startswith("http://127.0.0.1:")
        assert get(url + "/models")[0] == 401
        root = url.removesuffix("/v1")
        status, slots = get(root + "/slots", key_of(local))
        assert (status, [slot["n_ctx"] for slot in slots]) == (200, [512, 512])
        assert key_of(local) not in repr(local) + repr(local.keys) + repr(vars(local))


@pytest.mark.model
async def test_a_reply_streams_and_the_loop_runs_meanwhile(capfd: pytest.CaptureFixture[str]):
    """A reply arrives in pieces and ends with one finish; start and reply neither block the loop nor print anything."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    async with LocalAdapter(threads=1, parallel=1) as local:
        await local.start()
        during_start = beats
        events = [event async for event in local.stream(HELLO)]
    beating.cancel()
    assert sum(isinstance(event, Text) for event in events) >= 5
    assert isinstance(events[-1], Finish)
    assert events[-1].usage.output_tokens
    assert during_start > 100
    assert beats > during_start + 100
    assert capfd.readouterr() == ("", "")


@pytest.mark.model
def test_a_process_that_closes_nothing_ends_cleanly():
    """A process that never closes its adapter ends with status 0 and says nothing."""
    code = """
import asyncio
from isthmus.adapters.local import LocalAdapter
local = LocalAdapter(threads=1, parallel=1)
asyncio.run(local.start())
print("started")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, env=environment, timeout=120, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


@pytest.mark.model
async def test_an_adapter_that_is_forgotten_stops_its_server():
    """Dropping the last reference to the only adapter stops the server."""
    local = LocalAdapter(threads=1, parallel=1, n_ctx=256)
    url = await local.start()
    assert get(url + "/models", key_of(local))[0] == 200
    del local
    with pytest.raises(urllib.error.URLError):
        get(url + "/models")


@pytest.mark.model
async def test_a_server_can_be_stopped_at_any_moment():
    """Closing right after the start, or in the middle of a reply, ends the server and leaves nothing hanging."""
    for _ in range(3):
        local = LocalAdapter(threads=1, parallel=1, n_ctx=256)
        await local.start()
        await local.aclose()
    local = LocalAdapter(threads=1, parallel=1, n_ctx=256)
    stream = local.stream(GenerateContext(messages=({"role": "user", "content": "Tell me a long story."},)))
    assert isinstance(await anext(aiter(stream)), Text)
    await local.aclose()
    await stream.aclose()
    with pytest.raises(urllib.error.URLError):
        get(local.base_url + "/models")
