"""The SDK behind the client: absent, and without retries of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from isthmus.adapters.openai_responses.options import sdk_options
from isthmus.adapters.openai_responses.sdk import Connection, explain, load_sdk, wait_after
from isthmus.errors import CredentialsError, MissingDependencyError, TransientError
from isthmus.models import Config
from isthmus.models.retry import RetryPolicy

POLICY = RetryPolicy(max_retries=2, max_hint=60.0)


async def test_the_sdk_retries_nothing() -> None:
    """Its own retries are off; key, organisation, time-out and headers are the configuration's."""
    config = Config(
        api_key="k", model="m", organization="org", timeout=7.0, max_retries=9, default_headers={"X-Team": "t"}
    )
    connection = Connection(config)
    made = await connection.client()
    assert made.max_retries == 0
    assert (made.api_key, made.organization, made.timeout) == ("k", "org", 7.0)
    assert made.default_headers["X-Team"] == "t"
    assert str(made.base_url) == "https://api.openai.com/v1/"
    assert await connection.client() is made
    await connection.aclose()
    assert await connection.client() is not made
    await connection.aclose()


async def test_an_address_in_the_environment_does_not_take_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes where the configuration says, not where a variable of the SDK points."""
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example/v1")
    connection = Connection(Config(api_key="k", model="m"))
    assert str((await connection.client()).base_url) == "https://api.openai.com/v1/"
    await connection.aclose()


def test_importing_the_package_loads_no_sdk() -> None:
    """The adapter works without it, and importing is cheap."""
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "from isthmus.adapters.openai_responses import OpenAIResponsesAdapter, ResponsesClient\n"
        "OpenAIResponsesAdapter('m', api_key='k').codec\n"
        "assert not any(name.startswith(('httpx', 'pydantic')) for name in sys.modules), 'heavy'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_absent_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said where it is needed."""
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingDependencyError, match=r"isthmus\[openai\]"):
        load_sdk()


def _error(cause: Exception | None) -> Exception:
    error = RuntimeError("x")
    error.classified = cause  # type: ignore[attr-defined]
    return error


def test_which_failures_are_waited_for() -> None:
    """Passing ones, as often as the policy says, with the provider's own wait up to a minute."""
    assert wait_after(_error(TransientError("x", status=500, retry_after=3)), 1, policy=POLICY) == 3
    assert wait_after(_error(TransientError("x", status=429, retry_after=61)), 1, policy=POLICY) is None
    assert wait_after(_error(TransientError("x", retry_after=3)), 3, policy=POLICY) is None
    assert wait_after(_error(CredentialsError("x", status=429, retry_after=1)), 1, policy=POLICY) is None
    assert wait_after(_error(None), 1, policy=POLICY) is None


def test_an_error_that_says_nothing_stays_alone() -> None:
    """A stranger's exception gets no class that it does not have."""
    error = KeyError("x")
    explain(error, "k")
    assert not hasattr(error, "classified")


def test_the_sdks_own_options() -> None:
    """Headers, query, body and time-out are no members of the body."""
    given = {"extra_headers": {}, "extra_query": {}, "extra_body": {}, "timeout": 1, "model": "m"}
    assert sdk_options(given) == {name: given[name] for name in given if name != "model"}
