"""Keys that do not show themselves, and text with the keys taken out. Rank 0: standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

HIDDEN = "***"

_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|ghp|hf)[-_][A-Za-z0-9_\-*]{6,}|(?i:bearer)\s+[A-Za-z0-9._~+/\-]{8,}=*"
)

_SECRET_NAME = re.compile(
    r"(?:^|[-_.]|(?<=[a-z0-9])(?=[A-Z]))"
    r"(?i:(api)?keys?|token|secrets?|passwords?|passwd|sig(nature)?|authorization|credentials?|cookies?)$"
)
_MEMBER = re.compile(
    r'(?P<quote>["\'])(?P<name>[\w.-]{1,128})(?P=quote)\s*:\s*(?P<mark>["\'])(?:\\.|(?!(?P=mark)).)*(?P=mark)?'
)


def names_secret(name: str) -> bool:
    """Whether what stands under this name, as a header, a setting or a parameter, is a secret."""
    return _SECRET_NAME.search(name) is not None


class Secret(str):
    """A string whose repr hides it; everything else about it is the string, so that it can be sent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (HIDDEN,)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self


class Address(str):
    """A URL whose repr, and what is pickled of it, shows neither user nor password nor what its query says."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(clean_url(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (clean_url(self),)

    def __copy__(self) -> Address:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Address:
        return self

    def secrets(self) -> list[Secret]:
        """The user's name and password in it, and the values of parameters that are named like secrets."""
        try:
            parts = urlsplit(self)
        except ValueError:
            return []
        found = [value for name, value in parse_qsl(parts.query) if names_secret(name)]
        user, password = parts.username, parts.password
        found += [password] if password else [user] if user else []
        return [Secret(text) for value in found for text in {value, unquote(value)}]


def clean_url(url: str) -> str:
    """The URL without user and password, and with nothing of its query but the names."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    if not parts.netloc and "@" in parts.path:
        # Written without the slashes in front: what a person meant as a user may stand as the scheme.
        parts = parts._replace(scheme="", path=f"{HIDDEN}@{parts.path.rpartition('@')[2]}")
    _, at, host = parts.netloc.rpartition("@")
    names = (pair.partition("=") for pair in parts.query.split("&"))
    query = "&".join(f"{name}={HIDDEN}" if sign else HIDDEN for name, sign, _ in names) if parts.query else ""
    return redact(urlunsplit((parts.scheme, f"{HIDDEN}@{host}" if at else host, parts.path, query, "")))


def shown_command(command: str) -> str:
    """A command as a person may see it: its first word."""
    first, _, rest = command.strip().partition(" ")
    return f"{HIDDEN if '=' in first else redact(first)}{' ' + HIDDEN if rest else ''}"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with each secret, and anything shaped like a key, replaced.

    Args:
        text: what is about to reach an error, a log or a file.
        secrets: the keys in use; those shorter than 4 characters are passed over.
    """
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, HIDDEN)
    return key_like(text, lambda _: HIDDEN)


def redact_members(text: str) -> str:
    """The same for a text that may be JSON: what stands under a name of a secret is replaced too."""
    return redact(_MEMBER.sub(_member, text))


def _member(found: re.Match[str]) -> str:
    if not names_secret(found["name"]):
        return found[0]
    mark = found["mark"]
    return f"{found[0][: found.start('mark') - found.start()]}{mark}{HIDDEN}{mark}"


def hidden(value: Any) -> Any:
    """A plain value, what stands in it under a name of a secret replaced."""
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: HIDDEN if names_secret(str(name)) else hidden(each) for name, each in value.items()}
    return [hidden(each) for each in value] if isinstance(value, list | tuple) else value


def key_like(text: str, replaced: Callable[[re.Match[str]], str]) -> str:
    """The text with anything shaped like a key replaced."""
    return _KEY_LIKE.sub(replaced, text)
