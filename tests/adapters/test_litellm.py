"""LiteLLM in an environment of its own, against a scripted server: a child process runs our adapter there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from isthmus.adapters import litellm as module
from isthmus.adapters.litellm import LiteLLMAdapter
from isthmus.errors import MissingDependencyError
from support.chat_frames import chunk, sse, tc
from support.loopback import RESET, LoopbackServer, Seen, stream, whole
from support.ownenv import ROOT, python

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("litellm")]

KEY = "sk-canary-0123456789"
HELD = "5f2b8c0d9e7a4b31"
USER = [{"role": "user", "content": "Hi"}]
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 4,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 3},
}
PIECES: list[dict[str, Any]] = [
    chunk({"role": "assistant", "reasoning_content": "Hm"}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({"tool_calls": [tc(0, "call_1", "add", "")]}),
    chunk({"tool_calls": [tc(0, None, None, '{"a": 1.0}')]}),
    chunk(finish="tool_calls"),
    {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": USAGE},
]
STREAMED = sse(*PIECES)
CUT = sse(*PIECES[:5]).replace(b"data: [DONE]\n\n", b"")
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1.0}'}}
WHOLE = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "reasoning_content": "Hm", "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": USAGE,
}


class Child:
    """The process that runs the adapter."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.url = ""
        self.interpreter = ""
        self.env: dict[str, str] = {}

    async def ask(
        self,
        ctx: dict[str, Any] | None = None,
        *,
        streamed: bool = True,
        chain: bool = False,
        **settings: Any,
    ) -> dict[str, Any]:
        """Have one call made, and hear what came of it."""
        own = {"model": "openai/m", "api_key": KEY, "base_url": f"{self.url}/v1", **settings}
        order = {"settings": own, "ctx": {"messages": USER, **(ctx or {})}, "stream": streamed, "chain": chain}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 180)
        told: dict[str, Any] = json.loads(line)
        return told


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def child() -> AsyncIterator[Child]:
    """The child in its environment, for all tests of this module."""
    interpreter = await asyncio.to_thread(python, "litellm", "litellm>=1.107.0.dev2,<2", "msgspec>=0.19,<1")
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    env = {name: value for name, value in os.environ.items() if not name.endswith("_KEY")}
    env |= {"PYTHONPATH": paths, "OPENAI_API_KEY": "sk-from-the-environment", "GROQ_API_KEY": HELD}
    script = Path(__file__).parents[1] / "support" / "litellm_child.py"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        interpreter, str(script), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=env, limit=2**22
    )
    running = Child(process)
    running.interpreter, running.env = interpreter, env
    yield running
    assert process.stdin is not None
    process.stdin.close()
    await asyncio.wait_for(process.wait(), 20)


def both(seen: Seen) -> list[Any]:
    """The reply in the way that it was asked for."""
    streamed = json.loads(seen.body).get("stream")
    return stream(STREAMED) if streamed else [whole(json.dumps(WHOLE).encode())]


async def test_streamed_and_whole_are_one_reply(child: Child) -> None:
    """Text, reasoning, calls with their number texts, finish and usage, the same in both ways, through one decoder."""
    async with LoopbackServer(both) as server:
        child.url = server.url
        streamed = await child.ask({"tools": ["add"]})
        complete = await child.ask({"tools": ["add"]}, streamed=False)
        first, second = server.requests
    for told in (streamed["result"], complete["result"]):
        assert (told["text"], told["finish"], told["raw_reason"]) == ("Hello", "tool-calls", "tool_calls")
        (call,) = told["calls"]
        assert (call["tool"], call["call_id"], call["arguments"]) == ("add", "call_1", '{"a": 1.0}')
        assert (told["usage"]["input_tokens"], told["usage"]["cache_read_tokens"]) == (2, 3)
        assert "Hm" in json.dumps(told["reasoning"])
        assert told["notes"] == []
    assert streamed["lazy"] is True
    body = json.loads(first.body)
    assert (body["model"], body["max_tokens"], body["stream_options"]) == ("m", 8192, {"include_usage": True})
    assert body["tools"][0]["function"]["name"] == "add"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert "stream" not in json.loads(second.body)
    assert streamed["tasks"] == 0


async def test_an_empty_stream_is_an_error(child: Child) -> None:
    """A stream without any content or reason is no reply, although the library makes up a "stop"."""
    async with LoopbackServer(lambda seen: stream(b"data: [DONE]\n\n")) as server:
        child.url = server.url
        told = await child.ask()
    assert (told["class"], "finish reason" in told["message"]) == ("transient", True)


@pytest.mark.parametrize("end", ["framed", "reset"])
async def test_f01_a_cut_stream_is_an_error_after_what_had_arrived(end: str, child: Child) -> None:
    """F01: a stream that ends before its reason is never a shorter success."""
    steps = stream(CUT) if end == "framed" else [*stream(CUT, last=False), 0.05, RESET]
    async with LoopbackServer(lambda seen: steps) as server:
        child.url = server.url
        told = (await child.ask())["result"]
    assert (told["text"], told["finish"], told["error"]["class"]) == ("Hello", "error-post", "transient")


async def test_temperature_and_effort_together_are_a_value_error(child: Child) -> None:
    """A temperature beside an effort is refused before any I/O, wherever either comes from."""
    async with LoopbackServer(both) as server:
        child.url = server.url
        for ctx, settings in (
            ({"temperature": 0.5, "effort": "low"}, {}),
            ({"temperature": 0.5}, {"effort": "low"}),
            ({"effort": "low"}, {"temperature": 0.5}),
            ({"effort": "low", "options": {"temperature": 1}}, {}),
        ):
            told = await child.ask(ctx, **settings)
            assert (told["value_error"], told["class"]) == (True, "invalid")
        assert server.requests == []
        assert "result" in await child.ask({"temperature": 0.5, "effort": None})


async def test_anothers_native_history_is_refused_and_skipped_in_a_chain(child: Child) -> None:
    """A message with `openai_responses_input` is a ValueError that names it; a chain goes on to the next tier."""
    native = {"role": "assistant", "content": "Hi", "openai_responses_input": [{"type": "message"}]}
    ctx = {"messages": [*USER, native, *USER]}
    async with LoopbackServer(both) as server:
        child.url = server.url
        direct = await child.ask(ctx)
        chained = await child.ask(ctx, chain=True)
        assert server.requests == []
    assert (direct["value_error"], "messages[1]" in direct["message"], "to_neutral" in direct["message"]) == (True,) * 3
    assert chained["result"]["text"] == "from the next tier"


async def test_its_own_retries_are_off_and_dropping_is_forced(child: Child) -> None:
    """One call is one request; neither retries nor the dropping of parameters can be set otherwise by an option."""
    async with LoopbackServer(lambda seen: [whole(b'{"error": {"message": "busy"}}', 500)]) as server:
        child.url = server.url
        await child.ask({"options": {"num_retries": 3, "max_retries": 3, "drop_params": False}}, streamed=False)
        assert len(server.requests) == 1
    async with LoopbackServer(both) as server:
        child.url = server.url
        told = await child.ask({"options": {"num_retries": 3, "drop_params": False}})
        body = json.loads(server.requests[0].body)
    assert {"num_retries", "drop_params", "max_retries"}.isdisjoint(body)
    assert [note["code"] for note in told["result"]["notes"]] == ["parameter-changed"] * 2


async def test_f21_what_the_library_drops_is_noted_or_refused(child: Child) -> None:
    """F21: a parameter that the model lacks is a note, or an error where the request wants one."""
    async with LoopbackServer(both) as server:
        child.url = server.url
        told = await child.ask({"temperature": 0.2}, model="openai/o3-mini")
        refused = await child.ask({"temperature": 0.2, "on_unsupported": "error"}, model="openai/o3-mini")
        bodies = [json.loads(seen.body) for seen in server.requests]
    assert [note["code"] for note in told["result"]["notes"]] == ["parameter-dropped"]
    assert (refused["class"], len(bodies), "temperature" in bodies[0]) == ("invalid", 1, False)


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (400, "This model's maximum context length is 10 tokens", "overflow"),
        (400, "Your credit balance is too low", "credentials"),
        (400, "Unknown parameter", "invalid"),
        (401, f"Incorrect API key provided: {KEY}", "credentials"),
        (402, "Insufficient credits", "credentials"),
        (404, "The model `m` does not exist", "unavailable"),
        (429, "Rate limit reached", "transient"),
        (500, "Internal error", "transient"),
        (503, "Overloaded", "unavailable"),
    ],
)
async def test_f18_each_failure_has_one_class_and_no_key(
    status: int, message: str, expected: str, child: Child
) -> None:
    """F18, F29: the library's exceptions keep status and wait, get the class of any adapter, and lose the key."""
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": None}}).encode()
    async with LoopbackServer(lambda seen: [whole(body, status, retry_after="7")]) as server:
        child.url = server.url
        told = await child.ask(streamed=False)
    assert (told["class"], told["status"]) == (expected, status)
    assert told["retry_after"] == 7.0
    assert KEY not in json.dumps(told)


@pytest.mark.parametrize("middle", [False, True])
async def test_f29_a_key_that_the_library_found_itself_is_hidden_too(middle: bool, child: Child) -> None:
    """F29: a server's error that repeats a key of the environment, whatever its shape, loses it."""
    error = {"error": {"message": f"Bad key {HELD} here", "type": "authentication_error", "code": 401}}
    steps = stream(sse(PIECES[1], error)) if middle else [whole(json.dumps(error).encode(), 401)]
    async with LoopbackServer(lambda seen: steps) as server:
        child.url = server.url
        told = await child.ask(api_key=None, model="groq/m", base_url_trusted=True)
        assert server.requests[0].headers["authorization"] == f"Bearer {HELD}"
    assert "here" in json.dumps(told)
    assert HELD not in json.dumps(told)


@pytest.mark.parametrize("model", ["openai/m", "groq/m"])
async def test_f03_an_error_in_the_middle_has_the_class_of_any_adapter(model: str, child: Child) -> None:
    """F03: an error frame after content ends the reply with the server's own class, none that the library made up."""
    for kind, status, expected in (
        ("rate_limit_error", 429, "transient"),
        ("overloaded_error", 529, "unavailable"),
        ("server_error", 500, "transient"),
        ("invalid_request_error", 400, "invalid"),
        ("authentication_error", 401, "credentials"),
    ):
        for code in (status, str(status), None):
            error = {"error": {"message": "Slow down", "type": kind, "code": code}}
            frames = sse(PIECES[1], error)
            async with LoopbackServer(lambda seen, frames=frames: stream(frames)) as server:
                child.url = server.url
                told = (await child.ask(model=model))["result"]
            assert (told["text"], told["finish"], told["error"]["class"]) == ("Hel", "error-post", expected), code


async def test_nobody_there_is_unavailable(child: Child) -> None:
    """A refused connection is "unavailable", so that a chain goes on at once."""
    told = await child.ask(base_url="http://127.0.0.1:1/v1")
    assert told["class"] == "unavailable"


async def test_f29_logs_hide_what_is_named_like_a_key(child: Child) -> None:
    """F29: the record of a request shows its arguments, but no value under a name of a credential."""
    async with LoopbackServer(both) as server:
        child.url = server.url
        told = await child.ask({"options": {"extra_headers": {"x-api-key": "hush-hush-0123"}, "user": "u-1"}})
    log = "\n".join(told["log"])
    assert "u-1" in log
    assert KEY not in log
    assert "hush-hush-0123" not in log


async def test_the_environments_key_stays_at_home(child: Child) -> None:
    """A key of the environment does not go to an address of the caller's own, unless that address is trusted."""
    async with LoopbackServer(both) as server:
        child.url = server.url
        await child.ask(api_key=None)
        await child.ask(api_key=None, base_url_trusted=True)
        sent = [seen.headers["authorization"] for seen in server.requests]
    assert sent == ["Bearer no-key", "Bearer sk-from-the-environment"]


async def test_a_refused_key_of_a_command_is_asked_for_again(tmp_path: Path, child: Child) -> None:
    """After a 401 the command runs once more, and the call is repeated with the new key."""
    count = tmp_path / "count"
    command = f"echo x >> {count}; echo sk-vended-$(wc -l < {count})"
    answers = [[whole(b'{"error": {"message": "expired"}}', 401)], [whole(json.dumps(WHOLE).encode())]]
    async with LoopbackServer(answers) as server:
        child.url = server.url
        told = await child.ask(streamed=False, api_key=None, api_key_command=command, api_key_ttl_ms=60000)
        sent = [seen.headers["authorization"] for seen in server.requests]
    assert told["result"]["text"] == "Hello"
    assert sent == ["Bearer sk-vended-1", "Bearer sk-vended-2"]


async def test_it_keeps_every_law(child: Child) -> None:
    """The conformance kit finds nothing but the task in which the library writes its own log."""
    script = Path(__file__).parents[1] / "support" / "litellm_conform.py"
    pipe = asyncio.subprocess.PIPE
    judge = await asyncio.create_subprocess_exec(
        child.interpreter, str(script), stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=child.env
    )
    out, _ = await asyncio.wait_for(judge.communicate(), 240)
    report = json.loads(out.splitlines()[-1])
    assert {(law, seen) for law, _, seen in report["findings"]} <= {("tasks", "LoggingWorker._worker_loop")}
    assert sum(status == "pass" for status in report["laws"].values()) >= 44


async def test_a_cost_is_one_number(child: Child) -> None:
    """The cost that the library works out stands in the raw usage as a number."""
    async with LoopbackServer(both) as server:
        child.url = server.url
        told = await child.ask(streamed=False, model="openai/gpt-4o")
    assert isinstance(told["raw_usage"]["cost"], float)


@pytest.mark.parametrize(
    ("values", "cost"), [((0.5, None), 0.5), ((None, {"total_cost": 2}), 2.0), ((None, "x"), None), ((True, 1), 1.0)]
)
async def test_costs_in_each_of_their_forms(values: tuple[Any, ...], cost: float | None) -> None:
    """A cost is a number or an object with one in all; anything else is none."""
    assert module._number(*values) == cost


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where LiteLLM is not installed, making the adapter says which extra brings it."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"isthmus\[litellm\]"):
        LiteLLMAdapter("openai/m")
