"""Keys that do not show themselves."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from isthmus.secret import HIDDEN, Address, Secret, names_secret, redact

CANARY = "sk-canary-0123456789abcdef"


def test_a_secret_is_a_string_that_can_be_sent() -> None:
    """F29: it equals and behaves as the string, so that a header can be made of it."""
    secret = Secret(CANARY)
    assert secret == CANARY
    assert f"Bearer {secret}" == "Bearer " + CANARY
    assert secret.encode() == CANARY.encode()


def test_a_secret_hides_in_every_repr() -> None:
    """F29: neither its own repr nor that of what holds it shows it."""
    assert CANARY not in repr(Secret(CANARY))
    assert CANARY not in repr({"key": Secret(CANARY)}) + repr([Secret(CANARY)]) + f"{Secret(CANARY)!r}"


def test_a_secret_does_not_survive_pickling() -> None:
    """F29: a pickle of it, and of what holds it, has only the mask."""
    data = pickle.dumps({"key": Secret(CANARY)})
    assert CANARY.encode() not in data
    assert pickle.loads(data) == {"key": HIDDEN}


def test_redact_takes_out_the_keys_in_use() -> None:
    """F29: each given key of 4 characters or more is replaced wherever it stands; shorter ones would eat the text."""
    text = "key=hunter22 again hunter22, id=abc"
    assert redact(text, ["hunter22", "abc", ""]) == f"key={HIDDEN} again {HIDDEN}, id=abc"


@pytest.mark.parametrize(
    "key",
    [
        CANARY,
        "sk-proj-abcDEF_123456",
        "gsk_abcdefghij0123",
        "xai-ABCDEF123456",
        "hf_abcdefghijkl",
        "ghp_0123456789abcdef",
        "sk-ab12****************cdef",
    ],
)
def test_redact_takes_out_what_is_shaped_like_a_key(key: str) -> None:
    """F29: a key that nobody named goes too, masked forms included, and the rest of the text stays."""
    shown = redact(f"Incorrect API key provided: {key}. See the page.")
    assert key not in shown
    assert shown.startswith("Incorrect API key provided: ")
    assert shown.endswith("See the page.")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_redact_takes_out_bearer_tokens(scheme: str) -> None:
    """F29: what follows "Bearer" is taken out, whatever its case."""
    assert "abc123.def-456" not in redact(f"authorization: {scheme} abc123.def-456==")


def test_redact_leaves_plain_text_alone() -> None:
    """Prose, model names and JSON without keys come back unchanged."""
    for text in ("the task-force met", "model gpt-oss-120b is overloaded", json.dumps({"keyboard": "a key"})):
        assert redact(text) == text


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://host/v1", "https://host/v1"),
        ("https://user:word@host:8/v1", "https://***@host:8/v1"),
        ("https://host/v1?key=word&x=1", "https://host/v1?key=***&x=***"),
        ("https://host/v1?word#word", "https://host/v1?***"),
        ("http://[word", "***"),
    ],
)
def test_an_address_shows_no_more_than_its_place(url: str, seen: str) -> None:
    """F29: repr and pickle of an address hold neither user, password nor query; it is still the address."""
    address = Address(url)
    assert repr(address) == repr(seen)
    assert pickle.loads(pickle.dumps(address)) == seen
    assert copy.deepcopy(address) == copy.copy(address) == url


def test_the_secrets_of_an_address_are_known() -> None:
    """F29: password and key-like parameters are found, as written and as meant."""
    found = Address("https://u:a%2Bb@host/?api_key=word&version=3").secrets()
    assert set(found) == {"a%2Bb", "a+b", "word"}
    assert "word" not in repr(found)
    assert Address("http://[bad").secrets() == []


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("X-Api-Key", True),
        ("authorization", True),
        ("gateway_token", True),
        ("apikeys", True),
        ("window_tokens", False),
    ],
)
def test_names_tell_secrets(name: str, is_one: bool) -> None:
    """A name's last word says whether its value is a secret."""
    assert names_secret(name) is is_one
