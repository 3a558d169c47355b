"""Where spans go: certificates, variables, sampling, and collectors that fail."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from isthmus import Agent, observability
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.conformance import Play, serve
from isthmus.conformance.reply import End
from isthmus.errors import ConfigError
from isthmus.models.events import Finish, Text
from isthmus.observability import Telemetry, facts, otel
from support.telemetry import traced

FINE = Play.whole(b"", headers={"content-type": "application/x-protobuf"})


async def run() -> None:
    """One run."""
    assert (await Agent(model=ScriptedAdapter(["fine"])).run("hello")).text == "fine"


def sent(server: Any) -> list[str]:
    """The names of the spans that arrived."""
    found = []
    for request in server.requests:
        if request.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
                found += [span.name for scope in resource.scope_spans for span in scope.spans]
    return found


def exported(server: Any, **config: Any) -> list[str]:
    """The names of the spans of a run with this configuration."""
    observability.start(Telemetry(**config))
    try:
        asyncio.run(run())
        observability.flush(10)
    finally:
        observability.shutdown()
    return sent(server)


def test_certificates_are_checked_and_ours_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `ca_bundle` a private collector is trusted, with `client_cert` it knows us; without them nothing arrives."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        # To the HTTP library of the exporter these mean more than what it is told.
        monkeypatch.delenv(name, raising=False)
    authority = trustme.CA()
    names = {"ca": tmp_path / "ca.pem", "cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    authority.cert_pem.write_to_path(str(names["ca"]))
    mine = authority.issue_cert("client@example.org")
    mine.cert_chain_pems[0].write_to_path(str(names["cert"]))
    mine.private_key_pem.write_to_path(str(names["key"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with serve(lambda request: FINE, ssl=context) as server:
        both = {"ca_bundle": names["ca"], "client_cert": names["cert"], "client_key": names["key"]}
        assert "chat script" in exported(server, endpoint=server.url, **both)
    with serve(lambda request: FINE, ssl=context) as server:
        observability.start(Telemetry(endpoint=server.url))
        asyncio.run(run())
        observability.flush(0.5)
        observability.shutdown(0.5)
        assert not sent(server)


def test_the_variables_say_what_no_argument_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint, headers and sampler come from `OTEL_*` where the configuration leaves them; an argument wins."""
    with serve(lambda request: FINE) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-from=variable")
        assert len(exported(server)) == 4
        assert server.requests[0].headers["x-from"] == "variable"
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        assert len(exported(server)) == 4
        assert len(exported(server, sample_ratio=1.0)) == 8
        assert len(exported(server, sample_ratio=0.0)) == 8


@pytest.mark.parametrize(("signal", "other"), [("traces", "metrics"), ("metrics", "traces")])
def test_a_signal_that_a_variable_turns_off_is_not_sent(
    signal: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that takes no metrics, or no spans, gets none, and a flush says that all was sent."""
    monkeypatch.setenv(f"OTEL_{signal.upper()}_EXPORTER", "none")
    with serve(lambda request: FINE if request.path == f"/v1/{other}" else Play.whole(b"", status=404)) as server:
        observability.start(Telemetry(endpoint=server.url))
        asyncio.run(run())
        assert observability.flush(10)
        observability.shutdown()
    assert {request.path for request in server.requests} == {f"/v1/{other}"}


@pytest.mark.parametrize(
    "name", ["OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRICS_EXEMPLAR_FILTER"]
)
def test_a_variable_that_makes_no_sense_is_named_as_a_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What OpenTelemetry refuses is a wrong setting, not a defect, and nothing is begun."""
    monkeypatch.setenv(name, "-1")
    with pytest.raises(ConfigError, match=r"OTEL_\*: OpenTelemetry refuses it"):
        observability.start(Telemetry())
    assert not observability.enabled()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("Otel")]


@pytest.mark.parametrize("how", ["hangs", "refuses", "resets"])
async def test_a_collector_that_fails_holds_up_nobody(how: str) -> None:
    """F23: runs take no longer, and the end gives up in time, whether the collector hangs, refuses or resets."""
    plays = {"hangs": Play.raw(End.HOLD), "refuses": Play.whole(b"", status=503), "resets": Play.raw(End.RESET)}
    loop = asyncio.get_running_loop()
    async with serve(plays[how], repeat=True) as server:
        observability.start(Telemetry(endpoint=server.url))
        began = loop.time()
        for _ in range(20):
            await run()
        assert loop.time() - began < 2
        began = loop.time()
        assert not await asyncio.to_thread(observability.flush, 0.3)
        await asyncio.to_thread(observability.shutdown, 0.3)
        assert loop.time() - began < 3
    # What sent them ends too, in the midst of its tries.
    while any(thread.name.startswith("Otel") for thread in threading.enumerate()):
        assert loop.time() - began < 5
        await asyncio.sleep(0.01)


def test_a_key_that_comes_after_the_end_sends_nothing() -> None:
    """What was given up stays so: a new exporter would go on trying where nobody is."""
    asked, given = threading.Event(), threading.Event()

    def keys(refresh: bool) -> dict[str, str]:
        asked.set()
        given.wait(10)
        return {"authorization": "x"}

    with serve(lambda request: Play.whole(b"")) as server:
        observability.start(Telemetry(endpoint=server.url, keys=keys))
        asyncio.run(run())
        assert not observability.flush(0.1)
        assert asked.is_set()
        observability.shutdown(0.1)
        given.set()
        until = time.monotonic() + 5
        while any(thread.name.startswith("Otel") for thread in threading.enumerate()) and time.monotonic() < until:
            time.sleep(0.01)
        assert not server.requests


def test_a_key_that_cannot_be_had_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many exports it costs; what the command says of it is not repeated."""
    failing = True

    def keys(refresh: bool) -> dict[str, str]:
        if failing:
            raise RuntimeError("canary")
        return {"authorization": "Bearer k"}

    with serve(lambda request: FINE) as server:
        observability.start(Telemetry(endpoint=server.url, keys=keys))
        for failing in (True, True, False):
            asyncio.run(run())
            assert observability.flush(5) is not failing
        observability.shutdown()
    told = [record.getMessage() for record in caplog.records if "no key" in record.getMessage()]
    # Spans and metrics are sent by an exporter each.
    assert told == ["telemetry: no key: RuntimeError"] * 2
    assert "canary" not in caplog.text


def test_starting_twice_is_starting_once_and_another_takes_its_place(tmp_path: Path) -> None:
    """The same configuration changes nothing; another one ends the first; the end is harmless twice."""
    one, other = (Telemetry(sinks=("jsonl",), file=tmp_path / name) for name in ("one", "other"))
    observability.start(one)
    observability.start(Telemetry(sinks=("jsonl",), file=tmp_path / "one"))
    asyncio.run(run())
    observability.start(other)
    asyncio.run(run())
    observability.shutdown()
    observability.shutdown()
    assert not observability.enabled()
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("one", "other")] == [4, 4]


def test_a_flush_does_not_say_that_what_was_refused_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is of what was to be sent since the last one, whether the collector refuses it or is not there."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with serve(lambda request: Play.whole(b"", status=status)) as server:
        for status, sent_all in ((401, False), (200, True)):
            observability.start(Telemetry(endpoint=server.url, service_name=str(status)))
            asyncio.run(run())
            assert observability.flush(5) is sent_all
            asyncio.run(run())
            status = 200
            assert observability.flush(5)
        observability.shutdown()
    observability.start(Telemetry(endpoint=server.url))
    asyncio.run(run())
    assert not observability.flush(5)
    observability.shutdown(1)


def test_a_key_in_the_address_of_the_collector_is_not_shown() -> None:
    """User and password stand in no repr; a query, which the exporter would log and send elsewhere, is refused."""
    assert "hunter2" not in repr(Telemetry(endpoint="https://user:hunter2hunter2@collector.example"))
    with pytest.raises(ValueError, match="headers") as refused:
        Telemetry(endpoint="https://collector.example/?api_key=hunter2hunter2")
    assert "hunter2" not in str(refused.value)


async def test_no_span_outlives_the_one_it_is_part_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first call takes long to begin, and where the clock is set back meanwhile."""
    real = time.time_ns
    begun = facts.begun

    def slow(*given: Any) -> Any:
        time.sleep(0.005)
        return begun(*given)

    monkeypatch.setattr(otel, "begun", slow)
    with traced() as seen:
        task = asyncio.ensure_future(Agent(model=ScriptedAdapter([[0.02, Text("hi"), Finish("stop")]])).run("hello"))
        await asyncio.sleep(0.01)
        monkeypatch.setattr(otel, "time_ns", lambda: real() - 10**12)
        await task
        by_id = {span.context.span_id: span for span in seen.spans if span.context}
        for span in seen.spans:
            assert span.start_time is not None
            assert span.end_time is not None
            assert span.start_time <= span.end_time
            if span.parent is not None:
                above = by_id[span.parent.span_id]
                assert above.end_time is not None
                assert span.end_time <= above.end_time, (span.name, above.name)
        assert all(point.min >= 0 for point in seen.points("gen_ai.client.operation.duration"))
