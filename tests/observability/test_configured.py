"""`[telemetry]` of a configuration, and what is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus import build, observability, run_sync
from isthmus.conformance import Play, serve
from isthmus.errors import ConfigError
from isthmus.observability.configured import telemetry_of
from isthmus.settings import load_settings
from support.homes import Home, enter_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own."""
    return enter_home(tmp_path, monkeypatch)


LLM = '[llm]\nprovider = "scripted"\nreplies = ["fine"]\n'


def shout(name: str, text: str) -> str:
    """A hook that a configuration may name."""
    return text.upper()


def test_every_key_reaches_what_is_started(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key of the table has its field; off, or not there, is nothing."""
    home.write_user(
        LLM + '[telemetry]\nenabled = true\nsinks = ["otel", "jsonl"]\nendpoint = "http://c:1"\nsample_ratio = 0.5\n'
        'headers = { x = "y" }\nservice_name = "s"\nca_bundle = "ca"\nclient_cert = "cc"\nclient_key = "ck"\n'
        'capture_content = true\nmax_content_chars = 9\nfile = "f"\nlog_level = "debug"\n'
        f'redact = "{__name__}:shout"\n'
    )
    sys.modules.setdefault(__name__, sys.modules[shout.__module__])
    monkeypatch.chdir(home.folder)
    for name in ("ca", "cc", "ck"):
        Path(name).touch()
    config: Any = telemetry_of(load_settings())
    assert (config.sinks, config.endpoint, config.sample_ratio) == (("otel", "jsonl"), "http://c:1", 0.5)
    assert (config.service_name, config.ca_bundle, config.client_cert, config.client_key) == ("s", "ca", "cc", "ck")
    assert (config.capture_content, config.max_content_chars, config.file) == (True, 9, "f")
    assert (dict(config.headers), config.redact("a", "b"), config.log_level) == ({"x": "y"}, "B", "debug")
    home.write_user(LLM + "[telemetry]\nenabled = false\n")
    assert telemetry_of(load_settings()) is None
    home.write_user(LLM)
    assert telemetry_of(load_settings()) is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sample_ratio = 2", "telemetry.sample_ratio: must be from 0 to 1"),
        ('sinks = ["jsonl"]', "telemetry.file: say where"),
        ('sinks = ["kafka"]', "telemetry.sinks: must be of otel, jsonl, log"),
        ('redact = "no.such:thing"', "telemetry.redact"),
        ('redact = ".there"', "telemetry.redact"),
        ('sinks = ["jsonl"]\nfile = "/no/such/folder/trace"', "telemetry.file: there is no folder"),
        ('ca_bundle = "/no/such/file"', "telemetry.ca_bundle: there is no file"),
        ('endpoint = "collector:4318"', "telemetry.endpoint: must begin with http:// or https://"),
        ('log_level = "loud"', "telemetry.log_level: must be one of info, debug, wire"),
        ('sinks = ["log"]\nlog_level = "wire"', "telemetry.log_level: 'wire' writes what was said: set"),
        ('endpiont = "x"', "did you mean 'endpoint'"),
    ],
)
def test_a_wrong_value_names_place_and_remedy(home: Home, line: str, told: str) -> None:
    """A mistake is an error that names the file, the key and what it must be."""
    path = home.write_user(f"{LLM}[telemetry]\nenabled = true\n{line}\n")
    with pytest.raises(ConfigError, match="telemetry") as caught:
        telemetry_of(load_settings())
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_of_the_current_folder_must_be_trusted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: a folder that nobody accepted sends no trace anywhere."""
    home.write_folder('[telemetry]\nenabled = true\nendpoint = "http://evil"\n')
    monkeypatch.chdir(home.folder)
    with pytest.raises(ConfigError, match="config trust"):
        load_settings()


def test_secrets_are_hidden(home: Home) -> None:
    """F29: neither `to_dict` nor the doctor's lines show headers or the key command."""
    home.write_user(
        LLM
        + '[telemetry]\nenabled = false\nheaders = { authorization = "CANARY-1" }\napi_key_command = "echo CANARY-2"\n'
    )
    settings = load_settings()
    assert "CANARY" not in str(settings.to_dict()) + "\n".join(build.findings(settings)) + repr(settings)


def test_a_loaded_chain_sends_with_the_commands_key(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load` starts it, once; the key command authorises each export, anew after a refusal; the variable is beaten."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-the-environment")
    count = home.root / "count"
    refusals = [401]

    def answer(request: Any) -> Play:
        if request.path == "/v1/traces" and refusals:
            return Play.whole(b"", status=refusals.pop())
        return Play.whole(b"", headers={"content-type": "application/x-protobuf"})

    with serve(answer) as collector:
        home.write_user(
            LLM + f'[telemetry]\nenabled = true\nendpoint = "{collector.url}"\n'
            f'api_key_command = "echo x >> {count}; wc -l < {count}"\n'
        )
        chain = build.load()
        build.load()
        try:
            assert observability.enabled()
            run_sync(build.ask("hello", model=chain))
            assert observability.flush(10)
        finally:
            observability.shutdown()
        traces = [request for request in collector.requests if request.path == "/v1/traces"]
    keys = [str(request.headers["authorization"]) for request in traces]
    assert keys[0].startswith("Bearer ")
    assert len(keys) == 2
    assert keys[0] != keys[1]
    assert b"from-the-environment" in traces[1].body
