"""Takes out of an exchange what must not be kept: keys, cookies and the names of accounts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from isthmus.secret import HIDDEN, Address, key_like, names_secret

# A list of what may stay: servers name accounts, projects and hosts in headers that nobody has heard of.
_KEPT = re.compile(
    r"accept(-\w+)*|content-(type|length|encoding|language)|user-agent|date|server|transfer-encoding|cache-control|"
    r"retry-after(-ms)?|x-should-retry|[\w-]*rate-?limit[\w-]*|[\w-]*request-id|[\w-]*-version|[\w-]*-beta|"
    r"[\w-]*processing-ms",
    re.I,
)
_ACCOUNT = re.compile(r"\b(?:org|proj|user|acct|team|wrkspc)[-_](?=[A-Za-z_-]*\d)[\w-]{8,}|(?<=:)\d{12}(?=:)", re.A)
_SCHEMES = frozenset({"bearer", "basic", "token", "apikey", "negotiate"})
_SHORTEST = 4


def secrets_in(url: str, headers: Mapping[str, str]) -> frozenset[str]:
    """The secrets that a request carries in its address and in the headers that are named like one."""
    found = {str(secret) for secret in Address(url).secrets()}
    for name, value in headers.items():
        if names_secret(name):
            found |= {value, *(word for word in re.split(r"[\s;=]+", value) if word.lower() not in _SCHEMES)}
    return frozenset(secret for secret in found if len(secret) >= _SHORTEST)


def scrubbed_headers(headers: Mapping[str, str], secrets: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The headers that may be kept, and the names of the others; names in lower case."""
    kept, dropped = {}, []
    for name, value in headers.items():
        name = name.lower()
        if _KEPT.fullmatch(name) and not names_secret(name):
            kept[name] = scrubbed_text(value, secrets)
        else:
            dropped.append(name)
    return kept, dropped


def scrubbed_query(query: str, secrets: Iterable[str]) -> str:
    """The query with the values hidden of parameters that are named like secrets, or hold one."""
    if not query:
        return ""
    pairs = parse_qsl(query, keep_blank_values=True)
    hidden = [(name, HIDDEN if names_secret(name) else scrubbed_text(value, secrets)) for name, value in pairs]
    return urlencode(hidden, safe="*")


def scrubbed_text(text: str, secrets: Iterable[str]) -> str:
    """The text with as many asterisks in the place of each secret, key or account, so that its length is the same."""
    return _masked(text, _spellings(secrets))


def scrubbed_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    """The same for bytes; their number, and so the place of every cut in them, stays."""
    # Latin-1 gives each byte one character.
    spelt = [form.encode().decode("latin-1") for form in _spellings(secrets)]
    return _masked(data.decode("latin-1"), spelt).encode("latin-1")


def scrubbed_value(value: Any, secrets: Iterable[str]) -> Any:
    """A JSON value with its strings scrubbed, and the strings hidden whose member is named like a secret."""
    if isinstance(value, str):
        return scrubbed_text(value, secrets)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if isinstance(item, str) and names_secret(name) else scrubbed_value(item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [scrubbed_value(item, secrets) for item in value]
    return value


def _masked(text: str, spelt: Iterable[str]) -> str:
    for form in spelt:
        text = text.replace(form, "*" * len(form))
    return _ACCOUNT.sub(_asterisks, key_like(text, _asterisks))


def _asterisks(found: re.Match[str]) -> str:
    return "*" * len(found[0])


def _spellings(secrets: Iterable[str]) -> list[str]:
    """Each secret as it is, in a URL and in JSON; the longest first, because one may be part of another."""
    spelt = set()
    for secret in secrets:
        spelt |= {
            secret,
            quote(secret, safe=""),
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
        }
    return sorted(spelt, key=len, reverse=True)
