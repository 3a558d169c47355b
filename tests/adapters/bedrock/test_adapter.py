"""The adapter over a real socket, and what authorises its requests."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import sys
import traceback
from time import monotonic

import pytest

from isthmus.adapters.base import load_adapter
from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.adapters.bedrock.codec import ConverseCodec, InvokeCodec
from isthmus.errors import ConfigError, CredentialsError, IsthmusError, ProtocolError, TransientError, UnavailableError
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext
from isthmus.models.fold import consume_stream
from support.anthropic_fold import user
from support.bedrock_kit import document, reply, served, stop, stream, tail, text
from support.bedrock_reading import message
from support.loopback import CLOSE, LoopbackServer, whole

CTX = GenerateContext(messages=(user(),))
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TOKEN = "FwoGZXIvYXdzEXAMPLETOKENVALUE"
BEARER = "bedrock-api-key-canary-4711"
EXPLICIT = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": SECRET, "aws_session_token": TOKEN}


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch, tmp_path):
    """No credentials of the machine's own."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def make(server=None, model="amazon.nova-lite-v1:0", **settings):
    """An adapter for a scripted server."""
    address = {"base_url": server.url} if server else {}
    return BedrockAdapter(model=model, aws_region="us-east-1", **address, **settings)


async def test_streamed_and_whole_over_a_socket():
    """A reply is the same streamed and whole, each asked for at its own path."""
    events = stream(("messageStart", {}), text("Hi"), stop(), *tail())
    async with LoopbackServer([events, reply(document([{"text": "Hi"}]))]) as server, make(server) as adapter:
        streamed, at_once = await consume_stream(adapter.stream(CTX)), await adapter.generate(CTX)
        assert (streamed.text, streamed.finish, streamed.usage) == (at_once.text, at_once.finish, at_once.usage)
        assert [seen.path.rpartition("/")[2] for seen in server.requests] == ["converse-stream", "converse"]
        assert "%3A" in server.requests[0].path
        assert "authorization" not in server.requests[0].headers


async def test_anthropics_models_go_by_invoke_model():
    """The Messages body without model and stream, with the version, and the native dialect of Anthropic's own."""
    said = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    async with LoopbackServer([reply({**said, "usage": {"output_tokens": 1}})]) as server:
        async with make(server, "us.anthropic.claude-sonnet-5", betas=("b-1",)) as adapter:
            assert (await adapter.generate(CTX)).text == "Hi"
        body = json.loads(server.requests[0].body)
        assert server.requests[0].path == "/model/us.anthropic.claude-sonnet-5/invoke"
        assert (body["anthropic_version"], body["anthropic_beta"]) == ("bedrock-2023-05-31", ["b-1"])
        assert (body["max_tokens"], {"model", "stream"} & body.keys()) == (DEFAULT_CEILING, set())
        assert adapter.codec.dialect == "anthropic-messages"


@pytest.mark.parametrize(
    ("model", "api", "codec"),
    [
        ("anthropic.claude-x", None, InvokeCodec),
        ("eu.anthropic.claude-x", "converse", ConverseCodec),
        ("amazon.nova-lite-v1:0", None, ConverseCodec),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc", None, ConverseCodec),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc", "invoke", InvokeCodec),
    ],
)
def test_the_id_decides_the_api_and_a_switch_overrides_it(model, api, codec):
    """The vendor in an id decides between InvokeModel and Converse; `api` goes before it."""
    assert type(make(model=model, api=api).codec) is codec


def test_settings_that_cannot_be_are_named(monkeypatch):
    """A wrong api, a key without its secret and a missing region are errors with the key at fault."""
    with pytest.raises(ConfigError, match="converse, invoke"):
        make(api="chat")
    with pytest.raises(ConfigError, match="go together"):
        make(aws_access_key_id="AKID")
    with pytest.raises(ConfigError, match="no region"):
        BedrockAdapter(model="m")
    with pytest.raises(ConfigError, match="is no region"):
        BedrockAdapter(model="m", aws_region="evil.example/")


def test_where_the_region_comes_from(monkeypatch, tmp_path):
    """The argument, then the ARN, then the environment's two variables, then the profile."""
    (tmp_path / "config").write_text("[profile p]\nregion = ap-south-1\n")
    arn = "arn:aws:bedrock:eu-west-1:1:application-inference-profile/x"

    def url(**settings):
        return str(BedrockAdapter(**{"model": "m", **settings}).base_url)

    assert url(aws_profile="p") == "https://bedrock-runtime.ap-south-1.amazonaws.com"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    assert "us-west-2" in url(aws_profile="p")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert "us-east-2" in url()
    assert "eu-west-1" in url(model=arn)
    assert url(model=arn, aws_region="cn-north-1").endswith("cn-north-1.amazonaws.com.cn")
    assert url(aws_region="eusc-de-east-1") == "https://bedrock-runtime.eusc-de-east-1.amazonaws.eu"


async def test_signatures_are_botocores_own():
    """A request that is sent has the signature that botocore makes of the very same request."""
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    model = "arn:aws:bedrock:us-east-1:1:application-inference-profile/a b"
    async with (
        LoopbackServer([reply(document([{"text": "Hi"}]))]) as server,
        make(server, model, **EXPLICIT) as adapter,
    ):
        await adapter.generate(CTX)
        seen = server.requests[0]
    request = AWSRequest("POST", server.url + seen.path, headers={"Content-Type": seen.headers["content-type"]})
    request.data = seen.body
    request.headers["X-Amz-Date"] = seen.headers["x-amz-date"]
    request.context["timestamp"] = seen.headers["x-amz-date"]
    signer = auth.SigV4Auth(Credentials("AKIDEXAMPLE", SECRET, TOKEN), "bedrock", "us-east-1")
    request.headers["X-Amz-Security-Token"] = TOKEN
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    assert seen.headers["authorization"].endswith(f"Signature={signature}")
    assert "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token" in seen.headers["authorization"]
    assert "%253A" in canonical


async def test_an_api_key_goes_before_a_signature(monkeypatch):
    """Explicit key, explicit identity, then the environment's key; each request carries one of them."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "from-the-environment")
    ways = [
        ({"api_key": BEARER, **EXPLICIT}, f"Bearer {BEARER}"),
        (EXPLICIT, "AWS4-HMAC-SHA256"),
        ({"base_url_trusted": True}, "Bearer from-the-environment"),
        ({"api_key_command": f"echo {BEARER}", "api_key_ttl_ms": 60_000}, f"Bearer {BEARER}"),
    ]
    async with LoopbackServer([reply(document([{"text": "Hi"}]))]) as server:
        for settings, expected in ways:
            async with make(server, **settings) as adapter:
                await adapter.generate(CTX)
            assert server.requests[-1].headers["authorization"].startswith(expected)


async def test_what_the_machine_holds_goes_to_aws_alone(monkeypatch):
    """F29: credentials from environment and files sign for AWS's hosts, or for an address that is trusted."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    async with LoopbackServer([reply(document([{"text": "Hi"}]))]) as server:
        for trusted in (False, True):
            async with make(server, base_url_trusted=trusted) as adapter:
                await adapter.generate(CTX)
        first, second = (seen.headers.get("authorization", "") for seen in server.requests)
        assert (first, "AKIDENV" in second) == ("", True)


async def test_no_credentials_is_an_error_that_says_what_to_do():
    """F29: for AWS's own host something must authorise: the error names each way."""
    with pytest.raises(CredentialsError, match="AWS_BEARER_TOKEN_BEDROCK"):
        await make().generate(CTX)
    with pytest.raises(CredentialsError, match="nobody"):
        await make(aws_profile="nobody").generate(CTX)


async def test_without_botocore_a_signature_is_refused_and_an_api_key_works(monkeypatch):
    """The extra is needed to sign, which the error says, and for nothing else."""
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    async with LoopbackServer([reply(document([{"text": "Hi"}]))]) as server:
        with pytest.raises(IsthmusError, match=r"pip install .isthmus\[bedrock\]"):
            await make(server, **EXPLICIT).generate(CTX)
        async with make(server, api_key=BEARER) as adapter:
            assert (await adapter.generate(CTX)).text == "Hi"


async def test_credentials_are_loaded_in_a_thread_and_refreshed(monkeypatch, tmp_path):
    """A profile whose process is slow leaves the loop free, and credentials near their end are asked for anew."""
    script = tmp_path / "vend.sh"
    script.write_text(
        f"sleep 0.3; echo x >> {tmp_path}/runs\n"
        'echo \'{"Version": 1, "AccessKeyId": "AKIDPROC", "SecretAccessKey": "s3cr3t-of-process", '
        '"SessionToken": "t0ken-of-process", "Expiration": "\'$(date -u -d "+1 minute" +%Y-%m-%dT%H:%M:%SZ)\'"}\'\n'
    )
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = sh {script}\n")
    gaps: list[float] = []

    async def tick():
        while True:
            before = monotonic()
            await asyncio.sleep(0.01)
            gaps.append(monotonic() - before)

    async with LoopbackServer([reply(document([{"text": "Hi"}]))]) as server, make(server, aws_profile="p") as adapter:
        ticking = asyncio.create_task(tick())
        for _ in range(2):
            await adapter.generate(CTX)
        ticking.cancel()
        assert len(gaps) > 20
        assert max(gaps) < 0.25, "the loop waited for the process"
        assert "AKIDPROC" in server.requests[0].headers["authorization"]
        assert server.requests[0].headers["x-amz-security-token"] == "t0ken-of-process"
        assert len((tmp_path / "runs").read_text().split()) >= 2
        assert {"s3cr3t-of-process", "t0ken-of-process"} <= set(adapter.keys.secrets())


async def test_no_secret_in_any_error_or_repr():
    """F29: a server that repeats what it was sent tells no secret; nothing of the adapter shows or pickles one."""
    said = {"message": f"bad {SECRET} {TOKEN}"}
    broken = served(message("validationException", said, "exception"))
    async with LoopbackServer([reply(said, 403), broken]) as server, make(server, **EXPLICIT) as adapter:
        with pytest.raises(CredentialsError) as refused:
            await adapter.generate(CTX)
        with pytest.raises(ValueError, match=r"bad \*\*\*") as failed:
            await consume_stream(adapter.stream(CTX))
        frames = [
            frame
            for error in (refused, failed)
            for frame in traceback.TracebackException.from_exception(error.value, capture_locals=True).stack
            if "/tests/" not in frame.filename
        ]
        assert not any(SECRET in str(frame.locals) or TOKEN in str(frame.locals) for frame in frames)
        shown = f"{refused.value!r} {refused.value.body} {failed.value!r} {adapter.keys!r} {vars(adapter.keys)}"
        assert SECRET not in shown
        assert TOKEN not in shown
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(adapter.keys)
        assert copy.deepcopy(adapter.keys) is adapter.keys


async def test_a_stream_of_which_all_is_an_exception():
    """F01: a status of 200 with an exception as its only frame is that exception's error, on every face."""
    broken = served(message("throttlingException", {"message": "slow"}, "exception"))
    async with LoopbackServer([broken]) as server, make(server) as adapter:
        for ask in (lambda: consume_stream(adapter.stream(CTX)), lambda: adapter.generate(CTX)):
            with pytest.raises(TransientError, match="slow"):
                await ask()


async def test_cuts_and_damage_over_a_socket():
    """F01, F06: a connection that closes early is transient, a frame that was damaged a protocol error."""
    first = [message(name, value) for name, value in (("messageStart", {}), text("Hi"))]
    damaged = bytearray(message(*text("there")))
    damaged[-6] ^= 1
    cut = [*served(*first, message(*stop())[:20], last=False), CLOSE]
    async with LoopbackServer([cut, served(*first, bytes(damaged))]) as server, make(server) as adapter:
        for kind, said in ((TransientError, "cut"), (ProtocolError, "checksum")):
            step = await consume_stream(adapter.stream(CTX))
            assert (step.text, step.finish, type(step.error)) == ("Hi", "error-post", kind)
            assert said in step.error.message


async def test_a_page_in_place_of_a_stream_is_a_protocol_error():
    """F06: a gateway's page with status 200 is named as what it is."""
    page = whole(b"<html>Sign in</html>", content_type="text/html")
    async with LoopbackServer([[page]]) as server, make(server) as adapter:
        with pytest.raises(ProtocolError, match="is the base URL right"):
            await consume_stream(adapter.stream(CTX))


async def test_a_stream_without_its_content_type_is_still_one():
    """F06: a proxy that loses the content type loses nothing else; and a document is read where a stream was asked."""
    plain = served(*(message(name, value) for name, value in (text("Hi"), stop(), *tail())))
    plain[0] = plain[0].replace(b"application/vnd.amazon.eventstream", b"application/octet-stream")
    async with LoopbackServer([plain, reply(document([{"text": "Hi"}]))]) as server, make(server) as adapter:
        for _ in range(2):
            assert (await consume_stream(adapter.stream(CTX))).text == "Hi"


async def test_concurrent_calls_share_nothing():
    """Many calls of one adapter at once each get their own reply."""

    def answer(seen):
        said = json.loads(seen.body)["messages"][0]["content"][0]["text"]
        return stream(text(said), stop(), *tail())

    async with LoopbackServer(answer) as server, make(server) as adapter:
        contexts = [GenerateContext(messages=(user(f"m{n}"),)) for n in range(20)]
        found = await asyncio.gather(*(consume_stream(adapter.stream(ctx)) for ctx in contexts))
        assert [step.text for step in found] == [f"m{n}" for n in range(20)]


async def test_a_closed_port_is_unavailable():
    """A server that isn't there is unavailable, so a chain goes on."""
    with pytest.raises(UnavailableError):
        await BedrockAdapter(model="m", base_url="http://127.0.0.1:9", aws_region="us-east-1").generate(CTX)


def test_the_registry_makes_it():
    """The provider is known by its name, and its settings by theirs."""
    adapter = load_adapter("bedrock", model="m", aws_region="us-east-1", max_tokens=0, model_limits={"": {}})
    assert (adapter.id, adapter.max_tokens, adapter.provider) == ("bedrock:m", 8192, "bedrock")


def test_capabilities_come_from_limits_and_families():
    """The table of limits goes before what is known of the family."""
    adapter = make(
        model="us.anthropic.claude-sonnet-5", model_limits={"sonnet": {"context_window": 9, "max_output_tokens": 7}}
    )
    found = adapter.capabilities()
    assert (found.context_window, found.thinking_default_on, adapter.max_output_tokens) == (9, True, 7)


async def test_leaving_a_stream_early_closes_its_socket():
    """A break closes the connection at once."""
    forever = served(*(message(*text("x")) for _ in range(3)), last=False)
    async with LoopbackServer([[*forever, asyncio.Event()]]) as server, make(server) as adapter:
        async with adapter.stream(CTX) as events:
            async for _ in events:
                break
        await server.until(lambda: bool(server.disconnects))
