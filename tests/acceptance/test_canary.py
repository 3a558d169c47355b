"""A key shows up nowhere, however it was given and whatever fails."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from isthmus import build, connect, define_chain
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.adapters.langserve import LangServeAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.chain import RetryPolicy
from isthmus.errors import ConfigError, IsthmusError, TierError
from isthmus.harness import DefaultAgent
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.observability import hooks, log
from support.homes import Home, enter_home
from support.loopback import CLOSE, HOLD, RESET, LoopbackServer, stream, whole

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))
# One that looks like a key, and one that does not.
KEYS = ["sk-CANARY-0123456789abcdef", "CANARYplainWords+42"]
ADAPTERS = {
    "chat": OpenAIChatAdapter,
    "messages": AnthropicAdapter,
    "converse": BedrockAdapter,
    "runnable": LangServeAdapter,
}
# To a runnable any JSON with a content is a reply.
REPLIES = {("runnable", "wrong-json")}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own, without any key or proxy of the machine's."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return enter_home(tmp_path, monkeypatch)


def shown(thing: Any, depth: int = 7, seen: set[int] | None = None) -> Iterator[str]:
    """What `repr` and `str` show of a thing and of everything that hangs on it."""
    seen = set() if seen is None else seen
    if depth == 0 or id(thing) in seen or isinstance(thing, type) or callable(thing):
        return
    seen.add(id(thing))
    yield repr(thing)
    if isinstance(thing, BaseException):
        yield str(thing)
        yield from shown(thing.args, depth - 1, seen)
        for linked in (thing.__cause__, thing.__context__):
            yield from shown(linked, depth - 1, seen)
    if isinstance(thing, dict):
        for item in thing.values():
            yield from shown(item, depth - 1, seen)
        return
    if isinstance(thing, list | tuple):
        for item in thing:
            yield from shown(item, depth - 1, seen)
    with suppress(TypeError):
        yield from shown(vars(thing), depth - 1, seen)
    for kind in type(thing).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if isinstance(name, str) and not name.startswith("__"):
                yield from shown(getattr(thing, name, None), depth - 1, seen)


def told(error: BaseException) -> Iterator[str]:
    """What an error tells: itself, its chain, and its traceback with the locals of all frames but the tests' own."""
    yield from shown(error)
    yield str(getattr(error, "to_dict", dict)())
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    while told is not None:
        for frame in told.stack:
            if "/tests/" not in frame.filename:
                yield f"{frame.filename}:{frame.lineno} {frame.locals}"
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)  # type: ignore[assignment]


def assert_hidden(texts: Any, *keys: str) -> None:
    """None of the keys is in any of the texts."""
    for text in texts:
        for key in keys:
            assert key not in text, text[max(0, text.index(key) - 300) : text.index(key) + 60]


class Listening:
    """Everything that records and logs say in a block, at the most talkative level."""

    def __enter__(self) -> Listening:
        self.records: list[Any] = []
        self._stream = io.StringIO()
        self._handler = logging.StreamHandler(self._stream)
        self._root = logging.getLogger()
        self._root.addHandler(self._handler)
        self._level = self._root.level
        self._root.setLevel(logging.DEBUG)
        self._removes = [hooks.add_sink(self.records.append), log.start("info"), log.start("debug"), log.start("wire")]
        return self

    def __exit__(self, *_: object) -> None:
        for remove in self._removes:
            remove()
        self._root.removeHandler(self._handler)
        self._root.setLevel(self._level)

    def said(self) -> Iterator[str]:
        """All of it, as text."""
        for record in self.records:
            yield repr(record)
            yield str(dataclasses.asdict(record))
        yield self._stream.getvalue()


def echo(key: str) -> dict[str, Any]:
    """Answers of a server that repeats the key wherever it can, by name."""
    said = f"Incorrect API key provided: {key}"
    body = json.dumps({"error": {"message": said, "type": f"bad {key}", "code": f"code-{key}"}}).encode()
    frame = b"data: " + body + b"\n\n"
    return {
        "401": [whole(body, 401, www_authenticate=f"Bearer {key}", x_echo=key)],
        "429": [whole(body, 429, retry_after="99", x_echo=key)],
        "500-text": [whole(said.encode(), 500, content_type="text/plain")],
        "400-html": [whole(f"<p>{said}</p>".encode(), 400, content_type="text/html")],
        "200-html": [whole(f"<p>{said}</p>".encode(), 200, content_type="text/html")],
        "302": [whole(b"", 302, location=f"http://elsewhere/?key={key}")],
        "in-band": stream(frame, x_echo=key),
        "malformed": stream(f"data: {{nonsense {key}\n\n".encode(), b"data: {}\n\n"),
        "wrong-type": stream(
            f'data: {{"choices": "{key}", "type": "content_block_delta", "index": "{key}"}}\n\n'.encode()
        ),
        "wrong-json": [whole(f'{{"choices": [{{"message": "{key}"}}], "content": "{key}"}}'.encode())],
        "cut": [*stream(f": {key}\n\n".encode(), last=False), CLOSE],
        "reset": [RESET],
        "not-http": [f"{key}\r\n\r\n".encode(), CLOSE],
    }


async def failures(call: Callable[[], Any]) -> list[BaseException]:
    """The errors of a call, streamed and whole."""
    caught: list[BaseException] = []
    for stream_it in (True, False):
        try:
            target = call()
            if stream_it:
                async for event in target.stream(ASK):
                    if event.type == "finish" and event.error is not None:
                        raise event.error
            else:
                step = await target.generate(ASK)
                if step.error is not None:
                    raise step.error
        except (IsthmusError, asyncio.CancelledError) as error:
            caught.append(error)
    return caught


@pytest.mark.parametrize(("dialect", "kind"), [pair for pair in product(ADAPTERS, echo("")) if pair not in REPLIES])
@pytest.mark.parametrize("key", KEYS)
async def test_no_failing_call_shows_its_key(home: Home, dialect: str, key: str, kind: str) -> None:
    """F29: a server that echoes the key in header and body, makes no error, record or log show it."""
    async with LoopbackServer([echo(key)[kind]]) as server:
        adapter = ADAPTERS[dialect](model="m", base_url=server.url, api_key=key)
        chain = define_chain(id="c", tiers=[adapter], retry=RetryPolicy(max_retries=0))
        agent = DefaultAgent(model=chain)
        with Listening() as heard:
            caught = [*await failures(lambda: adapter), *await failures(lambda: chain)]
            with suppress(TierError):
                await agent.run("hello")
        assert server.requests
        assert key in " ".join(server.requests[0].headers.values())
        assert caught
        for error in caught:
            assert_hidden(told(error), key)
        for thing in (adapter, chain, agent):
            assert_hidden(shown(thing), key)
        assert_hidden(heard.said(), key)
        await adapter.aclose()


@pytest.mark.parametrize("key", KEYS)
async def test_no_call_that_never_arrives_shows_its_key(home: Home, key: str) -> None:
    """F29: refused, unknown host, TLS failure, cancelled and timed out: none shows the key."""
    async with LoopbackServer([[HOLD]]) as server:
        places = {
            "refused": "http://127.0.0.1:9",
            "dns": "http://nowhere.invalid",
            "tls": server.url.replace("http", "https"),
            "hangs": server.url,
        }
        for kind, url in places.items():
            adapter = OpenAIChatAdapter(
                model="m", base_url=url, api_key=key, timeouts=Timeouts(connect=0.3, first_content=0.2)
            )

            async def call(adapter: Any = adapter) -> None:
                async for _ in adapter.stream(ASK):
                    pass

            with Listening() as heard:
                if kind == "hangs":
                    task = asyncio.create_task(call())
                    await server.until(lambda: len(server.requests) > 0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError) as cancelled:
                        await task
                    assert_hidden(told(cancelled.value), key)
                with pytest.raises(TierError) as failed:
                    await call()
            assert_hidden(told(failed.value), key)
            assert_hidden(heard.said(), key)
            await adapter.aclose()


async def test_a_proxy_s_password_is_not_shown(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: credentials in a proxy's address stay out of errors, records and objects."""
    secret = "CANARYproxyPassword"
    async with LoopbackServer([[whole(b"", 407, proxy_authenticate="Basic realm=x")]]) as server:
        port = server.url.rpartition(":")[2]
        for place in (f"127.0.0.1:{port}", "127.0.0.1:9", "nowhere.invalid:80", "[bad"):
            for scheme in ("http", "https"):
                monkeypatch.setenv(f"{scheme}_proxy", f"http://user:{secret}@{place}")
                adapter = OpenAIChatAdapter(model="m", base_url=f"{scheme}://model.invalid/v1", api_key="k" * 9)
                with Listening() as heard:
                    caught = await failures(lambda adapter=adapter: adapter)  # type: ignore[misc]
                assert len(caught) == 2
                for error in caught:
                    assert_hidden(told(error), secret)
                assert_hidden(shown(adapter), secret)
                assert_hidden(heard.said(), secret)
                await adapter.aclose()


@pytest.mark.parametrize("answer", ["ok", "401", "cut"])
@pytest.mark.parametrize("form", ["user:{}@{}", "{}@{}", "{1}?key={0}", "{1}/v1?api_key={0}#x"])
async def test_a_secret_in_the_base_url_is_not_shown(home: Home, form: str, answer: str) -> None:
    """F29: a password or a key in the base URL stays out of errors, records, logs and objects."""
    secret = "CANARYinTheAddress"
    async with LoopbackServer([echo(secret)[answer] if answer != "ok" else [whole(b"{}")]]) as server:
        for url in (server.url, "http://127.0.0.1:9", "http://nowhere.invalid"):
            scheme, _, place = url.partition("://")
            adapter = OpenAIChatAdapter(model="m", base_url=f"{scheme}://" + form.format(secret, place))
            with Listening() as heard:
                caught = await failures(lambda adapter=adapter: adapter)  # type: ignore[misc]
            assert caught
            for error in caught:
                assert_hidden(told(error), secret)
            assert_hidden(shown(adapter), secret)
            assert_hidden(heard.said(), secret)
            await adapter.aclose()


@pytest.mark.parametrize(
    "form",
    [
        "ftp://user:{}@127.0.0.1",
        "127.0.0.1/v1?key={}",
        "u:{}@127.0.0.1/v1",
        "//u:{}@x",
        "http://{}@[bad",
        "https://u:{}@x/a b",
    ],
)
@pytest.mark.parametrize("dialect", sorted(ADAPTERS))
def test_a_secret_in_a_base_url_that_is_refused_is_not_shown(dialect: str, form: str) -> None:
    """F29: the error for an address that cannot be called shows neither a password nor a key in it."""
    secret = "CANARYinTheAddress"
    with pytest.raises(ConfigError, match="base_url") as refused:
        ADAPTERS[dialect](model="m", base_url=form.replace("{}", secret))
    assert_hidden(shown(refused.value), secret)


@pytest.mark.parametrize("key", KEYS)
async def test_further_headers_and_commands_are_keys_too(home: Home, key: str) -> None:
    """F29: a secret header and what a key command prints, or says, are hidden like a key."""
    commands = [f"echo {key}", f"echo {key}; exit 3", f"echo {key} >&2; exit 3", f"echo {key}; echo {key}", f": {key}"]
    async with LoopbackServer([echo(key)["401"]]) as server:
        sources: list[dict[str, Any]] = [{"headers": {"X-Gateway-Token": key}}, {"headers": {"Authorization": key}}]
        sources += [{"api_key_command": command} for command in commands]
        for source in sources:
            adapter = OpenAIChatAdapter(model="m", base_url=server.url, **source)
            with Listening() as heard:
                caught = await failures(lambda adapter=adapter: adapter)  # type: ignore[misc]
            assert len(caught) == 2
            for error in caught:
                assert_hidden(told(error), key)
            assert_hidden(shown(adapter), key)
            assert_hidden(heard.said(), key)
            await adapter.aclose()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dialect", ADAPTERS)
def test_copies_and_dumps_hold_no_key(home: Home, dialect: str, key: str) -> None:
    """F29: no dump shows the key; a copy can still call; what cannot keep its key cannot be pickled."""
    adapter = ADAPTERS[dialect](model="m", base_url="http://127.0.0.1:9", api_key=key, api_key_command=f"echo {key}")
    assert_hidden([str(dataclasses.asdict(adapter.keys))], key)
    for twin in (copy.copy(adapter), copy.deepcopy(adapter)):
        assert_hidden(shown(twin), key)
        assert key in "".join(asyncio.run(twin.keys.headers()).values())
    with pytest.raises(TypeError, match="key"):
        pickle.dumps(adapter)


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_configuration_shows_no_key(home: Home, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """F29: a mistake beside a key, in any layer, gives an error whose traceback does not show it."""
    caught: list[BaseException] = []

    def wrong(call: Callable[[], Any]) -> None:
        with pytest.raises(IsthmusError) as failed:
            call()
        caught.append(failed.value)

    wrong(lambda: connect("openai:m", api_key=key, modle="x"))
    wrong(lambda: connect("openai:m", api_key=key, max_tokens="x"))
    wrong(lambda: connect("nowhere:m", api_key=key))
    wrong(lambda: build.load(api_key=key, modle="x"))
    wrong(lambda: build.load(api_key=key, provider="nowhere"))
    for text in (
        f'[llm]\napi_key = "{key}"\neffort = "huge"\n',
        f'[llm]\napi_key = "{key}"\nmodle = "x"\n',
        f'[llm]\napi_key = ["{key}"]\n',
        f'[llm]\napi_key = "{key}" x\n',
        f'[llm]\nheaders = "{key}"\n',
        f'[llm]\nheaders = {{Authorization = "{key}"}}\ntimeouts = {{x = 1}}\nprovider = "openai"\n',
        f'[[chain.tiers]]\nprovider = "openai"\napi_key = "{key}"\nmodle = "x"\n',
        f'[chain]\ntiers = [{{api_key = "{key}"}}, 3]\n',
        f'api_key = "{key}"\n',
    ):
        home.write_user(text)
        wrong(build.load)
    home.user_file.unlink()
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for name, value in {"API_KEY": key, "HEADERS": f'{{"a": "{key}"', "EFFORT": "huge"}.items():
        monkeypatch.setenv(f"ISTHMUS_{name}", value)
    wrong(build.load)
    for error in caught:
        assert_hidden(told(error), key)
