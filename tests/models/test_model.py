"""The abstract model client: one method to write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from isthmus.chain import define_chain
from isthmus.console.main import run
from isthmus.errors import ConfigError, TransientError, UnavailableError
from isthmus.harness.agents import DefaultAgent
from isthmus.models.config import Config
from isthmus.models.contract import GenerateContext
from isthmus.models.enums import ModelTracing
from isthmus.models.model import Factory, Model
from isthmus.models.responses import ModelResponse
from support.echo_model import Echo
from support.face_kit import CTX as TOOL_CTX
from support.face_kit import HELLO, LOOK, model_response
from support.homes import Home, enter_home

CTX = GenerateContext(messages=TOOL_CTX.messages)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own; its working folder is the current one."""
    return enter_home(tmp_path, monkeypatch)


class Client(Model[ModelResponse]):
    """Writes `get_response` alone."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer, or fail."""
        if self.error is not None:
            raise self.error
        return model_response()


async def test_get_response_alone_is_enough() -> None:
    """The stream is one "completed" event; a call of the model is `get_response`; a run yields the model."""
    client = Client()
    (event,) = [event async for event in client.stream_response(HELLO)]
    assert (event.kind, event.response) == ("completed", model_response())
    assert await client(HELLO) == model_response()
    async with client.open_run() as active:
        assert active is client
    assert (client.handles_retries, client.requires_streaming) == (False, False)
    with pytest.raises(NotImplementedError, match="Client cannot be steered"):
        await client.steer("x")


async def test_a_failing_stream_shows_one_error_and_raises() -> None:
    """The base stream yields one "error" event, then raises the same error."""
    error = TransientError("down")
    stream = Client(error).stream_response(HELLO)
    assert (await anext(stream)).error is error
    with pytest.raises(TransientError) as caught:
        await anext(stream)
    assert caught.value is error


def test_a_model_without_get_response_is_abstract() -> None:
    """It cannot be instantiated."""
    with pytest.raises(TypeError):
        Model()  # type: ignore[abstract]


async def test_a_model_is_a_tier_of_a_chain() -> None:
    """A subclass with `get_response` alone stands in `define_chain`; its stream is one text and the finish."""
    chain = define_chain(id="c", tiers=[Echo()])
    events = [event async for event in chain.stream(CTX)]
    assert [type(event).__name__ for event in events] == ["Text", "Finish"]
    assert events[0].text == "echo hi"
    assert events[1].usage.prompt_tokens == 3


async def test_a_chain_falls_back_to_a_model() -> None:
    """A model client stands behind a tier that fails, and in front of one that is not needed."""

    class Down(Model[ModelResponse]):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            raise UnavailableError("down")

    chain = define_chain(id="c", tiers=[Down(), Echo()])
    assert (await chain.generate(CTX)).text == "echo hi"


async def test_a_model_runs_an_agent() -> None:
    """`DefaultAgent` takes a model client where it takes an adapter, with tools too."""
    result = await DefaultAgent(model=Echo(), tools=[LOOK]).run("hello")
    assert result.text == "echo hello"


def test_the_console_takes_a_model_by_its_dotted_path(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """`isthmus chat --provider package.module:Class` talks to a model client."""
    assert run(["chat", "--provider", "support.echo_model:Echo", "--model", "m", "hello"]) == 0
    assert capsys.readouterr().out == "echo hello\n"


async def test_the_stream_of_a_model_is_one_completed_event() -> None:
    """The fallback hands every argument on by name, and yields what `get_response` returned."""
    seen: dict[str, Any] = {}

    class Sees(Model[ModelResponse]):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            seen.update(kwargs)
            return model_response()

    (event,) = [event async for event in Sees().stream_response(HELLO, {"a": 1}, "s", "t", "c", "p", own=2)]
    assert event.to_trace_dict() == {"kind": "completed", "response": model_response().to_dict()}
    names = ("extra_call_args", "schema", "tools", "cancellation_token", "parent_span", "own")
    assert seen == dict(zip(names, ({"a": 1}, "s", "t", "c", "p", 2), strict=True))


async def test_cancelling_a_model_stream_shows_no_error_event() -> None:
    """F10: whoever gives up gets the cancellation, not an "error" event."""

    class Hangs(Model[ModelResponse]):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    shown: list[Any] = []

    async def consume() -> None:
        shown.extend([event async for event in Hangs().stream_response(HELLO)])

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shown == []


def test_the_defaults_of_a_model() -> None:
    """Nothing is traced, streaming is not required, retries are the caller's."""
    assert (Model.tracing, Model.requires_streaming, Model.handles_retries) == (ModelTracing.DISABLED, False, False)


class Made(Echo):
    """Keeps what it was made with."""

    def __init__(self, config: Config, **call_args: Any) -> None:
        super().__init__(config.model)
        self.config, self.call_args = config, call_args


class MadeFactory(Factory[ModelResponse]):
    """Makes `Made`."""

    client = Made


def test_a_factory_splits_settings_from_call_arguments() -> None:
    """Keywords that are fields of `Config` replace them, the rest are default call arguments; the default stays."""
    config = Config(api_key="k", model="m")
    made: Any = MadeFactory(config).get_model_client(model="n", tracing=ModelTracing.ENABLED, temperature=0.5)
    assert (made.config.model, made.config.tracing, made.call_args) == ("n", ModelTracing.ENABLED, {"temperature": 0.5})
    assert (made.config.api_key, config.model) == ("k", "m")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Factory(Config(api_key="k", model="m")), "Factory: client: set it to the class"),
        (lambda: MadeFactory({}), "MadeFactory: default_config: must be a Config, not dict"),  # type: ignore[arg-type]
        (
            lambda: MadeFactory(Config(api_key="k", model="m")).get_model_client(timeout=-1),
            "Config: timeout: must be a number of seconds above 0, not -1",
        ),
    ],
)
def test_a_wrong_factory_is_named(wrong: Any, said: str) -> None:
    """Each mistake is an error that names the place and the remedy."""
    with pytest.raises(ConfigError, match=said):
        wrong()
