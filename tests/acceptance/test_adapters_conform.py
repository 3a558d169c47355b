"""The conformance kit over the built-in adapters that no preset and no test of their own takes to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.conformance import conform
from isthmus.conformance.named import maker_of
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, Text
from support.corpus import REASON, corpus_root

RECORDINGS = {
    "openai": (
        "openrouter/chat-sse--chatlas-test-openrouter-tool-variations-00",
        "openrouter/chat-sse--chatlas-test-openrouter-tool-variations-01",
    ),
    "openai-responses": (
        "bedrock-mantle/responses-sse--pyai-test-reused-tool-call-ids-stream-01",
        "chatgpt-codex/responses-sse--rig-codex-sessions-parallel-tool-calls-single-turn-nonstreaming-00",
        "copilot/responses-json--rig-reasoning-tool-roundtrip-nonstreaming-00",
        "chatgpt-codex/responses-json-401--rig-http-errors-nonstreaming-unauthorized-preserves-status-and-body",
    ),
}
CLIENT = "isthmus.adapters.openai_responses:ResponsesClient"
needs_corpus = pytest.mark.skipif(corpus_root() is None, reason=REASON)


def places(provider: str) -> list[Path]:
    """The folders that an adapter is judged by."""
    root = corpus_root()
    assert root is not None
    return [root / name for name in RECORDINGS[provider]]


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("provider", RECORDINGS)
def test_the_kit_finds_nothing(provider: str) -> None:
    """Every law that can be judged over a few recordings passes, those on the wire too."""
    report = asyncio.run(conform(maker_of(provider), recordings=places(provider)))
    assert not report.findings, report.table(every=True)
    assert {each.id for each in report.laws if each.status == "pass"} >= {"wire-reads", "wire-cut", "secrets", "cancel"}


@pytest.mark.corpus
@needs_corpus
def test_the_client_is_judged_by_its_name_alone(tmp_path: Path) -> None:
    """`isthmus conform REF` makes an adapter whose constructor takes a `Config`, and leads it to recordings."""
    pytest.importorskip("openai")
    # Each way of playing one makes a client of the SDK, which takes its time: one stream will do.
    for place in places("openai-responses")[1:]:
        shutil.copytree(place, tmp_path / place.name)
    command = [sys.executable, "-m", "isthmus", "conform", CLIENT, "--recordings", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ResponsesClient conforms" in done.stdout


def answer(ctx: GenerateContext) -> Any:
    """A call of the first tool that is offered, a text once there are results or no tools."""
    answered = any(message.get("role") == "tool" for message in ctx.messages)
    if answered or not ctx.tools or ctx.tool_choice == "none":
        return [Text("The answer "), 0.2, Text("is forty-two."), Finish("stop")]
    call = Call(ctx.tools[0].name, {"query": "Zürich"}, "call_1", '{"query":"Zürich"}')
    return [Text("Let me "), 0.2, Text("see."), call, Finish("tool-calls")]


def test_the_scripted_adapter_conforms() -> None:
    """The adapter that plays a script keeps the laws that it holds others to."""
    report = asyncio.run(conform(lambda: ScriptedAdapter([answer] * 200)))
    assert not report.findings, report.table(every=True)
