"""Every preset by name: where its requests go, with which key, and what they say."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import isthmus
from isthmus.adapters import registry
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.build import findings
from isthmus.conformance import conform
from isthmus.conformance.playback import replay
from isthmus.errors import ConfigError, CredentialsError, InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import NoteCode
from isthmus.models.fold import consume_stream
from isthmus.settings import load_settings
from support.caught import CHAT, MESSAGES, Caught
from support.wirecorpus import CORPUS, needs_corpus, rows

KEY = "sk-canary-0123456789"
CTX = GenerateContext(messages=({"role": "user", "content": "Hi"},), seed=7, max_output_tokens=50)
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}

AZURE = "https://res.openai.azure.com"
VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"

# Each preset: the base URL that the user gives, the URL that is called, the key's header, and the body beside model,
# messages and seed; written from the servers' own pages and recorded requests.
PRESETS: dict[str, tuple[str | None, str, str, dict[str, Any]]] = {
    "azure": (
        AZURE,
        f"{AZURE}/openai/deployments/m/chat/completions?api-version=2024-10-21",
        f"api-key: {KEY}",
        {"max_completion_tokens": 50, **STREAMED},
    ),
    "azure-v1": (
        f"{AZURE}/openai/v1",
        f"{AZURE}/openai/v1/chat/completions",
        f"api-key: {KEY}",
        {"max_completion_tokens": 50, **STREAMED},
    ),
    "foundry": (
        "https://res.services.ai.azure.com",
        "https://res.services.ai.azure.com/models/chat/completions?api-version=2024-05-01-preview",
        f"api-key: {KEY}",
        {"max_tokens": 50, **STREAMED},
    ),
    "vertex": (
        f"{VERTEX}/endpoints/openapi",
        f"{VERTEX}/endpoints/openapi/chat/completions",
        f"authorization: Bearer {KEY}",
        {"max_completion_tokens": 50, **STREAMED},
    ),
}


def usual(name: str, url: str, *, key: str = "max_tokens", usage: bool = True) -> None:
    """A server that differs in its address and the name of the ceiling alone."""
    body = {key: 50, **(STREAMED if usage else {"stream": True})}
    PRESETS[name] = (None, f"{url}/chat/completions", f"authorization: Bearer {KEY}", body)


usual("cerebras", "https://api.cerebras.ai/v1")
usual("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1")
usual("deepseek", "https://api.deepseek.com")
usual("fireworks", "https://api.fireworks.ai/inference/v1", usage=False)
usual("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", key="max_completion_tokens")
usual("groq", "https://api.groq.com/openai/v1", key="max_completion_tokens")
usual("llamacpp", "http://localhost:8080/v1")
usual("lmstudio", "http://localhost:1234/v1")
usual("mistral", "https://api.mistral.ai/v1", usage=False)
usual("moonshot", "https://api.moonshot.ai/v1")
usual("ollama", "http://localhost:11434/v1")
usual("openai", "https://api.openai.com/v1", key="max_completion_tokens")
usual("openrouter", "https://openrouter.ai/api/v1")
usual("perplexity", "https://api.perplexity.ai")
usual("sambanova", "https://api.sambanova.ai/v1")
usual("together", "https://api.together.xyz/v1")
usual("venice", "https://api.venice.ai/api/v1")
usual("vllm", "http://localhost:8000/v1")
usual("xai", "https://api.x.ai/v1", key="max_completion_tokens")
usual("zai", "https://api.z.ai/api/paas/v4")

SEEDS = {"mistral": {"random_seed": 7}, "perplexity": {}}
MESSAGES_HOSTS = {"anthropic", "anthropic-vertex", "anthropic-foundry"}
# What `rows()` calls the provider whose requests a preset makes.
RECORDED = {"llamacpp": "llama.cpp", "azure": "azure"}


def servers() -> set[str]:
    """The names in the table of providers that are reached over HTTP by a preset or a dialect of presets."""
    table = registry.built_in()
    return {name for name, row in table.items() if row.server} | {row.like for row in table.values() if row.server}


def made(name: str, **settings: Any) -> tuple[Any, Caught]:
    """A preset's adapter over a transport that keeps what is sent."""
    caught = Caught(MESSAGES if name in MESSAGES_HOSTS else CHAT)
    return isthmus.connect(f"{name}:m", transport=caught, **settings), caught


def test_every_preset_has_a_row_here() -> None:
    """The table of this test and the table of providers name the same servers."""
    assert servers() == PRESETS.keys() | MESSAGES_HOSTS


@pytest.mark.parametrize("name", sorted(PRESETS))
async def test_the_request_of_each_preset(name: str) -> None:
    """Each preset calls its own URL with its own header, and says the ceiling, usage and seed as it takes them."""
    base, url, header, body = PRESETS[name]
    adapter, caught = made(name, api_key=KEY, **({"base_url": base} if base else {}))
    reply = await consume_stream(adapter.stream(CTX))
    (sent,) = caught.sent
    assert (sent.method, sent.url) == ("POST", url)
    assert f"{(key := header.split(': ')[0])}: {sent.headers[key]}" == header
    seed = SEEDS.get(name, {"seed": 7})
    assert sent.body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body, **seed}
    assert (reply.text, adapter.id, adapter.provider) == ("Hello", f"{name}:m", name)


def test_no_preset_offers_what_its_row_leaves_out() -> None:
    """F21: what a server does not take is undeclared, so that it is refused before any I/O."""
    offers = {name: made(name, api_key=KEY, base_url="http://x")[0].supports for name in PRESETS}
    assert offers["openai"] == {"tools", "parallel-tools", "images", "documents", "audio", "output-schema"}
    assert "tools" not in offers["perplexity"]
    assert "output-schema" not in offers["deepseek"]
    assert all(offer <= offers["openai"] for offer in offers.values())


async def test_a_seed_that_a_server_does_not_take_is_noted_or_refused() -> None:
    """F21: a dropped parameter is a note, or an error where the request wants one."""
    adapter, caught = made("perplexity", api_key=KEY)
    reply = await adapter.generate(CTX)
    assert [note.code for note in reply.notes if "seed" in note.detail] == ["parameter-dropped"]
    strict = GenerateContext(messages=CTX.messages, seed=7, on_unsupported="error")
    with pytest.raises(InvalidRequestError, match="seed"):
        await adapter.generate(strict)
    assert len(caught.sent) == 1


async def test_azure_at_another_version_and_by_another_deployment() -> None:
    """The version in the base URL is the one that is sent; a deployment's name is kept whole in the path."""
    adapter = isthmus.connect(
        "azure:gpt-5.2_2025-12-11",
        api_key=KEY,
        base_url=f"{AZURE}?api-version=2025-04-01-preview",
        transport=Caught({}),
    )
    path = adapter.codec.encode(CTX, stream=True).call.path
    assert path == "/openai/deployments/gpt-5.2_2025-12-11/chat/completions"
    assert adapter._url(adapter.codec.encode(CTX, stream=True)) == f"{AZURE}{path}?api-version=2025-04-01-preview"


JOINED = [
    *[("openai", f"https://llm.example/v1{end}", "https://llm.example/v1/chat/completions") for end in ("", "/", "//")],
    ("openai", " https://llm.example/v1\n", "https://llm.example/v1/chat/completions"),
    ("openai", "https://llm.example/v1/chat/completions", "https://llm.example/v1/chat/completions"),
    ("openai", "https://llm.example", "https://llm.example/chat/completions"),
    ("openai", "https://llm.example/chat", "https://llm.example/chat/chat/completions"),
    ("openai", "https://llm.example/v1/?tenant=7#top", "https://llm.example/v1/chat/completions?tenant=7"),
    ("openai", "  ", "https://api.openai.com/v1/chat/completions"),
    *[
        (name, f"http://gpu:8000/pool{end}", "http://gpu:8000/pool/v1/chat/completions")
        for name in ("llamacpp", "lmstudio", "ollama", "vllm")
        for end in ("", "/v1", "/v1/")
    ],
    *[
        ("anthropic", f"https://llm.example/a{end}", "https://llm.example/a/v1/messages")
        for end in ("", "/", "/v1", "/v1/", "/v1/messages")
    ],
    *[
        ("azure-v1", AZURE + end, f"{AZURE}/openai/v1/chat/completions")
        for end in ("", "/", "/openai/v1", "/openai/v1/")
    ],
    ("azure", f"{AZURE}/", f"{AZURE}/openai/deployments/m/chat/completions?api-version=2024-10-21"),
    (
        "azure",
        f"{AZURE}/openai/deployments/m/chat/completions?api-version=2025-01-01-preview",
        f"{AZURE}/openai/deployments/m/chat/completions?api-version=2025-01-01-preview",
    ),
]


@pytest.mark.parametrize(("name", "base", "url"), JOINED)
async def test_a_base_url_is_taken_with_what_it_may_say_already(name: str, base: str, url: str) -> None:
    """A slash at the end, the version, or the whole path of a request in the base URL is said once."""
    adapter, caught = made(name, api_key=KEY, base_url=base)
    await adapter.generate(CTX)
    assert caught.sent[0].url == url


@pytest.mark.parametrize(
    "base", ["llm.example/v1", "ftp://llm.example", "https://", "http://[::1", "http://x:0", "http://a b/v1"]
)
@pytest.mark.parametrize("name", ["openai", "anthropic", "openai-responses", "langserve", "bedrock"])
def test_a_base_url_that_cannot_be_called_is_refused_at_once(name: str, base: str) -> None:
    """The error comes when the adapter is made, and names the setting and what it must be."""
    region = {"aws_region": "us-east-1"} if name == "bedrock" else {}
    with pytest.raises(ConfigError, match=r"base_url: .*cannot be called: it must be http"):
        isthmus.connect(f"{name}:m", api_key=KEY, base_url=base, **region)


@pytest.mark.parametrize("name", ["openai", "anthropic", "azure-v1"])
@pytest.mark.parametrize("status", [404, 405])
async def test_an_address_where_nothing_is_is_named(name: str, status: int) -> None:
    """An error that says only that nothing is there tells where that was, without the key, and what to look at."""
    caught = Caught({"error": {"code": str(status), "message": "Resource not found"}}, status=status)
    adapter = isthmus.connect(f"{name}:m", api_key=KEY, base_url=f"https://llm.example/x?key={KEY}", transport=caught)
    with pytest.raises(
        InvalidRequestError, match=r"not found .*https://llm\.example/x/\S+: is base_url right"
    ) as refused:
        await adapter.generate(CTX)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("name", ["azure", "azure-v1", "foundry", "anthropic-foundry"])
async def test_a_token_of_the_clouds_directory_is_sent_as_one(name: str) -> None:
    """A token, which a command prints, goes as a bearer token, a key in the header for keys; never both.

    Source: the clients `AzureOpenAI` and `AnthropicFoundry` of the official SDKs, 2026-11.
    """
    token = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJodHRwcyJ9.c2lnbmF0dXJl"
    adapter, caught = made(name, api_key_command=f"echo {token}", base_url=AZURE)
    await adapter.generate(CTX)
    assert caught.sent[0].headers["authorization"] == f"Bearer {token}"
    assert {"api-key", "x-api-key"}.isdisjoint(caught.sent[0].headers)
    assert token not in repr(adapter.keys)


@pytest.mark.parametrize(
    ("model", "segment"),
    [
        ("my dep", "my%20dep"),
        ("a/b", "a%2Fb"),
        ("ü", "%C3%BC"),
        ("a?b#c", "a%3Fb%23c"),
        ("a%2Fb", "a%252Fb"),
        ("a:b@c", "a:b@c"),
    ],
)
def test_a_deployment_with_odd_characters_is_one_segment(model: str, segment: str) -> None:
    """Whatever a deployment is called, its name is quoted once and changes nothing else of the URL."""
    adapter = isthmus.connect(f"azure:{model}", api_key=KEY, base_url=AZURE, transport=Caught({}))
    url = adapter._url(adapter.codec.encode(CTX, stream=True))
    assert url == f"{AZURE}/openai/deployments/{segment}/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize("name", ["azure", "azure-v1", "foundry", "vertex", "anthropic-vertex", "anthropic-foundry"])
def test_a_server_without_an_address_of_its_own_asks_for_it(name: str) -> None:
    """Where each account has its own address, the error names the setting and shows what one looks like."""
    with pytest.raises(ConfigError, match=r"base_url.*https://RE"):
        isthmus.connect(f"{name}:m", api_key=KEY)


@pytest.mark.parametrize("stream", [True, False])
async def test_vertex_takes_the_model_in_the_path_and_the_version_in_the_body(stream: bool) -> None:
    """Vertex: `:rawPredict` or `:streamRawPredict`, a bearer token, `anthropic_version` in the body and no model."""
    adapter, caught = made("anthropic-vertex", api_key=KEY, base_url=VERTEX, cache_markers=False)
    adapter = isthmus.connect(
        "anthropic-vertex:claude-haiku-4-5@20251001",
        api_key=KEY,
        base_url=VERTEX,
        transport=caught,
        cache_markers=False,
    )
    reply = await (consume_stream(adapter.stream(CTX)) if stream else adapter.generate(CTX))
    (sent,) = caught.sent
    verb = "streamRawPredict" if stream else "rawPredict"
    assert sent.url == f"{VERTEX}/publishers/anthropic/models/claude-haiku-4-5@20251001:{verb}"
    assert sent.headers == {"authorization": f"Bearer {KEY}"}
    text = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    assert sent.body == {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 50,
        "messages": [text],
        **({"stream": True} if stream else {}),
    }
    assert reply.text == "Hello"


async def test_foundry_takes_the_usual_body_at_its_own_address() -> None:
    """Foundry: `/anthropic/v1/messages`, `x-api-key`, the version in a header and the model in the body."""
    base = "https://res.services.ai.azure.com/anthropic"
    adapter, caught = made("anthropic-foundry", api_key=KEY, base_url=base)
    await adapter.generate(CTX)
    (sent,) = caught.sent
    assert sent.url == f"{base}/v1/messages"
    assert sent.headers == {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    assert (sent.body["model"], sent.body["max_tokens"], "anthropic_version" in sent.body) == ("m", 50, False)


@pytest.mark.parametrize(
    ("name", "variable", "base"),
    [
        ("groq", "GROQ_API_KEY", None),
        ("azure", "AZURE_OPENAI_API_KEY", AZURE),
        ("anthropic-foundry", "ANTHROPIC_FOUNDRY_API_KEY", "https://res.services.ai.azure.com/anthropic"),
    ],
)
async def test_the_variable_of_a_preset_holds_its_key(
    name: str, variable: str, base: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preset's own variable is read for its own hosts, hosts below a domain too, and for no other."""
    monkeypatch.setenv(variable, KEY)
    adapter, caught = made(name, **({"base_url": base} if base else {}))
    await adapter.generate(CTX)
    assert KEY in json.dumps(caught.sent[0].headers)
    strange, there = made(name, base_url="https://elsewhere.example")
    await strange.generate(CTX)
    assert KEY not in json.dumps(there.sent[0].headers)


async def test_a_key_is_needed_at_home_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hosted server without a key is a credentials error that names the variable; one's own needs none."""
    for name in ("GROQ_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    adapter, caught = made("groq")
    with pytest.raises(CredentialsError, match="GROQ_API_KEY"):
        await adapter.generate(CTX)
    own, there = made("ollama")
    await own.generate(CTX)
    assert (len(caught.sent), "authorization" in there.sent[0].headers) == (0, False)


# What "off" is on the wire, by preset and model: nothing, a switch of the server's own, or the lowest level.
OFF: list[tuple[str, str, dict[str, Any]]] = [
    ("openai", "gpt-4o", {}),
    ("openai", "o3-mini", {"reasoning_effort": "low"}),
    ("openai", "gpt-5-mini", {"reasoning_effort": "low"}),
    ("openai", "gpt-5.2", {"reasoning_effort": "none"}),
    ("deepseek", "deepseek-v4-flash", {"thinking": {"type": "disabled"}}),
    ("deepseek", "deepseek-chat", {}),
    ("zai", "glm-4.6", {"thinking": {"type": "disabled"}}),
    ("dashscope", "qwen3-32b", {"enable_thinking": False}),
    ("gemini", "gemini-2.5-flash", {"reasoning_effort": "none"}),
    ("gemini", "gemini-2.5-pro", {"reasoning_effort": "low"}),
    ("groq", "llama-3.3-70b", {}),
    ("groq", "openai/gpt-oss-20b", {"reasoning_effort": "low"}),
    ("openrouter", "openai/gpt-5-mini", {"reasoning_effort": "low"}),
]


@pytest.mark.parametrize(("name", "model", "members"), OFF)
async def test_effort_off_is_what_the_model_needs_to_be_off(name: str, model: str, members: dict[str, Any]) -> None:
    """Seed 000, for compatible servers too: off sends nothing, a switch, or the lowest level, by model."""
    caught = Caught(CHAT)
    adapter = isthmus.connect(f"{name}:{model}", api_key=KEY, transport=caught, effort="off")
    reply = await adapter.generate(GenerateContext(messages=CTX.messages))
    fields = ("reasoning_effort", "thinking", "enable_thinking")
    assert {key: caught.sent[0].body[key] for key in fields if key in caught.sent[0].body} == members
    assert any("'low'" in note.detail for note in reply.notes) == (members == {"reasoning_effort": "low"})


@pytest.mark.parametrize("level", ["low", "medium", "high", "xhigh", "max", "minimal"])
async def test_a_level_is_sent_as_it_is(level: str) -> None:
    """Seed 000: a level that a model does not know is sent, and its server's own error surfaces."""
    error = {"error": {"message": f"Unsupported value: {level}", "type": "invalid_request_error"}}
    caught = Caught(error, status=400)
    adapter = isthmus.connect("openai:gpt-5", api_key=KEY, transport=caught, effort=level)
    with pytest.raises(InvalidRequestError, match=f"Unsupported value: {level}"):
        await adapter.generate(GenerateContext(messages=CTX.messages))
    assert caught.sent[0].body["reasoning_effort"] == level


async def test_an_endpoint_that_takes_no_effort_gets_none() -> None:
    """Seed 000: `adaptive_thinking = false` in the table sends no field at all, and a level left out is noted."""
    caught = Caught(CHAT)
    limits = {"": {"adaptive_thinking": False}}
    adapter = isthmus.connect("openai:gpt-5", api_key=KEY, transport=caught, effort="high", model_limits=limits)
    reply = await adapter.generate(GenerateContext(messages=CTX.messages))
    assert "reasoning_effort" not in caught.sent[0].body
    assert [note.code for note in reply.notes if "effort" in note.detail] == ["parameter-dropped"]


def test_the_lowest_level_is_logged_once_a_model(caplog: pytest.LogCaptureFixture) -> None:
    """Seed 000: off that is sent as low is logged once a model, for this dialect as for the other."""
    adapter = isthmus.connect("openai:o3-once", api_key=KEY, transport=Caught(CHAT), effort="off")
    with caplog.at_level(logging.INFO, "isthmus.models.capabilities"):
        for _ in range(3):
            adapter._encode(CTX, stream=False)
    assert [record.message.count("o3-once") for record in caplog.records] == [1]


def test_a_preset_is_one_row() -> None:
    """A server that is in no table is one row: `preset` makes a factory of it, forwarded to by name."""
    registry.register_adapter("acme", OpenAIChatAdapter.preset("acme", {"base_url": "https://llm.acme.example/v1"}))
    try:
        adapter = isthmus.connect("acme:m", api_key=KEY, max_tokens=99)
        assert (adapter.id, adapter.base_url, adapter.max_tokens) == ("acme:m", "https://llm.acme.example/v1", 99)
        assert "acme" in registry.available_providers()
        assert registry.provider_sources()["acme"].endswith("OpenAIChatAdapter")
    finally:
        registry._registered.pop("acme")


def test_a_row_with_a_wrong_field_names_the_right_one() -> None:
    """A misspelt field of a row is an error with the nearest name."""
    with pytest.raises(ConfigError, match=r"preset 'acme'.*did you mean 'ceiling_key'"):
        OpenAIChatAdapter.preset("acme", {"ceiling_keys": "max_tokens"})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with one file that offers an adapter, a preset and a broken adapter by entry points."""
    (tmp_path / "acmegate.py").write_text(
        "from isthmus.adapters.base import ModelAdapter\n"
        "from isthmus.adapters.openai_chat import OpenAIChatAdapter\n"
        "class Gate(ModelAdapter):\n"
        "    def __init__(self, *, model='', tenant_id=''):\n"
        "        self.model, self.tenant_id = model, tenant_id\n"
        "    async def generate(self, ctx):\n"
        "        return {'events': [{'type': 'text', 'text': self.tenant_id}], 'finish': 'stop'}\n"
        "preset = OpenAIChatAdapter.preset('acme-gpu', {'base_url': 'https://gpu.acme.example/v1'})\n"
    )
    (tmp_path / "acmebroken.py").write_text("raise RuntimeError('no licence file')\n")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[isthmus.adapters]\nacme-gate = acmegate:Gate\nacme-gpu = acmegate:preset\nacme-broken = acmebroken:Gate\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("acmegate", "acmebroken"):
        sys.modules.pop(name, None)


async def test_an_adapter_is_one_file_and_an_entry_point(installed: Path) -> None:
    """Installing a wheel with one file is enough: its adapter and its preset are there by name."""
    assert {"acme-gate", "acme-gpu"} <= set(registry.available_providers())
    adapter = isthmus.connect("acme-gate:m", tenant_id="acme")
    assert (await adapter.generate(CTX)).text == "acme"
    caught = Caught(CHAT)
    await isthmus.connect("acme-gpu:m", api_key=KEY, transport=caught).generate(CTX)
    assert caught.sent[0].url == "https://gpu.acme.example/v1/chat/completions"


def test_a_plugin_that_cannot_be_imported_is_shown_with_its_cause(installed: Path) -> None:
    """An entry point whose module fails to import says which, and why; the others still work."""
    with pytest.raises(ConfigError, match=r"acmebroken:Gate.*acme-broken.*RuntimeError: no licence file"):
        isthmus.connect("acme-broken:m")
    assert isthmus.connect("acme-gate:m").id == "gate:m"


def test_doctor_names_the_preset_and_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` says which provider is configured and whether its variable is set, never its value."""
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    config = tmp_path / "c.toml"
    config.write_text('[llm]\nprovider = "groq"\nmodel = "m"\ncache_markers = true\n')
    lines = list(findings(load_settings(config)))
    assert any(line.startswith("provider groq") for line in lines)
    assert "GROQ_API_KEY: set" in lines
    assert any("llm.cache_markers: not used by provider 'groq'" in line for line in lines)
    assert KEY not in "\n".join(lines)


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_recordings_replay_under_the_presets_name(name: str) -> None:
    """A server's recordings decode under its preset's name to the same reply as under the dialect's."""
    found = [row for row in rows(provider=RECORDED.get(name, name), api="openai-chat") if row["status"] == "200"][:4]
    for row in found:
        folder = CORPUS / row["path"]
        assert replay(folder, adapter=name).to_dict() == replay(folder, adapter="openai").to_dict()


@pytest.mark.corpus
@needs_corpus
def test_what_presets_send_was_answered_when_it_was_recorded() -> None:
    """F21: where a server answered a ceiling or `stream_options`, its preset says the same names."""
    odd = {}
    for name in PRESETS:
        if name == "azure-v1":
            continue
        seen: set[str] = set()
        for row in rows(provider=RECORDED.get(name, name), api="openai-chat", status="200"):
            body = json.loads((CORPUS / row["path"] / "request.json").read_bytes()).get("body")
            seen |= set(body) if isinstance(body, dict) else set()
        sent = PRESETS[name][3].keys() & {"max_tokens", "max_completion_tokens", "stream_options"}
        ceilings = seen & {"max_tokens", "max_completion_tokens"}
        if (ceilings and not ceilings & sent) or ("stream_options" in sent and "stream" in seen and not seen & sent):
            odd[name] = (sorted(sent), sorted(seen))
    # Recorded without either member: nothing was answered, and nothing refused.
    assert odd.keys() <= {"together"}


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("name", sorted(PRESETS.keys() | MESSAGES_HOSTS))
def test_every_preset_keeps_the_laws(name: str) -> None:
    """The conformance kit finds nothing in any preset, over its server's own recordings where there are any."""
    hosts = {"anthropic-vertex": "vertex", "anthropic-foundry": "azure", **RECORDED}
    api = "anthropic-messages" if name in MESSAGES_HOSTS else "openai-chat"
    own = rows(provider=hosts.get(name, name), api=api) or rows(provider="openai", api=api)
    recordings = [CORPUS / row["path"] for row in own if row["status"] == "200"] or [
        CORPUS / row["path"] for row in rows(provider="openai", api=api, status="200")
    ]
    report = asyncio.run(conform(registry.resolve(name).factory, recordings=recordings[:4]))
    assert not report.findings, report.table()


def test_every_provider_stands_in_the_readme() -> None:
    """Its table of providers names all that come with the library, and no others."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Providers")[2].partition("## ")[0]
    named = {name for line in table.splitlines() for name in re.findall(r"`([^`]+)`", line[2:].partition("|")[0])}
    assert named - {"package.module:Class"} == set(registry.built_in())


def test_every_preset_stands_on_a_page() -> None:
    """The tables of the pages name every preset, with its variable and what it calls the ceiling."""
    pages = Path(__file__).parents[2] / "docs" / "providers"
    lines = [line for page in ("compatible.md", "azure.md") for line in (pages / page).read_text().splitlines()]
    for name in sorted(servers() - {"openai", "anthropic"}):
        adapter, _ = made(name, api_key=KEY, base_url="http://x")
        row = next(line for line in lines if line.startswith(f"| `{name}` |"))
        variable = adapter.keys.variable
        assert (variable in row) or "none needed" in row or not variable, name
        if name in PRESETS and "Chat Completions" not in row:
            ceiling = (PRESETS[name][3].keys() & {"max_tokens", "max_completion_tokens"}).pop()
            assert f"`{ceiling}`" in row, name


_ASKED = (
    *("openai:m", "openai-responses:m", "anthropic:m", "deepseek:m"),
    *("bedrock:amazon.nova-pro-v1:0", "bedrock:anthropic.claude-sonnet-4-5-v1:0"),
)


@pytest.mark.parametrize("provider", _ASKED)
@pytest.mark.parametrize(
    ("limits", "wish"),
    [({"adaptive_thinking": False}, {"effort": "high"}), ({}, {"tool_choice": "required"})],
    ids=["effort", "tool choice"],
)
def test_what_a_model_lacks_is_noted_or_an_error_at_every_provider(
    provider: str, limits: dict[str, Any], wish: dict[str, Any]
) -> None:
    """`on_unsupported` holds for the same settings whoever is asked."""
    provider, named = provider.split(":")[0], {"model": provider.split(":", 1)[1]}
    if provider == "bedrock":
        named["aws_region"] = "us-east-1"
    adapter: Any = registry.load_adapter(provider, api_key="k", model_limits={"": limits}, **named)
    asked = GenerateContext(messages=({"role": "user", "content": "Hi"},), **wish)
    assert [note.code for note in adapter._encode(asked, stream=False).notes] == [NoteCode.PARAMETER_DROPPED]
    with pytest.raises(InvalidRequestError, match="on_unsupported"):
        adapter._encode(replace(asked, on_unsupported="error"), stream=False)


@pytest.mark.parametrize("provider", _ASKED)
def test_a_level_of_effort_that_a_model_may_not_know_is_sent(provider: str) -> None:
    """Seed 000: an unsupported level is sent, so that the provider's own error surfaces."""
    name, model = provider.split(":", 1)
    place = {"aws_region": "us-east-1", "api": "converse"} if name == "bedrock" else {}
    adapter: Any = registry.load_adapter(name, api_key="k", model=model, **place)
    body = adapter._encode(GenerateContext(messages=CTX.messages, effort="ultra"), stream=False).call.body
    assert b'"ultra"' in body


@pytest.mark.parametrize("provider", [name for name in _ASKED if "nova" not in name])
def test_the_lowest_level_in_place_of_none_is_noted(provider: str) -> None:
    """Seed 000: a model that cannot stop thinking is asked for the lowest level, and the caller is told."""
    name, model = provider.split(":", 1)
    place = {"aws_region": "us-east-1", "api": "converse"} if name == "bedrock" else {}
    limits = {"": {"thinking_default_on": True, "thinking_disable": False}}
    adapter: Any = registry.load_adapter(name, api_key="k", model=model, model_limits=limits, **place)
    request = adapter._encode(GenerateContext(messages=CTX.messages, effort="off"), stream=False)
    assert b'"low"' in request.call.body
    assert [note.code for note in request.notes] == [NoteCode.PARAMETER_CHANGED]
