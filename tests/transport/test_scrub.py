"""What is taken out of an exchange before it is kept."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.transport.scrub import (
    scrubbed_bytes,
    scrubbed_headers,
    scrubbed_query,
    scrubbed_text,
    scrubbed_value,
    secrets_in,
)


def test_secrets_are_found_in_addresses_and_headers() -> None:
    """Keys in headers, with and without their scheme, passwords and keys in the query are secrets; the rest is not."""
    headers = {"authorization": "Bearer CANARY1", "x-api-key": "CANARY2", "cookie": "a=CANARY3; b=CANARY4", "x-a": "no"}
    found = secrets_in("https://user:CANARY5@host/p?key=CANARY6&page=2", headers)
    assert {f"CANARY{number}" for number in range(1, 7)} <= found
    assert not {"no", "2", "Bearer", "user"} & found


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("content-type", True),
        ("retry-after", True),
        ("X-RateLimit-Remaining-Tokens", True),
        ("anthropic-ratelimit-tokens-reset", True),
        ("openai-processing-ms", True),
        ("x-request-id", True),
        ("openai-version", True),
        ("authorization", False),
        ("x-api-key", False),
        ("set-cookie", False),
        ("cookie", False),
        ("openai-organization", False),
        ("openai-project", False),
        ("anthropic-organization-id", False),
        ("chatgpt-account-id", False),
        ("x-amzn-something", False),
        ("location", False),
    ],
)
def test_headers_stay_only_if_they_are_known(name: str, stays: bool) -> None:
    """F29: what is not known to be harmless goes, accounts included; its name is told."""
    kept, dropped = scrubbed_headers({name: "v"}, ())
    assert (kept, dropped) == (({name.lower(): "v"}, []) if stays else ({}, [name.lower()]))


def test_the_query_keeps_its_names() -> None:
    """Values under secret names and secret values anywhere are hidden; the rest stays."""
    assert scrubbed_query("key=CANARY&api-version=2&x=CANARY%2B", ("CANARY+",)) == "key=***&api-version=2&x=*******"
    assert scrubbed_query("", ()) == ""


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(deadline=None)
@given(TEXTS, st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=4, max_size=12), TEXTS)
def test_a_secret_is_gone_however_it_is_spelt_and_nothing_moves(before: str, secret: str, after: str) -> None:
    """Of any secret, plain, in JSON or in a URL, nothing is left in any bytes, and their number is the same."""
    for spelt in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
        body = f"{before}{spelt}{after}".encode()
        clean = scrubbed_bytes(body, [secret])
        assert len(clean) == len(body)
        assert spelt.encode() not in clean


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_bytes_without_secrets_are_the_same(data: bytes) -> None:
    """Bytes of any kind, text or not, stay as they are where there is nothing to hide."""
    assert len(scrubbed_bytes(data, ["CANARY"])) == len(data)
    if data.isalpha():
        assert scrubbed_bytes(data, ["CANARY"]) == data


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("key sk-abcdef123456 end", "key *************** end"),
        ("org-AbC12345678 and proj_1234567890abc", "*************** and ******************"),
        ("arn:aws:iam::123456789012:role/x", "arn:aws:iam::************:role/x"),
        ("user-friendliness, team-building, 123456789012", "user-friendliness, team-building, 123456789012"),
    ],
)
def test_keys_and_accounts_are_known_by_their_shape(text: str, clean: str) -> None:
    """What is shaped like a key or an account is hidden where nobody named it as one; words are not."""
    assert scrubbed_text(text, ()) == clean


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        (
            {"api_key": "x", "max_tokens": 5, "key": {"type": "string"}},
            {"api_key": "***", "max_tokens": 5, "key": {"type": "string"}},
        ),
        ([{"a": ["CANARY", 1.5, None, True]}], [{"a": ["******", 1.5, None, True]}]),
        ("CANARY", "******"),
    ],
)
def test_values_keep_their_form(value: Any, clean: Any) -> None:
    """Strings under secret names are hidden, secrets in others too; all else is the same value."""
    assert scrubbed_value(value, ["CANARY"]) == clean
    assert scrubbed_value(clean, ["CANARY"]) == clean
