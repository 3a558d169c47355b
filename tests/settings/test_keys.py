from __future__ import annotations

import pytest

from isthmus.errors import ConfigError
from isthmus.secret import Secret
from isthmus.settings import is_secret, like_parameter, shown, unknown_key


@pytest.mark.parametrize("key", ["api_key", "token", "client_secret", "PASSWORD", "x-api-key", "headers", "auth_token"])
def test_names_of_secrets_are_known(key: str) -> None:
    """Keys named like a key, token, secret or password hold secrets, and so do headers."""
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["max_tokens", "window_tokens", "model", "api_key_command", "api_key_ttl_ms", "keyword"]
)
def test_names_that_only_look_like_secrets_are_not(key: str) -> None:
    """Counts of tokens and the life of a key are no secrets."""
    assert not is_secret(key)


@pytest.mark.parametrize(
    ("value", "default", "read"),
    [
        ("7", 1, 7),
        ("1.5", 0.5, 1.5),
        ("yes", False, True),
        ("off", True, False),
        ("x", "d", "x"),
        ("x", None, "x"),
        (3, 1, 3),
    ],
)
def test_texts_take_the_type_of_the_default(value: object, default: object, read: object) -> None:
    """A variable is a text; a parameter's default says what it is meant to be."""
    assert like_parameter("k", value, default=default, where="w") == read


def test_a_text_that_is_not_of_that_type_is_refused() -> None:
    """The error names the place and the key."""
    with pytest.raises(ConfigError, match=r"ISTHMUS_X: x: must be true or false"):
        like_parameter("x", "maybe", default=True, where="ISTHMUS_X")


def test_unknown_keys_name_the_nearest_or_all() -> None:
    """A near name is suggested; without one the known names are listed."""
    assert "did you mean 'base_url'?" in str(unknown_key("baseurl", ["base_url", "model"], where="f"))
    assert "base_url, model" in str(unknown_key("zzz", ["base_url", "model"], where="f"))


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        ("api_key", Secret("k"), "***"),
        ("api_key_command", "vault read CANARY", "vault ***"),
        ("api_key_command", "KEY=CANARY", "***"),
        ("api_key_command", "helper", "helper"),
        ("base_url", "https://h/v1", "https://h/v1"),
        ("system", "my key is sk-abcdefghijkl", "my key is ***"),
        ("stop", ["a"], ["a"]),
        ("max_tokens", 3, 3),
    ],
)
def test_values_are_shown_without_secrets(key: str, value: object, seen: object) -> None:
    """F29: of a secret nothing is shown, of a command its first word, of an address no password."""
    assert shown(key, value) == seen
