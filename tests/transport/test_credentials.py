"""Keys: where they come from, how commands are run, and that they never show (F29)."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from isthmus.errors import CredentialsError
from isthmus.transport import credentials
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.http import HttpTransport
from isthmus.wire.call import WireCall
from support.loopback import HOLD, RESET, LoopbackServer

CANARY = "cnry-8f3a1b2c4d5e6f70"
VARIABLE = "ISTHMUS_TEST_KEY"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    credentials._vended_keys.clear()
    yield
    assert not credentials._runs


def counting(folder: Path, then: str = "echo key-$(wc -l < {log})", before: str = "true") -> tuple[str, Path]:
    """A command that notes each of its runs in a file, and that file."""
    log = folder / "runs"
    log.touch()
    return f"{before}; echo run >> {log}; {then.format(log=log)}", log


def runs(log: Path) -> int:
    """How often the command ran."""
    return len(log.read_text().splitlines())


async def sent(source: KeySource, *, refresh: bool = False) -> str:
    """The authorisation that a source gives."""
    return (await source.headers(refresh=refresh))["authorization"]


@pytest.mark.parametrize("blank", ["", "  ", "\n", "\t\r\n"])
async def test_blank_is_no_key(monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    """A blank key, command or variable is as good as none: the next place is asked, and the last says what to do."""
    monkeypatch.setenv(VARIABLE, "from-env")
    places = {"api_key": blank, "api_key_command": blank, "configured": blank}
    scheme = KeyScheme(extra={"x-version": "1"})
    source = KeySource(variable=VARIABLE, scheme=scheme, **places)
    assert await source.headers() == {"x-version": "1", "authorization": "Bearer from-env"}
    monkeypatch.setenv(VARIABLE, blank)
    with pytest.raises(CredentialsError, match=f"no API key: set {VARIABLE}"):
        await KeySource(variable=VARIABLE, **places).headers()
    own = KeySource(variable=VARIABLE, required=False, scheme=scheme, **places)
    assert await own.headers() == {"x-version": "1"}


async def test_white_space_around_a_key_is_left_out() -> None:
    """A key that was pasted with a line break is sent without it, from every place."""
    for place in ({"api_key": " k-1\n"}, {"configured": "k-1\r\n"}, {"api_key_command": " echo k-1 \n"}):
        assert await sent(KeySource(**place)) == "Bearer k-1"


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ("0f1e2d3c4b5a", {"api-key": "0f1e2d3c4b5a"}),
        ("eyJhbGciOi.eyJzdWIi.c2ln_-", {"authorization": "Bearer eyJhbGciOi.eyJzdWIi.c2ln_-"}),
        ("eyJ.only-two", {"api-key": "eyJ.only-two"}),
    ],
)
async def test_a_token_is_sent_as_a_bearer_where_that_is_taken(key: str, headers: dict[str, str]) -> None:
    """A signed token goes into the header for tokens, a key into its own; never both, and never where none is taken."""
    scheme = KeyScheme(header="api-key", prefix="", takes_tokens=True)
    assert await KeySource(api_key=key, scheme=scheme).headers() == headers
    plain = KeyScheme(header="api-key", prefix="")
    assert await KeySource(api_key=key, scheme=plain).headers() == {"api-key": key}


async def test_the_order_is_argument_command_configuration_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place is asked only when those before it have nothing."""
    monkeypatch.setenv(VARIABLE, "from-env")
    places = {"api_key": "from-arg", "api_key_command": "echo from-command", "configured": "from-config"}
    expected = ["from-arg", "from-command", "from-config", "from-env"]
    for first, key in enumerate(expected):
        source = KeySource(variable=VARIABLE, **dict(list(places.items())[first:]))
        assert await sent(source) == f"Bearer {key}"
        assert source.refreshable == (key == "from-command")
        assert key in source.secrets()


async def test_the_scheme_says_header_prefix_and_more() -> None:
    """A key travels in the header, after the prefix and beside the further headers that the scheme names."""
    scheme = KeyScheme(header="x-api-key", prefix="", extra={"x-version": "1"})
    assert await KeySource(api_key=" k1234 ", scheme=scheme).headers() == {"x-api-key": "k1234", "x-version": "1"}
    assert await KeySource(required=False, scheme=scheme).headers() == {"x-version": "1"}


async def test_a_missing_key_says_what_would_supply_one() -> None:
    """Without any key the error names the variable, the setting and the argument."""
    with pytest.raises(CredentialsError, match=rf"{VARIABLE}.*api_key.*api_key_command"):
        await KeySource(variable=VARIABLE).headers()
    with pytest.raises(CredentialsError, match="api_key"):
        await KeySource().headers()


@pytest.mark.parametrize(
    ("url", "trusted", "goes"),
    [
        ("https://api.provider.example/v1", False, True),
        ("https://eu.cloud.example/v1", False, True),
        ("https://evil.example/v1", False, False),
        ("https://api.provider.example.evil.example", False, False),
        ("https://api.provider.example@evil.example", False, False),
        ("https://evil.example/v1", True, True),
    ],
)
async def test_a_key_of_the_environment_goes_only_to_its_providers_hosts(
    monkeypatch: pytest.MonkeyPatch, url: str, trusted: bool, goes: bool
) -> None:
    """F29: the variable's key is withheld from other hosts unless the base URL is trusted, and the error says so."""
    monkeypatch.setenv(VARIABLE, CANARY)
    hosts = ("api.provider.example", ".cloud.example")
    options = {"variable": VARIABLE, "env_hosts": hosts, "base_url": url, "base_url_trusted": trusted}
    if goes:
        assert await sent(KeySource(**options)) == f"Bearer {CANARY}"
        return
    with pytest.raises(CredentialsError, match=rf"{VARIABLE} is set but is not sent to"):
        await KeySource(**options).headers()
    assert await KeySource(**options, required=False).headers() == {}
    assert await sent(KeySource(**options, api_key="mine")) == "Bearer mine"


async def test_a_command_runs_once_for_all_who_wait(tmp_path: Path) -> None:
    """Calls of several adapters that need the same command's key at once share one run, even without a TTL."""
    command, log = counting(tmp_path, before="sleep 0.2")
    sources = [KeySource(api_key_command=command) for _ in range(20)]
    keys = await asyncio.gather(*map(sent, sources))
    assert (set(keys), runs(log)) == ({"Bearer key-1"}, 1)
    assert await sent(sources[0]) == "Bearer key-2"


async def test_the_loop_is_not_blocked_while_the_command_runs() -> None:
    """Other work goes on while a key is being fetched."""
    source = KeySource(api_key_command="sleep 0.2; echo key-1")
    task = asyncio.create_task(sent(source))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert (await task, turns > 3) == ("Bearer key-1", True)


async def test_a_key_is_used_again_until_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The TTL holds across adapters and loops of the process, by the monotonic clock."""
    now = 1000.0
    monkeypatch.setattr(credentials, "monotonic", lambda: now)
    command, log = counting(tmp_path)
    options = {"api_key_command": command, "api_key_ttl_ms": 60_000}
    assert await sent(KeySource(**options)) == "Bearer key-1"
    now = 1059.9
    assert await sent(KeySource(**options)) == "Bearer key-1"
    assert await asyncio.to_thread(lambda: asyncio.run(sent(KeySource(**options)))) == "Bearer key-1"
    now = 1060.1
    assert await sent(KeySource(**options)) == "Bearer key-2"
    assert runs(log) == 2


async def test_a_refresh_runs_the_command_again_unless_another_adapter_has(tmp_path: Path) -> None:
    """After a 401 the command runs though its key has not expired; a newer key of another adapter is taken instead."""
    command, log = counting(tmp_path)
    one, two = (KeySource(api_key_command=command, api_key_ttl_ms=60_000) for _ in range(2))
    assert [await sent(one), await sent(two)] == ["Bearer key-1", "Bearer key-1"]
    assert await sent(one, refresh=True) == "Bearer key-2"
    assert await sent(two, refresh=True) == "Bearer key-2"
    assert runs(log) == 2
    assert await sent(two, refresh=True) == "Bearer key-3"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("echo no luck >&2; exit 3", r"exit status 3.*no luck"),
        (f"echo {CANARY}; exit 1", r"exit status 1"),
        ("no-such-program-anywhere", r"exit status 127"),
        ("true", r"printed nothing"),
        ("echo; echo why >&2", r"printed nothing.*why"),
        ("printf 'one\\ntwo\\n'", r"printed 2 lines"),
        ("printf 'a b'", r"no header can carry"),
        ("echo schlüssel", r"no header can carry"),
    ],
)
async def test_a_command_that_gives_no_key_is_a_credentials_error(command: str, says: str) -> None:
    """The error tells the exit status and what the command said; output of a failed command is no key."""
    with pytest.raises(CredentialsError, match=says) as caught:
        await KeySource(api_key_command=command).headers()
    assert "one\ntwo" not in str(caught.value)


async def test_a_failed_command_is_not_remembered(tmp_path: Path) -> None:
    """A failure is tried afresh by the next request, whatever the TTL."""
    command, log = counting(tmp_path, then="test $(wc -l < {log}) -gt 1 && echo key-9")
    source = KeySource(api_key_command=command, api_key_ttl_ms=60_000)
    with pytest.raises(CredentialsError):
        await source.headers()
    assert (await sent(source), runs(log)) == ("Bearer key-9", 2)


async def test_a_command_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command has a time-out, and nothing that it started lives on."""
    monkeypatch.setattr(credentials, "COMMAND_SECONDS", 0.3)
    late = tmp_path / "late"
    source = KeySource(api_key_command=f"(sleep 1; touch {late}) & wait")
    with pytest.raises(CredentialsError, match=r"within 0\.3 s"):
        await source.headers()
    await asyncio.sleep(1.2)
    assert not late.exists()


async def test_who_asks_while_a_command_is_being_stopped_gets_a_run_of_his_own(tmp_path: Path) -> None:
    """F10: a call that begins just after all who waited were cancelled is not cancelled with them."""
    command, log = counting(tmp_path, before="sleep 0.2")
    first = asyncio.create_task(sent(KeySource(api_key_command=command)))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0)
    later = [sent(KeySource(api_key_command=command)) for _ in range(2)]
    assert await asyncio.gather(*later) == ["Bearer key-1"] * 2
    with pytest.raises(asyncio.CancelledError):
        await first
    assert runs(log) == 1


async def test_cancelling_one_of_those_who_wait_leaves_the_others(tmp_path: Path) -> None:
    """F10: a cancelled call doesn't take the key from others; when all are cancelled the command is stopped."""
    command, log = counting(tmp_path, before="sleep 0.3")
    source = KeySource(api_key_command=command)
    one, two = asyncio.create_task(sent(source)), asyncio.create_task(sent(source))
    await asyncio.sleep(0.05)
    one.cancel()
    assert await two == "Bearer key-1"
    alone = asyncio.create_task(sent(source))
    await asyncio.sleep(0.05)
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    while credentials._runs:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.4)
    assert runs(log) == 1


def told(error: BaseException) -> str:
    """Everything that a crash reporter would print of an error, local variables included."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


async def fate(transport: HttpTransport, url: str, headers: Mapping[str, str]) -> str:
    """What would be printed of the failure of a call."""
    try:
        async with transport.open(url, WireCall(path="/", body=b"{}"), headers=headers):
            return "no failure"
    except BaseException as error:
        return told(error)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": CANARY},
        {"configured": CANARY},
        {"api_key_command": f"printf %s-%s {CANARY[:4]} {CANARY[5:]}", "api_key_ttl_ms": 60_000},
        {"variable": VARIABLE},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("failing", ["refused", "reset", "cancelled", "tls"])
async def test_no_key_in_any_failure(
    options: dict[str, object], failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F29: whatever fails, the key is in no repr, message, traceback with local variables, or log."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(VARIABLE, CANARY)
    source = KeySource(**options)  # type: ignore[arg-type]
    transport = HttpTransport()
    async with LoopbackServer([[RESET] if failing == "reset" else [HOLD]]) as server:
        url = server.url.replace("http:", "https:") if failing == "tls" else server.url
        url = "http://127.0.0.1:1" if failing == "refused" else url
        headers = await source.headers()
        assert CANARY in headers["authorization"]

        task = asyncio.create_task(fate(transport, url, headers))
        if failing in ("cancelled", "tls"):
            await server.until(lambda: server.connections > 0)
            await asyncio.sleep(0.05)
            task.cancel()
        shown = await task
    await transport.aclose()
    assert "headers = " in shown
    for text in (shown, repr(source), repr(headers), repr(vars(source)), caplog.text):
        assert CANARY not in text
    assert list(source.secrets()) == [CANARY]


@pytest.mark.parametrize(
    "command",
    [
        f"echo {CANARY}; echo {CANARY} >&2; exit 1",
        f"echo {CANARY}; echo {CANARY}2",
        f"echo '{CANARY} x'",
    ],
)
async def test_no_key_in_the_failure_of_a_command(command: str, tmp_path: Path) -> None:
    """F29: what a failing command printed on stdout appears nowhere, even where it repeats it on stderr."""
    script = tmp_path / "vend"
    script.write_text(command)
    shown = await fate_of_command(script)
    assert "api_key_command" in shown
    assert CANARY not in shown


async def fate_of_command(script: Path) -> str:
    """What would be printed of the failure of a key command."""
    try:
        return str(await KeySource(api_key_command=f"sh {script}").headers())
    except CredentialsError as error:
        return told(error)


async def test_a_key_of_the_environment_that_is_withheld_is_still_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: a key that is not sent is known all the same, to be taken out of any text."""
    monkeypatch.setenv(VARIABLE, CANARY)
    source = KeySource(variable=VARIABLE, env_hosts=("a.example",), base_url="http://b.example", required=False)
    assert await source.headers() == {}
    assert list(source.secrets()) == [CANARY]
