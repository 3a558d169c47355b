"""What the page on custom adapters says of telemetry spans, sentence by sentence."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from isthmus import Agent, observability
from isthmus.adapters.base import ChatResponse, ModelAdapter
from support.homes import Home, enter_home
from support.telemetry import traced

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own."""
    return enter_home(tmp_path, monkeypatch)


class Mine(ModelAdapter):
    """An adapter as the page writes one, which enriches its span."""

    provider = "mycorp"

    def __init__(self, model: str = "house-1", max_tokens: int = 1024) -> None:
        self.model, self.max_tokens = model, max_tokens
        self.current: list[str] = []

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        text, response_id, request_id = "the answer", "resp-1", "gw-7"
        self.current.append(getattr(trace.get_current_span(), "name", ""))
        yield "text", text
        observability.set_attributes(
            **{
                "gen_ai.response.id": response_id,
                "mycorp.gateway.request_id": request_id,
            }
        )
        observability.add_completion(text)
        usage = {"input_tokens": 3, "output_tokens": 2}
        yield "done", ChatResponse(text, [], "end_turn", {"usage": usage})


async def test_each_model_request_is_a_span_with_the_standard_attributes() -> None:
    """With telemetry on, a request is one span with model, finish reason and token usage, set by the library."""
    with traced() as seen:
        await Agent(model=Mine()).run("hello")
        said = seen.one("chat")
    assert said["gen_ai.request.model"] == "house-1"
    assert said["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (3, 2)


async def test_the_span_is_the_current_one_while_the_adapter_streams() -> None:
    """No plumbing: inside `stream_with_tools` OpenTelemetry's current span is that of the request."""
    adapter = Mine()
    with traced():
        await Agent(model=adapter).run("hello")
    assert adapter.current == ["chat house-1"]


async def test_the_sample_adds_detail_to_that_span() -> None:
    """The page's own lines set the response's id and a detail of the gateway's."""
    with traced() as seen:
        await Agent(model=Mine()).run("hello")
        said = seen.one("chat")
    assert (said["gen_ai.response.id"], said["mycorp.gateway.request_id"]) == ("resp-1", "gw-7")


@pytest.mark.parametrize("capture", [True, False])
async def test_a_completion_honours_capture_content(capture: bool) -> None:
    """`add_completion` puts the text on the span where contents are captured, and nothing anywhere where not."""
    with traced(capture_content=capture) as seen:
        await Agent(model=Mine()).run("hello")
        assert ("gen_ai.output.messages" in seen.one("chat")) is capture
        assert ("the answer" in seen.text()) is capture


HELPERS = """
from isthmus import observability as o
o.set_attributes(**{"gen_ai.response.id": "r", "odd": object()})
o.add_completion("text")
o.add_prompt([{"role": "user", "content": "x"}], system="s")
o.add_prompt("x")
span = o.current_span()
span.set_attribute("a", 1)
span.add_event("b")
assert not span.is_recording()
o.record_exception(span, ValueError("x"))
with o.reattach(o.capture_context()):
    pass
assert not o.enabled()
assert not o.capture_content()
assert o.flush()
o.shutdown()
import sys
assert not [name for name in sys.modules if name.startswith("opentelemetry.")], "loaded"
"""


@pytest.mark.parametrize("installed", [True, False])
def test_every_helper_does_nothing_when_off_or_not_installed(home: Home, installed: bool) -> None:
    """All helpers may be called always; with the extra missing `available` says what to install, and `start` too."""
    missing = "" if installed else "import sys\nsys.modules['opentelemetry'] = None\n"
    done = home.run("-W", "error", "-c", missing + HELPERS)
    assert done.returncode == 0, done.stderr
    if not installed:
        told = "from isthmus import observability as o\nprint(o.available())\no.start()"
        done = home.run("-c", missing + told)
        assert "isthmus[otel]" in done.stdout
        assert "MissingDependencyError" in done.stderr
        assert "isthmus[otel]" in done.stderr


def test_a_plugin_never_needs_opentelemetry(home: Home) -> None:
    """An adapter that enriches runs a whole turn in a process that has no OpenTelemetry at all."""
    home.folder.joinpath("mine.py").write_text(
        "from isthmus import Agent, observability, run_sync\n"
        "from isthmus.adapters.base import ChatResponse, ModelAdapter\n"
        "class Mine(ModelAdapter):\n"
        "    async def chat(self, messages, tools):\n"
        "        observability.set_attributes(a=1)\n"
        "        observability.add_completion('x')\n"
        "        return ChatResponse('fine', [], 'end_turn', None)\n"
        "print(run_sync(Agent(model=Mine()).run('hello')).text)\n"
    )
    code = "import sys\nsys.modules['opentelemetry'] = None\nimport runpy\nrunpy.run_path('mine.py')"
    done = home.run("-c", code)
    assert done.stdout.strip() == "fine", done.stderr


def test_a_chat_response_has_no_field_of_telemetry() -> None:
    """Enrichment is a side channel: the response has the fields of its page, and those of thinking and signature."""
    names = set(inspect.signature(ChatResponse).parameters)
    assert {"text", "tool_calls", "stop_reason"} <= names
    assert not {name for name in names if re.search("span|telemetry|trace", name)}


def test_there_is_a_walkthrough() -> None:
    """The docs have the page's "Telemetry for a custom adapter", whose blocks run as tests."""
    assert "\n## Telemetry for a custom adapter\n" in (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
